"""Whether the order of rows shows has one answer: where rows are combined early, results are the same on any number of
threads.
"""

from __future__ import annotations

import math
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts

from tidemill import AccumulatorAgg, Agg, Block, CombinerAgg, Depot, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.language.aggregation_order import depends_on_order, has_order_between_leaves
from tidemill.language.combiners import ACCUMULATORS, COMBINERS
from tidemill.language.dataflow import AggMap, Const, Var
from tidemill.plan.compile.topology import compile_topology


class Product(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return current * value

    def zero_val(self) -> Any:
        return 1


class Largest(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return value if current is None or value > current else current


class Joined(AccumulatorAgg):
    def accumulate(self, current: Any, *args: Any) -> Any:
        return (current or "") + "".join(map(repr, args))


AGGREGATORS: dict[str, Any] = {
    "count": Agg.count(), "sum": Agg.sum("*v"), "min": Agg.min("*v"), "max": Agg.max("*v"), "and": Agg.and_("*v"),
    "or": Agg.or_("*v"), "first": Agg.first("*v"), "last": Agg.last("*v"), "list": Agg.list("*v"),
    "set": Agg.set("*v"), "set_remove": Agg.set_remove("*v"), "multi_set": Agg.multi_set("*v"),
    "map": Agg.map("*k", "*v"), "merge": Agg.merge("*v"), "avg": Agg.avg("*v"),
    "median": Agg.median("*v"),
    "ranking": Agg.top_monotonic(3, "*v"),
    "ranking by ids": Agg.top_monotonic(3, "*v", id_function=Ops.FIRST),
    "ranking by a part": Agg.top_monotonic(3, "*v", sort_val_function=Ops.FIRST),
    "combiner": Agg.combiner(Product, "*v"), "accumulator": Agg.accumulator(Joined, "*v"),
}  # fmt: skip
ORDERED = {"and", "or", "first", "last", "list", "map", "merge", "ranking by a part", "accumulator"}
MERGED_AT_ONCE = ORDERED | {"avg", "median"}
"""Accumulators take rows one by one, even where the order of them does not show."""


def module_of(agg: Any) -> Module:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(str, object))
            rows = Block.explode_microbatch("*mb").out("*v").each(Ops.IDENTITY, "k").out("*k")
            block = rows.group_by("*k", Block.agg(agg).out("*all"))
            mb.source("*d").out("*mb").batch_block(block.local_transform("$$p", Path.key("*k").term_val("*all")))

    return Made()


def test_every_aggregator_is_among_those_that_are_asked_about() -> None:
    assert COMBINERS.keys() | ACCUMULATORS.keys() <= AGGREGATORS.keys()


@pytest.mark.parametrize("name", AGGREGATORS)
def test_rows_are_combined_early_only_when_their_order_does_not_show(name: str) -> None:
    program = compile_topology(record_module(module_of(AGGREGATORS[name])), "mb")
    (block,) = (region for region in program.regions if region.kind == "block")

    assert depends_on_order(AGGREGATORS[name].tree) == (name in ORDERED)
    assert block.combines == (name not in MERGED_AT_ONCE)


def best_of(folder: Folder, agg: Any, records: list[Any], threads: int) -> Any:
    attempts = Attempts(folder / str(threads), module_of(agg), 4, threads, as_bytes=threads > 1)
    attempts.options["topology.microbatch.placement"] = "spread"
    attempts.feed("*d", records)
    attempts.attempt()
    (found,) = attempts.everywhere("$$p", Path.map_vals())
    return repr(found)


@pytest.mark.parametrize(
    ("agg", "records"),
    [
        (AGGREGATORS["ranking by a part"], [[1, number] for number in range(400)]),
        (AGGREGATORS["ranking"], [(1, 1.0, True)[number // 4 % 3] for number in range(400)]),
        (AGGREGATORS["ranking"], [(float("nan"), 1.0, 3.0, 2.0)[number % 4] for number in range(400)]),
        (AGGREGATORS["ranking by ids"], [[number % 7, number % 5, float(number)] for number in range(400)]),
    ],
    ids=["equally good", "equal of other types", "no numbers", "by ids"],
)
def test_a_ranking_is_the_same_when_other_threads_have_the_rows(tmp_path: Folder, agg: Any, records: list[Any]) -> None:
    assert len({best_of(tmp_path, agg, records, threads) for threads in (1, 2, 4)}) == 1


def test_two_combiners_of_a_module_do_not_commute_when_they_meet() -> None:
    product, other, largest = (Agg.combiner(made, "*v").tree for made in (Product(), Product(), Largest()))
    key = Var("*k")

    assert has_order_between_leaves(AggMap(((key, product), (key, largest))))
    assert has_order_between_leaves(AggMap(((key, product), (key, other))))
    assert not has_order_between_leaves(AggMap(((key, product), (key, product))))


@pytest.mark.parametrize(("one", "other"), [(math.nan, float("nan")), ([1], (1,)), (1, 1.0)])
def test_two_combiners_do_not_commute_when_their_constant_keys_only_look_different(one: Any, other: Any) -> None:
    last, total = Agg.last("*v").tree, Agg.sum("*v").tree

    assert has_order_between_leaves(AggMap(((Const(one), last), (Const(other), total))))


def test_rankings_of_other_amounts_do_not_commute_when_they_meet() -> None:
    three, two = Agg.top_monotonic(3, "*v").tree, Agg.top_monotonic(2, "*v").tree

    assert has_order_between_leaves(AggMap(((Var("*k"), three), (Var("*k"), two))))
