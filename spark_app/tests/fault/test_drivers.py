"""Real driver processes on one store and a small Kubernetes API: hand-over, fencing, outages, stray pods."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import FakeKubernetes
from waiting import eventually

from tidemill import Path as TidemillPath
from tidemill.clients.depot import DepotHandle
from tidemill.clients.hub import AppendHub
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Entry
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.deletions import Deletions
from tidemill.store.urls import open_store

FOLDER = Path(__file__).parent
SECONDS = 40.0
pytestmark = pytest.mark.slow


class Field:
    """A store, an API with a Module and a Topology, and driver processes."""

    def __init__(self, folder: Path, url: str = "") -> None:
        """`url`: the store of another field, which this one is a copy of."""
        self.folder = folder
        self.url = url or (folder / "store").as_uri()
        (folder / "store").mkdir(parents=True)
        self.store = open_store(self.url)
        self.fake = FakeKubernetes()
        self.kubeconfig = str(self.fake.kubeconfig(folder))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.appended = 0
        self.over = threading.Event()
        self.fake.put("modules", "m", spec={}, status={})
        self.fake.put("topologies", "t", spec={})

    def start(self, revision: int, base: int, pod: str, *, extra: bool = False, **more: str) -> Driver:
        driver = Driver(self, revision, base, pod, extra, more)
        self.processes.append(driver.process)
        return driver

    def activate(self, revision: int) -> None:
        self.fake.put("modules", "m", status={"activeRevision": revision})

    def close(self) -> None:
        self.over.set()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.fake.close()

    # --- the stream --------------------------------------------------------------------------------------------------

    def client(self) -> ModuleClient:
        return ModuleClient(self.store, "Driven", AppendHub(), SystemClock())

    def append(self) -> None:
        DepotHandle(self.client(), "*records").append(self.appended)
        self.appended += 1

    def append_on(self) -> None:
        """Append again and again until the field is closed, or `over` is set."""
        depot = DepotHandle(self.client(), "*records")

        def run() -> None:
            while not self.over.wait(0.02):
                depot.append(self.appended)
                self.appended += 1

        self._appender = threading.Thread(target=run, daemon=True)
        self._appender.start()

    def finish(self) -> None:
        """No more appends; every record is counted exactly once in the end."""
        self.over.set()
        if hasattr(self, "_appender"):
            self._appender.join()
        eventually(lambda: (head := self.head()) is not None and head.processed == self.appended, SECONDS)
        counts = PStateHandle(self.client(), "$$counts")
        assert [counts.select_one(TidemillPath.key(number)) for number in range(self.appended)] == [1] * self.appended

    def log(self) -> CommitLog | None:
        definition = DefinitionLog(self.store, "Driven").newest()
        return None if definition is None else CommitLog(self.store, definition.topology_prefix("mb"))

    def head(self) -> Entry | None:
        log = self.log()
        found = log.head() if log is not None else None
        return found[1] if found else None

    def entries(self) -> list[Entry]:
        log = self.log()
        assert log is not None
        return [entry for _, entry in log.tail(100_000)]

    def committed(self) -> int:
        head = self.head()
        return head.last_id if head is not None else 0

    def status(self) -> dict[str, Any]:
        found = self.fake.get("topologies", "t")
        return dict(found.get("status", {})) if found else {}


class Driver:
    def __init__(self, field: Field, revision: int, base: int, pod: str, extra: bool, more: dict[str, str]) -> None:
        self.port = _free_port()
        field.fake.put("pods", pod, metadata={"name": pod, "namespace": "default", "uid": f"uid-{pod}"})
        environment = {
            **os.environ, "KUBECONFIG": field.kubeconfig, "POD_NAME": pod, "POD_NAMESPACE": "default",
            "POD_IP": "127.0.0.1", "POD_UID": f"uid-{pod}", "PYTHONPATH": str(FOLDER),
            "TIDEMILL_TEST_EXTRA": "1" if extra else "",
        }  # fmt: skip
        arguments = {
            "--store": field.url, "--module-resource": "m", "--topology-resource": "t", "--topology": "mb",
            "--revision": str(revision), "--definition-base": str(base), "--engine": "local", "--tasks": "2",
            "--threads": "1", "--port": str(self.port), **more,
        }  # fmt: skip
        entry = arguments.pop("entry", "driven:Driven")
        command = [str(Path(sys.executable).with_name("tidemill")), "drive", entry]
        self.output = field.folder / f"{pod}.log"
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                [*command, *(part for pair in arguments.items() for part in pair)],
                env=environment, cwd=FOLDER, stdout=stream, stderr=stream,
            )  # fmt: skip

    def probe(self, page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{page}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def says(self, state: str) -> bool:
        assert self.process.poll() is None, self.output.read_text()
        return f'"state": "{state}"' in self.probe("/readyz")[1]

    def wait_until(self, state: str) -> None:
        eventually(lambda: self.says(state), SECONDS)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def watched(condition: Callable[[], bool]) -> float:
    """Seconds until it is so."""
    begin = time.monotonic()
    eventually(condition, SECONDS)
    return time.monotonic() - begin


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    made = Field(tmp_path)
    yield made
    made.close()


def leading(field: Field) -> Driver:
    """Revision 1 leads and has committed something."""
    driver = field.start(1, 0, "one")
    driver.wait_until("waiting")
    assert DefinitionLog(field.store, "Driven").newest() is None
    field.activate(1)
    driver.wait_until("leader")
    field.append()
    eventually(lambda: field.committed() > 0, SECONDS)
    return driver


def test_new_revision_goes_on_at_the_microbatch_boundary_when_it_becomes_active(
    field: Field, record_property: Callable[[str, object], None]
) -> None:
    old = leading(field)
    field.append_on()
    new = field.start(2, 1, "two", extra=True)
    new.wait_until("waiting")
    field.activate(2)
    new.wait_until("leader")
    old.wait_until("superseded")
    assert old.probe("/readyz")[0] == 503
    assert old.probe("/healthz")[0] == 200
    before = field.committed()
    eventually(lambda: field.committed() > before + 3, SECONDS)
    eventually(lambda: field.status().get("leader") == "two" and field.status()["commitsSinceClaim"] > 3, SECONDS)
    field.finish()
    entries = field.entries()
    claim = next(entry for entry in entries if entry.kind == "claim" and entry.definition == 2)
    assert claim.attempt is None, "the old leader finished its microbatch"
    last = max(e.written_ms for e in entries if e.kind == "commit" and e.definition == 1)
    first = min(e.written_ms for e in entries if e.kind == "commit" and e.definition == 2)
    record_property("gap_ms", first - last)
    assert first - last < 5_000
    assert {entry.last_version for entry in entries} == {0, 1}, "no microbatch was tried twice"


def test_standby_takes_over_when_the_leader_is_killed(
    field: Field, record_property: Callable[[str, object], None]
) -> None:
    leader = leading(field)
    standby = field.start(1, 0, "standby")
    standby.wait_until("standby")
    field.append_on()
    before = field.committed()
    eventually(lambda: field.committed() > before + 2, SECONDS)
    leader.process.kill()
    leader.process.wait()
    before = field.committed()
    gap = watched(lambda: field.committed() > before + 1)
    record_property("gap_s", round(gap, 2))
    assert gap < 8
    field.finish()


def test_paused_leader_can_not_commit_when_it_wakes_after_its_lease(field: Field) -> None:
    leader = leading(field)
    standby = field.start(1, 0, "standby")
    standby.wait_until("standby")
    field.append_on()
    leader.process.send_signal(signal.SIGSTOP)
    epoch = field.entries()[-1].epoch
    eventually(lambda: field.entries()[-1].epoch == epoch + 1, SECONDS)
    before = field.committed()
    eventually(lambda: field.committed() > before + 2, SECONDS)
    leader.process.send_signal(signal.SIGCONT)
    leader.wait_until("standby")
    field.finish()
    epochs = [entry.epoch for entry in field.entries()]
    assert epochs == sorted(epochs), "nothing of the old epoch after the new claim"


def test_stray_pod_of_an_older_revision_does_nothing_when_a_newer_one_leads(field: Field) -> None:
    leading(field)
    new = field.start(2, 1, "two", extra=True)
    field.activate(2)
    new.wait_until("leader")
    field.activate(1)
    stray = field.start(1, 0, "stray")
    stray.wait_until("superseded")
    other = field.start(3, 0, "other")
    other.wait_until("superseded")
    assert new.says("leader")
    assert DefinitionLog(field.store, "Driven").newest_number() == 2


def test_stream_goes_on_when_the_api_is_away_and_the_topology_deleted(field: Field) -> None:
    driver = leading(field)
    field.append_on()
    field.fake.delete("topologies", "t")
    field.fake.is_away = True
    end = time.monotonic() + float(os.environ.get("TIDEMILL_OUTAGE_SECONDS", "8"))
    while time.monotonic() < end:
        before = field.committed()
        eventually(lambda known=before: field.committed() > known, 5)  # type: ignore[misc]
    field.fake.is_away = False
    field.fake.put("topologies", "t", spec={})
    eventually(lambda: field.status().get("epoch") == 1, SECONDS)
    assert driver.says("leader")
    field.finish()


def test_microbatch_is_finished_and_the_lease_released_when_asked_to_stop(field: Field) -> None:
    driver = leading(field)
    field.append_on()
    eventually(lambda: field.committed() > 3, SECONDS)
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(20) == 0, driver.output.read_text()
    lease = field.fake.get("leases", "t")
    assert lease is not None and lease["spec"]["holderIdentity"] == ""
    assert field.entries()[-1].attempt is None
    again = field.start(1, 0, "one")
    again.wait_until("leader")
    field.finish()


def test_options_and_pause_follow_the_topology_when_it_is_edited(field: Field) -> None:
    driver = leading(field)
    name = "depot.microbatch.max.records"
    field.fake.put("topologies", "t", spec={"paused": True, "options": {name: 7}})
    eventually(lambda: field.status().get("phase") == "Paused", SECONDS)
    found = OptionsLog(field.store, "Driven").read()
    assert found.values == {("depot", "*records"): {name: 7}}
    field.fake.put("topologies", "t", spec={})
    eventually(lambda: field.status().get("phase") == "Idle", SECONDS)
    assert OptionsLog(field.store, "Driven").read().managed == {}
    assert 'tidemill_leader{module="m"' in driver.probe("/metrics")[1]


def test_idle_leader_shows_in_the_store_until_it_is_killed(field: Field) -> None:
    driver = leading(field)
    eventually(lambda: field.status().get("phase") == "Idle", SECONDS)
    leader = f"process {driver.process.pid}"
    code, text = command(field, "status", "Driven", "--json")
    assert (code, leader in text, '"state": "running"' in text) == (0, True, True), text
    code, text = command(field, "destroy", "Driven", "--yes")
    assert (code, leader in text) == (1, True), text
    code, text = command(field, "pause", "Driven", "mb")
    assert code == 0 and json.loads(command(field, "status", "Driven", "--json")[1])[0]["state"] == "paused", text
    driver.process.kill()
    driver.process.wait()
    code, text = command(field, "destroy", "Driven", "--yes")
    assert code == 0, text


def test_deleted_pstate_is_there_again_when_a_rollback_restores_it_and_gone_when_it_is_stable(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = field.start(1, 0, "one", extra=True)
    field.activate(1)
    first.wait_until("leader")
    definitions = DefinitionLog(field.store, "Driven")
    old = definitions.read(1).pstate("$$more")[1].id
    second = field.start(2, 1, "two", **{"--objects-to-delete": "$$more"})
    field.activate(2)
    second.wait_until("leader")
    field.append_on()
    assert [gone.name for gone in definitions.read(2).retired] == ["$$more"]

    monkeypatch.setenv("TIDEMILL_RESTORE_RETIRED", "1")
    third = field.start(3, 2, "three", extra=True)
    field.activate(3)
    third.wait_until("leader")
    assert definitions.read(3).pstate("$$more")[1].id == old

    monkeypatch.delenv("TIDEMILL_RESTORE_RETIRED")
    fourth = field.start(4, 3, "four", **{"--objects-to-delete": "$$more"})
    field.fake.put("modules", "m", status={"activeRevision": 4, "currentRevision": 4})
    fourth.wait_until("leader")
    stable = definitions.read(4)
    eventually(lambda: Deletions(field.store, "Driven").decision(stable) is not None, SECONDS)
    field.finish()

    monkeypatch.setenv("TIDEMILL_RESTORE_RETIRED", "1")
    fifth = field.start(5, 4, "five", extra=True)
    assert fifth.process.wait(30) == 1
    assert "deleted by definition 4" in fifth.output.read_text()


@pytest.fixture
def copy(field: Field, tmp_path: Path) -> Iterator[Field]:
    """Another Module with the same manifest, in another namespace or cluster."""
    made = Field(tmp_path / "copy", field.url)
    yield made
    made.close()


OURS, THEIRS = "c1/prod/m/u1", "c2/prod/m/u2"


def owned_by(owner: str, pod: str, field: Field, base: int = 0, **more: str) -> Driver:
    driver = field.start(1, base, pod, **{"--owner": owner, **more})
    field.activate(1)
    return driver


def command(field: Field, *words: str) -> tuple[int, str]:
    program = str(Path(sys.executable).with_name("tidemill"))
    done = subprocess.run([program, *words, "--store", field.url], cwd=FOLDER, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_copy_on_the_same_store_is_refused_and_can_not_destroy_when_the_original_runs(
    field: Field, copy: Field
) -> None:
    original = owned_by(OURS, "one", field)
    original.wait_until("leader")
    field.append_on()
    twin = owned_by(THEIRS, "two", copy)  # described before the original wrote its definition
    later = owned_by(THEIRS, "three", copy, base=1)
    for driver in (twin, later):
        assert driver.process.wait(SECONDS) == 5, driver.output.read_text()
        assert "belongs to the Kubernetes Module prod/m (uid u1 of cluster c1)" in driver.output.read_text()
    for words in (("destroy", "Driven", "--yes", "--owner", THEIRS), ("destroy", "Driven", "--yes"), RUN):
        code, text = command(field, *words)
        assert (code, "prod/m" in text) == (5, True), text
    code, text = command(field, "destroy", "Driven", "--yes", "--take-over")
    assert (code, "is led by" in text) == (1, True), text
    before = field.committed()
    eventually(lambda: field.committed() > before + 2, SECONDS)
    assert original.says("leader")
    field.finish()
    assert {entry.epoch for entry in field.entries()} == {1}, "nobody fenced anybody"


RUN = ("run", "driven:Driven", "--engine", "local", "--tasks", "2", "--threads", "1", "--until-idle")


def test_store_goes_to_whom_it_is_given_when_the_word_is_said_and_no_record_is_lost(field: Field, copy: Field) -> None:
    original = owned_by(OURS, "one", field)
    original.wait_until("leader")
    field.append_on()
    eventually(lambda: field.committed() > 2, SECONDS)
    taker = owned_by(THEIRS, "two", copy, base=1, **{"--take-over-from": "u1"})
    taker.wait_until("leader")
    assert original.process.wait(SECONDS) == 5, original.output.read_text()
    assert "takeOverFrom: u2" in original.output.read_text()
    before = field.committed()
    eventually(lambda: field.committed() > before + 2, SECONDS)
    field.finish()
    code, text = command(field, *RUN, "--take-over")
    assert code == 0, text
    assert taker.process.wait(SECONDS) == 5, taker.output.read_text()
    assert command(field, *RUN)[0] == 0, "by hand from now on"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"entry": "driven:Nothing"}, "has no class"),
        ({"--topology": "none"}, "has no topology none"),
        ({"--tasks": "3"}, "power of two"),
        ({"--definition-base": "7"}, "no definition 7"),
    ],
)
def test_driver_is_refused_with_a_sentence_when_it_can_not_be(field: Field, more: dict[str, str], text: str) -> None:
    driver = field.start(1, 0, "one", **more)
    assert driver.process.wait(30) == 1
    assert text in driver.output.read_text().splitlines()[-1]
