"""Which other modules read a module's objects: each says so in the module's own store, before it begins.

    <module>/readers/<nonce>.json    created once: definition n of that module mirrors these objects

A reader that was destroyed, or that mirrors nothing of the module any more, does not count, and its mark is deleted.
One whose store does not answer counts as if it were there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.clients.status import met_sources
from tidemill.definition.definition import StoredDefinition, StoredMirror, StoredQuery
from tidemill.definition.mirrored_changes import Change, change_of, items_of
from tidemill.depot.log import DepotLog
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.language.dataflow import StartFrom
from tidemill.store.incarnations import base_url
from tidemill.store.json_codec import SUFFIX, JsonCodec
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.store.urls import store_at
from tidemill.values.errors import CorruptState, Fault, RetryableError, StoreRefused
from tidemill.values.ids import nonce
from tidemill.values.stored import Stored

FOLDER: Final = "readers"

BEGINNING_MS: Final = 3_600_000
"""A reader has this long to write its definition after its mark; then the mark is that of a launch that failed."""


@dataclass(frozen=True)
class ReaderMark(Stored):
    """Definition `definition` of a module mirrors the objects with these ids. `store` is the URL of its store, empty
    for that of the mirrored module; `written_ms` is when it said so.
    """

    module: str
    store: str
    definition: int
    written_ms: int
    objects: tuple[str, ...]

    def __str__(self) -> str:
        return f"module '{self.module}' in {self.store}" if self.store else f"module '{self.module}'"


_JSON: Final[JsonCodec[ReaderMark]] = JsonCodec(ReaderMark)


def register(store: ObjectStore, definition: StoredDefinition, number: int, now_ms: int) -> None:
    """Say in the stores of all mirrored modules that a definition reads them, before it is written as `number`.

    Raises:
        StoreUnavailable, OutcomeUnknown: say it again.
    """
    mirrored: dict[tuple[str, str], list[str]] = {}
    for mirror in definition.mirrors.values():
        mirrored.setdefault((mirror.store, mirror.module), []).extend(object_ids(mirror))
    for (url, module), ids in mirrored.items():
        own_url = base_url(store.url) if url else ""
        key = f"{module}/{FOLDER}/{nonce()}{SUFFIX}"  # a new one each time: an older mark may be deleted any moment
        mark = ReaderMark(definition.module, own_url, number, now_ms, tuple(sorted(set(ids))))
        store_at(store, url).create(key, _JSON.sealed(mark, key))


def object_ids(mirror: StoredMirror) -> list[str]:
    """What tells the object from any other: its id; of a query, which has none, its name, and what it reads."""
    item = mirror.item
    if isinstance(item, StoredQuery):
        return [f"query {item.name}", *(identity for identity, _ in mirror.reads.values())]
    return [item.id]


@dataclass(frozen=True)
class LivingReader:
    """A reader, and the newest definition of it; None where it has none yet, or its store does not answer."""

    mark: ReaderMark
    definition: StoredDefinition | None


def readers_of(store: ObjectStore, module: str, now_ms: int, *, deletes: bool = True) -> list[LivingReader]:
    """Who reads objects of a module. Marks of those who do not any more are deleted, where the caller `deletes`.

    Raises:
        StoreUnavailable: the module's store does not answer.
    """
    found = []
    for key in list(store.list(f"{module}/{FOLDER}")):
        try:
            mark = _JSON.decode(store.get(key), key)
        except NotFound:
            continue
        try:
            definition = DefinitionLog(store_at(store, mark.store), mark.module).newest()
        except (RetryableError, StoreRefused, CorruptState):
            found.append(LivingReader(mark, None))
            continue
        if _is_living(mark, module, definition, now_ms):
            found.append(LivingReader(mark, definition))
        elif deletes:
            store.delete(key)
    return found


def _is_living(mark: ReaderMark, module: str, definition: StoredDefinition | None, now_ms: int) -> bool:
    if definition is None or definition.number < mark.definition:
        return now_ms - mark.written_ms < BEGINNING_MS
    mine = {
        identity for mirror in definition.mirrors.values() if mirror.module == module for identity in object_ids(mirror)
    }
    return not definition.is_destroyed and not mine.isdisjoint(mark.objects)


# --- what an update may not take from them ---------------------------------------------------------------------------


_WOULD: Final[dict[Change, str]] = {
    "gone": "would be gone",
    "private": "would be private",
    "schema": "would have another schema, or be migrated",
    "records": "would have its records migrated",
    "inputs": "would have other inputs",
}


def broken_mirrors(store: ObjectStore, old: StoredDefinition, new: StoredDefinition | None, now_ms: int) -> list[Fault]:
    """What the next definition (None: the module is destroyed) takes from other modules, one sentence each."""
    before, after = items_of(old), {} if new is None else items_of(new)
    faults = []
    for reader in readers_of(store, old.module, now_ms):
        for identity in reader.mark.objects:
            if identity in before and (change := change_of(before[identity], after.get(identity))):
                text = f"{_WOULD[change]}, and {reader.mark} mirrors it."
                faults.append(Fault(before[identity].name, text, "Update or destroy that module first."))
    return list(dict.fromkeys(faults))


# --- what they still read --------------------------------------------------------------------------------------------


def needed_by(
    reader: LivingReader, store: ObjectStore, log: DepotLog, depot_id: str, since_ms: int
) -> Iterator[Sequence[int]]:
    """The lowest offsets that a reader still needs of a depot, by source.

    One that committed nothing since `since_ms` holds no records that were appended before it.
    """
    definition = reader.definition
    if definition is None or definition.number < reader.mark.definition:
        if depot_id in reader.mark.objects:
            yield _at_least((0,) * log.partitions, reader.mark.written_ms, log, since_ms)
        return
    other = store_at(store, reader.mark.store)
    for topology in definition.topologies.values():
        sources = [source for source in topology.sources if _id_of(definition.mirrors, source.depot) == depot_id]
        if not sources:
            continue
        try:
            head = CommitLog(other, definition.topology_prefix(topology.name)).head()
        except (RetryableError, CorruptState):
            head = None
        met = met_sources(definition, topology.name, head[1] if head is not None else None)
        seen_ms = max(definition.written_ms, head[1].written_ms if head is not None else 0)
        for source in sources:
            progress = met.get(source.source_id)
            offsets = (0,) * log.partitions if progress is None else progress.offsets
            yield _at_least(offsets, seen_ms, log, since_ms)


def _id_of(mirrors: Mapping[str, StoredMirror], name: str) -> str:
    mirror = mirrors.get(name)
    return object_ids(mirror)[0] if mirror is not None else ""


def _at_least(offsets: Sequence[int], seen_ms: int, log: DepotLog, since_ms: int) -> Sequence[int]:
    if seen_ms >= since_ms:
        return offsets
    young = log.resolve_start(StartFrom("after_timestamp", since_ms), log.now_millis())
    return tuple(map(max, offsets, young))
