"""What people set while a module runs: `<module>/options/<n>.json`, each entry one change and everything that holds.

A pause is an entry too, so it survives restarts and updates. The leader notes the number of the newest pause that it
saw in its commit log (`paused_seen`), for which whoever asked waits.

What a resource (on Kubernetes: a Topology) decides is marked as managed, and only that resource changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

from tidemill.journal.clock import Clock, SystemClock
from tidemill.language import options
from tidemill.language.options import ModuleOptions, OptionTarget
from tidemill.store.entry_log import EntryLog
from tidemill.store.json_codec import SUFFIX, JsonCodec
from tidemill.store.log import Log, Lost
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import Managed, StoreUnavailable
from tidemill.values.ids import Ids
from tidemill.values.stored import Stored

PAUSED: Final = "paused"
_TRIES = 100


@dataclass(frozen=True)
class Change(Stored):
    """What an entry changed, for people: `action` is set, unset, pause, resume, manage or clear.

    `by` names who did it, empty where it is not known; the clock of that process says when.
    """

    action: str
    scope: str
    target: str
    name: str = ""
    value: Any = None
    by: str = ""
    at_ms: int = 0


@dataclass(frozen=True)
class OptionsEntry:
    """A change, and what holds after it: values as (scope, object, option, value), marks as (…, option, resource)."""

    nonce: str
    number: int
    change: Change
    values: tuple[tuple[str, str, str, Any], ...]
    paused: Mapping[str, int]
    managed: tuple[tuple[str, str, str, str], ...]

    @cached_property
    def options(self) -> ModuleOptions:
        """What holds after the change."""
        values: dict[tuple[str, str], dict[str, Any]] = {}
        for scope, target, name, value in self.values:
            values.setdefault((scope, target), {})[name] = value
        managed = {(scope, target, name): owner for scope, target, name, owner in self.managed}
        return ModuleOptions(self.number, values, self.paused, managed)


JSON: Final[JsonCodec[OptionsEntry]] = JsonCodec(OptionsEntry)


class OptionsLog:
    """The options of one module; every change is durable when its call returns."""

    def __init__(
        self, store: ObjectStore, module: str, ids: Ids | None = None, by: str = "", clock: Clock | None = None
    ) -> None:
        """`by` is who changes them through this, for people."""
        log = Log(store, f"{module}/options", SUFFIX, JSON.read_nonce)
        self._entries: EntryLog[OptionsEntry] = EntryLog(log, JSON.decode, attrgetter("number"))
        self._ids, self._by, self._clock = ids or Ids(), by, clock or SystemClock()

    @property
    def log(self) -> Log:
        """Its objects."""
        return self._entries.log

    @property
    def number(self) -> int:
        """The number of the newest entry that was read, 0 before any."""
        return self._entries.known

    def newest_number(self) -> int:
        """The number of the newest entry there is, 0 before any."""
        return self._entries.newest_number()

    def read(self) -> ModuleOptions:
        """What holds now, never older than what this instance read before. Two probes where nothing is new.

        Raises:
            CorruptState: the newest entry cannot be read.
            StoreUnavailable: it is there and is not there; ask again.
        """
        head = self._entries.head()
        return head[1].options if head else ModuleOptions()

    def newest(self, count: int) -> list[OptionsEntry]:
        """The newest entries, the oldest of them first."""
        return [entry for _, entry in self._entries.tail(count)]

    def change(self, number: int) -> Change:
        """What an entry changed. Raises NotFound."""
        return self._entries.read(number).change

    def set(self, scope: str, target: str, name: str, value: Any) -> ModuleOptions:
        """Set an option on the module (`target` "") or on one of its objects.

        Raises:
            OptionError: the option, its value or its place is not possible.
            Managed: a resource decides it.
        """
        options.check_scope(name, scope, target)
        checked = options.check_value(name, value)
        change = Change("set", scope, target, name, checked)
        return self._append(
            change, lambda now: replace(now, values=options.with_value(now.values, scope, target, name, checked))
        )

    def set_many(self, settings: tuple[tuple[str, str, str, Any], ...]) -> ModuleOptions:
        """Set several options, each (scope, object, name, value); those that a module's code sets at its launch."""
        for scope, target, name, value in settings:
            self.set(scope, target, name, value)
        return self.read()

    def unset(self, scope: str, target: str, name: str) -> ModuleOptions:
        """Take a setting away, so that the module's or the default holds again.

        Raises:
            OptionError: there is no such option, or it does not belong there.
            Managed: a resource decides it.
        """
        options.check_scope(name, scope, target)
        change = Change("unset", scope, target, name)
        return self._append(
            change, lambda now: replace(now, values=options.with_value(now.values, scope, target, name, None))
        )

    def pause(self, topology: str) -> int:
        """Pause a topology; the number of the entry that paused it, for which the caller waits in `paused_seen`.

        Raises:
            Managed: a resource decides whether it is paused.
        """
        change = Change("pause", "topology", topology, PAUSED)
        return self._append(change, lambda now: _with_pause(now, topology, True)).paused[topology]

    def resume(self, topology: str) -> ModuleOptions:
        """Let a paused topology go on; no change if it is not paused.

        Raises:
            Managed: a resource decides whether it is paused.
        """
        change = Change("resume", "topology", topology, PAUSED)
        return self._append(change, lambda now: _with_pause(now, topology, False))

    def manage(self, owner: str, wanted: Mapping[OptionTarget, Any]) -> ModuleOptions:
        """Make these settings hold as the resource `owner` names them, and take away what it named before and no more.

        What another resource decides is left alone. The option `paused` of a topology is whether it is paused.

        Raises:
            OptionError: an option, a value or a place is not possible; nothing is changed.
        """
        checked = {}
        for (scope, target, name), value in wanted.items():
            if name != PAUSED:
                options.check_scope(name, scope, target)
            checked[scope, target, name] = bool(value) if name == PAUSED else options.check_value(name, value)
        return self._append(
            Change("manage", "module", owner, by=owner), lambda now: _managed(now, owner, checked), looks=1
        )

    def clear(self, is_due: Callable[[], bool]) -> ModuleOptions:
        """Take everything away, as before a new life of the module: the log stays, for its names must not come back.

        `is_due` is asked after each look at what is to be cleared, so nothing newer than its answer goes.
        """
        return self._append(Change("clear", "module", ""), lambda now: ModuleOptions(now.number) if is_due() else now)

    def _append(self, change: Change, apply: Callable[[ModuleOptions], ModuleOptions], looks: int = 2) -> ModuleOptions:
        """Write what holds after the change; where somebody else was faster, on top of theirs.

        A stale look is noticed when the entry meets the one that was overlooked. Where there is nothing to write,
        nothing would notice it, so as many `looks` must agree; one is enough for who asks again and again.
        """
        agreed = 0
        for _ in range(_TRIES):
            now = self.read()
            _check_free(now, change)
            after = apply(now)
            if after == now:
                agreed += 1
                if agreed == looks:
                    return now
                continue
            try:
                return self._put(now.number + 1, change, after)
            except Lost:
                continue
        raise StoreUnavailable(f"{_TRIES} changes in a row met other writers in {self._entries.log.prefix}")

    def _put(self, number: int, change: Change, after: ModuleOptions) -> ModuleOptions:
        change = replace(change, by=change.by or self._by, at_ms=self._clock.now_ms())
        values = tuple(options.settings(after.values))
        managed = tuple((*place, owner) for place, owner in after.managed.items())
        entry = OptionsEntry(self._ids.nonce(), number, change, values, after.paused, managed)
        self._entries.put(number, entry, JSON.sealed(entry, self._entries.log.key(number)))
        return entry.options


