"""A driver leads before its engine is there: what runs at once, what waits, and what a failed engine leads to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attempts import Attempts
from fake_kubernetes import FakeKubernetes
from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, PState
from tidemill import Path as TidemillPath
from tidemill.api.declaration import record_module
from tidemill.clients.depot import DepotHandle
from tidemill.clients.hub import AppendHub
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.engine.work import AttemptOutcome, AttemptWork, Cancel
from tidemill.journal.clock import SystemClock
from tidemill.kubernetes.api import ClusterApi
from tidemill.kubernetes.drive import START_MS, patiently
from tidemill.kubernetes.driver import Driver, DriverNames
from tidemill.kubernetes.probes import DriverHealth, DriverMetrics
from tidemill.kubernetes.revision_gate import RevisionPlan
from tidemill.local.runner import LocalRunner
from tidemill.spark import deferred_runner as openings
from tidemill.spark.deferred_runner import DeferredRunner, Engine
from tidemill.store.urls import open_store
from tidemill.values.errors import AttemptLost, AttemptTimeout, EngineUnavailable, StoreUnavailable


class Counting(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*records", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(int, int))
        source = mb.source("*records", MicrobatchSourceOptions.start_from_beginning()).out("*m")
        counted = source.explode_microbatch("*m").out("*record").hash_partition("*record")
        counted.compound_agg("$$counts", CompoundAgg.map("*record", Agg.count()))


class Runner(LocalRunner):
    """An engine that notes what it ran."""

    def __init__(self) -> None:
        self.ran = 0

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        self.ran += 1
        return super().run(work, cancel)


class Gate:
    """Opens an engine when it is told to, or fails."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.runner = Runner()
        self.has_workers = True
        self.error: Exception | None = None
        self.closed = 0

    def __call__(self) -> Engine:
        self.is_open.wait(20)
        if self.error is not None:
            raise self.error
        return Engine(self.runner, "spark-1", lambda: self.has_workers, self._close)

    def _close(self) -> None:
        self.closed += 1


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.is_open.set()


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    made = Attempts(tmp_path, Counting())
    made.feed("*records", [1, 2, 2])
    return made


def test_a_small_attempt_runs_at_once_when_the_engine_is_not_there(gate: Gate, attempts: Attempts) -> None:
    opening = DeferredRunner(gate, SystemClock())

    outcome = opening.run(attempts.work(), threading.Event())

    assert outcome.exploded
    assert gate.runner.ran == 0
    assert not opening.is_warm


def test_a_small_attempt_runs_here_when_the_engine_has_lost_its_workers(gate: Gate, attempts: Attempts) -> None:
    gate.is_open.set()
    opening = DeferredRunner(gate, SystemClock())
    eventually(lambda: opening.is_warm)
    gate.has_workers = False
    opening.run(attempts.work(), threading.Event())
    assert gate.runner.ran == 0

    gate.has_workers = True
    opening.run(attempts.work(), threading.Event())

    assert gate.runner.ran == 1


def test_an_attempt_runs_here_when_it_has_no_records(gate: Gate, tmp_path: Path) -> None:
    gate.is_open.set()
    opening = DeferredRunner(gate, SystemClock())
    eventually(lambda: opening.is_warm)
    empty = Attempts(tmp_path, Counting())

    opening.run(empty.work(), threading.Event())

    assert gate.runner.ran == 0


@pytest.mark.parametrize("option", ["spread", "fused"])
def test_an_attempt_waits_when_its_place_was_chosen(gate: Gate, attempts: Attempts, option: str) -> None:
    attempts.options["topology.microbatch.placement"] = option
    _check_waits(gate, attempts.work())


def test_an_attempt_waits_when_it_is_large(gate: Gate, attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "EARLY_ROWS_MAX", 2)
    _check_waits(gate, attempts.work())


def _check_waits(gate: Gate, work: AttemptWork) -> None:
    opening, cancel = DeferredRunner(gate, SystemClock()), Cancel()
    outcomes: list[AttemptOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(opening.run(work, cancel)))
    thread.start()
    eventually(lambda: "still starting" in cancel.find().step)
    assert not outcomes
    gate.is_open.set()
    thread.join(20)
    assert gate.runner.ran == len(outcomes) == 1


def test_an_attempt_that_waits_ends_when_it_is_cancelled(gate: Gate, attempts: Attempts) -> None:
    attempts.options["topology.microbatch.placement"] = "spread"
    cancel = Cancel()
    cancel.set()

    with pytest.raises(AttemptTimeout):
        DeferredRunner(gate, SystemClock()).run(attempts.work(), cancel)


