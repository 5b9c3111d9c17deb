"""What may follow a path is offered by the schema, and all that is offered can be selected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import watched_pstates
from starlette.testclient import TestClient

from tidemill import InProcessCluster, LaunchConfig
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.paths.json import path_from_json
from tidemill.values.errors import BadPath, NotSelectable


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(watched_pstates.Shelf(), LaunchConfig(4, 2))
        cluster.cluster_depot("Shelf", "*items").append_many(watched_pstates.ITEMS)
        cluster.wait_until_processed("Shelf")
        yield cluster


def offered(cluster: InProcessCluster, pstate: str, *path: Any) -> list[Any]:
    found = cluster.cluster_pstate("Shelf", pstate).following(path_from_json(list(path)).path)
    return [one.example for one in found.offers]


@pytest.mark.parametrize("pstate", [*watched_pstates.PSTATES])
def test_all_that_is_offered_is_selected_when_it_follows_a_key(cluster: InProcessCluster, pstate: str) -> None:
    handle = cluster.cluster_pstate("Shelf", pstate)
    ways: list[list[Any]] = [[]] if pstate == "$$total" else [[0] if pstate == "$$years" else ["ann"]]
    for _ in range(2):
        ways = [[*way, example] for way in ways for example in offered(cluster, pstate, *way)]
        assert ways
        for way in ways:
            try:
                handle.select(path_from_json(way).path)
            except NotSelectable:  # one goes on from there
                assert pstate in ("$$products", "$$profiles"), way
            except BadPath as error:  # what is there is known of the value only
                assert re.search("NoneType|has no place 0", str(error)), way


def test_only_keys_are_offered_when_a_path_begins_and_tasks_are_many(cluster: InProcessCluster) -> None:
    assert offered(cluster, "$$products") == ["", ["must", ""]]


def test_ranges_and_fields_are_offered_when_the_schema_has_them(cluster: InProcessCluster) -> None:
    below = offered(cluster, "$$products", "ann")
    assert ["all"] in below and ["sortedMapRangeFromStart", 10] in below and ["view", "#__fOps.SIZE"] in below
    assert ["sortedMapRangeFrom", "", {"max-amt": 10}] in below
    assert not any(str(one[0]).startswith(("sortedSet", "sublist", "term")) for one in below if isinstance(one, list))
    assert offered(cluster, "$$profiles", "ann")[:2] == ["name", "tags"]
    assert ["setElem", ""] in offered(cluster, "$$profiles", "ann", "tags")
    assert ["first"] in offered(cluster, "$$notes", "ann")
    assert ["filterGreaterThan", 0] in offered(cluster, "$$counts", "ann")


def test_a_path_is_refused_when_it_does_not_fit_the_schema(cluster: InProcessCluster) -> None:
    with pytest.raises(BadPath, match="meets an int"):
        offered(cluster, "$$counts", "ann", ["mapVals"])
    with pytest.raises(BadPath, match="has no key 'nothing'"):
        offered(cluster, "$$profiles", "ann", "nothing")


def test_the_gateway_tells_what_follows_and_where_rows_lie_when_it_is_asked(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Shelf", "*items").append(["bob", "tea", 1])
    cluster.wait_until_processed("Shelf")
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as client:
        at = "/api/v1/modules/Shelf/pstates/products"
        found = client.get(f"{at}/navigators", params={"path": '["ann"]'}).json()
        assert found["schema"]["map"] == ["str", "int"]
        assert {
            "name": "all",
            "example": ["all"],
            "about": "Every element: `[key, value]` of a map, elements of a list or set",
        } in found["navigators"]
        for wrong, code in (("[", 422), (f'["{"a" * 2_000}"]', 422), ('["ann", ["nothing"]]', 422), ("{}", 422)):
            assert client.get(f"{at}/navigators", params={"path": wrong}).status_code == code
        levels = client.get(f"{at}/levels").json()
        tasks = client.get(f"{at}/tasks").json()["tasks"]
        assert sum(one["rows"] for one in levels["levels"]) == sum(one["rows"] for one in tasks)
        assert [(one["kind"], one["first"], one["last"]) for one in levels["levels"]] == [
            ("delta", 1, 1),
            ("delta", 2, 2),
        ]
        assert levels["compacted"] == levels["compacting"] == 0 and all(one["bytes"] for one in levels["levels"])