def _check_free(now: ModuleOptions, change: Change) -> None:
    owner = now.managed.get((change.scope, change.target, change.name))
    if owner is not None:
        where = f" of {change.scope} {change.target}" if change.target else ""
        raise Managed(f"{change.name}{where} is decided by {owner}: change it there.", option=change.name, owner=owner)


def _with_pause(now: ModuleOptions, topology: str, is_paused: bool) -> ModuleOptions:
    if is_paused == (topology in now.paused):
        return now
    others = {name: number for name, number in now.paused.items() if name != topology}
    return replace(now, paused={**others, topology: now.number + 1} if is_paused else others)


def _with_setting(now: ModuleOptions, place: OptionTarget, value: Any) -> ModuleOptions:
    """`value` None takes the setting away."""
    scope, target, name = place
    if name == PAUSED:
        return _with_pause(now, target, bool(value))
    return replace(now, values=options.with_value(now.values, scope, target, name, value))


def _managed(now: ModuleOptions, owner: str, wanted: Mapping[OptionTarget, Any]) -> ModuleOptions:
    others = {place: by for place, by in now.managed.items() if by != owner}
    ours = {place: value for place, value in wanted.items() if place not in others}
    for place, by in now.managed.items():
        if by == owner and place not in ours:
            now = _with_setting(now, place, None)
    for place, value in ours.items():
        now = _with_setting(now, place, value)
    return replace(now, managed={**others, **dict.fromkeys(ours, owner)})


def set_by(entries: Sequence[OptionsEntry]) -> dict[OptionTarget, OptionsEntry]:
    """For each setting of the last of these entries the one among them that gave it its value; none where an older one
    did. A pause is the setting `paused` of its topology.
    """
    found: dict[OptionTarget, OptionsEntry] = {}
    before = _standing(entries[0]) if entries and entries[0].number > 1 else {}
    for entry in entries if not before else entries[1:]:
        now = _standing(entry)
        found = {place: found[place] for place in now if place in found and before.get(place) == now[place]}
        found |= {place: entry for place, value in now.items() if before.get(place) != value}
        before = now
    return found


def _standing(entry: OptionsEntry) -> dict[OptionTarget, Any]:
    values = {(scope, target, name): value for scope, target, name, value in entry.values}
    return {**values, **{("topology", topology, PAUSED): number for topology, number in entry.paused.items()}}
