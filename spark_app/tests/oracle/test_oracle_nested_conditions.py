"""The order of rows of conditions inside cases is promised as far as the guide says, and the engine keeps that much."""

from __future__ import annotations

import pytest
from oracle_comparison import Variant, compared, found
from oracle_programs import Program

from tidemill.api.declaration import record_module
from tidemill.plan.check.module import checked

LOGGED = """
class Made(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*d", Depot.random()).global_()
        t = topologies.microbatch("t")
        t.pstate("$$log", PState.map_schema(str, list))
        (t.source("*d").out("*mb").explode_microbatch("*mb").out("*v")
           STEPS
           .compound_agg("$$log", CompoundAgg.map("x", Agg.list("*v"))))
"""
IS_ODD, IS_LARGE = "Expr(Ops.IS_ODD, '*v')", "Expr(Ops.GREATER_THAN, '*v', 4)"
THERE, CALL = "Block.hash_partition('x')", "Block.each_async(waited, '*v').out('*w')"


def condition(of: str, one: str, other: str) -> str:
    return f".if_true({of}, {one}, {other})"


def inside(of: str, one: str, other: str) -> str:
    return "Block" + condition(of, one, other)


KEPT = "Block.each(Ops.IDENTITY, '*v').out('*w')"
AT_ONE_PLACE = ".hash_partition('x')"
PROMISED = {
    "cases of one condition": condition(IS_ODD, THERE, THERE),
    "a condition that is alone in a case": condition(
        IS_ODD, inside(IS_LARGE, THERE, THERE), f"Block.keep_true({IS_ODD})"
    ),
    "calls in cases": AT_ONE_PLACE + condition(IS_ODD, CALL, KEPT),
    "a condition behind another": condition(IS_ODD, THERE, THERE) + condition(IS_LARGE, THERE, THERE),
}
OPEN = {
    "conditions inside both cases": condition(IS_ODD, *[inside(IS_LARGE, THERE, THERE)] * 2),
    "a condition beside a partitioner": condition(IS_ODD, inside(IS_LARGE, THERE, THERE), THERE),
    "calls in conditions inside both cases": AT_ONE_PLACE + condition(IS_ODD, *[inside(IS_LARGE, CALL, KEPT)] * 2),
}
RECORDS = [1, 2, 7, 8, 3, 4, 5, 6]
VARIANTS = [Variant(), Variant(by_rows=True), Variant(as_bytes=True)]


def program(steps: str) -> Program:
    return Program(LOGGED.replace("STEPS", steps), ("t",), [{"*d": RECORDS}], tasks=2, threads=2)


@pytest.mark.parametrize("name", PROMISED)
def test_rows_keep_their_order_when_the_guide_promises_it(name: str) -> None:
    made = program(PROMISED[name])
    kept = [value for value in RECORDS if value % 2 or "keep_true" not in PROMISED[name]]
    for variant in VARIANTS:
        assert compared(made, variant).fault is None
        (state,) = found(made, checked(record_module(made.module())), variant)
        assert f"['x', {kept}]" in repr(state["$$log"])


@pytest.mark.parametrize("name", OPEN)
def test_any_order_is_right_when_conditions_inside_different_cases_wait(name: str) -> None:
    for variant in VARIANTS:
        assert compared(program(OPEN[name]), variant).fault is None


@pytest.mark.parametrize("name", ["cases of one condition", "a condition that is alone in a case"])
def test_an_engine_that_breaks_the_promise_is_found_when_a_program_shows_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.plan.compile.graph.shared_ways", lambda *_: {})
    fault = compared(program(PROMISED[name]), Variant()).fault
    assert fault is not None and "$$log" in fault
