"""Random programs come to the same in the engine and in a naive interpreter of the language.

By hand, more of them: `TIDEMILL_ORACLE_PROGRAMS=20000 TIDEMILL_ORACLE_SEED=1 pytest spark_app/tests/oracle`; a mistake
is printed as a module that can be copied, with what it was fed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import oracle_functions
import pytest
from attempts import Attempts
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from oracle_comparison import Variant, compared
from oracle_interpreter import TooLong
from oracle_programs import Program, programs
from pyspark import cloudpickle

from tidemill.spark.runner import SparkRunner

PROGRAMS_IN_CI = 300
BY_HAND = int(os.environ.get("TIDEMILL_ORACLE_PROGRAMS", "0"))
SEED = int(os.environ.get("TIDEMILL_ORACLE_SEED", "0"))
UNDECIDED_SHARE_MAX = 0.03
cloudpickle.register_pickle_by_value(oracle_functions)  # workers do not have the tests on their path
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MANY = settings(
    max_examples=BY_HAND or PROGRAMS_IN_CI, deadline=None, suppress_health_check=list(HealthCheck),
    derandomize=not BY_HAND, database=None, phases=(Phase.generate, Phase.shrink),
)  # fmt: skip
ON_SPARK = settings(MANY, max_examples=4, derandomize=True)
variants = st.builds(
    Variant, as_bytes=st.booleans(), by_rows=st.booleans(), compacts=st.booleans(), is_cut=st.booleans()
)


def agree(program: Program, variant: Variant) -> str:
    """Fails where the engine and the oracle differ; gives what became of the program."""
    try:
        verdict = compared(program, variant)
    except (TooLong, RecursionError):
        return "too long"
    if verdict.fault is not None:
        note(verdict.fault)
    assert verdict.fault is None, verdict.fault
    return "undecided" if verdict.is_undecided else "failed" if verdict.is_failed else "fine"


@pytest.mark.timeout(86_400 if BY_HAND else 900)
def test_the_engine_agrees_with_the_oracle_when_programs_are_random() -> None:
    tally: Counter[str] = Counter()

    @MANY
    @given(programs(), variants)
    def check(program: Program, variant: Variant) -> None:
        tally[agree(program, variant)] += 1

    (seed(SEED)(check) if BY_HAND else check)()
    assert tally["undecided"] <= UNDECIDED_SHARE_MAX * tally.total(), tally
    assert tally["fine"] > 0.8 * tally.total(), tally


@pytest.mark.spark
@ON_SPARK
@given(programs())
def test_spark_agrees_with_the_oracle_when_programs_are_random(spark: Any, program: Program) -> None:
    for placement in ("spread", "fused", "inline"):
        agree(program, Variant(SparkRunner(), placement))


COUNTING = """
class Made(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*depot0", Depot.random())
        t0 = topologies.microbatch("t0")
        t0.pstate("$$t0p0", PState.map_schema(str, int))
        (t0.source("*depot0").out("*batch0").explode_microbatch("*batch0").out("*name")
           .hash_partition("*name").compound_agg("$$t0p0", CompoundAgg.map("*name", Agg.count())))
"""
COUNTED = Program(COUNTING, ("t0",), [{"*depot0": ["a", "b", "a"]}, {"*depot0": ["a"]}], tasks=2)


def test_a_mistake_is_seen_when_the_engine_loses_a_microbatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail."""
    assert compared(COUNTED, Variant()).fault is None
    monkeypatch.setattr(Attempts, "commit", lambda self, work, outcome: None)
    assert "the engine" in str(compared(COUNTED, Variant()).fault)


def test_a_program_that_shows_an_open_order_is_no_mistake_when_the_engine_takes_another_order() -> None:
    """What several tasks append to one list has no promised order; what one of them appends has."""
    collected = COUNTING.replace("(str, int)", "(str, list)").replace('"*name", Agg.count()', '"x", Agg.list("*name")')
    collected = collected.replace('.hash_partition("*name")', '.hash_partition("x")')
    program = replace(COUNTED, source=collected, rounds=[{"*depot0": list("abcdef")}])
    assert compared(program, Variant()).fault is None
