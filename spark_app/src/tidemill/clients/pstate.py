"""`PStateHandle`: reads of a PState from anywhere, each from one committed entry of the topology that owns it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tidemill.api.path import Path, path_of
from tidemill.clients.changes import changes_of
from tidemill.clients.module import ModuleClient
from tidemill.clients.pages import (
    PAGE_KEYS,
    ChangesPage,
    Cursor,
    Page,
    PagedReads,
    check_pin,
    checked_limit,
    page_of,
)
from tidemill.clients.proxies import UNCHANGED, Callback, ProxyState
from tidemill.clients.pstate_levels import PStateLevels, pstate_levels
from tidemill.clients.topology import Reading, TopologyReader
from tidemill.definition.definition import StoredDefinition, StoredPState
from tidemill.journal.snapshot import Snapshot
from tidemill.language import dataflow
from tidemill.language.schema import FixedKeysSchema, MapSchema, Schema, to_text
from tidemill.paths.budget import Budget
from tidemill.paths.compiled import CompiledPath, argument_value, compile_path
from tidemill.paths.navigators import NAVIGATORS
from tidemill.paths.offers import Following, following
from tidemill.paths.schema_fit import SchemaFaults
from tidemill.pstate.changes import ChangedKeys
from tidemill.store.objects import NotFound
from tidemill.values.absent import ABSENT
from tidemill.values.call_checks import checked_time, listed_paths
from tidemill.values.data import route
from tidemill.values.errors import (
    BadInput,
    BadPath,
    CorruptState,
    Deleted,
    NotOneValue,
    NotSelectable,
    SchemaOutdated,
    SnapshotExpired,
)
from tidemill.values.notebook import ShownInNotebooks
from tidemill.values.numbers import MicrobatchId
from tidemill.values.object_info import ObjectInfo

if TYPE_CHECKING:
    from tidemill.clients.task_sizes import TaskSizes

R = TypeVar("R")

_UNGIVEN: Any = object()
_TRIES = 4


class PStateHandle(PagedReads, ShownInNotebooks):
    """One PState of one module; safe for several threads, and still good after `update_module`.

    A select sees every commit that was durable before it was called, and never an older one than an earlier select
    of this handle. `entry` pins it to one entry of the commit log.
    """

    def __init__(self, module: ModuleClient, name: str, entry: int | None = None) -> None:
        self._module = module
        self.name = name
        self.entry = entry
        self._lock = threading.Lock()
        self._resolved: tuple[StoredDefinition, StoredPState, TopologyReader] | None = None
        self._resolve()

    def __repr__(self) -> str:
        at = "" if self.entry is None else f", entry={self.entry}"
        return f"PStateHandle({self._module.module!r}, {self.name!r}{at})"

    def _facts(self) -> dict[str, Any]:
        info, schema = self.get_object_info(), self._resolve()[1].schema
        found = {"module": info.module_name, "PState": info.name, "partitions": info.num_partitions}
        return {**found, "schema": to_text(schema), "entry": self.entry or "the newest"}

    def select(
        self,
        path: Path | dataflow.RecordedPath | None = None,
        *,
        pkey: Any = _UNGIVEN,
        max_staleness_ms: float = 0,
        budget: Budget | None = None,
    ) -> list[Any]:
        """What the path navigates to, in order.

        `pkey` is the key whose partition is asked; without it the path begins with `key`, or the PState has one
        partition. `max_staleness_ms` allows an answer that many milliseconds old, which spares asking the store.
        `budget` bounds the work, for paths that come over HTTP.

        Raises:
            BudgetExceeded: the path asks for more than its budget.
            BadPath: the path cannot be followed, changes state, or says no partition.
            NotSelectable: it selects a subindexed structure whole, or the PState is private.
            UnknownName: the module or the PState is gone.
            CorruptState: what the store holds is not what was committed; `tidemill check` tells all of it.
            SnapshotExpired: the pinned entry was collected.
        """
        with nullcontext() if budget is None else budget.placed():
            return self._selected(path, pkey, max_staleness_ms, budget)

    def _selected(
        self, path: Path | dataflow.RecordedPath | None, pkey: Any, max_staleness_ms: float, budget: Budget | None
    ) -> list[Any]:
        return self._in_time(lambda: self._select(path, pkey, max_staleness_ms, budget))

    def _in_time(self, read: Callable[[], R]) -> R:
        """Read; once more with the newest definition where an update or a new life of the module came in between."""
        try:
            return read()
        except (SchemaOutdated, Deleted):
            self._module.forget()
            return read()

    def _select(
        self, path: Path | dataflow.RecordedPath | None, pkey: Any, max_staleness_ms: float, budget: Budget | None
    ) -> list[Any]:
        definition, pstate, reader = self._resolve()
        task, compiled, values = self._compiled(definition, pstate, path, pkey, budget)

        def read(reading: Reading) -> list[Any]:
            return reading.select(self.name, task, compiled, values)

        return self._read(reader, max_staleness_ms, read)

    def _compiled(
        self,
        definition: StoredDefinition,
        pstate: StoredPState,
        path: Path | dataflow.RecordedPath | None,
        pkey: Any,
        budget: Budget | None,
    ) -> tuple[int, CompiledPath, list[Any]]:
        """The task that is asked, the path, and the values of its arguments."""
        compiled, values = self._compile(pstate, _recorded(path), budget)
        return self._task(definition, pstate, compiled, pkey), compiled, values

    def _compile(
        self, pstate: StoredPState, path: dataflow.RecordedPath, budget: Budget | None
    ) -> tuple[CompiledPath, list[Any]]:
        compiled = compile_path(path, pstate.schema, "select", pstate=self.name, budget=budget)
        _check_keys(self.name, path, pstate.schema)
        return compiled, [argument_value(argument) for argument in compiled.arguments]

    def select_many(
        self,
        paths: Iterable[Path | dataflow.RecordedPath],
        *,
        max_staleness_ms: float = 0,
        budget: Budget | None = None,
    ) -> list[list[Any]]:
        """What each of the paths navigates to, all as of one entry; each path begins with `key`.

        Raises: as `select`.
        """
        given = listed_paths(paths)
        with nullcontext() if budget is None else budget.placed():
            return self._in_time(lambda: self._select_many(given, max_staleness_ms, budget))

    def _select_many(
        self, paths: Sequence[Path | dataflow.RecordedPath], max_staleness_ms: float, budget: Budget | None
    ) -> list[list[Any]]:
        definition, pstate, reader = self._resolve()
        asked = [self._compiled(definition, pstate, path, _UNGIVEN, budget) for path in paths]

        def read(reading: Reading) -> list[list[Any]]:
            return [reading.select(self.name, task, compiled, values) for task, compiled, values in asked]

        return self._read(reader, max_staleness_ms, read)

    def page(
        self,
        limit: int = PAGE_KEYS,
        *,
        path: Path | dataflow.RecordedPath | None = None,
        after: str | None = None,
        budget: Budget | None = None,
    ) -> Page:
        """The first `limit` keys of all partitions with their values, or, with the cursor `after`, the next ones.

        With `path`, which begins below a key, each item is `[key, list of what it navigates to]`. All pages of one
        walk are as of one entry. Partitions follow each other; keys are sorted within each.

        Raises:
            BadPath: the PState is no map, or its values are subindexed and no path is given.
            BadInput: `limit` or `after` is not possible.
            SnapshotExpired: the walk took so long that its entry was collected.
        """
        checked_limit(limit)
        cursor = Cursor.of(after) if after is not None else None
        below = None if path is None else _recorded(path)
        pinned = self if cursor is None else self.at(cursor.entry)
        with nullcontext() if budget is None else budget.placed():
            return self._in_time(lambda: pinned._page(limit, below, cursor, budget))

    def _page(
        self, limit: int, path: dataflow.RecordedPath | None, cursor: Cursor | None, budget: Budget | None
    ) -> Page:
        definition, pstate, reader = self._resolve()
        tasks = 1 if pstate.is_global else definition.tasks

        def read(reading: Reading) -> Page:
            def select(task: int, wanted: dataflow.RecordedPath) -> list[Any]:
                return reading.select(self.name, task, *self._compile(pstate, wanted, budget))

            start = cursor or Cursor(reading.number, 0)
            return page_of(self.name, pstate.schema, tasks, path, limit, start, select)

        return self._read(reader, 0, read)

    def select_one(
        self,
        path: Path | dataflow.RecordedPath | None = None,
        *,
        pkey: Any = _UNGIVEN,
        max_staleness_ms: float = 0,
        budget: Budget | None = None,
    ) -> Any:
        """The one value that the path navigates to; everything else as `select`.

        Raises:
            NotOneValue: it navigates to no value or to several.
        """
        values = self.select(path, pkey=pkey, max_staleness_ms=max_staleness_ms, budget=budget)
        return one_value(self.name, values)

    def select_async(
        self, path: Path | dataflow.RecordedPath | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> Future[list[Any]]:
        """`select` without waiting; the future gives or raises what `select` does."""
        return self._module.later(lambda: self.select(path, pkey=pkey, max_staleness_ms=max_staleness_ms))

    def select_one_async(
        self, path: Path | dataflow.RecordedPath | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> Future[Any]:
        """`select_one` without waiting; the future gives or raises what `select_one` does."""
        return self._module.later(lambda: self.select_one(path, pkey=pkey, max_staleness_ms=max_staleness_ms))

    def proxy(
        self,
        path: Path | dataflow.RecordedPath | None = None,
        callback: Callback | None = None,
        *,
        pkey: Any = _UNGIVEN,
        budget: Callable[[], Budget] | None = None,
    ) -> ProxyState:
        """The one value that the path navigates to, kept up to date in this process until it is closed.

        At each commit that changes it, `callback(new, diff, old)` is called in a thread of its own, first with a
        `ResyncDiff` of the value as it is. Changes that a slow callback leaves waiting become one `ResyncDiff`. A
        proxy ends by itself where its PState is gone, or ten reads fail within two minutes: its `status` says so.
        `budget` makes the bounds of one read, for paths that come over HTTP.

        Raises:
            NotOneValue: it navigates to no value or to several.
            BadInput: this handle is pinned, the callback is no function, or there are too many proxies.
            As `select`.
        """
        if self.entry is not None:
            raise BadInput(f"{self.name} is pinned to entry {self.entry} here, which never changes.")
        if callback is not None and not callable(callback):
            raise BadInput(f"The callback of a proxy is a function(new, diff, old), not {callback!r}.")
        recorded = _recorded(path)
        known: tuple[str, int, Any] = ("", 0, None)

        def look(
            definition: StoredDefinition, reader: TopologyReader, reading: Reading, before: Snapshot | None
        ) -> Any:
            nonlocal known
            _, pstate = definition.pstate(self.name)
            asked, task, key = known
            if before is not None and pstate.id == asked:  # else it was made anew: the old one's rows say nothing
                changed = reader.changed_keys(self.name, before, reading.snapshot)
                if not _may_differ(changed, task, key):
                    return UNCHANGED
            bounds = None if budget is None else budget()
            task, compiled, values = self._compiled(definition, pstate, recorded, pkey, bounds)
            has_key = isinstance(pstate.schema, MapSchema) and compiled.leading_key is not None
            known = (pstate.id, task, argument_value(compiled.leading_key) if has_key else ABSENT)
            with nullcontext() if bounds is None else bounds.placed():
                return one_value(self.name, reading.select(self.name, task, compiled, values))

        proxy = ProxyState(self._module.proxies, look, callback)

        def begin() -> None:
            definition, _, reader = self._resolve()
            self._read(reader, 0, lambda reading: proxy.follow(definition, reader, reading))

        self._in_time(begin)
        self._module.proxies.add(self.name, proxy)
        return proxy

    def proxy_async(
        self,
        path: Path | dataflow.RecordedPath | None = None,
        callback: Callback | None = None,
        *,
        pkey: Any = _UNGIVEN,
    ) -> Future[ProxyState]:
        """`proxy` without waiting for its first value; the future gives or raises what `proxy` does."""
        return self._module.later(lambda: self.proxy(path, callback, pkey=pkey))

    def get_object_info(self) -> ObjectInfo:
        """Whose the PState is, its name and its number of partitions."""
        definition, pstate, _ = self._resolve()
        return ObjectInfo(definition.module, self.name, 1 if pstate.is_global else definition.tasks)

    @overload
    def at(self, entry: int) -> PStateHandle: ...

    @overload
    def at(self, *, microbatch: int) -> PStateHandle: ...

    def at(self, entry: int | None = None, *, microbatch: int | None = None) -> PStateHandle:
        """A handle on the state as of an entry of the commit log, or of a microbatch, for as long as it is kept.

        How long that is says the option `store.snapshot.retention.seconds`. Microbatch 0 is the state before the first.

        Raises:
            BadInput: it is no whole number, both are given or none, or the microbatch is not committed yet.
            SnapshotExpired: the microbatch is kept no more. Selects raise it where the entry is not.
        """
        check_pin(entry, microbatch)
        if microbatch is not None:
            entry = self._in_time(lambda: self._resolve()[2].entry_of(MicrobatchId(microbatch)))
        return PStateHandle(self._module, self.name, entry)

    def diff_page(
        self,
        before: int,
        after: int,
        limit: int = PAGE_KEYS,
        *,
        path: Path | dataflow.RecordedPath | None = None,
        cursor: str | None = None,
        budget: Budget | None = None,
    ) -> ChangesPage:
        """At most `limit` changes of `diff`, from the first one on, or behind those of the page whose cursor is given.

        A page may hold fewer, or none, though there are more: its `after` tells.
        """
        checked_limit(limit)
        begun = None if cursor is None else Cursor.of(cursor)
        for microbatch in (before, after):
            check_pin(None, microbatch)
        with nullcontext() if budget is None else budget.placed():
            below = None if path is None else _recorded(path)
            return self._in_time(lambda: self._diff_page((before, after), limit, below, begun, budget))

    def _diff_page(
        self,
        microbatches: tuple[int, int],
        limit: int,
        path: dataflow.RecordedPath | None,
        cursor: Cursor | None,
        budget: Budget | None,
    ) -> ChangesPage:
        definition, pstate, reader = self._resolve()
        if cursor is None:
            since, entry = (reader.entry_of(MicrobatchId(each)) for each in microbatches)
            cursor = Cursor(entry, 0, since=since)
        tasks = 1 if pstate.is_global else definition.tasks
        try:
            ends = reader.pinned(cursor.since), reader.pinned(cursor.entry)

            def select(task: int, wanted: dataflow.RecordedPath) -> tuple[list[Any], list[Any]]:
                compiled, values = self._compile(pstate, wanted, budget)
                first, last = (end.select(self.name, task, compiled, values) for end in ends)
                return first, last

            changed = reader.changed_keys(self.name, ends[0].snapshot, ends[1].snapshot)
            return changes_of(self.name, pstate.schema, tasks, path, limit, cursor, changed, select)
        except NotFound as error:
            raise SnapshotExpired(f"What {self.name} was at one of these microbatches was collected.") from error

    def task_sizes(self, is_late: Callable[[], bool] = lambda: False) -> TaskSizes:
        """How the PState lies on its tasks, and the heaviest keys of each; tasks for which it `is_late` are left out.

        Raises: as `select`.
        """
        return self._in_time(lambda: self._task_sizes(is_late))

    def _task_sizes(self, is_late: Callable[[], bool]) -> TaskSizes:
        from tidemill.clients.task_sizes import task_sizes  # loads PyArrow's functions

        definition, pstate, reader = self._resolve()
        tasks = 1 if pstate.is_global else definition.tasks

        def read(reading: Reading) -> TaskSizes:
            return task_sizes(reading.reader, self.name, reading.number, tasks, is_late)

        return self._read(reader, 0, read)

    def levels(self) -> PStateLevels:
        """In which levels of its topology the PState lies, and when they were compacted last.

        Raises: as `select`.
        """
        return self._in_time(self._levels)

    def _levels(self) -> PStateLevels:
        _, _, reader = self._resolve()

        def read(reading: Reading) -> PStateLevels:
            entry = reader.entry(reading.number)
            compaction = None if entry is None else reader.entry(entry.compacted)
            return pstate_levels(reading.reader, self.name, reading.number, entry, compaction)

        return self._read(reader, 0, read)

    def following(self, path: Path | dataflow.RecordedPath | None = None) -> Following:
        """What may follow a path of a select here: for who offers navigators to a person that writes one.

        Raises:
            BadPath: the path itself does not fit the schema.
        """
        definition, pstate, _ = self._resolve()
        needs_key = not pstate.is_global and definition.tasks > 1
        return following(self.name, pstate.schema, _recorded(path), needs_key=needs_key)

    def current_entry(self) -> int:
        """The entry that a select would read now, for `at`; 0 before the topology's first."""
        return self._in_time(lambda: self._resolve()[2].newest(0).number)

    def _resolve(self) -> tuple[StoredDefinition, StoredPState, TopologyReader]:
        definition = self._module.definition()
        with self._lock:
            if self._resolved is not None and self._resolved[0] is definition:
                return self._resolved
            topology, pstate = definition.pstate(self.name)
            if pstate.is_private:
                raise NotSelectable(f"{self.name} is private: only its own topology reads it.", name=self.name)
            if self.entry is not None and self._resolved is not None and self._resolved[1].id != pstate.id:
                raise SnapshotExpired(f"{self.name} was made anew; entry {self.entry} went with the old one.")
            reader = self._module.reader(definition, topology)
            self._resolved = (definition, pstate, reader)
            return self._resolved

    def _task(self, definition: StoredDefinition, pstate: StoredPState, path: CompiledPath, pkey: Any) -> int:
        if pstate.is_global or definition.tasks == 1:
            return 0
        if pkey is _UNGIVEN:
            pkey = self._leading_key(path, definition.tasks)
        return self._partition(definition.tasks, pstate, pkey)

    def _leading_key(self, path: CompiledPath, tasks: int) -> Any:
        if path.leading_key is None:
            text = (
                f"{self.name} has {tasks} partitions: begin the path with a key, or say whose key's partition is "
                'read: pkey=KEY in Python, ["pkey", KEY] first in a path of JSON.'
            )
            raise BadPath(text, pstate=self.name)
        return argument_value(path.leading_key)

    def _partition(self, tasks: int, pstate: StoredPState, key: Any) -> int:
        code = self._module.pstate_code(self.name)
        partitioner = code.key_partitioner if code is not None else None
        if partitioner is None:
            if code is None and pstate.has_key_partitioner:
                raise BadPath(f"{self.name} has a key partitioner of its own; it needs the module's code here.")
            return route(key, tasks)
        chosen = partitioner.call(tasks, key)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < tasks:
            raise BadPath(f"The key partitioner of {self.name} gave {chosen!r}, which is none of {tasks} partitions.")
        return chosen

    def _read(self, reader: TopologyReader, max_staleness_ms: float, read: Callable[[Reading], R]) -> R:
        """Read; begin again from the newest entry where an object was collected under the reader's feet."""
        for left in reversed(range(_TRIES)):
            try:
                reading = (
                    reader.newest(checked_time("max_staleness_ms", max_staleness_ms))
                    if self.entry is None
                    else reader.pinned(self.entry)
                )
                return read(reading)
            except NotFound as error:
                if self.entry is not None:
                    raise SnapshotExpired(
                        f"Entry {self.entry} of {self.name} was collected; read at a newer one."
                    ) from error
                if left == 0:
                    raise CorruptState(f"{self.name} cannot be read, the store lost a part of it: {error}") from error
                reader.forget()
        raise AssertionError("unreachable")


