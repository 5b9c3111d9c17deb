"""Modules that the tests of this folder run; in a file of their own, as a user's are, so that workers import them."""

from __future__ import annotations

import os
import threading
from pathlib import Path as Folder
from typing import Any

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    LoopVars,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
    SubBatch,
)

PLACEMENT = "topology.microbatch.placement"
TIMEOUT = "topology.microbatch.phase.timeout.seconds"
BEGINNING = MicrobatchSourceOptions.start_from_beginning()


class Placed(Module):
    """A module whose topology "mb" runs where `placement` says; `options` are more dynamic options."""

    def __init__(self, placement: str = "auto", **options: Any) -> None:
        self.placement = placement
        self.options = options

    def place(self, setup: Any) -> None:
        setup.set_launch_topology_dynamic_option("mb", PLACEMENT, self.placement)
        for name, value in self.options.items():
            setup.set_launch_topology_dynamic_option("mb", name, value)


class Counts(Placed):
    """Count and sum by key behind a partitioner; `act` sees each key first."""

    act: Any = None

    def define(self, setup: Any, topologies: Any) -> None:
        self.place(setup)
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, PState.fixed_keys_schema("count", int, "sum", int)))
        rows = mb.source("*words", BEGINNING).out("*microbatch").explode_microbatch("*microbatch").out("*word")
        rows = rows.each(Ops.EXPAND, "*word").out("*k", "*v")
        if self.act is not None:
            rows = rows.each(self.act, "*k").out("*k")
        rows.hash_partition("*k").compound_agg(
            "$$counts", CompoundAgg.map("*k", CompoundAgg.map("count", Agg.count(), "sum", Agg.sum("*v")))
        )


class Kills(Counts):
    """The first time that it sees the key "kill", its worker dies as by kill -9."""

    def __init__(self, placement: str, folder: Folder, **options: Any) -> None:
        super().__init__(placement, **options)
        self.act = KillOnce(folder)


class Hangs(Counts):
    """The first time that it sees the key "hang", it never returns."""

    def __init__(self, placement: str, folder: Folder, **options: Any) -> None:
        super().__init__(placement, **options)
        self.act = HangOnce(folder)


class Shares(Placed):
    """Each word with the sum of its key, which a sub-batch makes of the same microbatch; `is_repeated` does it in a
    loop, so that only the data say how many supersteps there are.
    """

    is_repeated = False

    def define(self, setup: Any, topologies: Any) -> None:
        self.place(setup)
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$shares", PState.map_schema(str, PState.map_schema(int, int)))
        words = Block.explode_microbatch("*microbatch").out("*word").each(Ops.EXPAND, "*word").out("*k", "*v")
        sums = SubBatch(words.group_by("*k", Block.agg(Agg.sum("*v")).out("*sum")), "*k", "*sum")
        rows = words.sub_batch(sums).out("*k", "*sum").hash_partition("*k")
        rows = rows.compound_agg("$$shares", CompoundAgg.map("*k", CompoundAgg.map("*v", Agg.max("*sum"))))
        source = mb.source("*words", BEGINNING).out("*microbatch")
        if not self.is_repeated:
            source.batch_block(rows)
            return
        again = Block.batch_block(rows).each(Ops.INC, "*i").out("*j")
        again = again.if_true(Expr(Ops.LESS_THAN, "*j", 2), Block.continue_loop("*j"), Block.emit_loop("*j"))
        source.loop_with_vars(LoopVars.var("*i", 0), again).out("*end")


class RepeatedShares(Shares):
    """The same in a loop."""

    is_repeated = True


class Once:
    """True once for all processes that share the folder."""

    def __init__(self, folder: Folder) -> None:
        self.marker = folder / "done"

    def is_first(self) -> bool:
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        (self.marker.parent / "process").write_text(str(os.getpid()))
        return True


class KillOnce(Once):
    def __call__(self, key: str) -> str:
        if key == "kill" and self.is_first():
            os.kill(os.getpid(), 9)
        return key


class HangOnce(Once):
    def __call__(self, key: str) -> str:
        if key == "hang" and self.is_first():
            threading.Event().wait()
        return key


class Fails(Counts):
    """Raises for the key "bad" as long as the folder holds no file "fixed"."""

    def __init__(self, placement: str, folder: Folder, **options: Any) -> None:
        super().__init__(placement, **options)
        self.act = RaiseUntil(folder / "fixed")


class RaiseUntil:
    def __init__(self, fixed: Folder) -> None:
        self.fixed = fixed

    def __call__(self, key: str) -> str:
        if key == "bad" and not self.fixed.exists():
            raise ValueError("this key is bad")
        return key


