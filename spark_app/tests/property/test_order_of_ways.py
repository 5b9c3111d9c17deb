"""Rows that part, pass partitioners of their own and come to one task keep their order where somebody can see it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill import Agg, Block, Case, CompoundAgg, Constant, Depot, Expr, LoopVars, Module, Ops, Path, PState
from tidemill.values.data import route
from tidemill.values.errors import UserCodeError

USERS = ["ann", "bob", "cy", "dee"]
WAYS = ("set", "add", "times", "log", "drop")


def to_user(partitions: int, user: str) -> int:
    return route(user, partitions)


def is_way(name: str) -> Expr:
    return Expr(Ops.EQUAL, "*way", name)


def changed(function: Any, *args: Any) -> Any:
    return Path.key("*user").null_to_val(0).term(function, *args)


class Accounts(Module):
    """A record [home, user, way, n]: all records of a user come from one partition, `home`."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        mb.pstate("$$ways", PState.map_schema(str, list))
        (
            mb.source("*d").out("*m").explode_microbatch("*m").out("*r")
            .each(Ops.EXPAND, "*r").out("*home", "*user", "*way", "*n")
            .cond(
                Case.create(is_way("set"))
                .hash_partition("*user")
                .local_transform("$$p", Path.key("*user").term_val("*n")),
                Case.create(is_way("add"))
                .each(lambda n: 2 * n, "*n").out("*double")
                .path_partition("$$p", Path.key("*user"))
                .local_transform("$$p", changed(Ops.PLUS, "*double")),
                Case.create(is_way("times"))
                .custom_partition(to_user, "*user")
                .local_transform("$$p", changed(times, "*n")),
                Case.create(is_way("drop")).keep_true(Constant(None)),
                Case.create(True).hash_partition("*user"),
            )
            .compound_agg("$$ways", CompoundAgg.map("*user", Agg.list("*way")))
        )  # fmt: skip


def times(value: int, factor: int) -> int:
    return (value * factor + 1) % 10_007


def expected(records: Sequence[Sequence[Any]]) -> tuple[dict[str, int], dict[str, list[str]]]:
    values: dict[str, int] = {}
    ways: dict[str, list[str]] = {}
    for _, user, way, n in records:
        if way == "set":
            values[user] = n
        elif way == "add":
            values[user] = values.get(user, 0) + 2 * n
        elif way == "times":
            values[user] = times(values.get(user, 0), n)
        if way != "drop":
            ways.setdefault(user, []).append(way)
    return values, ways


records = st.lists(
    st.tuples(st.sampled_from(USERS), st.sampled_from(WAYS), st.integers(0, 9)),
    max_size=40,
).map(lambda rows: [[f"home of {user}", user, way, n] for user, way, n in rows])


class Far(Module):
    """Two partitioners on each way, in a loop: the second ones part behind the first."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$ways", PState.map_schema(str, list))
        (
            mb.source("*d").out("*m").explode_microbatch("*m").out("*r")
            .each(Ops.EXPAND, "*r").out("*home", "*user", "*way", "*n")
            .loop_with_vars(
                LoopVars.var("*i", 0),
                Block.if_true(
                    Expr(Ops.IS_EVEN, "*n"),
                    Block.hash_partition("*home").hash_partition("*user").emit_loop("*way"),
                    Block.each(lambda home: home, "*home").out("*again").hash_partition("*again")
                         .each(Ops.IDENTITY, "*user").out("*same").hash_partition("*same").emit_loop("*way"),
                ),
            ).out("*last")
            .compound_agg("$$ways", CompoundAgg.map("*user", Agg.list("*last")))
        )  # fmt: skip


class Gathered(Module):
    """The rows of both ways are aggregated in their order."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$ways", PState.map_schema(str, list))
        mb.source("*d").out("*m").batch_block(
            Block.explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r").out("*home", "*user", "*way", "*n")
            .if_true(
                Expr(Ops.IS_EVEN, "*n"),
                Block.hash_partition("*user"),
                Block.path_partition("$$ways", Path.key("*user")),
            )
            .group_by("*user", Block.agg(Agg.list("*way")).out("*ways"))
            .local_transform("$$ways", Path.key("*user").term_val("*ways"))
        )  # fmt: skip


@settings(max_examples=60)
@given(records, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]), st.booleans())
def test_rows_of_one_task_keep_their_order_when_their_ways_have_partitioners_of_their_own(
    rows: list[list[Any]], tasks: int, threads: int, as_bytes: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        attempts = Attempts(Folder(folder), Accounts(), tasks, min(tasks, threads), as_bytes=as_bytes)
        attempts.feed("*d", rows)
        attempts.attempt()
        found = {name: dict(attempts.everywhere(name, Path.all())) for name in ("$$p", "$$ways")}

    assert (found["$$p"], found["$$ways"]) == expected(rows)


@pytest.mark.parametrize("module", [Far, Gathered])
@settings(max_examples=25)
@given(rows=records, tasks=st.sampled_from([1, 2, 4, 8]), threads=st.sampled_from([1, 2]), as_bytes=st.booleans())
def test_the_order_holds_when_ways_part_again_or_are_gathered(
    module: type[Module], rows: list[list[Any]], tasks: int, threads: int, as_bytes: bool
) -> None:
    rows = [row for row in rows if row[2] != "drop"]
    with tempfile.TemporaryDirectory() as folder:
        attempts = Attempts(Folder(folder), module(), tasks, min(tasks, threads), as_bytes=as_bytes)
        attempts.feed("*d", rows)
        attempts.attempt()

        assert dict(attempts.everywhere("$$ways", Path.all())) == expected(rows)[1]


class Apart(Module):
    """Two ways that write different PStates."""

    def __init__(self, is_together: bool) -> None:
        self.is_together = is_together

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$a", PState.map_schema(int, int))
        mb.pstate("$$b", PState.map_schema(int, int))
        other = "$$a" if self.is_together else "$$b"
        (
            mb.source("*d").out("*m").explode_microbatch("*m").out("*n")
            .if_true(
                Expr(Ops.IS_EVEN, "*n"),
                Block.hash_partition("*n").local_transform("$$a", Path.key("*n").term_val(1)),
                Block.direct_partition("*n").local_transform(other, Path.key("*n").term_val(2)),
            )
        )  # fmt: skip


@pytest.mark.parametrize("is_together", [True, False])
def test_ways_share_a_partitioner_only_when_their_order_shows(is_together: bool, tmp_path: Folder) -> None:
    attempts = Attempts(tmp_path, Apart(is_together), 4)

    assert any(getattr(operator, "ways", ()) for operator in attempts.program.operators) == is_together


def test_the_partitioner_is_named_when_a_row_of_one_way_has_nowhere_to_go(tmp_path: Folder) -> None:
    attempts = Attempts(tmp_path, Apart(True), 4)
    attempts.feed("*d", [2, 1, 77])

    with pytest.raises(UserCodeError, match="77") as told:
        attempts.attempt()
    assert "direct_partition" in str(told.value)
