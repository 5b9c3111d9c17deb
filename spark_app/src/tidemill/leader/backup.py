"""Saving a store while it runs: what `tidemill backup` does.

Of each module first the heads of the topologies' logs are read and then the ends of the depots, so that no topology is
ahead of what is saved of its depots; modules that mirror each other are looked at together. A depot is saved up to
where it holds what a topology appended in a microbatch that its head does not know yet. Then all that the heads name is
copied. What collection deletes meanwhile is no longer what the newest head names: the module is looked at again, and
what is copied already is not copied again. A backup exists when its last object, the list of all others, was created;
so one that was cut off is none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredTopology
from tidemill.definition.stored import depot_folder, topology_folder
from tidemill.depot.header import LastSequence
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import producer_of
from tidemill.depot.producers import HeaderMissing, ProducerTable, brought_up
from tidemill.depot.record_reader import produced_back
from tidemill.journal import entries
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog, modules_of
from tidemill.journal.entries import SEGMENTS_MAX, Entry
from tidemill.journal.settlements import SettlementLog, quarantine_prefix
from tidemill.journal.snapshot import Part, checksum_of
from tidemill.leader.backup_folder import RECORD, Backup, BackupFolder, SavedTopology, is_given_again, other_history
from tidemill.leader.collection import inline_entries
from tidemill.leader.deletions import Deletions
from tidemill.leader.readers import FOLDER as READERS
from tidemill.store.incarnations import base_url
from tidemill.store.log import FIRST, Log
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.store.urls import store_id
from tidemill.values.errors import CorruptState, Deleted, StoreUnavailable, reading_object
from tidemill.values.numbers import MicrobatchId

LOOKS_MAX: Final = 20
"""How often a module is looked at that deletes faster than it can be copied."""

THREADS: Final = 4
"""Objects that are copied at a time; so many are in memory."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class SavedPart:
    """Objects beside the modules: their keys, with the checksums that they must have where these are known; the entries
    of a log up to one of them, if there is one.
    """

    objects: Mapping[str, str]
    log: str = ""
    last: int = 0


def _nothing_beside(store: ObjectStore) -> Iterable[SavedPart]:
    return ()


class _Overtaken(Exception):
    """Something that is needed was collected, or a definition was written: look at the module again."""


@dataclass(frozen=True)
class Copied:
    """What was copied, of all that the backup needs."""

    objects: int = 0
    bytes: int = 0


@dataclass
class _Module:
    """What a backup needs of one module."""

    objects: dict[str, tuple[int, str]] = field(default_factory=dict)
    logs: dict[str, int] = field(default_factory=dict)
    topologies: list[SavedTopology] = field(default_factory=list)


@dataclass(frozen=True)
class _SavedDepot:
    """A depot by its name with its id, and where it ends in the backup; `is_cut` if there was more of it."""

    folder: str
    ends: tuple[int, ...]
    is_cut: bool


