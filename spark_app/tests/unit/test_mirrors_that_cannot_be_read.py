"""What a module shows whose mirrored depot is gone, or cannot be read without the other module's code."""

from __future__ import annotations

import json
from pathlib import Path as Folder
from typing import Any

import pytest
from mirrored import BEGINNING, bank, launch, report
from starlette.testclient import TestClient
from stories import module_of
from typer.testing import CliRunner
from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Ops, PState, UpdateOptions
from tidemill.cli.main import app
from tidemill.clients.status_reader import StatusReader
from tidemill.gateway.app import make_app
from tidemill.gateway.live import TopologyLook
from tidemill.gateway.module_looks import ModuleLook
from tidemill.gateway.modules import Modules
from tidemill.gateway.overview import Overview
from tidemill.gateway.settings import GatewaySettings
from tidemill.values.errors import DefinitionError, Deleted


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_all_modules_are_shown_when_what_one_of_them_mirrors_is_gone(tmp_path: Folder, is_elsewhere: bool) -> None:
    url = (tmp_path / "own").as_uri()
    other = (tmp_path / "other").as_uri() if is_elsewhere else url
    where = {"store": other} if is_elsewhere else {}
    with InProcessCluster.create("local", other) as theirs, InProcessCluster.create("local", url) as cluster:
        launch(theirs, "Bank", bank)
        launch(cluster, "Other", bank)
        launch(cluster, "Report", report(**where))
        theirs.cluster_depot("Bank", "*moves").append(["ann", 1])
        cluster.wait_for_microbatch_processed_count("Report", "mb", 1)
        theirs.destroy_module("Bank", breaks_mirrors=True)

        done = CliRunner().invoke(app, ["status", "--store", url, "--json"])
        assert done.exit_code == 0, done.output
        shown = {each["module"]: each for each in json.loads(done.stdout)}
        assert shown["Other"]["trouble"] == "" and shown["Other"]["lag"] == {"*moves": 0}
        assert "was deleted: its module was destroyed" in shown["Report"]["trouble"]
        assert (shown["Report"]["lag"], shown["Report"]["processed"]) == (None, 1)
        told = CliRunner().invoke(app, ["status", "Report", "--store", url])
        assert told.exit_code == 0 and "was deleted: its module" in " ".join(told.stdout.split())

        look = TopologyLook(Modules(cluster.store), "Report", "mb").look()  # the view has all that is known
        assert "was deleted: its module was destroyed" in look["status"]["trouble"]
        with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as client:
            told = client.get("/api/v1/modules/Report/topologies/mb").json()
        assert told["trouble"] == look["status"]["trouble"]
        assert not [name for name in (other, "Bank") if name in told["trouble"]], "for people of this module only"
        assert look["status"]["processed"] == 1 and look["log"]

        text = scraped(cluster)
        assert 'tidemill_topology_lag_records{module="Other",source="*moves",topology="mb"} 0.0' in text
        assert 'tidemill_topology_processed_records_total{module="Report",topology="mb"} 1.0' in text
        with pytest.raises(Deleted):  # nobody waits for what cannot come
            StatusReader(cluster.store, cluster._client("Report").definition(), "mb").read()


def another(setup: Any, topologies: Any) -> None:
    """The bank without what its readers mirror."""
    setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
    mb = topologies.microbatch("mb")
    mb.pstate("$$count", PState.map_schema(str, int))
    rows = mb.source("*moves", BEGINNING).out("*b").explode_microbatch("*b").out("*r").each(Ops.FIRST, "*r").out("*k")
    rows.compound_agg("$$count", CompoundAgg.map("*k", Agg.count()))


def test_failures_name_no_other_module_over_http_when_what_is_mirrored_is_gone(tmp_path: Folder) -> None:
    url, other = (tmp_path / "own").as_uri(), (tmp_path / "other").as_uri()
    with InProcessCluster.create("local", other) as theirs, InProcessCluster.create("local", url) as cluster:
        launch(theirs, "Bank", bank)
        launch(cluster, "Report", report(store=other))
        without = UpdateOptions.objects_to_delete("$$sums").break_mirrors()
        theirs.update_module(module_of("Bank", another), without)
        cluster.cluster_depot("Report", "*asks").append("ann")
        reader = StatusReader(cluster.store, cluster._client("Report").definition(), "mb")
        eventually(lambda: reader.read().failure is not None, 60)

        modules, at = Modules(cluster.store), "/api/v1/modules/Report"
        with TestClient(make_app(modules, GatewaySettings())) as client:
            told = [client.get(f"{at}{path}").json() for path in ("/topologies/mb", "/topologies/mb/log", "/log")]
        told += [look.look() for look in (TopologyLook(modules, "Report", "mb"), ModuleLook(modules, "Report"))]
        overview = Overview(modules)
        told.append(overview.look())
        overview.close()
        assert "SchemaOutdated" in json.dumps(told[:3])
        for found in told:
            assert not [name for name in (other, "Bank") if name in json.dumps(found)], found


def scraped(cluster: InProcessCluster) -> str:
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as client:
        for module in ("Other", "Report"):
            assert client.get(f"/api/v1/modules/{module}/topologies/mb").status_code == 200
        return str(client.get("/metrics").text)


def with_currency(record: Any) -> Any:
    return record


def migrated(name: str) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST)).migration(name, with_currency)

    return module_of("Bank", define)


def reading(bank: Any) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*theirs", bank, "*moves")
        topologies.microbatch("mb").source("*theirs", BEGINNING).out("*b").explode_microbatch("*b").out("*r")

    return define


def test_mirror_is_refused_when_its_records_go_through_code_that_is_not_given() -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(migrated("m"), LaunchConfig(2, 1))
        with pytest.raises(
            DefinitionError, match=r"migration 'm', which is code of that module\. Give the class of Bank"
        ):
            launch(cluster, "Reader", reading("Bank"))
        with pytest.raises(DefinitionError, match=r"which the class of Bank that is given here does not have"):
            launch(cluster, "Reader", reading(migrated("another")))
        launch(cluster, "Reader", reading(migrated("m")))
        cluster.cluster_depot("Bank", "*moves").append(["ann", 1])
        cluster.wait_for_microbatch_processed_count("Reader", "mb", 1)
