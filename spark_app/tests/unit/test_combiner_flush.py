"""Combiners that ask for a flush send partial results each `topology.combiner.limit` rows, on any number of threads."""

from __future__ import annotations

import sys
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from pyspark import cloudpickle

from tidemill import Agg, Block, CombinerAgg, Depot, Module, Ops, Path, PState
from tidemill.spark.runner import SparkRunner

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests on their path
RECORDS = 400
"""On two threads: 200 each, so that whole batches of 50 and 40 are combined."""


class Gathered(CombinerAgg):
    """All values with the greatest number of them that was combined one by one, that is before anything was sent."""

    def combine(self, current: Any, value: Any) -> Any:
        values = current["values"] + value["values"]
        singly = len(values) if len(value["values"]) == 1 else 0
        return {"values": values, "most": max(singly, current["most"], value["most"])}

    def zero_val(self) -> Any:
        return {"values": [], "most": 0}


class Flushed(Gathered):
    def is_flush_required(self) -> bool:
        return True


def module_of(combiner: CombinerAgg) -> Module:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(str, dict))
            rows = Block.explode_microbatch("*mb").out("*v")
            rows = rows.each(lambda v: {"values": [v], "most": 1}, "*v").out("*one").each(Ops.IDENTITY, "k").out("*k")
            block = rows.group_by("*k", Block.agg(Agg.combiner(combiner, "*one")).out("*all"))
            block = block.local_transform("$$p", Path.key("*k").term_val("*all"))
            mb.source("*d").out("*mb").batch_block(block)

    return Made()


def gathered(folder: Folder, combiner: CombinerAgg, limit: int | None, runner: Any = None, threads: int = 2) -> Any:
    attempts = Attempts(folder, module_of(combiner), 4, threads, as_bytes=runner is None and threads > 1, runner=runner)
    attempts.options["topology.microbatch.placement"] = "spread"
    if limit is not None:
        attempts.options["topology.combiner.limit"] = limit
    attempts.feed("*d", list(range(RECORDS)))
    attempts.attempt()
    (found,) = attempts.everywhere("$$p", Path.map_vals())
    assert sorted(found["values"]) == list(range(RECORDS))
    return found["most"]


@pytest.mark.parametrize(("limit", "most"), [(50, 50), (40, 40), (1_000, 200), (None, 200)])
def test_partial_results_are_sent_on_when_a_combiner_asks(tmp_path: Folder, limit: int | None, most: int) -> None:
    assert gathered(tmp_path, Flushed(), limit) == most


def test_partial_results_are_sent_once_when_no_combiner_asks_for_a_flush(tmp_path: Folder) -> None:
    assert gathered(tmp_path, Gathered(), 50) == 200


def test_nothing_is_partial_when_one_thread_has_all_tasks(tmp_path: Folder) -> None:
    assert gathered(tmp_path, Flushed(), 50, threads=1) == RECORDS


@pytest.mark.spark
def test_partial_results_are_sent_on_when_spark_runs_the_block(spark: Any, tmp_path: Folder) -> None:
    assert gathered(tmp_path / "flushed", Flushed(), 50, SparkRunner()) == 50
    assert gathered(tmp_path / "gathered", Gathered(), 50, SparkRunner()) == 200
