"""examples/auction: a listing ends at its time, with exactly one winner, and everybody is told once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from examples.auction.module import Auction, wall_clock
from running import Running
from waiting import eventually

from tidemill import Path


def listing(number: str, ends: int, seller: str = "sue") -> dict[str, Any]:
    return {"id": number, "seller": seller, "item": f"item {number}", "ends": ends}


def bid(number: str, bidder: str, cents: int) -> dict[str, Any]:
    return {"listing": number, "bidder": bidder, "cents": cents}


def told(auction: Running, user: str) -> list[str]:
    return auction.select("$$notifications", Path.key(user).all())


def test_the_highest_bid_wins_when_the_time_has_come(engine: str) -> None:
    with Running(Auction("depot"), engine) as auction:
        auction.send("*listings", listing("a", 1_000), listing("b", 2_000), listing("c", 1_000), listing("a", 9_000))
        auction.send("*bids", bid("a", "ann", 10), bid("a", "bob", 20), bid("a", "ann", 15), bid("b", "ann", 5))
        auction.send("*bids", bid("a", "ann", 30), bid("a", "ann", 30), bid("a", "sue", 99))
        auction.send("*clock", 999)
        assert auction.get("$$listings", "a", "open") is True
        auction.send("*clock", 1_000, 1_001)
        auction.send("*bids", bid("a", "bob", 500))

        assert auction.get("$$listings", "a") == {
            "seller": "sue", "item": "item a", "ends": 1_000, "open": False, "cents": 30, "leader": "ann",
        }  # fmt: skip
        assert auction.get("$$listings", "b", "open") is True
        assert told(auction, "ann") == [
            "you are outbid for item a with 20",
            "your bid of 15 for a is refused",
            "you won item a for 30",
        ]
        assert told(auction, "bob") == [
            "you are outbid for item a with 30",
            "item a went to somebody else",
            "your bid of 500 for a is closed",
        ]
        assert told(auction, "sue")[0] == "your bid of 99 for a is refused"
        assert sorted(told(auction, "sue")[1:]) == ["item a is sold to ann for 30", "nobody bid for item c"]


@pytest.mark.parametrize("tasks", [1, 4])
def test_each_listing_has_one_winner_when_bids_and_ticks_come_at_random(tasks: int) -> None:
    drawn = random.Random(tasks)
    bidders = [f"u{n}" for n in range(6)]
    ends = {f"l{n}": drawn.randrange(100) for n in range(20)}
    with Running(Auction("depot"), tasks=tasks) as auction:
        auction.send("*listings", *[listing(number, at, f"seller of {number}") for number, at in ends.items()])
        for now in range(0, 101, 20):
            auction.append(
                "*bids",
                *[bid(drawn.choice(list(ends)), drawn.choice(bidders), drawn.randrange(1, 1_000)) for _ in range(40)],
            )
            auction.append("*clock", now, now)
        auction.settle()

        for number in ends:
            ended = auction.get("$$listings", number)
            bids = auction.entries("$$bids", number)
            winners = [
                user for user in bidders for text in told(auction, user) if text.startswith(f"you won item {number} ")
            ]
            losers = [
                user
                for user in bidders
                for text in told(auction, user)
                if text == f"item {number} went to somebody else"
            ]
            assert ended["open"] is False
            assert len(told(auction, f"seller of {number}")) == 1
            if bids:
                assert winners == [ended["leader"]]
                assert ended["cents"] == max(bids.values()) == bids[ended["leader"]]
                assert sorted(losers) == sorted(bids.keys() - {ended["leader"]})
            else:
                assert (winners, losers, ended.get("leader")) == ([], [], None)


def test_a_listing_ends_by_itself_when_the_clock_is_that_of_the_wall() -> None:
    with Running(Auction()) as auction:
        auction.send("*listings", listing("a", wall_clock() + 60_000), listing("b", wall_clock() - 1))
        eventually(lambda: told(auction, "sue"))

        assert told(auction, "sue") == ["nobody bid for item b"]
        assert auction.get("$$listings", "a", "open") is True