class _Look:
    """What there is of a module: its definition, the heads of its topologies, and the depots that are to be saved."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        definition = DefinitionLog(store, name).newest()
        if definition is None:
            raise CorruptState(f"The definition of module {name} is gone.", module=name)
        self.definition = definition
        self.depots, topologies = _living(store, definition)
        prefixes = [topology_folder(name, topology) for topology in topologies]
        self.decisions = {prefix: SettlementLog(store, prefix).newest().number for prefix in prefixes}
        logs = [(topology, CommitLog(store, topology_folder(name, topology))) for topology in topologies]
        self.heads = [(topology, log, head) for topology, log in logs if (head := log.head()) is not None]
        if any(entry.definition > definition.number for _, _, (_, entry) in self.heads):
            raise _Overtaken

    def committed(self) -> Iterator[tuple[str, int]]:
        """Each topology, as depots name it, with the last microbatch ID that its head knows."""
        for _, log, (_, entry) in self.heads:
            yield producer_of(log.log.prefix.rpartition("/")[0]), entry.last_id


def _living(store: ObjectStore, definition: StoredDefinition) -> tuple[list[StoredDepot], list[StoredTopology]]:
    """The depots and topologies that there are, and those that a rollback may bring back."""
    if definition.is_destroyed:
        return [], []
    decided = Deletions(store, definition.module).decision(definition)
    retired = [] if decided is not None and decided.is_done else [gone.item for gone in definition.retired]
    depots = [*definition.depots.values(), *(item for item in retired if isinstance(item, StoredDepot))]
    topologies = [*definition.topologies.values(), *(i for i in retired if isinstance(i, StoredTopology))]
    return [depot for depot in depots if depot.has_log], topologies


class BackupRun:
    """One backup of a store. `tell` hears of each object that was copied."""

    def __init__(
        self,
        store: ObjectStore,
        folder: BackupFolder,
        now_ms: int,
        tell: Callable[[str, Copied], None],
        beside: Callable[[ObjectStore], Iterable[SavedPart]] = _nothing_beside,
    ) -> None:
        """`beside` tells what is to be saved beside the modules; it raises NotFound to be asked again."""
        self._store, self._folder, self._now_ms = store, folder, now_ms
        self._beside = beside
        self._tell = tell
        self._lock = threading.Lock()
        self._id = store_id(store)
        self._known: dict[str, tuple[int, str]] = {}
        self.copied = Copied()

    def take(self) -> Backup:
        """Save the store.

        Raises:
            StoreUnavailable: one of both places does not answer, or the store deletes faster than it can be copied, or
                another process makes backups there.
            CorruptState: an object that is needed is missing, or is not what was committed; nothing was saved.
            BadInput: the folder has backups of a store with another history.
        """
        with self._folder.turn():
            return self._taken()

    def _taken(self) -> Backup:
        saved_before = (found for found in self._folder.each() if isinstance(found, Backup))
        before = next((backup for backup in saved_before if backup.store == self._id), None)
        if before is not None:
            self._known = dict(before.objects)
            self._check_history(before)
        beside = self._repeated("What task graphs keep", self._save_beside)
        saved: dict[str, _Module] = {}
        for names in self._groups(modules_of(self._store)):
            saved |= self._modules(names)
        backup = Backup(
            id=self._folder.new_id(self._now_ms),
            store=self._id,
            url=base_url(self._store.url),
            written_ms=self._now_ms,
            topologies=tuple(topology for module in saved.values() for topology in module.topologies),
            modules=tuple(saved),
            logs={prefix: first for each in (beside, *saved.values()) for prefix, first in each.logs.items()},
            objects={key: sizes for each in (beside, *saved.values()) for key, sizes in each.objects.items()},
        )
        self._folder.add(backup)
        return backup

    def _check_history(self, before: Backup) -> None:
        """A log that was put back by hand and went on has other entries under the numbers that were saved."""
        for prefix in before.logs:
            if is_given_again(prefix):
                continue
            saved = {key for key in self._known if key.startswith(f"{prefix}/")}
            there = saved.intersection(self._store.list(prefix))
            key = max(there, default=None)
            if key is not None and checksum_of(self._store.get(key)) != self._known[key][1]:
                raise other_history(self._folder.store.url, key)

    def _groups(self, names: Sequence[str]) -> list[list[str]]:
        """Modules that mirror each other in this store, in groups."""
        groups = {name: [name] for name in names}
        for name in names:
            definition = DefinitionLog(self._store, name).newest()
            for mirror in definition.mirrors.values() if definition is not None else ():
                other = groups.get(mirror.module, groups[name])
                if not mirror.store and other is not groups[name]:
                    other += groups[name]
                    groups |= dict.fromkeys(other, other)
        return list({id(group): sorted(group) for group in groups.values()}.values())

    def _modules(self, names: Sequence[str]) -> dict[str, _Module]:
        return self._repeated(f"Module {', '.join(names)}", lambda: self._look(names))

    def _repeated(self, what: str, look: Callable[[], _T]) -> _T:
        for _ in range(LOOKS_MAX):
            try:
                return look()
            except (_Overtaken, Deleted):
                continue
        raise StoreUnavailable(f"{what} deletes faster than it can be copied; try again.", what=what)

    def _save_beside(self) -> _Module:
        """What is beside the modules. Raises _Overtaken where something of it is gone."""
        found = _Module()
        try:
            for part in self._beside(self._store):
                self._each(part.objects.items(), lambda named: self._named(found, *named))
                if part.log:
                    self._log(found, self._small_log(part.log), part.last)
        except NotFound as error:
            raise _Overtaken from error
        return found

    def _named(self, found: _Module, key: str, checksum: str) -> None:
        """Copy an object whose name nothing else ever has, or the record of a Dataset, whose ID may be given again."""
        if key in self._known and not key.endswith(RECORD):
            found.objects[key] = self._known[key]
            return
        content = self._read(key)
        if checksum and checksum_of(content) != checksum:
            raise CorruptState(f"{key} is not what was written. Run `tidemill check`.", key=key)
        self._put(found, key, content)

    def _look(self, names: Sequence[str]) -> dict[str, _Module]:
        looks = [_Look(self._store, name) for name in names]
        committed = {producer: last_id for look in looks for producer, last_id in look.committed()}
        found = {look.definition.module: _Module() for look in looks}
        saved = [
            self._depot(found[look.definition.module], look.definition, depot, committed)
            for look in looks
            for depot in look.depots
        ]
        for look in looks:
            self._save(found[look.definition.module], look, saved)
        return found

    def _save(self, found: _Module, look: _Look, saved: Sequence[_SavedDepot]) -> None:
        """All of a module but its depots."""
        name, number = look.definition.module, look.definition.number
        for topology, log, (at, entry) in look.heads:
            _check_covered(entry, saved, topology.name)
            self._quarantine(found, look, log.log.prefix.rpartition("/")[0], entry.last_id)
            found.topologies.append(self._topology(found, log.log, topology, at, entry))
        self._log(found, self._small_log(f"{name}/definition"), number)
        options = self._small_log(f"{name}/options")
        self._log(found, options, options.newest())
        decisions = self._small_log(f"{name}/deletions")
        keys = [key for key in self._store.list(decisions.prefix) if key <= decisions.key(number)]
        self._each([*keys, *self._store.list(f"{name}/{READERS}")], lambda key: self._copy(found, key))
        found.logs[decisions.prefix] = FIRST

    # --- logs --------------------------------------------------------------------------------------------------------

    def _small_log(self, prefix: str) -> Log:
        return Log(self._store, prefix, ".json")

    def _log(self, found: _Module, log: Log, last: int) -> None:
        """All entries of a log up to one of them. Raises _Overtaken where that one is gone."""
        found.logs[log.prefix] = first = log.floor()
        if first > max(last, FIRST):
            raise _Overtaken
        if is_given_again(log.prefix):
            self._forget_others([log.key(number) for number in range(first, last + 1)])
        self._each(range(first, last + 1), lambda number: self._entry(found, log, number))

    def _forget_others(self, keys: Sequence[str]) -> None:
        """Read the entries of a run again where those that were saved are of another one, whose ID was given again."""
        known = [key for key in keys if key in self._known]
        if known and checksum_of(self._read(known[-1])) != self._known[known[-1]][1]:
            self._known = {key: sizes for key, sizes in self._known.items() if key not in known}

    def _entry(self, found: _Module, log: Log, number: int) -> bytes | None:
        """Copy an entry of a log; its bytes, or None where it was saved before. Raises _Overtaken where it is gone."""
        key = log.key(number)
        if key in self._known:
            found.objects[key] = self._known[key]
            return None
        content = self._read(key)
        if not log.is_entry(number):
            raise _Overtaken
        self._put(found, key, content)
        return content

    def _depot(
        self, found: _Module, definition: StoredDefinition, depot: StoredDepot, committed: Mapping[str, int]
    ) -> _SavedDepot:
        """Save a depot. Its log comes first: what is trimmed after that is among what is rolled.

        What is rolled meanwhile may know of appends that are not saved, so it raises _Overtaken.
        """
        prefix = depot_folder(definition.module, depot)
        return self._records(found, definition, prefix, 1 if depot.is_global else definition.tasks, committed)

    def _quarantine(self, found: _Module, look: _Look, prefix: str, last_id: MicrobatchId) -> None:
        """Save the quarantine of a topology: the decisions, then the records that they are on. Of decisions only the
        newest one is finished by whoever comes, so none may be newer than the saved depots.

        Raises _Overtaken where one is, is on a record that is cut off, or was made meanwhile.
        """
        settlements = SettlementLog(self._store, prefix)
        newest = settlements.newest()
        if newest.number != look.decisions[prefix]:
            raise _Overtaken
        if newest.number:
            self._log(found, settlements.log, newest.number)
        saved = self._records(found, look.definition, quarantine_prefix(prefix), 1, {producer_of(prefix): last_id})
        if newest.settled and newest.settled[-1][1] > saved.ends[0]:
            raise _Overtaken
        if settlements.newest_number() != newest.number:  # the saved records may tell of the next one
            raise _Overtaken

    def _records(
        self, found: _Module, definition: StoredDefinition, prefix: str, partitions: int, committed: Mapping[str, int]
    ) -> _SavedDepot:
        log = DepotLog(self._store, prefix, partitions)
        rolled = {key for _, _, key in log.files.list_rolled()}
        newest = log.newest()
        if newest.gate.definition > definition.number:
            raise _Overtaken
        last = _last_known(log, committed)
        self._log(found, log.files.log, last)
        keys = [key for _, at, key in log.files.list_rolled() if at <= last]
        if rolled != set(keys):
            raise _Overtaken
        self._each(keys, lambda key: self._copy(found, key))
        ends = newest.ends if last == newest.number else log.files.ends_before(last + 1)
        return _SavedDepot(prefix.rpartition("/")[2], ends, is_cut=last < newest.number)

    def _topology(self, found: _Module, log: Log, topology: StoredTopology, number: int, entry: Entry) -> SavedTopology:
        """The newest entry and all that it names; then the entries before it, with what they name as far as it is
        there: points in time to which the topology can be restored. Raises _Overtaken where something of the newest
        is gone, also where the log was trimmed beyond it before this look at it.
        """
        prefix = log.prefix.rpartition("/")[0]
        self._each(objects_of(entry), lambda part: self._part(found, prefix, part))
        first = number + 1
        for at in range(number, log.floor() - 1, -1):
            try:
                content = self._entry(found, log, at)
            except _Overtaken:
                break
            first = at
            if content is not None and at < number:
                older = entries.from_bytes(content, log.key(at))
                self._each(objects_of(older), lambda part: self._part_if_there(found, prefix, part))
        if first > lowest_needed(number, entry):
            raise _Overtaken
        found.logs[log.prefix] = first
        ids = (log.prefix.partition("/")[0], topology.name, prefix)
        return SavedTopology(*ids, number, entry.last_id, entry.processed, entry.written_ms)

    def _part(self, found: _Module, prefix: str, part: Part) -> None:
        """Copy a part, whose name nothing else ever has: where it is saved it need not be read."""
        key = f"{prefix}/{part.name}"
        if key in found.objects:
            return
        if key in self._known or self._folder.has(self._id, key):
            self._known[key] = found.objects[key] = (part.bytes, part.checksum)
            return
        content = self._read(key)
        with reading_object(key):
            part.check(content)
        self._put(found, key, content)

    def _part_if_there(self, found: _Module, prefix: str, part: Part) -> None:
        with suppress(_Overtaken):
            self._part(found, prefix, part)

    # --- objects -----------------------------------------------------------------------------------------------------

    def _each(self, items: Iterable[_T], copy: Callable[[_T], object]) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            for _ in threads.map(copy, items):
                pass

    def _copy(self, found: _Module, key: str) -> None:
        if key in self._known:
            found.objects[key] = self._known[key]
        else:
            self._put(found, key, self._read(key))

    def _read(self, key: str) -> bytes:
        try:
            return self._store.get(key)
        except NotFound as error:
            raise _Overtaken from error

    def _put(self, found: _Module, key: str, content: bytes) -> None:
        self._known[key] = found.objects[key] = (len(content), checksum_of(content))
        if self._folder.put(self._id, key, content):
            with self._lock:
                self.copied = Copied(self.copied.objects + 1, self.copied.bytes + len(content))
                self._tell(key, self.copied)


def objects_of(entry: Entry) -> list[Part]:
    """The objects that an entry names, for both states and for appends, each once."""
    return list({part.name: part for part in entry.named_parts() if "#" not in part.name}.values())


def lowest_needed(number: int, entry: Entry) -> int:
    """The first entry of a log that must be there for this one to be whole: with both states and both commits."""
    inline = inline_entries(entry.named_parts())
    return min(max(FIRST, number - 1), *(committed.entry for committed in entry.committed), *inline, number)


def _last_known(log: DepotLog, committed: Mapping[str, int]) -> int:
    """The last segment before the first that holds appends of a microbatch above the last one that is `committed`."""
    newest = log.newest()
    try:
        sequences = brought_up(log.files, ProducerTable(), newest).sequences()
        return min([newest.number, *_lasts_known(log, sequences, committed)])
    except (NotFound, HeaderMissing) as error:
        raise _Overtaken from error


def _lasts_known(log: DepotLog, sequences: Mapping[str, LastSequence], committed: Mapping[str, int]) -> Iterator[int]:
    """Of each topology the segments before those that hold what it appended too late."""
    for producer, microbatch_id in committed.items():
        number = sequences[producer].segment if producer in sequences else 0
        for header, mine in produced_back(log.files, number, producer):
            if not any(append.sequence >= (microbatch_id + 1) * SEGMENTS_MAX for append in mine):
                break
            yield header.entries[0].number - 1


def _check_covered(entry: Entry, saved: Sequence[_SavedDepot], topology: str) -> None:
    """No topology is ahead of its depots; where one is ahead of a whole one, the store is damaged already.

    Raises _Overtaken where it is ahead of one that was cut: its head was read too late.
    """
    depots = {depot.folder: depot for depot in saved}
    for source, progress in entry.progress.items():
        held = depots.get(progress.depot)
        if held is not None and any(at > end for at, end in zip(progress.offsets, held.ends, strict=True)):
            if held.is_cut:
                raise _Overtaken
            text = f"Source {source} of topology {topology} is at {progress.offsets}"
            text += f", but its depot ends at {held.ends}. Run `tidemill check`."
            raise CorruptState(text, topology=topology)
