"""Options that a resource decides: set and taken away as a whole, closed to everybody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill.journal.options_log import PAUSED, OptionsLog
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import Managed, NewerFormat, OptionError

RECORDS = "depot.microbatch.max.records"
SLEEP = "topology.microbatch.empty.sleep.time.millis"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def test_setting_holds_and_is_closed_to_others_when_a_resource_names_it(store: ObjectStore) -> None:
    log = OptionsLog(store, "M")
    log.manage("Topology a", {("depot", "*d", RECORDS): 5})
    assert log.read().values == {("depot", "*d"): {RECORDS: 5}}
    other = OptionsLog(store, "M")
    with pytest.raises(Managed, match="is decided by Topology a: change it there"):
        other.set("depot", "*d", RECORDS, 6)
    with pytest.raises(Managed):
        other.unset("depot", "*d", RECORDS)
    other.set("depot", "*e", RECORDS, 6)
    assert other.read().values == {("depot", "*d"): {RECORDS: 5}, ("depot", "*e"): {RECORDS: 6}}


def test_setting_goes_and_is_open_again_when_the_resource_names_it_no_more(store: ObjectStore) -> None:
    log = OptionsLog(store, "M")
    log.set("topology", "mb", SLEEP, 7)
    log.manage("Topology a", {("depot", "*d", RECORDS): 5, ("topology", "mb", PAUSED): True})
    assert "mb" in log.read().paused
    log.manage("Topology a", {})
    assert (log.read().values, log.read().paused, log.read().managed) == ({("topology", "mb"): {SLEEP: 7}}, {}, {})
    log.set("depot", "*d", RECORDS, 6)


def test_pause_and_resume_are_refused_when_a_resource_says_whether_a_topology_is_paused(store: ObjectStore) -> None:
    log = OptionsLog(store, "M")
    log.manage("Topology a", {("topology", "mb", PAUSED): False})
    with pytest.raises(Managed):
        log.pause("mb")
    log.pause("other")
    log.manage("Topology a", {("topology", "mb", PAUSED): True})
    assert log.read().paused == {"other": 2, "mb": 3}
    with pytest.raises(Managed):
        log.resume("mb")


def test_first_resource_keeps_a_place_when_another_names_it_too(store: ObjectStore) -> None:
    log = OptionsLog(store, "M")
    log.manage("Topology a", {("depot", "*d", RECORDS): 5})
    log.manage("Topology b", {("depot", "*d", RECORDS): 9})
    assert log.read().values == {("depot", "*d"): {RECORDS: 5}}
    log.manage("Topology a", {})
    log.manage("Topology b", {("depot", "*d", RECORDS): 9})
    assert log.read().managed == {("depot", "*d", RECORDS): "Topology b"}


def test_nothing_is_written_when_what_a_resource_names_holds_already(store: ObjectStore) -> None:
    log = OptionsLog(store, "M")
    wanted = {("depot", "*d", RECORDS): 5, ("topology", "mb", PAUSED): True}
    number = log.manage("Topology a", wanted).number
    assert OptionsLog(store, "M").manage("Topology a", wanted).number == number


def test_nothing_changes_when_one_value_of_a_resource_is_bad(store: ObjectStore) -> None:
    log = OptionsLog(store, "M")
    with pytest.raises(OptionError):
        log.manage("Topology a", {("depot", "*d", RECORDS): 5, ("topology", "mb", SLEEP): "soon"})
    assert log.read().number == 0


def test_reading_is_refused_when_a_newer_version_wrote_the_options(store: ObjectStore) -> None:
    log = OptionsLog(store, "M")
    log.set("topology", "mb", SLEEP, 7)
    key = next(iter(store.list("M/options")))
    content = json.loads(store.get(key)) | {"format": 2}
    store.delete(key)
    store.create(key, json.dumps(content).encode())
    with pytest.raises(NewerFormat):
        OptionsLog(store, "M").read()
