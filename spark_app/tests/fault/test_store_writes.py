"""What a microbatch writes, counted in objects: one entry when small, one more after idle, one object a Spark thread
(one for all threads of a process) when large, nothing when idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger import Gate, Ledger, Transfers
from waiting import eventually

from tidemill import InProcessCluster, LaunchConfig
from tidemill.journal.options_log import OptionsLog

THREADS = 2
SMALL, LARGE = 3, 300
"""Transfers with notes of 3 kB: some ride inside the entry, the many do not."""


class Counted:
    """A running ledger whose store's objects are counted."""

    def __init__(self, folder: Path, engine: Any) -> None:
        self.gate = Gate(folder / "gate")
        self.deltas = ["deltas"] * (
            1 if engine == "local" else THREADS
        )  # one process writes one object for all threads
        self.cluster = InProcessCluster.create(engine, store=(folder / "store").as_uri())
        self.attempts, self._run = 0, self.cluster._engine.run
        self.cluster._engine.run = self.run  # type: ignore[method-assign]
        self.cluster.launch_module(Ledger(self.gate), LaunchConfig(4, THREADS))
        self.transfers = Transfers(3)
        self._known = set(self.objects())

    def objects(self) -> list[str]:
        """What is stored of the topology, but for what a leader keeps once: the lease and its plan."""
        keys = self.cluster.store.list("Ledger/topologies")
        return sorted(key.split("/", 3)[3] for key in keys if "/lease/" not in key and "/plans/" not in key)

    def append(self, count: int) -> None:
        self.cluster.cluster_depot("Ledger", "*transfers").append_many(self.transfers.make(count))

    def new(self) -> list[str]:
        """The folders of the objects that came since the last call, when everything is processed."""
        self.cluster.wait_for_microbatch_processed_count("Ledger", "mb", len(self.transfers.made))
        now = set(self.objects())
        new, self._known = now - self._known, now
        return sorted(key.partition("/")[0] for key in new)

    def run(self, work: Any, cancel: Any) -> Any:
        self.attempts += 1
        return self._run(work, cancel)


@pytest.fixture
def counted(tmp_path: Path, engine: Any) -> Iterator[Counted]:
    made = Counted(tmp_path, engine)
    yield made
    made.gate.open()
    made.cluster.close()


def test_small_microbatch_writes_one_entry_and_one_more_after_idle(counted: Counted) -> None:
    counted.append(SMALL)
    assert counted.new() == ["log", "log"]
    counted.gate.close()
    counted.append(SMALL)
    eventually(counted.gate.arrived)
    counted.append(SMALL)
    counted.gate.open()
    assert counted.new() == ["log", "log", "log"]  # begin, commit with the next begin, commit
    assert counted.cluster.microbatch_state("Ledger", "mb") == (3, 1)


def test_large_microbatch_writes_one_object_a_process_or_thread_besides_its_entries(counted: Counted) -> None:
    counted.append(LARGE)
    assert counted.new() == [*counted.deltas, "log", "log"]
    counted.gate.close()
    counted.append(SMALL)
    eventually(counted.gate.arrived)
    counted.append(LARGE)
    counted.gate.open()
    assert counted.new() == [*counted.deltas, "log", "log", "log"]


def test_nothing_is_written_when_nothing_is_to_be_done(counted: Counted) -> None:
    counted.append(SMALL)
    counted.new()
    OptionsLog(counted.cluster.store, "Ledger").set("topology", "mb", "topology.microbatch.empty.sleep.time.millis", 10)
    creates, attempts = counted.cluster.store.counts["create"], counted.attempts
    eventually(lambda: counted.attempts > attempts + 10)
    assert counted.new() == []
    assert counted.cluster.store.counts["create"] == creates
