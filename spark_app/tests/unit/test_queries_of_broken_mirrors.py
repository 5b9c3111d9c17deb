"""Whoever asks a query, or waits, is told what another module does not have any more, and gets no last value of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from gateways import served
from mirrored import BEGINNING, bank, launch, report, values
from stories import module_of
from typer.testing import CliRunner

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    InProcessCluster,
    MirrorBroken,
    Ops,
    Path,
    PState,
    UpdateOptions,
)
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.clients.barrier import ProcessedWatch
from tidemill.gateway.modules import Modules
from tidemill.journal.clock import SystemClock
from tidemill.values.errors import Deleted


def holding(**types: Any) -> Any:
    """A bank that sums its moves in PStates of these names and types, and has a query of `$$sums` if it is there."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        for name, kind in types.items():
            mb.pstate(f"$${name}", PState.map_schema(str, kind))
        rows = mb.source("*moves", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
        rows = rows.each(Ops.EXPAND, "*r").out("*k", "*v")
        for name in types:
            rows = rows.compound_agg(f"$${name}", CompoundAgg.map("*k", Agg.sum("*v")))
        if "sums" in types:
            sum_of(topologies, "$$sums")

    return define


def sum_of(topologies: Any, pstate: str) -> None:
    rows = topologies.query("sum", "*k").out("*sum").hash_partition(pstate, "*k")
    rows.local_select(pstate, Path.key("*k")).out("*sum").origin_partition()


WHOLE = holding(sums=int, others=int)


def of_pstate(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$theirs", "Bank", "$$sums")
    setup.cluster_pstate("$$unused", "Bank", "$$others")
    topologies.microbatch("mb")
    sum_of(topologies, "$$theirs")


def of_query(setup: Any, topologies: Any) -> None:
    setup.cluster_query("*theirs", module_of("Bank", WHOLE), "sum")
    topologies.microbatch("mb")
    rows = topologies.query("sum", "*k").out("*sum").invoke_query("*theirs", "*k").out("*sum")
    rows.origin_partition()


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create("local") as made:
        launch(made, "Bank", WHOLE)
        made.cluster_depot("Bank", "*moves").append(["a", 3])
        made.wait_until_processed("Bank", "mb")
        yield made


def migrated(value: int) -> int:
    return 2 * value


GONE = (holding(others=int), ["$$sums"], "is gone")
MIGRATED = (
    holding(sums=PState.migrated(int, "twice", migrated), others=int), [], "has another schema, or is migrated",
)  # fmt: skip


@pytest.mark.parametrize("define", [of_pstate, of_query])
@pytest.mark.parametrize(("bank_then", "deleted", "text"), [GONE, MIGRATED], ids=["gone", "migrated"])
def test_a_query_fails_when_what_it_mirrors_was_taken_or_changed(
    cluster: InProcessCluster, define: Any, bank_then: Any, deleted: list[str], text: str
) -> None:
    launch(cluster, "Asking", define)
    query = cluster.cluster_query("Asking", "sum")
    assert query.invoke("a") == 3

    cluster.update_module(module_of("Bank", bank_then), UpdateOptions.objects_to_delete(*deleted).break_mirrors())

    said = rf"The query 'sum' reads another module\..* {text} since definition 2 .*: update this module"
    with pytest.raises(MirrorBroken, match=said):
        query.invoke("a")
    with pytest.raises(MirrorBroken, match="is gone since definition 3" if define is of_pstate else "is gone"):
        cluster.destroy_module("Bank", breaks_mirrors=True)
        query.invoke("a")


def test_a_query_answers_when_only_what_it_does_not_read_was_taken(cluster: InProcessCluster) -> None:
    launch(cluster, "Asking", of_pstate)
    without = module_of("Bank", holding(sums=int))
    cluster.update_module(without, UpdateOptions.objects_to_delete("$$others").break_mirrors())

    assert cluster.cluster_query("Asking", "sum").invoke("a") == 3


def test_a_topology_goes_on_when_only_what_it_does_not_read_was_taken(cluster: InProcessCluster) -> None:
    """Also where both are PStates of one topology."""

    def reading(setup: Any, topologies: Any) -> None:
        of_pstate(setup, topologies)
        setup.declare_depot("*asks", Depot.random())
        mb = topologies.microbatch("answers")
        mb.pstate("$$answers", PState.map_schema(str, int))
        rows = mb.source("*asks", BEGINNING).out("*b").explode_microbatch("*b").out("*k")
        rows = rows.select("$$theirs", Path.key("*k")).out("*sum").hash_partition("*k")
        rows.compound_agg("$$answers", CompoundAgg.map("*k", Agg.sum("*sum")))

    launch(cluster, "Asking", reading)
    without = module_of("Bank", holding(sums=int))
    cluster.update_module(without, UpdateOptions.objects_to_delete("$$others").break_mirrors())
    cluster.cluster_depot("Asking", "*asks").append("a")
    cluster.wait_until_processed("Asking", "answers")

    assert values(cluster, "Asking", "$$answers", ["a"]) == {"a": 3}


def test_a_query_answers_again_when_its_module_mirrors_what_is_there(cluster: InProcessCluster) -> None:
    launch(cluster, "Asking", of_pstate)
    query = cluster.cluster_query("Asking", "sum")
    then, _, _ = MIGRATED
    cluster.update_module(module_of("Bank", then), UpdateOptions().break_mirrors())
    with pytest.raises(MirrorBroken):
        query.invoke("a")

    def mirroring(setup: Any, topologies: Any) -> None:
        setup.cluster_pstate("$$theirs", module_of("Bank", then), "$$sums")
        topologies.microbatch("mb")
        sum_of(topologies, "$$theirs")

    cluster.update_module(module_of("Asking", mirroring))

    assert query.invoke("a") == 6


def test_a_gateway_says_at_once_that_a_mirror_is_broken(cluster: InProcessCluster) -> None:
    launch(cluster, "Asking", of_pstate)
    then, deleted, _ = GONE
    cluster.update_module(module_of("Bank", then), UpdateOptions.objects_to_delete(*deleted).break_mirrors())
    modules = Modules(cluster.store, declaration=record_module(module_of("Asking", of_pstate)))
    with served(modules) as server:
        answer = httpx.post(f"{server.url}/api/v1/modules/Asking/queries/sum/invoke", json=["a"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "MirrorBroken")
    assert not [name for name in ("Bank", "file://") if name in answer.text], "for people of this module only"


# --- whoever waits ---


@pytest.fixture
def reader(cluster: InProcessCluster) -> InProcessCluster:
    """A module that has processed all moves of the bank but one."""
    cluster.destroy_module("Bank")
    launch(cluster, "Bank", bank)
    launch(cluster, "Report", report())
    cluster.cluster_depot("Bank", "*moves").append(["a", 1])
    cluster.wait_until_processed("Report", "mb")
    cluster.pause_microbatch_topology("Report", "mb")
    cluster.cluster_depot("Bank", "*moves").append(["a", 2])
    return cluster


GONE_FOR_GOOD = "'*theirs' mirrors '*moves' of module 'Bank', which is gone"


def test_wait_says_what_is_gone_and_what_to_do_when_a_mirrored_depot_was_deleted(reader: InProcessCluster) -> None:
    reader.destroy_module("Bank", breaks_mirrors=True)

    done = CliRunner().invoke(app, ["wait", "Report", "--store", reader.store.url, "--timeout", "60"])

    assert done.exit_code == 1
    told = " ".join(done.output.split())
    assert GONE_FOR_GOOD in told and "update Report, so that it mirrors what is there" in told
    with pytest.raises(Deleted, match="What is not processed of it never will be: update Report"):
        reader.wait_until_processed("Report", "mb")


def test_who_waited_already_is_told_when_a_mirrored_depot_is_deleted_meanwhile(reader: InProcessCluster) -> None:
    watch = ProcessedWatch.of_all(reader.store, reader._client("Report").definition(), "mb")
    reader.destroy_module("Bank", breaks_mirrors=True)
    reader.resume_microbatch_topology("Report", "mb")

    assert not watch.look()

    assert f"has not processed 1 of the records; {GONE_FOR_GOOD}" in watch.late(0, SystemClock())
