"""Reads pinned to an entry: they stay as they are, until collection takes what they need; the last two microbatches
can always be restored.
"""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from waiting import eventually

from tidemill import Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.api.path import path_of
from tidemill.engine.resources import open_others
from tidemill.engine.work import AttemptWork
from tidemill.journal import entries
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Attempt, Entry
from tidemill.language.options import ModuleOptions
from tidemill.leader.check import check_module
from tidemill.leader.collection import Collected, collect_topology
from tidemill.leader.events import StartAttempt
from tidemill.paths.compiled import compile_path
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.tables.compaction_plan import DELTAS_MAX
from tidemill.tables.stored_parts import part_loader
from tidemill.values.errors import SnapshotExpired

LARGE = 700_000
"""Characters of a note that does not ride inside an entry."""

FAR = 1 << 50
"""A moment after all entries: retention keeps nothing."""


class Notes(Module):
    """The newest note of each key."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*notes", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$notes", PState.map_schema(str, str))
        (mb.source("*notes").out("*microbatch")
           .explode_microbatch("*microbatch").out("*pair")
           .each(Ops.EXPAND, "*pair").out("*key", "*note")
           .local_transform("$$notes", Path.key("*key").term_val("*note")))  # fmt: skip


class Watchers(Module):
    """Notes, and a topology that reads them."""

    def module_name(self) -> str:
        return "Notes"

    def define(self, setup: Any, topologies: Any) -> None:
        Notes().define(setup, topologies)
        setup.declare_depot("*asks", Depot.random())
        mb = topologies.microbatch("watch")
        mb.pstate("$$seen", PState.map_schema(str, str))
        (mb.source("*asks").out("*microbatch")
           .explode_microbatch("*microbatch").out("*key")
           .hash_partition("*key")
           .local_select("$$notes", Path.key("*key")).out("*note")
           .local_transform("$$seen", Path.key("*key").term_val("*note")))  # fmt: skip


class Desk:
    """A running module; `note` makes one microbatch and tells the entry that committed it."""

    def __init__(self, folder: Folder, module: Module | None = None) -> None:
        self.cluster = InProcessCluster.create("local", store=folder.as_uri())
        self.cluster.launch_module(module or Notes(), LaunchConfig(1, 1))
        self.store: ObjectStore = self.cluster.store
        self._random = random.Random(5)
        self._count = 0

    def note(self, size: int = LARGE) -> tuple[int, str]:
        text = self._random.randbytes(size // 2).hex()
        self.cluster.cluster_depot("Notes", "*notes").append(["k", text])
        self._count += 1
        self.cluster.wait_for_microbatch_processed_count("Notes", "mb", self._count)
        return self.head()[1].committed[0].entry, text

    @property
    def prefix(self) -> str:
        return self.cluster._running["Notes"].definition.topology_prefix("mb")

    def head(self) -> tuple[int, Entry]:
        head = CommitLog(self.store, self.prefix).head()
        assert head is not None
        return head

    def read(self, entry: int | None = None) -> Any:
        handle = self.cluster.cluster_pstate("Notes", "$$notes")
        return (handle if entry is None else handle.at(entry)).select_one(Path.key("k"))

    def restored(self) -> Any:
        """The note in the state of the last microbatch but one, as the newest entry tells it."""
        client = self.cluster._client("Notes")
        definition = client.definition()
        number, entry = self.head()
        reading = client.reader(definition, definition.topology("mb"))._reading(number, entry.previous)
        path = compile_path(path_of(Path.key("k")), definition.pstate("$$notes")[1].schema, "select")
        return reading.select("$$notes", 0, path, ["k"])

    def collect(self) -> Collected:
        return collect_topology(CommitLog(self.store, self.prefix), self.store, self.prefix, FAR)

    def trim_and_wake_a_stalled_writer(self, entry: int) -> None:
        """The entry is trimmed; then a leader that slept puts into its slot what counts for nothing."""
        log = CommitLog(self.store, self.prefix).log
        later = self.head()[1].committed[0].entry
        log.trim(entry + 1)
        asleep = entries.from_bytes(log.read(later), log.key(later))
        with zipfile.ZipFile(io.BytesIO(log.read(later))) as archive:
            parts = {name: archive.read(name) for name in archive.namelist() if name != entries.ENTRY_MEMBER}
        self.store.create(log.key(entry), entries.to_bytes(asleep, parts, log.key(entry)))

    def watching(self, entry: int) -> AttemptWork:
        """An attempt of the topology that reads the notes, pinned to an entry of theirs."""
        topology_store = self.cluster._running["Notes"].topologies["watch"]._topology_store
        head = topology_store.commit_log.head()
        assert head is not None
        attempt = Attempt(1, 1, {}, {}, {"mb": entry})
        return topology_store.attempt_work(StartAttempt(1, attempt, head[1], ModuleOptions()))


@pytest.fixture
def desk(tmp_path: Folder) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.cluster.close()


def test_pinned_handle_reads_the_same_when_the_state_goes_on(desk: Desk) -> None:
    noted = [desk.note(size) for size in (10, LARGE, 10)]
    assert desk.read() == noted[-1][1]
    assert [desk.read(entry) for entry, _ in noted] == [text for _, text in noted]


def test_pinned_handle_expires_when_its_entry_is_collected(desk: Desk) -> None:
    noted = [desk.note() for _ in range(4)]
    assert desk.collect().entries > 0
    with pytest.raises(SnapshotExpired, match="read at a newer one"):
        desk.read(noted[0][0])
    assert [desk.read(entry) for entry, _ in noted[2:]] == [text for _, text in noted[2:]]
    assert desk.read() == noted[-1][1]


def test_last_two_microbatches_can_be_restored_when_all_else_is_compacted_and_collected(desk: Desk) -> None:
    noted = [desk.note() for _ in range(DELTAS_MAX)]
    eventually(lambda: any(level.kind == "run" for level in desk.head()[1].snapshot.levels))
    noted += [desk.note() for _ in range(2)]
    assert desk.collect().objects > 0
    assert desk.read() == noted[-1][1]
    assert desk.restored() == [noted[-2][1]]
    assert check_module(desk.store, "Notes") == []
    with pytest.raises(SnapshotExpired):
        desk.read(noted[0][0])


def test_state_of_another_topology_expires_when_a_stalled_writer_refills_the_slot_of_its_entry(
    tmp_path: Folder,
) -> None:
    desk = Desk(tmp_path, Watchers())
    with desk.cluster:
        entry, text = desk.note(10)
        desk.note(10)
        begun = desk.watching(entry)
        assert noted_for(begun) == [text]
        part_loader.cache_clear()
        desk.trim_and_wake_a_stalled_writer(entry)

        with pytest.raises(SnapshotExpired, match=f"entry {entry} of topology mb was collected"):
            desk.watching(entry)
        with pytest.raises(NotFound, match="was collected"):
            noted_for(begun)


def test_pinned_handle_expires_when_a_stalled_writer_refills_the_slot_of_a_part(desk: Desk) -> None:
    (first, _), (second, _), _ = desk.note(10), desk.note(10), desk.note(10)
    client = desk.cluster._client("Notes")
    definition = client.definition()
    client.reader(definition, definition.topology("mb")).pinned(second)  # opened, and read only later
    part_loader.cache_clear()
    desk.trim_and_wake_a_stalled_writer(first)

    with pytest.raises(SnapshotExpired, match="read at a newer one"):
        desk.read(second)


def noted_for(work: AttemptWork) -> list[Any]:
    """The note that an attempt of the watching topology finds."""
    schema = work.program.others["$$notes"].schema
    path = compile_path(path_of(Path.key("k")), schema, "select")
    return path.select(open_others(work, 0)["$$notes"].root("$$notes", 0), ["k"])
