"""Bringing a saved store back: what `tidemill restore` does.

The saved objects become a new copy of the store, in a folder that nobody has used; the copy is verified. Only then the
logs of the copy that lived until now are closed, so that whoever has them open stops, and one object, created if
absent, says which copy lives. Cut off before that object, a restore changed nothing but that those logs may be closed:
it is to be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tidemill.journal import entries
from tidemill.journal.definition_log import modules_of
from tidemill.journal.entries import QUARANTINE, Entry
from tidemill.journal.settlements import SETTLED_FOLDER, quarantine_prefix
from tidemill.leader.backup import THREADS, Copied, lowest_needed, objects_of
from tidemill.leader.backup_folder import Backup, BackupFolder, SavedTopology
from tidemill.leader.check import check_module
from tidemill.store import incarnations
from tidemill.store.incarnations import Incarnation
from tidemill.store.log import FIRST, Log
from tidemill.store.objects import AlreadyExists, ObjectStore
from tidemill.store.urls import check_store, connect, forget_stores
from tidemill.values.errors import BadInput, CorruptState

LOG_FOLDERS: Final = ("definition", "options", "deletions")


@dataclass(frozen=True)
class Point:
    """What to restore of one topology: an entry that is whole in a backup, and the first one that it needs."""

    topology: SavedTopology
    number: int
    entry: Entry
    first: int


@dataclass(frozen=True)
class RestorePlan:
    """A backup and an entry of each topology. Depots come as they were saved, so what follows is processed again."""

    backup: Backup
    points: tuple[Point, ...]


@dataclass(frozen=True)
class At:
    """A moment, in milliseconds since 1970, or an entry of a topology (`topology` is MODULE/TOPOLOGY)."""

    millis: int | None = None
    topology: str = ""
    entry: int = 0


def plan_restore(folder: BackupFolder, backup_id: str = "", at: At | None = None) -> RestorePlan:
    """The newest consistent state in the backups, or the newest at or before a moment or an entry.

    Raises:
        BadInput: there is no such state, or several stores are saved here and no backup is named.
        UnknownName: there is no such backup.
        CorruptState: a backup is damaged.
    """
    chosen = [folder.read(backup_id)] if backup_id else list(folder.all())
    if not chosen:
        raise BadInput(f"There are no backups in {folder.store.url}.")
    if len(urls := sorted({backup.url for backup in chosen})) > 1:
        raise BadInput(f"{folder.store.url} has backups of {', '.join(urls)}; name one backup: --backup ID.")
    if at is None:
        return RestorePlan(
            chosen[0], tuple(_point(folder, chosen[0], topology, None) for topology in chosen[0].topologies)
        )
    millis = at.millis if at.millis is not None else _millis_of(folder, chosen, at)
    # The backup after a moment tells all that was before it; where that is gone from it, an older backup may do.
    after = [backup for backup in chosen if backup.written_ms >= millis][-1:]
    for backup in [*after, *(backup for backup in chosen if backup.written_ms < millis)]:
        points = [_point_at(folder, backup, topology, millis, at) for topology in backup.topologies]
        if all(point is not None for point in points):
            return RestorePlan(backup, tuple(point for point in points if point is not None))
    raise BadInput(f"No backup in {folder.store.url} tells the state at that moment: it is too long ago.")


def _millis_of(folder: BackupFolder, backups: Iterable[Backup], at: At) -> int:
    for backup in backups:
        for topology in backup.topologies:
            key = _log_of(topology).key(at.entry)
            if f"{topology.module}/{topology.name}" == at.topology and key in backup.objects:
                return _read(folder, backup, topology, at.entry).written_ms
    raise BadInput(f"No backup in {folder.store.url} has entry {at.entry} of {at.topology or 'a topology'}.")


def _point_at(folder: BackupFolder, backup: Backup, topology: SavedTopology, millis: int, at: At) -> Point | None:
    is_named = f"{topology.module}/{topology.name}" == at.topology
    highest = min(topology.entry, at.entry) if is_named else topology.entry
    for number in range(highest, 0, -1):
        if _log_of(topology).key(number) not in backup.objects:
            return None
        if _read(folder, backup, topology, number).written_ms <= millis:
            try:
                return _point(folder, backup, topology, number)
            except CorruptState:
                continue  # what it names was collected before it was saved
    return None


def _point(folder: BackupFolder, backup: Backup, topology: SavedTopology, number: int | None) -> Point:
    number = topology.entry if number is None else number
    entry = _read(folder, backup, topology, number)
    first = lowest_needed(number, entry)
    needed = [_log_of(topology).key(at) for at in range(first, number + 1)]
    needed += [f"{topology.prefix}/{part.name}" for part in objects_of(entry)]
    missing = [key for key in needed if key not in backup.objects]
    if missing:
        raise CorruptState(f"Backup {backup.id} does not hold {missing[0]}.", key=missing[0])
    return Point(topology, number, entry, first)


def _log_of(topology: SavedTopology) -> Log:
    """Only for the names of its entries."""
    return Log(None, f"{topology.prefix}/log", ".zip")  # type: ignore[arg-type] # names need no store


def _read(folder: BackupFolder, backup: Backup, topology: SavedTopology, number: int) -> Entry:
    key = _log_of(topology).key(number)
    return entries.from_bytes(folder.get(backup, key), key)


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beside:
    """What a store holds beside its modules: `logs` gives the prefixes of the logs, `faults` what is wrong with it."""

    logs: Callable[[ObjectStore], list[str]] = lambda store: []
    faults: Callable[[ObjectStore], list[str]] = lambda store: []


@dataclass(frozen=True)
class Restored:
    """What a restore made: the copy that lives now, and the modules that it replaced."""

    incarnation: Incarnation
    copied: Copied
    replaced: tuple[str, ...]


NOTHING_BESIDE: Final = Beside()


def restore(
    plan: RestorePlan,
    folder: BackupFolder,
    url: str,
    *,
    replaces: bool,
    now_ms: int,
    tell: Callable[[str, Copied], None],
    opener: Callable[[str], ObjectStore] = connect,
    beside: Beside = NOTHING_BESIDE,
) -> Restored:
    """Make what was saved the store at `url`; `replaces` where there is one already.

    Raises:
        BadInput: there is a store, and nobody said that it is to be replaced.
        CorruptState: what was saved is damaged, or is not consistent; the store is as it was.
        StoreUnavailable, OutcomeUnknown: repeat it.
    """
    base = opener(url)
    check_store(base)
    old = incarnations.current(base)
    living = opener(incarnations.below(url, old.folder))
    there = tuple(name for name in modules_of(living) if _has_definition(living, name))
    others = beside.logs(living)
    there = (*there, "task graphs") if others else there
    if there and not replaces:
        raise BadInput(f"{url} holds {', '.join(there)}; say --replace if the restored store is to take its place.")
    for key in incarnations.unfinished(base):
        base.delete(key)
    new = incarnations.following(base)
    copy = opener(incarnations.below(url, new.folder))
    copied = _fill(copy, plan, folder, tell)
    _verify(copy, plan, beside)
    for prefix in sorted({*_logs_of(living, there), *others, *plan.backup.logs}):
        Log(living, prefix, "").close()
    try:
        incarnations.switch(base, new, plan.backup.id, now_ms)
    except AlreadyExists as error:
        raise BadInput(f"Another restore into {url} was faster; look at what it restored.") from error
    forget_stores()
    return Restored(new, copied, there)


def _has_definition(living: ObjectStore, module: str) -> bool:
    return any(key.endswith(".json") for key in living.list(f"{module}/definition"))


def _fill(copy: ObjectStore, plan: RestorePlan, folder: BackupFolder, tell: Callable[[str, Copied], None]) -> Copied:
    check_store(copy, {point.topology.prefix: point.entry.last_id for point in plan.points})
    copied = Copied()
    keys = sorted(needed_objects(plan))
    with ThreadPoolExecutor(THREADS) as threads:
        for key, size in zip(keys, threads.map(lambda key: _copy_one(copy, plan, folder, key), keys), strict=True):
            copied = Copied(copied.objects + 1, copied.bytes + size)
            tell(key, copied)
    firsts = {**plan.backup.logs, **{f"{point.topology.prefix}/log": point.first for point in plan.points}}
    for prefix, first in firsts.items():
        if first > FIRST:
            Log(copy, prefix, "").begin_at(first)
    return copied


def _copy_one(copy: ObjectStore, plan: RestorePlan, folder: BackupFolder, key: str) -> int:
    content = folder.get(plan.backup, key)
    copy.create(key, content)
    return len(content)


def needed_objects(plan: RestorePlan) -> set[str]:
    """All of the backup but the entries and parts of topologies that the points do without."""
    prefixes = tuple(f"{topology.prefix}/" for topology in plan.backup.topologies)
    whole = tuple(f"{prefix}{folder}/" for prefix in prefixes for folder in (QUARANTINE, SETTLED_FOLDER))
    needed = {key for key in plan.backup.objects if not key.startswith(prefixes) or key.startswith(whole)}
    for point in plan.points:
        log = _log_of(point.topology)
        needed |= {log.key(number) for number in range(point.first, point.number + 1)}
        needed |= {f"{point.topology.prefix}/{part.name}" for part in objects_of(point.entry)}
    return needed


def _verify(copy: ObjectStore, plan: RestorePlan, beside: Beside) -> None:
    if texts := beside.faults(copy):
        text = f"What backup {plan.backup.id} gives is not consistent, so the store stays as it was: {texts[0]}"
        raise CorruptState(text)
    for module in plan.backup.modules:
        faults = [finding for finding in check_module(copy, module) if finding.is_fault]
        if faults:
            text = f"What backup {plan.backup.id} gives is not consistent, so the store stays as it was: {faults[0]}"
            raise CorruptState(text, module=module)


def _logs_of(living: ObjectStore, modules: Iterable[str]) -> set[str]:
    """The prefixes of all logs of a store: folders that hold numbered objects."""
    found = set()
    for module in modules:
        found |= {f"{module}/{name}" for name in LOG_FOLDERS}
        for part in ("depots", "topologies"):
            keys = (key.split("/") for key in living.list(f"{module}/{part}"))
            folders = {"/".join(names[:3]) for names in keys if len(names) > 3}
            found |= {f"{folder}/log" for folder in folders}
            if part == "topologies":
                found |= {f"{quarantine_prefix(folder)}/log" for folder in folders}
                found |= {f"{folder}/{SETTLED_FOLDER}" for folder in folders}
    return found
