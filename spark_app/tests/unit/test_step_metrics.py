"""What each step of a plan took and passed on: counted on the way, by columns and by rows, and bounded in commits."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from attempts import Attempts, run_as_bytes

from tidemill import Agg, Block, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.clients.history import topology_history
from tidemill.clients.status_reader import topology_status
from tidemill.definition.definition import StoredDefinition
from tidemill.engine import tally
from tidemill.engine.report import StepReport, summed
from tidemill.engine.superstep import DynamicSchedule
from tidemill.engine.tally import NOBODY, Tally
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.step_metrics import PLAN, STEPS_MAX, bounded, is_of_step, step_metrics, told
from tidemill.plan import program as pg
from tidemill.plan.compile.topology import compile_alone
from tidemill.plan.picture import Sketch, picture


class Parted(Module):
    """Rows part, some go on, and all are summed by key; then a batch block counts them."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(int, int))
        mb.pstate("$$seen", PState.map_schema(int, int))
        mb.pstate("$$all", int).global_().initial_value(0)
        counted = Block.explode_microbatch("*mb").out("*x").global_partition().agg("$$all", Agg.count())
        (mb.source("*d").out("*mb").batch_block(counted)
           .explode_microbatch("*mb").out("*v")
           .each(Ops.MOD, "*v", 2).out("*odd").each(Ops.EQUAL, "*odd", 1).out("*is_odd")
           .if_true("*is_odd", Block.each(Ops.PLUS, "*v", 0).out("*n"), Block.each(Ops.TIMES, "*v", 2).out("*n"))
           .keep_true("*n")
           .hash_partition("*odd").compound_agg("$$sums", CompoundAgg.map("*odd", Agg.sum("*n")))
           .local_select("$$seen", Path.key("*odd").null_to_val(0)).out("*before")
           .each(Ops.PLUS, "*before", 1).out("*now")
           .local_transform("$$seen", Path.key("*odd").term_val("*now")))  # fmt: skip


def rows_of(metrics: Any) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith("rows ")}


def behind(attempts: Attempts, metrics: Any, kind: type, text: str = "") -> list[float]:
    """Rows that went on behind each operator of a kind that says so."""
    found = [one for one in attempts.program.operators if isinstance(one, kind) and text in repr(one)]
    return [metrics.get(f"rows {one.id}", 0.0) for one in found]


def test_rows_are_counted_behind_each_step_when_an_attempt_runs(tmp_path: Any) -> None:
    attempts = Attempts(tmp_path, Parted(), 4)
    attempts.feed("*d", list(range(10)) + [1, 3])
    metrics = attempts.attempt().metrics
    (split,) = [one for one in attempts.program.operators if isinstance(one, pg.Split)]
    then, otherwise = attempts.program.next[split.id]
    assert (metrics[f"rows {split.id}>{then}"], metrics[f"rows {split.id}>{otherwise}"]) == (7, 5)
    assert sorted(behind(attempts, metrics, pg.Explode)) == [12, 12]
    assert sorted(behind(attempts, metrics, pg.Move)) == [12, 12]
    assert sum(metrics[name] for name in metrics if name.startswith("ms ")) <= metrics["process_ms"]


