"""Whatever text an exception has, its failure can be stored."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Module, PState
from tidemill.leader.attempt_failures import MESSAGE_CHARS_MAX, attempt_failed, compaction_failed
from tidemill.values.errors import UserCodeError


def refuse(value: str) -> str:
    raise ValueError(f"bad \ud800 in {value}")


class Refusing(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        rows = mb.source("*d", MicrobatchSourceOptions.start_from_beginning()).out("*mb").explode_microbatch("*mb")
        rows.out("*r").each(refuse, "*r").out("*x").compound_agg("$$p", CompoundAgg.map("*x", Agg.count()))


def test_a_runner_goes_on_when_the_text_of_a_users_error_has_a_lone_surrogate() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Refusing(), LaunchConfig(1, 1))
        cluster.cluster_depot("Refusing", "*d").append("a")
        runner = cluster._running["Refusing"].topologies["mb"]
        state = runner.wait_for(lambda now: now.is_over or now.report.failures_in_row > 1, 60)
        assert not state.is_over
        failure = state.status(cluster._client("Refusing").definition(), "mb").failure
    assert failure is not None
    assert r"bad \ud800 in a" in failure.message


def test_each_text_of_a_failure_is_storable_and_short_when_the_error_is_full_of_surrogates() -> None:
    bad = "\ud800" * MESSAGE_CHARS_MAX
    event = attempt_failed(1, UserCodeError(bad, step="f", trace=bad, sample=bad))
    assert len(event.message) < MESSAGE_CHARS_MAX + 100
    for part in (*astuple(event), *astuple(compaction_failed(1, ValueError(bad)))):
        str(part).encode()
