"""Where an attempt is, asked while one of the module's functions runs."""

from __future__ import annotations

from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, Block, CompoundAgg, Depot, LoopVars, Module, Path, PState
from tidemill.api.declaration import record_module
from tidemill.engine.current_step import superstep_text
from tidemill.engine.work import Cancel, CurrentStep
from tidemill.plan.compile.topology import compile_topology

asked = [Cancel()]
found: list[CurrentStep] = []


def look(_word: str) -> int:
    found.append(asked[0].find())
    return 1


class Words(Module):
    """Runs by columns, or row by row because one PState is read and then written."""

    def __init__(self, act: Any, by_rows: bool) -> None:
        self._act, self._by_rows = act, by_rows

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*w")
        if self._by_rows:
            rows = rows.local_select("$$p", Path.key("*w")).out("*before")
        rows = rows.each(self._act, "*w").out("*n")
        if self._by_rows:
            rows.local_transform("$$p", Path.key("*w").term_val("*n"))
        else:
            rows.hash_partition("*w").compound_agg("$$p", CompoundAgg.map("*w", Agg.sum("*n")))


@pytest.mark.parametrize("by_rows", [False, True])
def test_step_and_stack_of_the_function_are_told_when_it_runs(tmp_path: Any, by_rows: bool) -> None:
    cancel = asked[0] = Cancel()
    found.clear()
    attempts = Attempts(tmp_path, Words(look, by_rows), 1)
    modes = {segment.mode for segment in attempts.program.segments.values()}
    assert ("rows" in modes) is by_rows
    assert cancel.find().step == "opening the state and the depots"
    attempts.feed("*d", ["a"])
    attempts.attempt(cancel)
    assert found[0].step.startswith("each(look) at ") and "test_current_step.py" in found[0].step
    assert "found.append(asked[0].find())" in found[0].trace
    assert "engine/columns" not in found[0].trace and "engine/rows" not in found[0].trace
    assert cancel.find().step == "writing what the steps changed"


def test_superstep_is_named_by_its_steps_when_the_schedule_is_known() -> None:
    program = compile_topology(record_module(Words(len, False)), "mb")
    first, second = superstep_text(program, 0), superstep_text(program, 1)
    assert first.startswith("superstep 1 of 2 (explode_microbatch at ")
    assert "each(len) at " in first and "hash_partition at " in first and "agg($$p)" not in first
    assert second.startswith("superstep 2 of 2 (agg($$p) at ")


def test_superstep_is_named_by_its_number_when_only_data_tells_how_many_there_are() -> None:
    class Loops(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            body = Block.hash_partition("*n").continue_loop("*n")
            rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*w")
            rows.loop_with_vars(LoopVars.var("*n", "*w"), body.emit_loop("*n")).out("*end")

    assert superstep_text(compile_topology(record_module(Loops()), "mb"), 6) == "superstep 7"