def test_as_many_rows_are_counted_when_threads_know_each_other_by_bytes(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Spark: reports of all threads and supersteps, as one."""
    reports = list[StepReport]()
    follow = DynamicSchedule.next
    monkeypatch.setattr(DynamicSchedule, "next", lambda self, given: (reports.extend(given), follow(self, given))[1])
    found = []
    for threads in (1, 4):
        attempts = Attempts(tmp_path / str(threads), Parted(), 4, threads)
        attempts.feed("*d", list(range(50)))
        attempts.program = pg.Program(**{**vars(attempts.program), "schedule": None})
        reports.clear()
        run_as_bytes(attempts.work())
        found.append(rows_of(summed([report.metrics for report in reports])))
    assert found[0] == found[1]
    assert max(found[0].values()) == 50


@pytest.mark.parametrize("mode", ["columns", "rows"])
def test_a_step_has_the_time_that_its_function_took_when_clocks_are_read(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    now = itertools.count(step=0.001)
    late = [0.0]
    monkeypatch.setattr(tally.time, "perf_counter", lambda: next(now) + late[0])

    def slow(value: int) -> int:
        late[0] += 100.0
        return value

    class Slow(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(int, int))
            rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*v").hash_partition("*v")
            if mode == "rows":
                rows = rows.local_select("$$p", Path.key("*v")).out("*old")
            rows.each(slow, "*v").out("*w").local_transform("$$p", Path.key("*v").term_val("*w"))

    attempts = Attempts(tmp_path, Slow(), 4)
    attempts.feed("*d", [1, 2, 3])
    metrics = attempts.attempt().metrics
    spent = {int(name[3:]): value for name, value in metrics.items() if name.startswith("ms ")}
    slowest = max(spent, key=lambda number: spent[number])
    assert 300_000 <= spent[slowest] < 301_000
    assert sum(spent.values()) - spent[slowest] < 1_000
    operator = attempts.program.operators[slowest]
    expected = {"columns": pg.Apply, "rows": pg.Select}[mode]  # a segment that goes by rows: at its first operator
    assert isinstance(operator, expected)


def test_each_moment_is_of_one_operator_when_steps_are_inside_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 6.0])
    monkeypatch.setattr(tally.time, "perf_counter", lambda: next(clock))
    found = Tally(3)
    for operator in (1, 2, 1, NOBODY):
        found.turn_to(operator)
    found.rows[2] += 5
    found.branch(2, 0, 4)
    found.branch(2, 0, 1)
    assert found.metrics() == {"ms 1": 4000.0, "ms 2": 2000.0, "rows 2": 5.0, "rows 2>0": 5.0}


def test_a_commit_tells_of_the_slowest_steps_when_there_are_many() -> None:
    many = 3 * STEPS_MAX
    given = {"rows": 7.0, **step_metrics(list(range(many)), [1] * many, {(many - 1, 0): 2, (1, 0): 2})}
    found = bounded(given, 99)
    kept = range(many - STEPS_MAX, many)
    assert found == {
        "rows": 7.0, PLAN: 99.0, **{f"ms {n}": n * 1000.0 for n in kept}, **{f"rows {n}": 1.0 for n in kept},
        f"rows {many - 1}>0": 2.0,
    }  # fmt: skip
    others, steps = told(found)
    assert others == {"rows": 7.0}
    assert steps["plan"] == 99 and len(steps["ms"]) == STEPS_MAX and steps["rows"][f"{many - 1}>0"] == 2.0
    assert bounded({"rows 3": 2.0, "ms 4": 1.0}, 5) == {"rows 3": 2.0, "ms 4": 1.0, PLAN: 5.0}  # where a walk begins
    assert told({"rows": 7.0}) == ({"rows": 7.0}, {})
    assert [name for name in ("rows", "process_ms", "lag *d", "ms 1", "rows 1", "plan") if is_of_step(name)] == [
        "ms 1", "rows 1", "plan",
    ]  # fmt: skip


def test_the_log_tells_of_steps_and_the_status_does_not_when_microbatches_are_committed() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Parted(), LaunchConfig(4, 2))
        cluster.cluster_depot("Parted", "*d").append_many(list(range(10)))
        cluster.wait_until_processed("Parted")
        definition: StoredDefinition | None = DefinitionLog(cluster.store, "Parted").newest()
        assert definition is not None
        commits = [line for line in topology_history(cluster.store, definition, "mb") if line["kind"] == "commit"]
        status = topology_status(cluster.store, definition, "mb")
    program = compile_alone(record_module(Parted()))["mb"]
    assert {line["steps"]["plan"] for line in commits} == {program.shape}
    assert max(value for line in commits for value in line["steps"]["rows"].values()) == 10
    for metrics in (status.metrics, *(line["metrics"] for line in commits)):
        assert "process_ms" in metrics and not any(is_of_step(name) for name in metrics)


def test_each_arrow_of_rows_is_counted_when_a_plan_is_drawn(tmp_path: Any) -> None:
    attempts = Attempts(tmp_path, Parted(), 4)
    attempts.feed("*d", list(range(10)))
    metrics = bounded(attempts.attempt().metrics, attempts.program.shape)
    arrows = [arrow for arrow in Sketch(attempts.program).parts()[1] if arrow.way != "state"]
    assert all(arrow.counts for arrow in arrows)
    counted = [name for arrow in arrows for name in arrow.counts.split()]
    known = {f"rows {name}" for name in counted}
    by_rows = [s for s in attempts.program.segments.values() if s.mode == "rows"]
    inside = {number for segment in by_rows for number in segment.operators}
    missing = {name for name in known - metrics.keys() if int(name[5:].partition(">")[0]) not in inside}
    assert not missing
    assert f'data-plan="{attempts.program.shape}"' in picture(attempts.program)
    assert attempts.program.shape
