"""A driver that does not report, and one whose store does not answer: the Topology and its Module say so."""

from __future__ import annotations

from typing import Any

import pytest
from api_double import ClusterDouble
from test_operator_rollouts import condition, module, run

CURRENT = ("lag", "lagTotal", "rowsPerSecond", "phase")


@pytest.fixture
def cluster() -> ClusterDouble:
    """A Module that runs well."""
    made = ClusterDouble()
    made.api.put(module())
    run(made)
    assert condition(topology(made), "Ready") == ("True", "Running")
    return made


def topology(cluster: ClusterDouble) -> dict[str, Any]:
    return cluster.api.find("Topology", "flights-core")


def message(cluster: ClusterDouble) -> str:
    return str(next(c["message"] for c in topology(cluster)["status"]["conditions"] if c["type"] == "Ready"))


def test_figures_of_now_are_gone_and_the_topology_is_not_ready_when_its_driver_is_silent(
    cluster: ClusterDouble,
) -> None:
    cluster.is_silent = True
    run(cluster, 30)
    assert condition(topology(cluster), "Ready") == ("True", "Running"), "the API server may have been away"
    run(cluster, 30)

    assert condition(topology(cluster), "Ready") == ("False", "NotReporting")
    assert "has not reported since" in message(cluster)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("False", "NotReporting")
    assert [name for name in CURRENT if name in topology(cluster)["status"]] == []
    assert topology(cluster)["status"]["commitsSinceClaim"] > 0, "what has happened stays"


def test_all_is_well_again_when_a_silent_driver_reports(cluster: ClusterDouble) -> None:
    cluster.is_silent = True
    run(cluster, 90)
    cluster.is_silent = False
    run(cluster, 15)

    assert condition(topology(cluster), "Ready") == ("True", "Running")
    assert [name for name in CURRENT if name not in topology(cluster)["status"]] == []
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")


def test_nothing_is_written_each_time_when_a_driver_stays_silent(cluster: ClusterDouble) -> None:
    cluster.is_silent = True
    run(cluster, 90)
    cluster.api.calls.clear()
    run(cluster, 240)

    assert cluster.api.calls["status"] == 0


def test_the_topology_is_not_ready_at_once_when_its_store_does_not_answer(cluster: ClusterDouble) -> None:
    cluster.store_trouble = "the store has not answered since 2026-01-01T00:00:00Z (create c/12)"
    run(cluster, 2)

    assert condition(topology(cluster), "Ready") == ("False", "StoreUnavailable")
    assert "create c/12" in message(cluster)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("False", "StoreUnavailable")

    cluster.store_trouble = ""
    run(cluster, 10)
    assert condition(topology(cluster), "Ready") == ("True", "Running")


def test_a_revision_is_not_rolled_back_when_only_the_store_is_to_blame(cluster: ClusterDouble) -> None:
    cluster.store_trouble = "503"
    run(cluster, 400)

    status = cluster.api.find("Module", "flights")["status"]
    assert (status["activeRevision"], status["currentRevision"]) == (1, 1)


@pytest.mark.parametrize("change", [{"lag": None}, {"lag": {"*d": 0}, "storeTrouble": "503"}])
def test_a_revision_is_not_stable_by_quiet_when_nobody_knows_whether_it_has_anything_to_do(
    change: dict[str, Any],
) -> None:
    cluster = ClusterDouble()
    cluster.images["flights:1"] = {"reports": {"commitsSinceClaim": 0, "failuresInRow": 0, **change}}
    cluster.api.put(module())
    run(cluster, 90)
    assert cluster.api.find("Module", "flights")["status"].get("currentRevision", 0) == 0

    cluster.images["flights:1"] = {"reports": {"commitsSinceClaim": 0, "failuresInRow": 0, "lag": {"*d": 0}}}
    run(cluster, 60)
    assert cluster.api.find("Module", "flights")["status"]["currentRevision"] == 1
