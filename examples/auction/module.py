"""Auctions that end at a time: the highest bid wins, once, and everybody is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tidemill import (
    Block,
    Case,
    Depot,
    Expr,
    MicrobatchSourceOptions,
    MicrobatchTopology,
    Module,
    Ops,
    Path,
    PState,
    Setup,
    Topologies,
    operation,
)

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
LISTING = PState.fixed_keys_schema("id", str, "seller", str, "item", str, "ends", int)
BID = PState.fixed_keys_schema("listing", str, "bidder", str, "cents", int)
TICK_MILLIS = 200


def fields(block: Block, record: str, *names: str) -> Block:
    """Bind each field of a record to a variable of its name."""
    for name in names:
        block = block.each(Ops.GET, record, name).out(f"*{name}")
    return block


def tell(user: str, *words: Any) -> Block:
    """Add a text to the notifications of a user, wherever the row is."""
    return (
        Block.each(Ops.TO_STRING, *words).out("*words")
        .hash_partition(user)
        .local_transform("$$notifications", Path.key(user).after_elem().term_val("*words"))
    )  # fmt: skip


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1_000)


def by_task(partitions: int, task: int) -> int:
    return task % partitions


def verdict(listing: dict[str, Any] | None, bidder: str, cents: int) -> str:
    """What becomes of a bid."""
    if listing is None or not listing["open"]:
        return "closed"
    if listing.get("leader") == bidder and listing["cents"] == cents:
        return "repeated"
    return "leads" if bidder != listing["seller"] and cents > listing["cents"] else "refused"


@operation
def outcomes(listing: dict[str, Any], bidders: list[str]) -> Iterator[tuple[str, str]]:
    """(user, text) for everybody who has to do with a listing that has ended."""
    item, leader = listing["item"], listing.get("leader")
    if leader is None:
        yield listing["seller"], f"nobody bid for {item}"
        return
    yield listing["seller"], f"{item} is sold to {leader} for {listing['cents']}"
    for bidder in bidders:
        yield bidder, f"you won {item} for {listing['cents']}" if bidder == leader else f"{item} went to somebody else"


class Auction(Module):
    """Listings end at the first tick at or after `ends` (milliseconds since 1970).

    With `clock="depot"`, for tests, time is what is appended to the depot `*clock`.
    """

    def __init__(self, clock: str = "wall") -> None:
        self.clock = clock

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*listings", Depot.hash_by("id")).schema(LISTING)
        setup.declare_depot("*bids", Depot.hash_by("listing")).schema(BID)
        if self.clock == "wall":
            setup.declare_tick_depot("*clock", TICK_MILLIS)
        else:
            setup.declare_depot("*clock", Depot.random()).global_().schema(int)
        mb = topologies.microbatch("auction")
        stored = PState.fixed_keys_schema(
            "seller", str, "item", str, "ends", int, "open", bool, "cents", int, "leader", str
        )
        mb.pstate("$$listings", PState.map_schema(str, stored))
        mb.pstate("$$bids", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        by_end = PState.map_schema(int, PState.set_schema(str)).subindexed()
        mb.pstate("$$ends", PState.map_schema(int, by_end)).key_partitioner(by_task).make_private()
        mb.pstate("$$notifications", PState.map_schema(str, PState.list_schema(str).subindexed()))
        self._define_listings(mb)
        self._define_bids(mb)
        self._define_ends(mb)

    def _define_listings(self, mb: MicrobatchTopology) -> None:
        """A listing is on the task of its id, and so is the note of when it ends."""

        def opened(seller: str, item: str, ends: int) -> dict[str, Any]:
            return {"seller": seller, "item": item, "ends": ends, "open": True, "cents": 0}

        (mb.source("*listings", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*new")
           .macro(fields, "*new", "id", "seller", "item", "ends")
           .keep_true(Expr(Ops.AND, "*id", "*seller", "*item", "*ends"))
           .local_select("$$listings", Path.key("*id")).out("*known")
           .keep_true(Expr(Ops.IS_NULL, "*known"))
           .local_transform("$$listings", Path.key("*id").term_val(Expr(opened, "*seller", "*item", "*ends")))
           .each(Ops.CURRENT_TASK_ID).out("*task")
           .local_transform("$$ends", Path.key("*task", "*ends").void_set_elem().term_val("*id")))  # fmt: skip

    def _define_bids(self, mb: MicrobatchTopology) -> None:
        leads = (
            Case.create(Expr(Ops.EQUAL, "*verdict", "leads"))
            .local_transform("$$bids", Path.key("*listing", "*bidder").term_val("*cents"))
            .local_transform("$$listings", Path.key("*listing", "cents").term_val("*cents"))
            .local_transform("$$listings", Path.key("*listing", "leader").term_val("*bidder"))
            .each(Ops.GET, "*found", "leader").out("*before")
            .keep_true(Expr(Ops.AND, "*before", Expr(Ops.NOT_EQUAL, "*before", "*bidder")))
            .macro(tell("*before", "you are outbid for ", Expr(Ops.GET, "*found", "item"), " with ", "*cents"))
        )  # fmt: skip
        refused = Case.create(Expr(Ops.NOT_EQUAL, "*verdict", "repeated")).macro(
            tell("*bidder", "your bid of ", "*cents", " for ", "*listing", " is ", "*verdict")
        )
        (mb.source("*bids", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*bid")
           .macro(fields, "*bid", "listing", "bidder", "cents")
           .keep_true(Expr(Ops.AND, "*listing", "*bidder", "*cents"))
           .local_select("$$listings", Path.key("*listing")).out("*found")
           .each(verdict, "*found", "*bidder", "*cents").out("*verdict")
           .cond(leads, refused))  # fmt: skip

    def _define_ends(self, mb: MicrobatchTopology) -> None:
        """At a tick each task closes those of its listings that have ended."""
        if self.clock == "wall":
            now = mb.source("*clock").out("*microbatch").explode_microbatch("*microbatch").each(wall_clock).out("*now")
        else:
            now = mb.source("*clock", BEGINNING).out("*microbatch").explode_microbatch("*microbatch").out("*now")
        due = Path.key("*task").sorted_map_range_to("*now", include_end=True)
        (now
            .all_partition()
            .each(Ops.CURRENT_TASK_ID).out("*task")
            .local_select("$$ends", due.map_vals().all()).out("*id")
            .local_transform("$$listings", Path.key("*id", "open").term_val(False))
            .local_select("$$listings", Path.key("*id")).out("*ended")
            .local_transform("$$ends", Path.key("*task", Expr(Ops.GET, "*ended", "ends")).term_void())
            .local_select("$$bids", Path.key("*id").subselect(Path.map_keys())).out("*bidders")
            .each(outcomes, "*ended", "*bidders").out("*user", "*text")
            .macro(tell("*user", "*text")))  # fmt: skip
