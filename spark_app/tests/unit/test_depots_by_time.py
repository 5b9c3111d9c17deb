"""Records of a depot by the time at which they were appended: as handles and the gateway find them."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient
from test_gateway_access import Guarded

from tidemill import InProcessCluster, LaunchConfig
from tidemill.depot.log import DepotLog
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.journal.definition_log import DefinitionLog
from tidemill.values.columns import from_values


def test_records_are_found_by_the_time_of_their_append_when_they_are_asked_for(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=str(tmp_path)) as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(2, 1))
        handle = cluster.cluster_depot("Guarded", "*log")
        definition = DefinitionLog(cluster.store, "Guarded").newest()
        assert definition is not None
        writer = DepotLog(cluster.store, definition.depot_prefix("*log"), 2, iter([1_000, 2_000, 3_000]).__next__)
        for values in ([1, 2], [3], [4]):
            writer.append([(0, from_values(values, True))])
        assert [handle.offsets_after(at) for at in (0, 999, 1_000, 2_500, 3_000)] == [
            (0, 0), (0, 0), (2, 0), (3, 0), (4, 0),
        ]  # fmt: skip
        with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:
            at = "/api/v1/modules/Guarded/depots/log/offsets"
            assert http.get(at, params={"after": 1_000}).json() == [2, 0]
            assert http.get(at.replace("log", "absent"), params={"after": 1}).status_code == 404
            for wrong in ({}, {"after": "x"}, {"after": -1}, {"after": 1, "other": 2}):
                assert http.get(at, params=wrong).status_code == 400, wrong
