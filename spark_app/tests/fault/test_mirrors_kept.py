"""Deaths, retention, restores and collections between a module and those that mirror it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from mirrored import bank, launch, report, values
from stories import module_of

from tidemill import Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions
from tidemill.api.declaration import record_module
from tidemill.cluster.launch import definition_for_launch, follow
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Attempt
from tidemill.journal.mirrored_objects import MirroredObjects
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.collection import collect
from tidemill.leader.events import StartAttempt
from tidemill.leader.readers import BEGINNING_MS, readers_of
from tidemill.leader.topology_store import TopologyStore
from tidemill.plan.check.module import checked
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.values.errors import SnapshotExpired

RECORDS = 60


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create() as made:
        yield made


class Later(SystemClock):
    """The clock of somebody who looks later."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def topology_store(cluster: InProcessCluster, module: str) -> TopologyStore:
    return cluster._running[module].topologies["mb"]._topology_store


def filled(cluster: InProcessCluster) -> None:
    """A bank that keeps one record, and a paused reader that has read nothing yet."""
    launch(cluster, "Bank", bank, tasks=1)
    OptionsLog(cluster.store, "Bank").set("depot", "*moves", "depot.max.entries.per.partition", 1)
    launch(cluster, "Report", report())
    cluster.pause_microbatch_topology("Report", "mb")
    cluster.cluster_depot("Bank", "*moves").append_many([["a", 1]] * RECORDS)
    cluster.wait_for_microbatch_processed_count("Bank", "mb", RECORDS)


def first_kept(cluster: InProcessCluster) -> int:
    return cluster.cluster_depot("Bank", "*moves").get_partition_info(0).start_offset


def test_records_stay_when_another_module_has_not_read_them(cluster: InProcessCluster) -> None:
    filled(cluster)

    collect(topology_store(cluster, "Bank"), 0)
    assert first_kept(cluster) == 0
    cluster.resume_microbatch_topology("Report", "mb")
    cluster.wait_until_processed("Report", "mb")
    assert values(cluster, "Report", "$$counts", ["a"]) == {"a": RECORDS}

    collect(topology_store(cluster, "Bank"), 0)
    assert first_kept(cluster) == RECORDS - 1


@pytest.mark.parametrize("days", [6, 8])
def test_records_go_when_their_reader_commits_nothing_for_longer_than_a_week(
    cluster: InProcessCluster, days: int
) -> None:
    filled(cluster)
    asleep = topology_store(cluster, "Bank")
    later = Later()
    later.ahead_ms = days * 86_400_000
    asleep.clock = later

    collect(asleep, 0)

    assert first_kept(cluster) == (0 if days < 7 else RECORDS - 1)


def test_records_go_when_their_reader_was_destroyed(cluster: InProcessCluster) -> None:
    filled(cluster)
    cluster.destroy_module("Report")

    collect(topology_store(cluster, "Bank"), 0)

    assert first_kept(cluster) == RECORDS - 1
    assert list(cluster.store.list("Bank/readers")) == []


def test_a_reader_counts_the_records_that_went_when_it_comes_back(cluster: InProcessCluster) -> None:
    filled(cluster)
    OptionsLog(cluster.store, "Bank").set("depot", "*moves", "depot.trim.coordinate.remote.seconds", 0)
    collect(topology_store(cluster, "Bank"), 0)
    assert first_kept(cluster) == RECORDS - 1
    cluster.resume_microbatch_topology("Report", "mb")
    cluster.wait_until_processed("Report", "mb")

    counted = values(cluster, "Report", "$$counts", ["a"])["a"]
    assert counted + cluster._progress(cluster._topology("Report", "mb"), "mb").skipped == RECORDS


