"""Where backups are: a folder or a bucket, in which the backups of a store share the objects that are equal.

backups/<time>-<nonce>.json      a backup: all objects that it needs, with sizes and checksums; written last
stores/<store id>/<key>          copies of objects, under the keys that they have in the store
stores/<store id>/<key>@<checksum>  the same of one whose key was given again: an ID of a run that was free
lease/                           who makes or deletes backups now (`leader.backup_turn`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tidemill.journal.snapshot import checksum_of
from tidemill.leader.backup_turn import BackupTurn
from tidemill.store.json_codec import SUFFIX, JsonCodec
from tidemill.store.objects import RESERVED, AlreadyExists, Buffer, NotFound, ObjectStore
from tidemill.values.errors import BadInput, CorruptState, NewerFormat, StoreUnavailable, UnknownName
from tidemill.values.ids import nonce
from tidemill.values.numbers import MicrobatchId
from tidemill.values.stored import Stored

_FOLDER: Final = "backups"
_STORES: Final = "stores"
_DATASETS: Final = f"{RESERVED}/datasets/"
RECORD: Final = "/dataset.json"


@dataclass(frozen=True)
class SavedTopology:
    """How far a topology was: the newest entry of the log below `prefix`, and what it says."""

    module: str
    name: str
    prefix: str
    entry: int
    microbatch_id: MicrobatchId
    processed: int
    written_ms: int


@dataclass(frozen=True)
class Backup(Stored):
    """A whole backup: `store` is the id of the copy of the store that was saved (`store.incarnations`), `logs` the
    first number of each log, `objects` the size and the checksum of each object.
    """

    id: str
    store: str
    url: str
    written_ms: int
    topologies: tuple[SavedTopology, ...] = ()
    modules: tuple[str, ...] = ()
    logs: Mapping[str, int] = field(default_factory=dict)
    objects: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def datasets(self) -> list[str]:
        """The Datasets among its objects."""
        names = (key.removeprefix(_DATASETS) for key in self.objects if key.startswith(_DATASETS))
        return sorted(name.removesuffix(RECORD) for name in names if name.endswith(RECORD))

    @property
    def bytes(self) -> int:
        """The size of all its objects together, in bytes; those it shares with other backups count too."""
        return sum(size for size, _ in self.objects.values())


_JSON: Final[JsonCodec[Backup]] = JsonCodec(Backup)


class BackupFolder:
    """The backups below one URL."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._turn: BackupTurn | None = None

    @contextmanager
    def turn(self) -> Iterator[BackupTurn]:
        """Be the only one who makes or deletes backups here; within it again: the same turn.

        Raises:
            StoreUnavailable: another process does.
        """
        if self._turn is not None:
            yield self._turn
            return
        with BackupTurn(self.store).taken() as self._turn:
            try:
                yield self._turn
            finally:
                self._turn = None

    # --- backups -----------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The backups there are, oldest first."""
        names = (key.rpartition("/")[2] for key in self.store.list(_FOLDER))
        return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))

    def read(self, backup_id: str) -> Backup:
        """One backup.

        Raises:
            UnknownName: there is none of this id.
            CorruptState: it cannot be read.
        """
        key = _key(backup_id)
        try:
            return _JSON.decode(self.store.get(key), key)
        except NotFound as error:
            raise UnknownName(f"There is no backup {backup_id} in {self.store.url}.", id=backup_id) from error
        except NewerFormat:
            raise
        except CorruptState as error:
            advice = (
                f"so it cannot be restored, nor be one of those that --keep counts. Delete {key} in {self.store.url}"
            )
            raise CorruptState(f"The list of backup {backup_id} is damaged, {advice}. ({error})", key=key) from error

    def each(self) -> Iterator[Backup | CorruptState]:
        """All backups, newest first, or why one cannot be read; without those that are deleted meanwhile."""
        for backup_id in reversed(self.ids()):
            try:
                yield self.read(backup_id)
            except UnknownName:
                continue
            except CorruptState as error:
                yield error

    def all(self) -> Iterator[Backup]:
        """All backups, newest first. Raises CorruptState where one of them cannot be read."""
        for found in self.each():
            if isinstance(found, CorruptState):
                raise found
            yield found

    def after(self, backup: Backup) -> list[str]:
        """The newer backups of the same store."""
        found = (each for each in self.each() if isinstance(each, Backup) and each.url == backup.url)
        return [each.id for each in found if each.id > backup.id]

    def new_id(self, now_ms: int) -> str:
        """The name of a backup that is begun now. Names sort by time, and behind those that there are, whatever the
        clocks of their machines said: the newest by name is what is restored, and what `forget` keeps.
        """
        times = (name.partition("-")[0] for name in self.ids())
        newest = max((int(time) for time in times if time.isdecimal()), default=-1)
        return f"{max(now_ms, newest + 1):013d}-{nonce()}"

    def add(self, backup: Backup) -> None:
        """The one step that makes a backup: all its objects are there.

        Raises:
            StoreUnavailable: others may have deleted some of them, since this process was away; nothing was saved.
        """
        key = _key(backup.id)
        with self.turn() as turn:
            turn.check()
            self.store.create(key, _JSON.sealed(backup, key))
            try:
                turn.check()
            except StoreUnavailable:
                self.store.delete(key)
                raise

    # --- objects -----------------------------------------------------------------------------------------------------

    def has(self, store: str, key: str) -> bool:
        """Whether an object of the copy `store` of a store is kept here."""
        return self.store.exists(_place(store, key))

    def put(self, store: str, key: str, content: Buffer) -> bool:
        """Keep an object; false if it was there.

        Raises:
            BadInput: another object of this key is there: this store has another history than the one saved here.
        """
        try:
            self.store.create(_place(store, key), content)
        except AlreadyExists:
            if self.store.get(_place(store, key)) == bytes(content):
                return False
            if not is_given_again(key):
                raise other_history(self.store.url, key) from None
            return self._put_beside(_place_beside(store, key, checksum_of(content)), content)
        return True

    def _put_beside(self, place: str, content: Buffer) -> bool:
        try:
            self.store.create(place, content)
        except AlreadyExists:
            return False
        return True

    def get(self, backup: Backup, key: str) -> bytes:
        """An object of a backup.

        Raises:
            CorruptState: it is not there, or is not what was saved.
        """
        places, found = _places(backup, key), False
        for place in places:
            with suppress(NotFound):
                content, found = self.store.get(place), True
                if (len(content), checksum_of(content)) == tuple(backup.objects[key]):
                    return content
        what = "is not what was saved" if found else "is missing"
        raise CorruptState(f"{places[0]} of the backups in {self.store.url} {what}.", key=places[0])

    def forget(self, url: str, keep: int) -> int:
        """Delete all but the newest `keep` backups of a store, and the objects that nothing else needs; how many.

        The same store under another URL, or a copy of it, has backups of its own, which share the objects.

        Raises:
            StoreUnavailable: another process makes or deletes backups here, or may do so since this one was away.
            CorruptState: a backup cannot be read, so nobody knows what it needs; nothing was deleted.
        """
        with self.turn() as turn:
            return self._forget(url, keep, turn)

    def _forget(self, url: str, keep: int, turn: BackupTurn) -> int:
        backups = list(self.all())
        dropped = [backup for backup in backups if backup.url == url][keep:]
        gone = {backup.id for backup in dropped}
        for backup in dropped:
            turn.check()
            self.store.delete(_key(backup.id))
        kept = (each for each in backups if each.id not in gone)
        needed = {place for each in kept for key in each.objects for place in _places(each, key)}
        # Of all copies of stores: what a deletion that was killed left may be of one that has no backups any more.
        for key in self.store.list(_STORES) if dropped else ():
            if key not in needed:
                turn.check()
                self.store.delete(key)
        return len(dropped)


