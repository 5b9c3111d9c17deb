"""Values that travel between threads: any integer; what is no data is refused alike in one process and as bytes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, Block, CombinerAgg, Depot, Module, Ops, Path, PState
from tidemill.values.errors import BadInput, UserCodeError
from tidemill.values.message_pack import INT_BYTES_MAX, pack, pack_message, unpack, unpack_message

Row = tuple[str, Any]
WAYS = {"in process": False, "bytes": True}


class Sum(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return current + value

    def zero_val(self) -> Any:
        return 0


def run(define: Callable[[Any, Any], None], rows: Sequence[Row], as_bytes: bool, threads: int = 2) -> Any:
    """What stands under "a" after one attempt."""

    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(str, object))
            define(mb.source("*d").out("*mb"), Block.explode_microbatch("*mb").out("*r"))

    with tempfile.TemporaryDirectory() as folder:
        attempts = Attempts(Folder(folder), Made(), 4, threads, as_bytes=as_bytes)
        attempts.options["topology.microbatch.placement"] = "spread"
        attempts.feed("*d", [list(row) for row in rows])
        attempts.attempt()
        return attempts.at_key("$$p", "a", Path.key("a"))


def taken_apart(rows: Any) -> Any:
    return rows.each(Ops.EXPAND, "*r").out("*k", "*v")


def written(rows: Any, value: str) -> Any:
    return rows.local_transform("$$p", Path.key("*k").term_val(value))


LARGE = [("a", 2**62), ("a", -(2**62))] * 200
"""Dealt to two threads so that each one's part is far beyond 64 bits, and all of it is 0."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("agg", [Agg.sum("*v"), Agg.combiner(Sum(), "*v")], ids=["sum", "custom"])
def test_operands_travel_when_a_part_of_a_sum_leaves_64_bits(agg: Any, way: str) -> None:
    def define(source: Any, rows: Any) -> None:
        block = taken_apart(rows).group_by("*k", Block.agg(agg).out("*a"))
        source.batch_block(written(block, "*a"))

    assert run(define, LARGE, WAYS[way]) == [0]


def quadrupled(value: Any) -> Any:
    return {"of": [value * 4], "set": {value * 4}, value * 4: value}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [lambda value: value * 4, quadrupled], ids=["plain", "nested"])
def test_an_integer_travels_when_it_needs_more_than_64_bits(function: Any, way: str) -> None:
    def define(source: Any, rows: Any) -> None:
        rows = taken_apart(rows).each(function, "*v").out("*w").hash_partition("*k")
        source.macro(written(rows.each(repr, "*w").out("*t"), "*t"))

    assert run(define, [("a", 2**62)], WAYS[way]) == [repr(function(2**62))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_an_integer_beyond_64_bits_is_refused_with_step_and_record_when_it_is_stored(value: int, way: str) -> None:
    def define(source: Any, rows: Any) -> None:
        rows = taken_apart(rows).each(lambda v: value, "*v").out("*w").hash_partition("*k")
        source.macro(written(rows, "*w"))

    with pytest.raises(UserCodeError, match=rf"local_transform\(\$\$p\) at .*SchemaMismatch.*record: .*{value}"):
        run(define, [("a", 1)], WAYS[way])


def decimal_of(value: Any) -> Any:
    return Decimal(value) if value == 7 else value


def partitioned(source: Any, rows: Any) -> None:
    source.macro(written(taken_apart(rows).each(decimal_of, "*v").out("*w").hash_partition("*k"), "*w"))


def collected(source: Any, rows: Any) -> None:
    rows = taken_apart(rows).each(decimal_of, "*v").out("*w")
    source.batch_block(rows.agg(Agg.list("*w")).out("*a").each(Ops.IDENTITY, "a").out("*k"))


def entered(source: Any, rows: Any) -> None:
    block = taken_apart(rows).agg(Agg.count()).out("*n")
    source = source.each(lambda: Decimal(7)).out("*w").batch_block(block)
    written(source.each(Ops.IDENTITY, "a").out("*k"), "*w")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("define", "step"),
    [(partitioned, "hash_partition"), (collected, "agg"), (entered, "enter")],
    ids=["partitioner", "collect", "enter"],
)
def test_a_value_is_refused_with_step_and_record_when_it_is_no_data(define: Any, step: str, way: str) -> None:
    rows = [("a", number) for number in (1, 2, 7, 3)]

    with pytest.raises(UserCodeError, match=rf"{step}.* at .*Decimal is not data.*record: .*Decimal\('7'\)"):
        run(define, rows, WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_an_integer_is_refused_when_it_is_larger_than_a_message_may_hold(way: str) -> None:
    def define(source: Any, rows: Any) -> None:
        rows = taken_apart(rows).each(lambda v: (1 << 8 * INT_BYTES_MAX,), "*v").out("*w").hash_partition("*k")
        source.macro(written(rows.each(lambda w: len(w), "*w").out("*t"), "*t"))

    with pytest.raises(UserCodeError, match="hash_partition at .*An int of 1,048,577 bytes"):
        run(define, [("a", 1)], WAYS[way])


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**63) - 1, -(2**64), math.factorial(60)])
def test_an_integer_comes_back_when_it_was_in_a_message(value: int) -> None:
    for held in (value, {value: [value]}, [{value}], {(value,): float("nan")}):
        assert repr(unpack_message(pack_message(held))) == repr(held)


def test_large_integers_are_no_data_when_they_are_not_in_a_message() -> None:
    with pytest.raises(TypeError, match="int is not data"):
        pack(2**64)
    with pytest.raises(BadInput, match="There is no extension 3"):
        unpack(pack_message(2**64))


class ByLargeNumber(Module):
    def __init__(self, is_grouped: bool) -> None:
        self.is_grouped = is_grouped

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", int).initial_value(0)
        rows = Block.explode_microbatch("*mb").out("*v").each(Ops.TIMES, "*v", 2**62).out("*large")
        if self.is_grouped:
            rows = rows.group_by("*large", Block.agg(Agg.count()).out("*c"))
        else:
            rows = rows.hash_partition("*large")
        mb.source("*d").out("*mb").batch_block(rows)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("is_grouped", [True, False])
def test_an_integer_beyond_64_bits_is_no_key_of_rows_on_any_number_of_tasks(
    is_grouped: bool, tasks: int, tmp_path: Folder
) -> None:
    attempts = Attempts(tmp_path, ByLargeNumber(is_grouped), tasks)
    attempts.feed("*d", [1, 2])

    with pytest.raises(UserCodeError, match="64 bits"):
        attempts.attempt()
