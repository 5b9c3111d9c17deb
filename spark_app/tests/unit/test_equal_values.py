"""What is equal does not depend on the way rows came: by columns or one by one, in memory or as bytes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, CompoundAgg, Constant, Depot, Module, Ops, Path, PState

NAN = float("nan")


def as_tuple(value: Any) -> Any:
    return (value, [value])


class Compared(Module):
    """What operations and paths say of a value, before and behind a partitioner."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$held", PState.map_schema(str, object))
        mb.pstate("$$said", PState.map_schema(str, list))
        (
            mb.source("*depot").out("*mb").explode_microbatch("*mb").out("*r")
            .each(Ops.EXPAND, "*r").out("*name", "*value").each(as_tuple, "*value").out("*tuple")
            .each(Ops.EQUAL, "*r", "*r").out("*a").each(Ops.CONTAINS, "*r", "*value").out("*b")
            .hash_partition("*name")
            .each(Ops.EQUAL, "*value", "*value").out("*c").each(Ops.CONTAINS, "*r", "*value").out("*d")
            .each(Ops.TUPLE, "*value", Constant([])).out("*list").each(Ops.EQUAL, "*tuple", "*list").out("*e")
            .local_transform("$$held", Path.key("*name").term_val("*value"))
            .local_select("$$held", Path.key("*name").subselect(Path.filter_equal("*value")).view(Ops.SIZE)).out("*f")
            .each(Ops.TUPLE, "*a", "*b", "*c", "*d", "*e", "*f").out("*said")
            .local_transform("$$said", Path.key("*name").term_val("*said"))
        )  # fmt: skip


@pytest.mark.parametrize("value", [NAN, [NAN], {"x": [NAN]}, [1, [True]], {NAN}, (1,)])
def test_equality_is_the_same_whatever_way_rows_came(tmp_path: Folder, value: Any) -> None:
    said = set()
    for number, others in enumerate(([], [["b", "text"]], [["b", value]])):
        for as_bytes, threads, mode in itertools.product((False, True), (1, 2), ("rows", "columns")):
            run = Attempts(tmp_path / f"{number}{as_bytes}{threads}{mode}", Compared(), 2, threads, as_bytes=as_bytes)
            segments = {start: replace(segment, mode=mode) for start, segment in run.program.segments.items()}
            run.program = replace(run.program, segments=segments, key=run.program.key + mode)
            run.feed("*depot", [["a", value], *others])
            run.attempt()
            said.add(repr(run.at_key("$$said", "a", Path.key("a"))))
    assert len(said) == 1, said


class TwoKeys(Module):
    """Two aggregators at one key that is written twice, of which the second adds to what the first left."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(float, int))
        tree = CompoundAgg.map(Constant(NAN), Agg.last("*n"), Constant(float("nan")), Agg.sum("*n"))
        mb.source("*depot").out("*mb").explode_microbatch("*mb").out("*n").compound_agg("$$sums", tree)


def test_rows_are_aggregated_in_their_order_when_two_constant_keys_are_nan(tmp_path: Folder) -> None:
    run = Attempts(tmp_path, TwoKeys(), 1)
    run.feed("*depot", [1, 10, 100])
    run.attempt()

    assert run.everywhere("$$sums", Path.map_vals()) == [200]
