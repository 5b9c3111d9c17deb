"""What a leader makes of its resources: options of resources that are gone must not stay closed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemill import Depot, Module
from tidemill.api.declaration import record_module
from tidemill.clients.status import TopologyStatus
from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import SystemClock
from tidemill.journal.options_log import PAUSED, OptionsLog
from tidemill.kubernetes.follower import RELEASE_MS, TopologyFollower
from tidemill.kubernetes.probes import DriverHealth
from tidemill.leader.deletions import Deletions
from tidemill.leader.report import RunnerState
from tidemill.leader.runner import TopologyRunner
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import ApiUnavailable
from tidemill.values.ids import Ids


class Small(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        topologies.microbatch("mb").source("*d").out("*microbatch")


class Bigger(Small):
    def module_name(self) -> str:
        return "Small"

    def define(self, setup: Any, topologies: Any) -> None:
        super().define(setup, topologies)
        setup.declare_depot("*gone", Depot.random())


class Resources:
    def __init__(self, **topologies: Any) -> None:
        self.topologies = topologies
        self.asked: list[str] = []
        self.is_away = False
        self.status: dict[str, Any] = {}

    def module(self, name: str) -> Any:
        return {"spec": {}} if name == "m" else None

    def topology(self, name: str) -> Any:
        if self.is_away:
            raise ApiUnavailable("away")
        self.asked.append(name)
        return self.topologies.get(name)

    def apply_topology_status(self, name: str, status: Mapping[str, Any]) -> bool:
        self.status = dict(status)
        return True


class ManualClock(SystemClock):
    at = 0.0

    def monotonic_ms(self) -> float:
        return self.at


def following(
    store: ObjectStore,
    resources: Resources,
    clock: ManualClock,
    definition: StoredDefinition | None = None,
    revision: int = 1,
) -> TopologyFollower:
    status = TopologyStatus(module="Small", topology="mb", role="leader", entry=1, phase="idle")
    standing = {"state": RunnerState("leader"), "status": lambda: status}
    runner = cast(TopologyRunner, SimpleNamespace(topology="mb", wake=lambda: None, **standing))
    return TopologyFollower(
        resources,
        store,
        definition or definitions.launch(record_module(Small()), 2, 1, Ids(1)),
        runner,
        DriverHealth(),
        clock,
        module="m",
        topology="new",
        revision=revision,
        leader="pod",
    )


def reported(follower: TopologyFollower, resources: Resources) -> dict[str, Any]:
    follower.report()
    return resources.status


def test_pause_of_a_topology_that_is_gone_ends_when_another_one_runs_its_code(tmp_path: Path) -> None:
    store, clock = open_store(tmp_path.as_uri()), ManualClock()
    log = OptionsLog(store, "Small")
    log.manage("Topology old", {("topology", "mb", PAUSED): True})
    resources = Resources(new={"spec": {"paused": False}}, old={"spec": {"paused": True}})
    follower = following(store, resources, clock)
    follower.follow()
    assert "mb" in log.read().paused, "the other one is still there: it decides"

    del resources.topologies["old"]
    clock.at += RELEASE_MS
    follower.follow()

    assert log.read().paused == {}
    assert log.read().managed == {("topology", "mb", PAUSED): "Topology new"}


def test_a_setting_that_another_resource_decides_is_told_once_when_a_topology_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = open_store(tmp_path.as_uri()), ManualClock()
    OptionsLog(store, "Small").manage("Topology old", {("depot", "*d", "depot.max.fetch"): 5})
    options = {"spec": {"options": {"depot.max.fetch": 6}}}
    resources = Resources(new=options, old=options)
    follower = following(store, resources, clock)

    for _ in range(3):
        follower.follow()

    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    text = "depot.max.fetch of depot *d is decided by Topology old: name it in one of them only"
    assert len(told) == 1 and text in told[0]
    assert reported(follower, resources)["optionTrouble"] == f"Topology new: {text}"

    del resources.topologies["old"]
    clock.at += RELEASE_MS
    follower.follow()
    assert "optionTrouble" not in reported(follower, resources)


def test_nothing_is_opened_when_the_api_does_not_answer(tmp_path: Path) -> None:
    store, clock = open_store(tmp_path.as_uri()), ManualClock()
    log = OptionsLog(store, "Small")
    log.manage("Topology old", {("topology", "mb", PAUSED): True})
    resources = Resources(new={"spec": {}})
    resources.is_away = True
    follower = following(store, resources, clock)
    with pytest.raises(ApiUnavailable):
        follower.follow()
    assert "mb" in log.read().paused

    resources.is_away = False
    follower.follow()
    assert log.read().paused == {}


def test_others_are_not_asked_for_again_when_little_time_has_passed(tmp_path: Path) -> None:
    store, clock = open_store(tmp_path.as_uri()), ManualClock()
    OptionsLog(store, "Small").manage("Topology old", {("topology", "mb", PAUSED): True})
    resources = Resources(new={"spec": {}}, old={"spec": {}})
    follower = following(store, resources, clock)
    for _ in range(5):
        follower.follow()
    assert resources.asked.count("old") == 1


def test_deletions_take_effect_only_when_the_operator_says_that_this_revision_is_stable(tmp_path: Path) -> None:
    store, clock = open_store(tmp_path.as_uri()), ManualClock()
    before = definitions.launch(record_module(Bigger()), 2, 1, Ids(1))
    definition = definitions.update(before, record_module(Small()), ["*gone"], Ids(2))
    resources = Resources(new={"spec": {}})
    status = {"currentRevision": 0}
    resources.module = lambda name: {"spec": {}, "status": status}  # type: ignore[method-assign]
    follower = following(store, resources, clock, definition, revision=2)
    for other in (0, 1, 3):
        status["currentRevision"] = other
        follower.follow()
        follower.confirm_deletions()
        assert Deletions(store, "Small").decision(definition) is None
    status["currentRevision"] = 2
    follower.follow()
    follower.confirm_deletions()
    decided = Deletions(store, "Small").decision(definition)
    assert decided is not None
    assert decided.is_done
