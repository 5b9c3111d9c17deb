"""Of equal values that differ the engine takes the ones that the oracle takes, in whatever order they come."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from oracle_comparison import Variant, compared
from oracle_programs import Program

COLLECTING = """
class Made(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*d", Depot.random()).global_()
        t = topologies.microbatch("t")
        t.pstate("$$p", PState.map_schema(str, object))
        (t.source("*d").out("*mb").explode_microbatch("*mb").out("*v").hash_partition("x")
           STEPS)
"""
INTO = '.compound_agg("$$p", CompoundAgg.map("x", {}))'
AGGREGATORS = {
    "min": ['Agg.min("*v")'],
    "max": ['Agg.max("*v")'],
    "top": ['Agg.top_monotonic(2, "*v")'],
    "low": ['Agg.top_monotonic(2, "*v", ascending=True)'],
    "top of another's list": ['Agg.list("*v")', 'Agg.top_monotonic(2, "*v")'],
    "low of another's list": ['Agg.list("*v")', 'Agg.top_monotonic(2, "*v", ascending=True)'],
    "top by a function": ['Agg.top_monotonic(2, "*v", sort_val_function=Ops.IDENTITY)'],
    "low by a function": ['Agg.top_monotonic(2, "*v", sort_val_function=Ops.IDENTITY, ascending=True)'],
}
TIES = [True, 1, 1.0]
NANS = [math.nan, 2, 1, 3]
NESTED = [["a", math.nan], ["a", 1], ["a", 2.0], ["a"]]
DEEP = [[[math.nan], 1], [[math.nan], 0], [[1.0], math.nan], [[1], 5]]
SETS = [{1, 2}, {3}, {2, 5}, {math.nan}]
VARIANTS = [Variant(), Variant(by_rows=True), Variant(as_bytes=True, compacts=True)]


def agrees(aggregators: list[str], records: list[Any], variant: Variant) -> None:
    source = COLLECTING.replace("STEPS", "".join(map(INTO.format, aggregators)))
    verdict = compared(Program(source, ("t",), [{"*d": records}, {"*d": records[:1]}], tasks=2), variant)
    assert (verdict.fault, verdict.is_undecided) == (None, False)


@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize(
    "values", [TIES, NANS, NESTED, DEEP, SETS], ids=["ties", "NaN", "NaN in lists", "NaN in lists of lists", "sets"]
)
def test_the_engine_keeps_what_the_oracle_keeps_when_values_tie_or_are_no_numbers(name: str, values: list[Any]) -> None:
    for count, records in enumerate(itertools.permutations(values)):
        agrees(AGGREGATORS[name], list(records), VARIANTS[count % len(VARIANTS)])
