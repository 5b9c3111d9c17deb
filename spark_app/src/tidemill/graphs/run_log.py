"""The log of a graph's run: it began, took checkpoints, ended. Each entry is created if absent, so that of two
processes that resume one graph the slower one meets the other's entry and stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tidemill.graphs.dataset import DatasetRecord
from tidemill.graphs.sealed import unsealed
from tidemill.graphs.waves import NodeRecord
from tidemill.store.entry_log import EntryLog
from tidemill.store.folders import folders_in
from tidemill.store.json_codec import JsonCodec
from tidemill.store.log import Log, Lost, deletion_mark
from tidemill.store.objects import RESERVED, NotFound, ObjectStore
from tidemill.values.errors import Deleted, Fenced, UnknownName

FOLDER = f"{RESERVED}/graphs"
ENTRIES_KEPT = 100
"""Entries that a log has at least, once it had as many; there are at most twice as many."""
Kind: TypeAlias = Literal["begin", "checkpoint", "stop", "finish", "fail", "abandon"]
"""`stop` is a checkpoint with which a run ended that goes on when it is resumed."""


@dataclass(frozen=True)
class RunEntry:
    """`checkpoint` is the key of the state at `wave`, "" before any; `text` says why a run failed.

    `began_ms`, `starts` and `checkpoints` count from the very first entry on; the times are those of this process.
    `program` is the key of the graph as it was defined where this process began; "" where it cannot be resumed.
    """

    kind: Kind
    nonce: str
    time_ms: int
    began_ms: int = 0
    starts: int = 0
    checkpoints: int = 0
    wave: int = 0
    checkpoint: str = ""
    shape: str = ""
    engine: str = ""
    seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    text: str = ""
    nodes: list[NodeRecord] = field(default_factory=list)
    datasets: list[DatasetRecord] = field(default_factory=list)
    program: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it goes on: it ran to its end, or was collected."""
        return self.kind in ("finish", "abandon")

    @property
    def state(self) -> str:
        """How the run stood with this entry, for people; whether its process lives the log does not say."""
        return {"finish": "finished", "fail": "failed", "stop": "stopped", "abandon": "collected"}.get(
            self.kind, "running or killed"
        )


ENTRIES: JsonCodec[RunEntry] = JsonCodec(RunEntry)


def graph_folder(graph: str) -> str:
    """Where all of a graph's run is."""
    return f"{FOLDER}/{graph}"


class RunLog:
    """The entries of one graph; this process writes the next one until another process does."""

    def __init__(self, store: ObjectStore, graph: str) -> None:
        self._graph = graph
        log = Log(store, log_prefix(graph), ".json", ENTRIES.read_nonce)
        self._entries: EntryLog[RunEntry] = EntryLog(log, ENTRIES.decode)

    def head(self) -> tuple[int, RunEntry] | None:
        """The last entry and its number; None where the graph never began.

        Raises:
            Deleted: the record of the run is being deleted.
        """
        with self._telling():
            return self._entries.head()

    def tail(self, count: int, before: int) -> list[tuple[int, RunEntry]]:
        """The last `count` entries before entry `before` with their numbers, the oldest first."""
        return self._entries.tail(count, before)

    def newest(self) -> RunEntry | None:
        """The last entry; None where the graph never began. Raises Deleted, as `head`."""
        head = self.head()
        return None if head is None else head[1]

    def has(self, number: int, entry: RunEntry) -> bool:
        """Whether this entry is there, and not one of another run that got its ID."""
        try:
            return self._entries.read(number) == entry
        except NotFound:
            return False

    def all(self) -> list[RunEntry]:
        """The entries that are kept, the oldest first."""
        return [entry for _, entry in self._entries.tail(self._entries.newest_number())]

    @property
    def next_number(self) -> int:
        """The number of the entry that this process would write now."""
        return self._entries.known + 1

    def append(self, entry: RunEntry) -> None:
        """Make this the next entry.

        Raises:
            Fenced: another process runs this graph. Deleted: as `head`.
            StoreUnavailable, OutcomeUnknown: the store did not answer.
        """
        number = self.next_number
        key = self._entries.log.key(number)
        try:
            with self._telling():
                self._entries.put(number, entry, ENTRIES.sealed(entry, key))
        except Lost as error:
            raise Fenced(f"Another process resumed the graph {self._graph}: this one stops.") from error
        if number % ENTRIES_KEPT == 0:
            self._entries.log.trim(number - ENTRIES_KEPT + 1)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Deleted as error:
            text = f"The record of the graph {self._graph} is being deleted"
            raise Deleted(f"{text}: `tidemill datasets collect --runs` ends that, then the ID is free.") from error


def graph_names(store: ObjectStore) -> list[str]:
    """The graphs of which a store has anything."""
    return list(folders_in(store, FOLDER))


def log_prefix(graph: str) -> str:
    """Where the log of a graph's run is."""
    return f"{graph_folder(graph)}/log"


def list_graphs(store: ObjectStore) -> list[tuple[str, RunEntry]]:
    """The graphs of a store, each with its newest entry; those that began first are first."""
    found = []
    for name in graph_names(store):
        with suppress(Deleted):  # its record goes just now
            found.append((name, RunLog(store, name).newest()))
    return sorted(((name, entry) for name, entry in found if entry), key=lambda each: each[1].began_ms)


def forget_run(store: ObjectStore, graph: str) -> bool:
    """Delete the record of a run that has ended; whether it did. Its ID is then as one that was never used.

    A mark says so first: whoever would go on with the run stops at it; who is killed here leaves it to the next one.
    Where somebody went on before the mark stood, it is taken back.
    """
    log = RunLog(store, graph)._entries.log
    log.mark_deleted()
    mark = deletion_mark(log.prefix)
    keys = [key for key in store.list(log.prefix) if key != mark]
    entries = [key for key in keys if key.endswith(log.suffix)]
    has_ended = not entries or ENTRIES.decode(store.get(entries[-1]), entries[-1]).has_ended
    for key in keys if has_ended else ():
        store.delete(key)  # the newest entry is the last of all
    store.delete(mark)
    return has_ended


def read_program(store: ObjectStore, graph: str) -> bytes:
    """The pickled definition of a graph, as it was started last.

    Raises:
        UnknownName: there is none, or the graph has ended.
        CorruptState: it is not what was written.
    """
    newest = RunLog(store, graph).newest()
    try:
        if newest is None or not newest.program:
            raise NotFound(f"The graph {graph} has no program.")
        return unsealed(newest.program, store.get(newest.program))
    except NotFound as error:
        raise UnknownName(f"There is no graph {graph} to resume in {store.url}.", graph=graph) from error