def test_what_waits_fails_and_the_reason_is_told_when_the_engine_does_not_open(gate: Gate, attempts: Attempts) -> None:
    attempts.options["topology.microbatch.placement"] = "spread"
    gate.error = EngineUnavailable("no room for executors")
    gate.is_open.set()
    opening = DeferredRunner(gate, SystemClock())

    with pytest.raises(AttemptLost, match="no room"):
        opening.run(attempts.work(), threading.Event())
    with pytest.raises(EngineUnavailable):
        opening.check()


def test_an_engine_is_ended_when_it_opens_for_a_driver_that_is_through(gate: Gate) -> None:
    opening = DeferredRunner(gate, SystemClock())
    opening.close()
    assert gate.closed == 0

    gate.is_open.set()

    eventually(lambda: gate.closed == 1)


# --- a start on a store that does not answer


class Ticking(SystemClock):
    """Waiting is all that takes time."""

    at = 0.0

    def monotonic_ms(self) -> float:
        return self.at

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        self.at += timeout_ms
        return event.is_set()


def test_a_start_waits_when_the_store_does_not_answer_yet() -> None:
    answers = [StoreUnavailable("busy"), StoreUnavailable("busy"), "a driver"]

    def make() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    told = DriverHealth()
    assert patiently(make, told, threading.Event(), Ticking()) == "a driver"
    assert told.text == "busy"


def test_a_start_ends_with_the_reason_when_the_store_does_not_answer_for_long() -> None:
    def make() -> object:
        raise StoreUnavailable("busy")

    clock = Ticking()
    with pytest.raises(StoreUnavailable):
        patiently(make, DriverHealth(), threading.Event(), clock)
    assert clock.at >= START_MS


def test_a_start_ends_when_it_is_asked_to_stop() -> None:
    stop = threading.Event()
    stop.set()
    assert patiently(lambda: "a driver", DriverHealth(), stop, Ticking()) is None


# --- a whole driver


class Field:
    """A driver of revision 1 in a thread, on a small Kubernetes API."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self.fake = FakeKubernetes()
        self.fake.put("modules", "m", spec={}, status={"activeRevision": 1})
        self.fake.put("topologies", "t", spec={})
        self.kubeconfig = str(self.fake.kubeconfig(folder))
        self.store = open_store((folder / "store").as_uri())
        self.health, self.stop, self.errors = DriverHealth(), threading.Event(), list[BaseException]()
        self._gate = gate
        self.client = ModuleClient(self.store, "Counting", AppendHub(), SystemClock())

    def start(self) -> None:
        plan = RevisionPlan(record_module(Counting()), 1, 0, 2, 1)
        self.api = ClusterApi("default")
        driver = Driver(
            DriverNames("m", "t", "mb", "pod", "uid"), plan, self.store, self.api, self._gate, self.health,
            DriverMetrics(self.health, {}), SystemClock(),
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, args=(driver.run,))
        self._thread.start()

    def _run(self, run: Callable[[threading.Event], None]) -> None:
        try:
            run(self.stop)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.errors.append(error)

    def count(self, record: int) -> object:
        return PStateHandle(self.client, "$$counts").select_one(TidemillPath.key(record))

    def append(self, record: int) -> None:
        DepotHandle(self.client, "*records").append(record)

    def join(self) -> None:
        self.stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.join()
        self.api.close()
        self.fake.close()


@pytest.fixture
def field(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    made = Field(tmp_path, gate)
    monkeypatch.setenv("KUBECONFIG", made.kubeconfig)
    made.start()
    yield made
    gate.is_open.set()
    made.close()


def test_rows_come_before_the_engine_and_the_driver_is_ready_with_it_when_nobody_else_leads(
    field: Field, gate: Gate
) -> None:
    eventually(lambda: field.health.state == "leader")
    field.append(7)
    eventually(lambda: field.count(7) == 1)
    assert not field.health.is_ready

    gate.is_open.set()
    eventually(lambda: field.health.is_ready)
    field.append(8)
    eventually(lambda: field.count(8) == 1)

    assert gate.runner.ran >= 1
    assert not field.errors


def test_the_driver_ends_with_the_reason_when_its_engine_does_not_open_while_it_leads(field: Field, gate: Gate) -> None:
    eventually(lambda: field.health.state == "leader")
    gate.error = EngineUnavailable("no room for executors")
    gate.is_open.set()

    eventually(lambda: field.errors)

    assert isinstance(field.errors[0], EngineUnavailable)
    lease = field.fake.get("leases", "t")
    assert lease is not None
    assert not lease["spec"].get("holderIdentity"), "another driver need not wait for its end"
