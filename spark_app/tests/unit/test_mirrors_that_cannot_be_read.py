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

from tidemill import Depot, InProcessCluster, LaunchConfig, Ops
from tidemill.cli.main import app
from tidemill.clients.status_reader import StatusReader
from tidemill.gateway.app import make_app
from tidemill.gateway.live import TopologyLook
from tidemill.gateway.modules import Modules
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
