"""What a driver says of its topology while its store is silent, slow, or quiet: a status has a pulse of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fake_kubernetes import FakeKubernetes
from waiting import eventually

from tidemill import Depot, MicrobatchSourceOptions, Module
from tidemill.api.declaration import record_module
from tidemill.clients.status import Phase
from tidemill.definition import definition as definitions
from tidemill.journal.clock import SystemClock
from tidemill.journal.entries import Committed, Entry
from tidemill.journal.settlements import SettlementLog
from tidemill.kubernetes.api import ClusterApi
from tidemill.kubernetes.driver import Driver, DriverNames
from tidemill.kubernetes.follower import HEARTBEAT_MS, LAG_OLD_MS, SILENCE_MS, TopologyFollower
from tidemill.kubernetes.probes import DriverHealth, DriverMetrics
from tidemill.kubernetes.revision_gate import RevisionPlan
from tidemill.kubernetes.status import RATE_OLD_MS
from tidemill.leader.report import RunnerReport, RunnerState
from tidemill.leader.runner import TopologyRunner
from tidemill.local.runner import LocalRunner
from tidemill.spark.deferred_runner import Engine
from tidemill.store.objects import Buffer, ObjectStore
from tidemill.store.urls import open_store
from tidemill.store.watched import WatchedStore
from tidemill.values.errors import StoreUnavailable
from tidemill.values.ids import Ids


class Small(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        topologies.microbatch("mb").source("*d", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")


class ManualClock(SystemClock):
    at = 1_000_000.0

    def monotonic_ms(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return int(self.at)


class HangingStore:
    """A store of which every call waits while `gate` is closed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.gate = threading.Event()
        self.gate.set()
        self.url, self.counts = store.url, store.counts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any) -> Any:
            self.gate.wait(60)
            return method(*arguments)

        return method if name == "local_path" else call

    def create(self, key: str, data: Buffer) -> None:
        self.gate.wait(60)
        self._store.create(key, data)


# The store is watched


def test_silence_counts_from_the_last_answer_while_a_call_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    hanging = HangingStore(open_store(tmp_path.as_uri()))
    store = WatchedStore(cast(ObjectStore, hanging), clock.monotonic_ms)
    clock.at += 5_000
    assert store.silence() == (0.0, ""), "nothing was asked"

    hanging.gate.clear()
    thread = threading.Thread(target=store.exists, args=("a/key",))
    thread.start()
    eventually(lambda: store.silence()[1] == "exists a/key")
    clock.at += 3_000
    assert store.silence() == (3_000.0, "exists a/key")

    hanging.gate.set()
    thread.join(10)
    assert store.silence() == (0.0, "")


def test_a_large_object_is_no_silence_when_other_calls_come_back(tmp_path: Path) -> None:
    clock = ManualClock()
    hanging = HangingStore(open_store(tmp_path.as_uri()))
    store = WatchedStore(cast(ObjectStore, hanging), clock.monotonic_ms)
    hanging.gate.clear()
    large = threading.Thread(target=store.create, args=("large", b"x"))
    large.start()
    eventually(lambda: store.silence()[1] == "create large")
    clock.at += 60_000
    with store._call("get", "small"):
        pass
    clock.at += 1_000

    assert store.silence() == (1_000.0, "create large")

    hanging.gate.set()
    large.join(10)


def test_every_call_passes_when_a_store_is_watched(tmp_path: Path) -> None:
    plain = open_store(tmp_path.as_uri())
    store = WatchedStore(plain, SystemClock().monotonic_ms)
    store.create("a/1", b"one")
    store.create("a/2", b"two")

    assert (store.get("a/1"), store.get_range("a/2", 1, 1), store.exists("a/3")) == (b"one", b"w", False)
    assert (list(store.list("a")), list(store.list("a", "a/1"))) == (["a/1", "a/2"], ["a/2"])
    store.delete("a/1")
    assert list(store.list("a")) == ["a/2"] and store.local_path("a/2") == plain.local_path("a/2")
    assert store.counts is plain.counts and store.silence() == (0.0, "")


# What the status says


class Resources:
    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def module(self, name: str) -> Any:
        return {"spec": {}}

    def topology(self, name: str) -> Any:
        return {"spec": {}}

    def apply_topology_status(self, name: str, status: Mapping[str, Any]) -> bool:
        self.written.append(dict(status))
        return True


