"""examples/bank_transfer: money is never made, lost or overdrawn, however often a transfer is sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from examples.bank_transfer.module import BankTransfer
from running import Running

from tidemill import RecordRefused

ACCOUNTS = ["ann", "bob", "cid", "dot"]


def deposit(number: str, account: str, amount: int) -> dict[str, Any]:
    return {"id": number, "account": account, "amount": amount}


def transfer(number: str, giver: str, taker: str, amount: int) -> dict[str, Any]:
    return {"id": number, "from": giver, "to": taker, "amount": amount}


@pytest.fixture
def bank() -> Iterator[Running]:
    with Running(BankTransfer()) as running:
        yield running


def test_both_sides_agree_when_money_is_transferred(engine: str) -> None:
    with Running(BankTransfer(), engine) as bank:
        bank.send("*deposits", deposit("d1", "ann", 100))
        bank.send("*transfers", transfer("t1", "ann", "bob", 70), transfer("t2", "ann", "bob", 40))
        bank.send("*transfers", transfer("t3", "ann", "cid", 30))

        assert [bank.get("$$funds", account) for account in ACCOUNTS] == [0, 70, 30, None]
        assert bank.entries("$$sent", "ann") == {
            "t1": {"to": "bob", "amount": 70, "accepted": True},
            "t2": {"to": "bob", "amount": 40, "accepted": False},
            "t3": {"to": "cid", "amount": 30, "accepted": True},
        }
        assert bank.entries("$$received", "bob") == {"t1": {"from": "ann", "amount": 70}}
        assert bank.ask("total") == 100


def test_a_transfer_counts_once_when_it_is_sent_again_and_again(bank: Running) -> None:
    bank.send("*deposits", deposit("d1", "ann", 100), deposit("d1", "ann", 100))
    bank.send("*transfers", *[transfer("t1", "ann", "bob", 60)] * 3)
    bank.send("*transfers", transfer("t1", "ann", "bob", 10))

    assert (bank.get("$$funds", "ann"), bank.get("$$funds", "bob")) == (40, 60)
    assert bank.get("$$sent", "ann", "t1") == {"to": "bob", "amount": 60, "accepted": True}


def test_a_refused_transfer_stays_refused_when_the_money_comes_later(bank: Running) -> None:
    bank.send("*transfers", transfer("t1", "ann", "bob", 60))
    bank.send("*deposits", deposit("d1", "ann", 100))
    bank.send("*transfers", transfer("t1", "ann", "bob", 60))

    assert (bank.get("$$funds", "ann"), bank.get("$$funds", "bob")) == (100, None)
    assert bank.get("$$sent", "ann", "t1", "accepted") is False


def test_nothing_happens_when_a_transfer_makes_no_sense(bank: Running) -> None:
    bank.send("*deposits", deposit("d1", "ann", 100))
    no_id, no_receiver = {"from": "ann", "to": "bob", "amount": 5}, {"id": "t2", "from": "ann", "amount": 5}
    bank.send("*transfers", no_id, no_receiver, transfer("t3", "ann", "ann", 5))
    bank.send("*transfers", *[transfer("t1", "ann", "bob", amount) for amount in (-5, 0, 2**62)])

    assert bank.get("$$funds", "ann") == 100
    assert list(bank.entries("$$sent", "ann")) == ["t3"]
    with pytest.raises(RecordRefused, match="amount"):
        bank.append("*transfers", {"id": "t4", "from": "ann", "to": "bob", "amount": "all of it"})


@pytest.mark.parametrize("tasks", [1, 2, 8])
def test_no_money_is_made_or_lost_when_many_transfer_at_once(tasks: int) -> None:
    drawn = random.Random(tasks)
    with Running(BankTransfer(), tasks=tasks) as bank:
        bank.append("*deposits", *[deposit("first", account, 100) for account in ACCOUNTS])
        made = [(f"t{n}", *drawn.sample(ACCOUNTS, 2), drawn.randrange(1, 60)) for n in range(200)]
        for end in range(50, 201, 50):
            again = drawn.sample(made[:end], 20)
            bank.append("*transfers", *[transfer(*each) for each in made[end - 50 : end] + again])
        bank.settle()

        funds = dict.fromkeys(ACCOUNTS, 100)
        for number, giver, taker, amount in made:
            sent = bank.get("$$sent", giver, number)
            assert (sent["to"], sent["amount"]) == (taker, amount)
            if sent["accepted"]:
                funds[giver] -= amount
                funds[taker] += amount
        assert {account: bank.get("$$funds", account) for account in ACCOUNTS} == funds
        assert min(funds.values()) >= 0
        assert bank.ask("total") == 400
