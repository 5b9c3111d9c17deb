"""Two people race for the same money, and everything is sent twice: `python examples/bank_transfer/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.bank_transfer.module import BankTransfer
from tidemill import InProcessCluster, LaunchConfig, Path


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(BankTransfer(), LaunchConfig(4, 2))
        deposits = cluster.cluster_depot("BankTransfer", "*deposits")
        transfers = cluster.cluster_depot("BankTransfer", "*transfers")
        for _ in range(2):
            deposits.append({"id": "d1", "account": "ann", "amount": 100_00})
        cluster.wait_until_processed("BankTransfer")
        for _ in range(2):
            transfers.append({"id": "t1", "from": "ann", "to": "bob", "amount": 70_00})
            transfers.append({"id": "t2", "from": "ann", "to": "cid", "amount": 40_00})
        cluster.wait_until_processed("BankTransfer")

        funds = cluster.cluster_pstate("BankTransfer", "$$funds")
        sent = cluster.cluster_pstate("BankTransfer", "$$sent")
        for account in ("ann", "bob", "cid"):
            print(f"{account} has {funds.select_one(Path.key(account)) or 0} cents")
        for number, transfer in sent.select(Path.key("ann").all()):
            print(f"{number}: {transfer['amount']} to {transfer['to']}, accepted: {transfer['accepted']}")
        print("all accounts together:", cluster.cluster_query("BankTransfer", "total").invoke())


if __name__ == "__main__":
    main()