class Followed:
    """A follower whose runner, clock and store's silence a test sets."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.resources, self.health = ManualClock(), Resources(), DriverHealth()
        self.silence: tuple[float, str] = (0.0, "")
        self.definition = definition = definitions.launch(record_module(Small()), 2, 1, Ids(1))
        self.store = open_store(folder.as_uri())
        self.runner = SimpleNamespace(
            topology="mb", wake=lambda: None, state=committed_state(),
            status=lambda: self.runner.state.status(definition, "mb"),
        )  # fmt: skip
        self.follower = TopologyFollower(
            self.resources, self.store, definition,
            cast(TopologyRunner, self.runner), self.health, self.clock, module="m", topology="t", revision=1,
            leader="pod", silence=lambda: self.silence,
        )  # fmt: skip

    def report(self) -> dict[str, Any]:
        self.follower.report()
        return self.resources.written[-1]


def committed_state(phase: Phase = "process", trouble: str = "") -> RunnerState:
    metrics = {"prime_ms": 50.0, "process_ms": 40.0, "commit_ms": 10.0}
    done = Committed(5, 0, 7, 100, metrics)
    entry = Entry("commit", "nonce", 1, 1, 0, processed=100, committed=(done,))
    return RunnerState("leader", 7, entry, RunnerReport(phase=phase, store_trouble=trouble))


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_the_heartbeat_is_written_at_its_pace_when_nothing_else_changes(followed: Followed) -> None:
    followed.follower.measure()
    first = followed.report()["heartbeatTime"]
    for _ in range(9):
        followed.clock.at += HEARTBEAT_MS / 10
        followed.follower.measure()
        followed.follower.report()
    assert len(followed.resources.written) == 1

    followed.clock.at += HEARTBEAT_MS / 10
    assert followed.report()["heartbeatTime"] > first
    assert len(followed.resources.written) == 2


def test_a_silent_store_is_told_of_once_when_it_does_not_answer(followed: Followed) -> None:
    followed.follower.measure()
    assert "storeTrouble" not in followed.report()

    followed.silence = (SILENCE_MS, "create c/12")
    told = followed.report()
    assert "has not answered since 1970-01-01T00:16:37Z (create c/12)" in told["storeTrouble"]
    assert told["rowsPerSecond"] == 0.0
    writes = len(followed.resources.written)
    for _ in range(5):
        followed.clock.at += 1_000
        followed.silence = (followed.silence[0] + 1_000, "create c/12")
        followed.follower.report()
    assert len(followed.resources.written) == writes, "the same trouble is no news each second"

    followed.silence = (0.0, "")
    followed.follower.measure()
    assert "storeTrouble" not in followed.report()


def test_what_the_store_answered_is_told_when_it_answers_with_errors(followed: Followed) -> None:
    followed.runner.state = committed_state(trouble="503 from s3")

    assert followed.report()["storeTrouble"] == "503 from s3"


def test_lag_is_left_out_when_it_could_not_be_read_for_long(followed: Followed) -> None:
    assert "lagTotal" not in followed.report()
    followed.follower.measure()
    assert followed.report()["lagTotal"] == 0
    followed.clock.at += LAG_OLD_MS
    assert "lagTotal" not in followed.report() and "lag" not in followed.resources.written[-1]


COUNTS = ("quarantinedCount", "inQuarantineCount", "unpublishedCount")


def test_the_topology_tells_what_waits_in_its_quarantine_and_to_be_published(followed: Followed) -> None:
    state = followed.runner.state
    assert {name: followed.report()[name] for name in COUNTS} == dict.fromkeys(COUNTS, 0)

    entry = replace(state.entry, quarantined=5)
    followed.runner.state = replace(state, entry=entry, report=replace(state.report, unpublished=2))
    told = followed.report()
    assert (told["quarantinedCount"], told["unpublishedCount"]) == (5, 2)
    assert "inQuarantineCount" not in told, "nobody asked the store yet"

    followed.follower.count_settled()
    assert followed.report()["inQuarantineCount"] == 5
    log = SettlementLog(followed.store, followed.definition.topology_prefix("mb"))
    log.append(log.newest(), "drop", [0, 3], 0)
    followed.follower.count_settled()
    assert followed.report()["inQuarantineCount"] == 3


def test_the_rate_is_nothing_when_the_stream_is_quiet(followed: Followed) -> None:
    followed.follower.measure()
    busy = followed.report()["rowsPerSecond"]
    followed.runner.state = committed_state("idle")
    followed.clock.at += RATE_OLD_MS + 1
    quiet = followed.report()["rowsPerSecond"]

    assert (busy > 0, quiet) == (True, 0.0)


# A whole driver


def open_local() -> Engine:
    return Engine(LocalRunner())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubernetes]:
    made = FakeKubernetes()
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(tmp_path)))
    made.put("modules", "m", spec={}, status={"activeRevision": 1})
    made.put("topologies", "t", spec={})
    yield made
    made.close()


def test_the_topology_says_that_its_store_hangs_before_a_call_gives_up(tmp_path: Path, fake: FakeKubernetes) -> None:
    hanging = HangingStore(open_store((tmp_path / "store").as_uri()))
    clock, told, stop = SystemClock(), DriverHealth(), threading.Event()
    store, api = WatchedStore(cast(ObjectStore, hanging), clock.monotonic_ms), ClusterApi("default")
    plan = RevisionPlan(record_module(Small()), 1, 0, 2, 1)
    names = DriverNames("m", "t", "mb", "pod", "uid")
    driver = Driver(names, plan, store, api, open_local, told, DriverMetrics(told, {}), clock, store.silence)
    thread = threading.Thread(target=driver.run, args=(stop,))
    thread.start()

    def status() -> Mapping[str, Any]:
        return dict((fake.get("topologies", "t") or {}).get("status", {}))

    try:
        eventually(lambda: "heartbeatTime" in status() and "lagTotal" in status(), 20)
        assert "storeTrouble" not in status()
        hanging.gate.clear()
        eventually(lambda: "has not answered since" in status().get("storeTrouble", ""), 20)
    finally:
        hanging.gate.set()
        stop.set()
        thread.join(30)
        api.close()
    assert not thread.is_alive()


def test_an_error_of_the_store_is_passed_on_when_it_is_watched(tmp_path: Path) -> None:
    class Away(HangingStore):
        def __getattr__(self, name: str) -> Any:
            raise StoreUnavailable("away")

    store = WatchedStore(cast(ObjectStore, Away(open_store(tmp_path.as_uri()))), SystemClock().monotonic_ms)
    with pytest.raises(StoreUnavailable):
        store.get("a")
    assert store.silence() == (0.0, "")