def other_history(url: str, key: str) -> BadInput:
    """A store that was put back by hand and went on is not the one that was saved."""
    text = f"{url} holds another object {key}: it has backups of a store with another history. Use an empty folder."
    return BadInput(text, key=key)


def _key(backup_id: str) -> str:
    return f"{_FOLDER}/{backup_id}{SUFFIX}"


def is_given_again(key: str) -> bool:
    """Whether a key may get another object after its own was deleted: those of task graphs may, with their IDs."""
    return key.startswith(f"{RESERVED}/")


def _place(store: str, key: str) -> str:
    return f"{_STORES}/{store}/{key}"


def _place_beside(store: str, key: str, checksum: str) -> str:
    return f"{_place(store, key)}@{checksum}"


def _places(backup: Backup, key: str) -> list[str]:
    """Where an object of a backup may be."""
    place = _place(backup.store, key)
    return [place, _place_beside(backup.store, key, backup.objects[key][1])] if is_given_again(key) else [place]


def about(backup: Backup) -> dict[str, Any]:
    """What people want to know of a backup."""
    return {
        "id": backup.id,
        "written_ms": backup.written_ms,
        "store": backup.url,
        "modules": list(backup.modules),
        "datasets": backup.datasets,
        "objects": len(backup.objects),
        "bytes": backup.bytes,
        "topologies": [{k: v for k, v in asdict(saved).items() if k != "prefix"} for saved in backup.topologies],
    }