class Walks(Placed):
    """A loop over a partitioner: each number walks down to one, and counts itself where it belongs on the way."""

    def define(self, setup: Any, topologies: Any) -> None:
        self.place(setup)
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$visits", PState.map_schema(int, int))
        again = Block.each(halve, "*n").out("*next").continue_loop("*next")
        body = (Block.hash_partition("*n").compound_agg("$$visits", CompoundAgg.map("*n", Agg.count()))
                     .if_true(Expr(Ops.GREATER_THAN, "*n", 1), again, Block.emit_loop("*n")))  # fmt: skip
        (mb.source("*words", BEGINNING).out("*microbatch").explode_microbatch("*microbatch").out("*word")
           .each(Ops.EXPAND, "*word").out("*k", "*v")
           .loop_with_vars(LoopVars.var("*n", "*v"), body).out("*end"))  # fmt: skip


def halve(number: int) -> int:
    return number // 2 if number % 2 == 0 else number - 1


class Twins(Placed):
    """Two topologies on one depot."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        for name in ("mb", "twin"):
            mb = topologies.microbatch(name)
            mb.pstate(f"$${name}", PState.map_schema(str, int))
            setup.set_launch_topology_dynamic_option(name, PLACEMENT, self.placement)
            rows = mb.source("*words", BEGINNING).out("*microbatch").explode_microbatch("*microbatch").out("*word")
            rows = rows.each(Ops.EXPAND, "*word").out("*k", "*v").hash_partition("*k")
            rows.compound_agg(f"$${name}", CompoundAgg.map("*k", Agg.sum("*v")))


class Relays(Placed):
    """Appends each word to a depot and again behind a partitioner; a looping program where `is_looping`."""

    def __init__(self, placement: str, is_looping: bool = False) -> None:
        super().__init__(placement)
        self.is_looping = is_looping

    def define(self, setup: Any, topologies: Any) -> None:
        self.place(setup)
        setup.declare_depot("*words", Depot.random())
        setup.declare_depot("*first", Depot.disallow())
        setup.declare_depot("*second", Depot.disallow())
        mb = topologies.microbatch("mb")
        rows = mb.source("*words", BEGINNING).out("*microbatch").explode_microbatch("*microbatch").out("*word")
        rows = rows.depot_partition_append("*first", "*word").each(Ops.EXPAND, "*word").out("*k", "*v")
        again = Block.hash_partition("*i").depot_partition_append("*second", Expr(Ops.TUPLE, "*k", "*i"))
        if not self.is_looping:
            rows.each(Ops.IDENTITY, "*v").out("*i").macro(again)
            return
        around = again.if_true(
            Expr(Ops.GREATER_THAN, "*i", 250), Block.continue_loop(Expr(Ops.MINUS, "*i", 250)), Block.emit_loop()
        )
        rows.loop_with_vars(LoopVars.var("*i", "*v"), around)


class Lender(Module):
    """Sums words, for another module to read."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*lent", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*back", Depot.disallow())
        mb = topologies.microbatch("mb")
        mb.pstate("$$lent", PState.map_schema(str, int))
        rows = mb.source("*lent", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
        rows = rows.each(Ops.EXPAND, "*r").out("*k", "*v")
        rows.compound_agg("$$lent", CompoundAgg.map("*k", Agg.sum("*v")))
        lent = topologies.query("lent", "*k").out("*found").select("$$lent", Path.key("*k")).out("*v")
        lent.origin_partition().agg(Agg.first("*v")).out("*found")


class Borrower(Placed):
    """Reads the depot and the PState of the lender, and appends what it found to another depot of it, once, or behind
    partitioners in a loop where `is_looping`.
    """

    def __init__(self, placement: str, is_looping: bool = False) -> None:
        super().__init__(placement)
        self.is_looping = is_looping

    def define(self, setup: Any, topologies: Any) -> None:
        self.place(setup)
        setup.cluster_depot("*theirs", "Lender", "*lent")
        setup.cluster_depot("*back", "Lender", "*back")
        setup.cluster_pstate("$$theirs", "Lender", "$$lent")
        setup.cluster_query("*lent", Lender, "lent")
        setup.declare_depot("*asked", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        rows = mb.source("*theirs", BEGINNING).out("*b").explode_microbatch("*b").out("*r").each(Ops.FIRST, "*r")
        rows.out("*k").hash_partition("*k").compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))
        asked = mb.source("*asked", BEGINNING).out("*b").explode_microbatch("*b").out("*k")
        if self.is_looping:
            leave = Expr(Ops.GREATER_THAN, "*i", 1)
            again = Block.hash_partition("*i").continue_loop(Expr(Ops.INC, "*i"))
            asked = asked.loop_with_vars(LoopVars.var("*i", 0), Block.if_true(leave, Block.emit_loop(), again))
        asked = asked.invoke_query("*lent", "*k").out("*w").select("$$theirs", Path.key("*k")).out("*v")
        asked.depot_partition_append("*back", Expr(Ops.TUPLE, "*k", "*v", "*w"))
