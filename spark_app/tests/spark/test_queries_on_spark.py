"""Queries whose steps run on Spark give what they give in the asker's process, and end for the same reasons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from typer.testing import CliRunner

from tidemill import (
    Agg,
    BadInput,
    Block,
    BudgetExceeded,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    Module,
    NotOneValue,
    Ops,
    Path,
    PState,
    UserCodeError,
)
from tidemill.cli.main import app
from tidemill.journal.options_log import OptionsLog
from tidemill.spark.session import Session

pytestmark = pytest.mark.spark
NAME, WORDS = "Scanned", [f"w{number % 50}" for number in range(500)]


class Scanned(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        rows = mb.source("*words").out("*mb").explode_microbatch("*mb").out("*word")
        rows.compound_agg("$$counts", CompoundAgg.map("*word", Agg.count()))
        (topologies.query("total", engine="spark").out("*total")
            .all_partition().local_select("$$counts", Path.map_vals()).out("*count")
            .origin_partition().agg(Agg.sum("*count")).out("*total"))  # fmt: skip
        (topologies.query("counts", "*least", engine="spark").out("*found")
            .all_partition().local_select("$$counts", Path.all()).out("*pair")
            .each(Ops.EXPAND, "*pair").out("*word", "*count")
            .keep_true(Expr(Ops.GREATER_THAN_OR_EQUAL, "*count", "*least"))
            .origin_partition().agg(Agg.map("*word", "*count")).out("*found"))  # fmt: skip
        (topologies.query("share", "*word", engine="spark").out("*share")
            .invoke_query("total").out("*total")
            .select("$$counts", Path.key("*word")).out("*count")
            .origin_partition().each(Ops.TUPLE, "*count", "*total").out("*share"))  # fmt: skip
        step = (
            Block.hash_partition("*n").local_select("$$steps$$").out("*before")
            .local_transform("$$steps$$", Path.null_to_list().after_elem().term_val("*n"))
            .emit_loop(Expr(Ops.TUPLE, "*n", "*before"))
            .keep_true(Expr(Ops.LESS_THAN, "*n", 12)).continue_loop(Expr(Ops.INC, "*n"))
        )  # fmt: skip
        (topologies.query("steps", "*from").out("*found")
            .loop_with_vars(LoopVars.var("*n", "*from"), step).out("*each")
            .origin_partition().agg(Agg.set("*each")).out("*found"))  # fmt: skip
        topologies.query("many").out("*n").each(Ops.RANGE, 0, 2).out("*n").origin_partition()
        (topologies.query("broken", "*word").out("*n")
            .all_partition().each(int, "*word").out("*n").origin_partition())  # fmt: skip


CALLS: list[tuple[str, list[Any]]] = [
    ("total", []), ("counts", [1]), ("counts", [10]), ("share", ["w3"]), ("share", ["none"]), ("steps", [0]),
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster(spark: Session) -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Scanned(), LaunchConfig(4, 2))
        for query in ("total", "counts", "share", "steps", "many", "broken"):
            OptionsLog(cluster.store, NAME).set("topology", query, "topology.query.timeout.millis", 250_000)
        cluster.cluster_depot(NAME, "*words").append_many(WORDS)
        cluster.wait_until_processed(NAME)
        yield cluster


@pytest.mark.parametrize(("query", "args"), CALLS)
def test_the_answer_is_that_of_this_process_when_a_query_runs_on_spark(
    cluster: InProcessCluster, query: str, args: list[Any]
) -> None:
    found = [cluster.cluster_query(NAME, query, engine=engine).invoke(*args) for engine in ("local", "spark")]
    assert found[0] == found[1] and found[0] is not None


def test_spark_runs_the_steps_when_the_module_says_so(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemill.spark.runner import SparkRunner

    run, shown = SparkRunner.run, []
    monkeypatch.setattr(SparkRunner, "run", lambda *args: shown.append(args[1].program.topology) or run(*args))
    assert cluster.cluster_query(NAME, "total").invoke() == len(WORDS)
    assert cluster.cluster_query(NAME, "total", engine="local").invoke() == len(WORDS)
    assert cluster.cluster_query(NAME, "steps").invoke(11)
    assert shown == ["total"], "once: where nothing says Spark, a query runs in this process"


def test_a_command_runs_a_query_on_spark_when_the_module_or_the_caller_says_so(
    cluster: InProcessCluster, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemill.spark.runner import SparkRunner

    run, shown = SparkRunner.run, []
    monkeypatch.setattr(SparkRunner, "run", lambda *args: shown.append(args[1].program.topology) or run(*args))
    (tmp_path / "scanned_code.py").write_text("from test_queries_on_spark import Scanned\n")
    monkeypatch.chdir(tmp_path)

    def ask(*args: str) -> str:
        done = CliRunner().invoke(app, ["query", "scanned_code:Scanned", *args, "--store", cluster.store_url])
        return str(done.stdout).strip()

    assert ask("total") == ask("total", "--engine", "local") == str(len(WORDS))
    assert "12" in ask("steps", "[11]", "--engine", "spark")
    assert shown == ["total", "steps"]


def test_a_call_ends_with_its_reason_when_it_runs_on_spark(cluster: InProcessCluster) -> None:
    def ask(query: str, *args: Any) -> Any:
        return cluster.cluster_query(NAME, query, engine="spark").invoke(*args)

    with pytest.raises(NotOneValue, match="2 results"):
        ask("many")
    with pytest.raises(UserCodeError, match=r"each\(int\)"):
        ask("broken", "word")
    with pytest.raises(BadInput, match="takes 1 argument"):
        ask("steps")
    OptionsLog(cluster.store, NAME).set("topology", "counts", "topology.query.max.rows", 5)
    with pytest.raises(BudgetExceeded, match="more than 5 rows"):
        ask("counts", 1)


def test_an_engine_is_refused_when_there_is_none_of_its_name(cluster: InProcessCluster) -> None:
    with pytest.raises(BadInput, match="no engine 'dask'"):
        cluster.cluster_query(NAME, "total", engine="dask")  # type: ignore[arg-type]  # the mistake

    class Wrong(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            topologies.query("q", "*n", engine="dask").out("*n").origin_partition()

    with pytest.raises(DefinitionError, match="'q' is \"local\" or \"spark\", not 'dask'"):
        cluster.launch_module(Wrong(), LaunchConfig(4, 2))
