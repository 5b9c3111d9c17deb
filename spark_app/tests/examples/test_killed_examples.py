"""Two examples under a load that never stops, while `tidemill run` is killed (SIGKILL) again and again: whoever reads
meanwhile sees whole microbatches only, and in the end the results are exact.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from examples.bank_transfer.load import ACCOUNTS, Transfers
from examples.social_graph.load import PAGE, PAGES, PEOPLE, Posts
from waiting import eventually

from tidemill import InProcessCluster, Path
from tidemill.clients.history import topology_history
from tidemill.clients.status_reader import topology_status
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.definition_log import DefinitionLog
from tidemill.leader.check import check_module
from tidemill.store.urls import connect

ROOT = Folder(__file__).resolve().parents[3]
KILLS = 2
RECORDS_BETWEEN_KILLS = 60
WAIT_SECONDS = 120
ENTRIES_MAX = 100_000


class Story:
    """A store, a runner in a process of its own, and a client in this one."""

    def __init__(self, folder: Folder, entry: str, topology: str) -> None:
        self.url = (folder / "store").as_uri()
        self.entry, self.topology = entry, topology
        self.name = entry.rpartition(":")[2]
        self.client = InProcessCluster.create("local", store=self.url)
        self.errors = folder / "stderr"
        self.runner: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", "from tidemill.cli.main import app; app()", "run", self.entry]
        options = ["--store", self.url, "--engine", "local", "--tasks", "4", "--threads", "2", "--json"]
        with open(self.errors, "ab") as errors:
            self.runner = subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        eventually(self.definition, WAIT_SECONDS)

    def kill(self) -> None:
        assert self.runner is not None
        self.runner.send_signal(signal.SIGKILL)
        assert self.runner.wait() == -signal.SIGKILL, self.errors.read_text()

    def append(self, depot: str, *records: Any) -> None:
        self.client.cluster_depot(self.name, depot).append_many(list(records))

    def pstate(self, name: str) -> Any:
        return self.client.cluster_pstate(self.name, name)

    def kill_under_load(self, load: Callable[[], None]) -> None:
        """Append all the time, in another thread, while the runner is killed KILLS times; a new one follows each."""
        over = threading.Event()

        def append() -> None:
            while not over.is_set():
                load()
                over.wait(0.02)

        thread = threading.Thread(target=append)
        thread.start()
        try:
            for _ in range(KILLS):
                enough = self.processed() + RECORDS_BETWEEN_KILLS  # nobody but this runner can process them
                eventually(lambda enough=enough: self.processed() >= enough, WAIT_SECONDS)
                self.kill()
                self.start()
        finally:
            over.set()
            thread.join()

    def definition(self) -> StoredDefinition | None:
        return DefinitionLog(connect(self.url), self.name).newest()

    def processed(self) -> int:
        definition = self.definition()
        assert definition is not None
        return topology_status(connect(self.url), definition, self.topology).processed

    def settle(self) -> None:
        self.client.wait_until_processed(self.name, timeout_millis=WAIT_SECONDS * 1_000)

    def maps(self, name: str, keys: list[str]) -> dict[str, dict[Any, Any]]:
        """The map that a PState has at each key."""
        return {key: dict(self.pstate(name).select(Path.key(key).all())) for key in keys}

    def check(self) -> None:
        """Each runner took over from the one that was killed, and `tidemill check` finds nothing."""
        store, definition = connect(self.url), self.definition()
        assert definition is not None
        kinds = [line["kind"] for line in topology_history(store, definition, self.topology, ENTRIES_MAX)]
        assert kinds.count("claim") == 1 + KILLS
        assert check_module(store, self.name) == []

    def close(self) -> None:
        if self.runner is not None and self.runner.poll() is None:
            self.kill()
        self.client.close()


class Watch:
    """Reads all the time, in a thread of its own, and keeps what `look` says is wrong."""

    def __init__(self, look: Callable[[], list[str]]) -> None:
        self.looks = 0
        self.faults: list[str] = []
        self._look = look
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self.faults += self._look()
            self.looks += 1
            self._over.wait(0.01)


@pytest.fixture
def story(tmp_path: Folder, request: pytest.FixtureRequest) -> Iterator[Story]:
    made = Story(tmp_path, *request.param)
    yield made
    made.close()


@pytest.mark.parametrize("story", [("examples.bank_transfer.module:BankTransfer", "bank")], indirect=True)
def test_no_cent_is_lost_when_the_bank_is_killed_under_load(story: Story) -> None:
    transfers = Transfers()
    story.start()
    story.append("*deposits", *transfers.first())
    story.settle()
    with Watch(lambda: transfers.faults_of_state(dict(story.pstate("$$funds").scan()))) as watch:
        story.kill_under_load(lambda: story.append("*transfers", *transfers.more(10)))
        story.settle()

    assert (watch.faults, watch.looks > KILLS) == ([], True)
    sent, received = (story.maps(name, ACCOUNTS) for name in ("$$sent", "$$received"))
    assert transfers.faults(sent, received, dict(story.pstate("$$funds").scan())) == []
    story.check()


@pytest.mark.parametrize("story", [("examples.social_graph.load:SmallPages", "social")], indirect=True)
def test_each_fan_gets_each_post_once_when_the_graph_is_killed_under_load(story: Story) -> None:
    posts = Posts()
    story.start()
    story.append("*follows", *posts.first())
    story.settle()
    story.kill_under_load(lambda: story.append("*posts", *posts.more(3)))
    for _ in range(1 + len(PEOPLE) // (PAGE * PAGES)):  # each wait sees one more page of the last deliveries
        story.settle()

    assert story.maps("$$timelines", PEOPLE) == posts.timelines()
    deliveries = story.client.cluster_depot(story.name, "*deliveries")
    infos = [deliveries.get_partition_info(p) for p in range(deliveries.get_object_info().num_partitions)]
    assert sum(info.end_offset - info.start_offset for info in infos) == posts.pages_left()
    story.check()
