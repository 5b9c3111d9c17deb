"""What a depot holds now: offsets, segments, bytes, rates, and what keeps its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tidemill.clients.module import ModuleClient
from tidemill.clients.status import met_sources
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.log import DepotLog
from tidemill.depot.record_reader import offsets_after
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.options_log import OptionsLog
from tidemill.language.options import resolve
from tidemill.leader.readers import needed_by, readers_of
from tidemill.store.objects import NotFound
from tidemill.values.errors import CorruptState, Deleted, RetryableError, StoreRefused, UnknownName

RATES: Final = (60, 600)
"""Seconds of the past of which the records a second are told."""

KEPT_READERS_MAX: Final = 20
"""Sources of the module itself that read a depot, and as many modules that mirror it, in one answer."""

SIZED_OBJECTS_MAX: Final = 2_000
"""Objects of a depot up to which their bytes are summed."""

SIZES_MAX: Final = 100
"""Objects whose size is asked for with one look; it is remembered, for they never change."""


class DepotFacts:
    """The facts of one depot; it keeps what it needs to be asked again, for several threads."""

    def __init__(self, client: ModuleClient, name: str) -> None:
        """Raises UnknownName."""
        self._client, self._name = client, name
        self._options = OptionsLog(client.store, client.module)
        self._opened: tuple[str, DepotLog] | None = None
        self._commits: dict[str, CommitLog] = {}
        self._sizes: dict[str, int] = {}
        client.definition().depot(name)

    def read(self) -> dict[str, Any]:
        """All facts, as `GET …/depots/{d}/facts` answers them to who may see all modules.

        Raises:
            UnknownName: the depot or its module is gone.
            StoreUnavailable: the store does not answer.
        """
        definition = self._client.definition()
        try:
            return self._read(definition)
        except Deleted as error:
            self._client.forget(definition)
            definition = self._client.definition()
            if self._opened is not None and definition.depot_prefix(self._name) == self._opened[0]:
                raise UnknownName(f"{self._name} was deleted.", name=self._name) from error
            return self._read(definition)

    def _read(self, definition: StoredDefinition) -> dict[str, Any]:
        depot = definition.depot(self._name)
        partitions = definition.partitions(self._name)
        found = {"module_name": definition.module, "name": self._name, "num_partitions": partitions}
        if not depot.has_log:
            return found
        log = self._log(definition)
        log.follow()
        values = self._options.read().values
        kept_max = resolve("depot.max.entries.per.partition", values, self._name)
        readers = [*self._own(definition, log, kept_max), *self._others(definition, log, kept_max)]
        return {
            **found,
            "offsets": [list(pair) for pair in zip(log.starts(), log.ends(), strict=True)],
            **self._stored(log),
            "rates": {str(seconds): self._rate(log, seconds) for seconds in RATES},
            "retention": {
                "records_max": kept_max,
                "excess": resolve("depot.excess.proportion", values, self._name),
                "remote_seconds": resolve("depot.trim.coordinate.remote.seconds", values, self._name),
            },
            "readers": readers,
        }

    def _log(self, definition: StoredDefinition) -> DepotLog:
        prefix = definition.depot_prefix(self._name)
        if self._opened is None or self._opened[0] != prefix:
            self._opened = prefix, DepotLog(self._client.store, prefix, definition.partitions(self._name))
            self._sizes = {}
        return self._opened[1]

    # --- what is stored ----------------------------------------------------------------------------------------------

    def _stored(self, log: DepotLog) -> dict[str, Any]:
        """Segments and objects by their numbers: no segment is opened but the first one, of which the header is."""
        newest, floor, rolled = log.newest(), log.files.log.floor(), log.files.list_rolled()
        if newest.number == 0:
            return {"segments": 0, "objects": 0, "bytes": 0, "first_ms": None, "newest_ms": None}
        first = min([floor, *(one[0] for one in rolled[:1])])
        numbers = range(floor, newest.number + 1)
        keys = [key for _, last, key in rolled if last < floor] if rolled else []
        try:
            first_ms = log.files.header(first).entries[0].time
        except NotFound:  # others delete it at this moment
            first_ms = None
        objects = len(keys) + len(numbers)
        return {
            "segments": newest.number - first + 1,
            "objects": objects,
            "bytes": self._bytes([*keys, *map(log.files.log.key, numbers)]) if objects <= SIZED_OBJECTS_MAX else None,
            "first_ms": first_ms,
            "newest_ms": newest.time,
        }

    def _bytes(self, keys: Sequence[str]) -> int | None:
        """The sum of their sizes; None while some are not known."""
        sizes = self._sizes  # another thread may put other ones in their place
        known = {key: sizes[key] for key in keys if key in sizes}
        for key in islice((key for key in keys if key not in known), SIZES_MAX):
            size = self._size(key)
            if size is not None:
                known[key] = size
        self._sizes = known
        return sum(known.values()) if len(known) == len(keys) else None

    def _size(self, key: str) -> int | None:
        """None where the object is gone, or its store tells no sizes."""
        path = self._client.store.local_path(key)
        try:
            if path is not None:
                return path.stat().st_size
            tell = getattr(self._client.store, "size", None)
            return None if tell is None else int(tell(key))
        except (NotFound, FileNotFoundError):
            return None

    def _rate(self, log: DepotLog, seconds: int) -> float:
        """Records a second, by the times of segments."""
        newest = log.newest()
        since = offsets_after(log.files, newest, self._client.clock.now_ms() - 1_000 * seconds)
        return (sum(newest.ends) - sum(since)) / seconds

    # --- who reads it ------------------------------------------------------------------------------------------------

    def _own(self, definition: StoredDefinition, log: DepotLog, kept_max: int | None) -> Iterator[dict[str, Any]]:
        sources = [
            (topology.name, source.source_id)
            for topology in definition.topologies.values()
            for source in topology.sources
            if source.depot == self._name
        ]
        for topology, source in sources[:KEPT_READERS_MAX]:
            prefix = definition.topology_prefix(topology)
            head = self._commits.setdefault(prefix, CommitLog(self._client.store, prefix)).head()
            progress = met_sources(definition, topology, head[1] if head is not None else None).get(source)
            yield {
                "module": definition.module,
                "topology": topology,
                "source": source,
                **_needed(log, None if progress is None else progress.offsets, kept_max),
            }

    def _others(self, definition: StoredDefinition, log: DepotLog, kept_max: int | None) -> Iterator[dict[str, Any]]:
        """Modules that mirror the depot; one whose store does not answer needs what it needed at its last word."""
        identity, now_ms = definition.depot(self._name).id, self._client.clock.now_ms()
        seconds = resolve("depot.trim.coordinate.remote.seconds", self._options.read().values, self._name)
        living = readers_of(self._client.store, definition.module, now_ms, deletes=False)
        mine = [reader for reader in living if identity in reader.mark.objects]
        # Each update of a module leaves a mark; the newest one tells what the definition that counts needs, or will.
        newest = {(one.mark.store, one.mark.module): one for one in sorted(mine, key=lambda one: one.mark.definition)}
        for reader in islice(newest.values(), KEPT_READERS_MAX):
            try:
                needed = list(needed_by(reader, self._client.store, log, identity, now_ms - 1_000 * int(seconds)))
            except (RetryableError, StoreRefused, CorruptState):
                needed = []
            lowest = [min(at) for at in zip(*needed, strict=True)] if needed else None
            yield {
                "module": None if reader.mark.store else reader.mark.module,
                "topology": None,
                "source": None,
                **_needed(log, lowest, kept_max),
            }


def seen_by(may_see: Callable[[str], bool], facts: dict[str, Any]) -> dict[str, Any]:
    """Facts for one who asks: modules that mirror the depot are named where `may_see` allows."""
    if "readers" not in facts:
        return facts
    readers = [
        {**reader, "module": None} if reader["topology"] is None and not may_see(reader["module"] or "") else reader
        for reader in facts["readers"]
    ]
    return {**facts, "readers": readers}


def _needed(log: DepotLog, offsets: Sequence[int] | None, kept_max: int | None) -> dict[str, Any]:
    """How far a reader is, None: it has not begun; and the records past the maximum that are kept for it."""
    starts, ends = log.starts(), log.ends()
    if offsets is None:
        return {"offsets": None, "waiting": None, "held_back": None}
    at = [max(start, offset) for start, offset in zip(starts, offsets, strict=True)]
    held = [max(0, end - kept_max - one) for one, end in zip(at, ends, strict=True)] if kept_max is not None else [0]
    # A reader is looked at after the depot, and may be past what that had.
    waiting = sum(max(0, end - one) for one, end in zip(offsets, ends, strict=True))
    return {"offsets": list(offsets), "waiting": waiting, "held_back": sum(held)}