def only_asks(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*asks", Depot.random())


def launched(store: ObjectStore, name: str, define: Any) -> None:
    declaration = checked(record_module(module_of(name, define)))
    definition_for_launch(store, declaration, LaunchConfig(2, 1), SystemClock())


def updated(store: ObjectStore, name: str, define: Any) -> None:
    follow(store, checked(record_module(module_of(name, define))), (), SystemClock())


@pytest.mark.parametrize("is_update", [False, True])
def test_a_reader_is_known_before_its_definition_when_a_launch_or_an_update_dies_at_any_request(
    tmp_path: Folder, is_update: bool
) -> None:
    """Whatever it came to, a module that has a reader's definition knows that reader."""
    clock, change = SystemClock(), updated if is_update else launched
    for place in range(100):
        store = connect(f"file://{tmp_path}/{place}")
        launched(store, "Bank", bank)
        if is_update:
            launched(store, "Report", only_asks)
        count = 0

        def die(verb: str, key: str, at: int = place) -> None:
            nonlocal count
            if verb in ("create", "delete"):
                count += 1
                if count == at + 1:
                    raise Crash

        try:
            change(FaultyObjectStore(store, FaultPlan(after=die)), "Report", report())
            is_done = True
        except Crash:
            is_done = False
        newest = DefinitionLog(store, "Report").newest()
        if newest is not None and newest.mirrors:
            assert {found.mark.module for found in readers_of(store, "Bank", clock.now_ms())} == {"Report"}
        change(store, "Report", report())
        assert {found.mark.module for found in readers_of(store, "Bank", clock.now_ms())} == {"Report"}
        if is_done:
            assert place >= 2
            return
    raise AssertionError("the launch never came to its end")


def test_a_mark_is_forgotten_when_its_launch_never_came_to_a_definition(tmp_path: Folder) -> None:
    clock = SystemClock()
    store = connect(f"file://{tmp_path}")
    definition_for_launch(store, checked(record_module(module_of("Bank", bank))), LaunchConfig(2, 1), clock)

    def die(verb: str, key: str) -> None:
        if verb == "create" and "Report/definition" in key:
            raise Crash

    reader = checked(record_module(module_of("Report", report())))
    with pytest.raises(Crash):
        definition_for_launch(FaultyObjectStore(store, FaultPlan(before=die)), reader, LaunchConfig(2, 1), clock)

    assert len(readers_of(store, "Bank", clock.now_ms())) == 1
    assert readers_of(store, "Bank", clock.now_ms() + BEGINNING_MS + 1) == []
    assert list(store.list("Bank/readers")) == []


def test_a_reader_is_known_when_an_update_adds_its_mirrors(cluster: InProcessCluster) -> None:
    launch(cluster, "Bank", bank)
    launch(cluster, "Report", only_asks)
    assert readers_of(cluster.store, "Bank", 0) == []

    follow(cluster.store, record_module(module_of("Report", report())), (), SystemClock())

    assert [found.mark.definition for found in readers_of(cluster.store, "Bank", 0)] == [2]


def test_a_pin_is_refused_when_what_it_pins_of_another_module_was_collected(cluster: InProcessCluster) -> None:
    """As within a module: the machine then pins what is there now (`machine._pin_again`)."""
    launch(cluster, "Bank", bank)
    launch(cluster, "Report", report())
    for _ in range(4):
        cluster.cluster_depot("Bank", "*moves").append(["a", 1])
        cluster.wait_until_processed("Bank", "mb")
    cluster.wait_until_processed("Report", "mb")
    reader, theirs = topology_store(cluster, "Report"), topology_store(cluster, "Bank")
    (place,) = reader.others
    head = reader.commit_log.head()
    assert head is not None
    newest = reader.others[place].newest_number()

    collect(theirs, 0)

    for pin, is_there in ((newest, True), (1, False)):
        attempt = Attempt(head[1].last_id + 1, 1, reads={place: pin})
        start = StartAttempt(1, attempt, head[1], reader.options.read())
        if is_there:
            assert reader.attempt_work(start).reads[place].prefix == theirs.prefix
        else:
            with pytest.raises(SnapshotExpired):
                reader.attempt_work(start)


def from_end(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*theirs", "Bank", "*moves")
    ago = MicrobatchSourceOptions.start_from_offset_after_timestamp(2**45)
    mb = topologies.microbatch("mb")
    mb.source("*theirs", ago).out("*b").explode_microbatch("*b")


def test_a_start_from_option_decides_where_a_mirrored_depot_begins(cluster: InProcessCluster) -> None:
    launch(cluster, "Bank", bank)
    cluster.cluster_depot("Bank", "*moves").append_many([["a", 1]] * 5)
    launch(cluster, "Tail", from_end)
    cluster.cluster_depot("Bank", "*moves").append_many([["a", 1]] * 3)
    cluster.wait_until_processed("Tail", "mb")

    assert cluster._progress(cluster._topology("Tail", "mb"), "mb").processed == 3


def test_a_reader_says_what_is_gone_when_the_other_module_was_destroyed_all_the_same(
    cluster: InProcessCluster,
) -> None:
    launch(cluster, "Bank", bank)
    launch(cluster, "Report", report())
    cluster.cluster_depot("Bank", "*moves").append(["a", 1])
    cluster.wait_until_processed("Report", "mb")
    runner = cluster._running["Report"].topologies["mb"]

    cluster.destroy_module("Bank", breaks_mirrors=True)
    state = runner.wait_for(lambda now: now.is_over or bool(now.report.store_trouble), 30)

    assert "Bank/depots/moves" in f"{state.error} {state.report.store_trouble}"
    assert values(cluster, "Report", "$$counts", ["a"]) == {"a": 1}


def test_a_module_is_asked_once_when_several_of_its_objects_are_mirrored(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(cluster, "Bank", bank)
    launch(cluster, "Report", report())
    reader = topology_store(cluster, "Report")
    asked = []

    def head(log: DefinitionLog, old: Any = DefinitionLog.head) -> Any:
        asked.append(log.log.prefix)
        return old(log)

    mirrored = MirroredObjects(cluster.store, reader.definition)
    monkeypatch.setattr(DefinitionLog, "head", head)
    assert mirrored.broken(["*theirs", *reader.program.reads]) == ""
    assert len(reader.definition.mirrors) == 2 and asked == ["Bank/definition"]
