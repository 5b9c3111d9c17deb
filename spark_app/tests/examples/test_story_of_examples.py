"""What the stories of a cluster (e2e/test_examples_killed.py) send and compare, without the cluster."""

from __future__ import annotations

from typing import Any

from e2e.harness.examples import Load, append, faults_of_bank, faults_of_graph
from examples.bank_transfer.load import Transfers
from examples.bank_transfer.module import BankTransfer
from examples.social_graph.load import Posts, SmallPages
from running import Running
from waiting import eventually

from tidemill import Path

RECORDS = 40


class Direct:
    """The gateway of the stories, but in this process."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def append(self, module: str, depot: str, records: list[Any], idempotency_key: str) -> None:
        self._running.append(depot, *records)

    def select(self, module: str, pstate: str, path: Path) -> list[Any]:
        return self._running.select(pstate, path)

    def select_one(self, module: str, pstate: str, path: Path) -> Any:
        return self._running.select(pstate, path)[0]


def sent(gateway: Any, module: str, depot: str, batch: Any) -> int:
    """Records that were appended under load."""
    with Load(gateway, module, depot, batch) as load:
        eventually(lambda: load.records >= RECORDS)
    return load.records


def test_the_bank_is_without_fault_until_a_transfer_is_missing() -> None:
    with Running(BankTransfer()) as bank:
        gateway: Any = Direct(bank)
        transfers = Transfers()
        assert append(gateway, "BankTransfer", "*deposits", transfers.first(), "first") == len(transfers.first())
        bank.settle()
        sent(gateway, "BankTransfer", "*transfers", lambda: transfers.more(10))
        bank.settle()
        assert faults_of_bank(gateway, transfers) == []

        transfers.more(1)
        assert "has the outcome None" in faults_of_bank(gateway, transfers)[0]
        transfers.made.pop()
        bank.send("*deposits", {"id": "too much", "account": "a0", "amount": 1})
        assert "$$funds is not what the outcomes make of the transfers" in faults_of_bank(gateway, transfers)


def test_the_graph_is_without_fault_until_a_post_is_missing() -> None:
    with Running(SmallPages()) as graph:
        gateway: Any = Direct(graph)
        posts = Posts()
        count = append(gateway, "SmallPages", "*follows", posts.first(), "first")
        graph.settle()
        count += sent(gateway, "SmallPages", "*posts", lambda: posts.more(3)) + posts.pages_left()
        graph.cluster.wait_for_microbatch_processed_count("SmallPages", "social", count)
        assert posts.pages_left() > 0
        assert faults_of_graph(gateway, posts) == []

        posts.more(1)
        assert faults_of_graph(gateway, posts) != []
