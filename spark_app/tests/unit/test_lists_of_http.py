"""What a gateway says of lists that have no address of their own."""

from __future__ import annotations

from pathlib import Path as Folder

import pytest
from fastapi.testclient import TestClient

from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.store.urls import open_store


@pytest.fixture
def http(tmp_path: Folder) -> TestClient:
    return TestClient(make_app(Modules(open_store(tmp_path.as_uri())), GatewaySettings()))


@pytest.mark.parametrize("kind", ["depots", "pstates", "topologies", "queries", "depots/"])
def test_the_list_that_there_is_is_named_when_one_of_a_module_is_asked_for(http: TestClient, kind: str) -> None:
    found = http.get(f"/api/v1/modules/Words/{kind}")
    assert found.status_code == 404
    assert "GET /api/v1/modules/Words lists the module's depots, topologies with PStates, and queries" in found.text
    assert found.json()["error"]["code"] == "NotFound"


@pytest.mark.parametrize("path", ["/api/v1/modules/Words/else", "/api/v1/depots", "/modules/Words/depots"])
def test_no_list_is_named_when_an_address_is_none_of_a_module(http: TestClient, path: str) -> None:
    found = http.get(path)
    assert found.status_code == 404
    assert "lists" not in found.text