def _recorded(path: Path | dataflow.RecordedPath | None) -> dataflow.RecordedPath:
    return path if isinstance(path, dataflow.RecordedPath) else path_of(path)


def _may_differ(changed: ChangedKeys, task: int, key: Any) -> bool:
    """Whether something at or below a key may differ, or with ABSENT anything of the task's partition."""
    try:
        return changed.is_touched(task) if key is ABSENT else changed.is_key_touched(task, key)
    except NotFound:  # what was there before is collected by now: only the value itself can tell
        return True


def one_value(name: str, values: list[Any]) -> Any:
    """The only value of a select. Raises NotOneValue: there is none, or several."""
    if len(values) != 1:
        count = "no value" if not values else f"{len(values)} values"
        raise NotOneValue(f"{name}: the path navigates to {count}; use select(), or a path to exactly one.")
    return values[0]


def _check_keys(name: str, path: dataflow.RecordedPath, schema: Schema) -> None:
    """A constant that the schema cannot have as a key is a mistake, and no key that is not there yet.

    Raises:
        BadPath: says what keys there are.
    """

    def refuse(text: str, advice: str) -> None:
        raise BadPath(f"{text} {advice}", pstate=name)

    keys = SchemaFaults(name, schema, refuse)
    others = SchemaFaults(name, schema, lambda text, advice: None)  # what meets no fit is found out by the select
    found: Schema | None = schema
    for nav in path.navs:
        if found is None:
            return
        is_key = nav.name in ("key", "must")
        found = _at_keys(keys, nav.args, found) if is_key else NAVIGATORS[nav.name].after(others, nav, found)


def _at_keys(faults: SchemaFaults, keys: Sequence[Any], schema: Schema) -> Schema | None:
    """The schema at keys of which each is below the one before; None where it is known no more."""
    found: Schema | None = schema
    for key in keys:
        if isinstance(found, MapSchema):
            faults.check_key(key, found)
            found = found.value
        else:
            found = faults.field(key, found) if isinstance(found, FixedKeysSchema) else None
    return found
