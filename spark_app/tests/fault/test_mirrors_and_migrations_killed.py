"""A load that does not stop, while a module, its migration and its reader are killed by SIGKILL: all is exact."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from mirrored_load import KEYS, BankInCents
from waiting import eventually

from tidemill import InProcessCluster, Path
from tidemill.api.declaration import record_module
from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import topology_status
from tidemill.cluster.launch import update
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.leader.check import check_module
from tidemill.plan.check.module import checked
from tidemill.store.urls import connect

HERE = Folder(__file__).parent
SECONDS = 120.0
STEP, AHEAD_MAX = 5, 400
"""Moves of one append; and those that wait at most, so that a slow machine is not buried."""


class Story:
    """A store, processes that run modules on it, and a load."""

    def __init__(self, folder: Folder) -> None:
        self.url, self.folder = (folder / "store").as_uri(), folder
        self.store = connect(self.url)
        self.client = InProcessCluster.create("local", store=self.url)
        self.appended: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.is_over = threading.Event()
        self.wrong: list[BaseException] = []
        self.thread = threading.Thread(target=self._load)

    # --- processes ---

    def run(self, name: str, module: str) -> None:
        """A real `tidemill run`; one of this name that ran before is killed."""
        self.kill(name)
        command = [
            sys.executable,
            "-c",
            "from tidemill.cli.main import app; app()",
            "run",
            f"mirrored_load.py:{module}",
        ]
        command += ["--store", self.url, "--tasks", "4", "--threads", "2", "--engine", "local", "--json"]
        with open(self.folder / f"{name}.err", "ab") as errors:
            process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.DEVNULL, stderr=errors, env=os.environ)
        self.processes[name] = process

    def kill(self, name: str) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        self.is_over.set()
        if self.thread.is_alive():
            self.thread.join(SECONDS)
        for name in list(self.processes):
            self.kill(name)
        self.client.close()

    # --- the load ---

    def _load(self) -> None:
        depot, number, pace = self.client.cluster_depot("Bank", "*moves"), 0, threading.Event()
        try:
            while not self.is_over.is_set():
                if self.appended.total() - self.processed("Bank") >= AHEAD_MAX:
                    pace.wait(0.01)
                    continue
                moves = [[KEYS[(number + at) % len(KEYS)], number + at + 1] for at in range(STEP)]
                number += STEP
                depot.append_many(moves)
                self.appended.update(key for key, _ in moves)
                for key, amount in moves:
                    self.sums[key] += amount
        except BaseException as error:  # noqa: BLE001 - told at the end of the test
            self.wrong.append(error)

    def processed(self, module: str) -> int:
        definition = DefinitionLog(self.store, module).newest()
        head = CommitLog(self.store, definition.topology_prefix("mb")).head() if definition is not None else None
        return head[1].processed if head is not None else 0

    def goes_on(self, module: str, count: int = 200) -> None:
        """Return when a module has processed so many more records."""
        until = self.processed(module) + count
        eventually(lambda: self.processed(module) >= until or self.wrong, SECONDS)
        assert not self.wrong

    def status(self, module: str) -> TopologyStatus:
        definition = DefinitionLog(self.store, module).newest()
        assert definition is not None
        return topology_status(self.store, definition, "mb")

    def values(self, module: str, pstate: str) -> dict[str, Any]:
        handle = self.client.cluster_pstate(module, pstate)
        return {key: handle.select_one(Path.key(key)) for key in KEYS}


@pytest.fixture
def story(tmp_path: Folder) -> Iterator[Story]:
    made = Story(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_all_counts_are_exact_when_mirrors_and_a_migration_live_through_kills_under_a_load(story: Story) -> None:
    story.run("bank", "Bank")
    eventually(lambda: DefinitionLog(story.store, "Bank").newest() is not None, SECONDS)
    story.run("report", "Report")
    story.thread.start()
    story.goes_on("Bank")
    story.goes_on("Report")

    story.run("bank", "Bank")  # kills the one before
    story.run("report", "Report")
    story.goes_on("Bank")
    story.goes_on("Report")

    update(story.store, checked(record_module(BankInCents())), (), SystemClock())
    story.run("bank", "BankInCents")
    story.goes_on("Bank", 50)
    story.run("bank", "BankInCents")  # in the middle of the migration, or behind its first steps
    story.run("report", "Report")
    story.goes_on("Report")
    eventually(lambda: story.status("Bank").migrations[0].waiting == 0, SECONDS)

    story.is_over.set()
    story.thread.join(SECONDS)
    total = story.appended.total()
    eventually(lambda: all(story.processed(name) == total for name in ("Bank", "Report")), SECONDS)
    assert not story.wrong
    assert [check_module(story.store, name) for name in ("Bank", "Report")] == [[], []]
    assert story.values("Report", "$$mine") == story.values("Bank", "$$counts") == story.appended
    assert story.values("Bank", "$$sums") == {key: 100 * amount for key, amount in story.sums.items()}
    shown = story.values("Report", "$$shown")
    assert all(0 <= shown[key] <= story.appended[key] for key in KEYS)
