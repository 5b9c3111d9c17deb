"""What happened to a module, merged by time: the entries of its topologies, what was decided on their quarantines, its
definitions and changes of its options.

Only what is told is read: of each log the entry that comes next, newest first.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Entry
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.settlements import SettlementLog
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import StoreUnavailable, TidemillError

ENTRY_KINDS: Final = ("claim", "begin", "commit", "compact", "note")
KINDS: Final = (*ENTRY_KINDS, "failure", "decision", "definition", "option")
"""What is told; a failure rides in the entry that begins the next attempt, and is found under both kinds."""

LOGS_MAX: Final = 64
"""Topologies whose logs are merged: the first by name."""

READ_MAX: Final = 1_000
"""Entries that are read for one answer, those that do not fit included: with more of them it has fewer lines."""

_REMEMBERED_MAX: Final = 4_000
Line = dict[str, Any]


@dataclass(frozen=True)
class HistoryPlace:
    """Where to go on: of each log the entry before which all were not told yet; of topologies and of decisions on their
    quarantines by their ids, which are short. A log that is left out is told from its newest entry on.
    """

    topologies: Mapping[str, int] = field(default_factory=dict)
    decisions: Mapping[str, int] = field(default_factory=dict)
    definitions: int | None = None
    options: int | None = None


@dataclass(frozen=True)
class _MergedLog:
    """One log of a `kind` ("entry": the log of commits): its newest number, and what an entry of it says; `line` raises
    NotFound. `topology` is the id of the one whose log it is, "" of others.
    """

    kind: str
    topology: str
    newest: Callable[[], int]
    line: Callable[[int], Line]

    def begin(self, place: HistoryPlace) -> int:
        """Before which entry to begin; a place of a log that was begun anew since may lie beyond its end."""
        if self.topology:
            known = (place.topologies if self.kind == "entry" else place.decisions).get(self.topology)
        else:
            known = place.definitions if self.kind == "definition" else place.options
        end = self.newest() + 1
        return end if known is None else min(known, end)


class ModuleHistory:
    """The history of one module; it remembers what it read lately, for several threads."""

    def __init__(self, store: ObjectStore, module: str) -> None:
        self._store, self._module = store, module
        self._forget()

    def _forget(self) -> None:
        self._definitions = DefinitionLog(self._store, self._module)
        self._options = OptionsLog(self._store, self._module)
        self._commits: dict[str, CommitLog] = {}
        self._settlements: dict[str, SettlementLog] = {}
        self._lines: OrderedDict[tuple[str, int], Line] = OrderedDict()

    def read(
        self,
        definition: StoredDefinition,
        limit: int,
        place: HistoryPlace,
        kind: str | None = None,
        topology: str | None = None,
    ) -> tuple[list[Line], HistoryPlace | None]:
        """The newest `limit` lines before a place, newest first, and the place behind them, None at the end.

        `kind` (of `KINDS`) and `topology` leave out all others; of options, those of the topology stay.
        """
        sources = list(self._sources(definition, kind, topology))
        try:
            return self._merged(sources, limit, place, kind, topology)
        except StoreUnavailable:
            raise
        except TidemillError:  # a store that was put back has other logs
            self._forget()
            raise

    def _merged(
        self, sources: list[_MergedLog], limit: int, place: HistoryPlace, kind: str | None, topology: str | None
    ) -> tuple[list[Line], HistoryPlace | None]:
        at = [source.begin(place) for source in sources]
        heap: list[tuple[int, int, int, Line]] = []
        for index, source in enumerate(sources):
            self._push(heap, index, source, at[index] - 1, None)
        lines: list[Line] = []
        for _ in range(READ_MAX):
            if not heap or len(lines) == limit:
                break
            before, index, number, line = heapq.heappop(heap)
            at[index] = -number
            if _fits(line, kind, topology):
                lines.append(line)
            self._push(heap, index, sources[index], -number - 1, -before)
        return lines, _place(sources, at) if heap else None

    def _push(
        self, heap: list[tuple[int, int, int, Line]], index: int, source: _MergedLog, number: int, newer: int | None
    ) -> None:
        """The entry of a log that comes next. Its time counts as no later than that of the newer one: clocks differ."""
        if number < 1:
            return
        try:
            line = self._remembered(source, number)
        except NotFound:  # trimmed: the log begins behind it
            return
        time = line["written_ms"] or newer or 0
        heapq.heappush(heap, (-(time if newer is None else min(time, newer)), index, -number, line))

    def _remembered(self, source: _MergedLog, number: int) -> Line:
        key = (f"{source.kind}/{source.topology}", number)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = source.line(number)
            if len(self._lines) > _REMEMBERED_MAX:
                self._lines.popitem(last=False)
        return found

    def _sources(self, definition: StoredDefinition, kind: str | None, topology: str | None) -> Iterator[_MergedLog]:
        names = sorted(definition.topologies) if topology is None else [topology]
        for name in names[:LOGS_MAX]:
            place = name, definition.topology(name).id, definition.topology_prefix(name)
            if kind in (None, "failure", *ENTRY_KINDS):
                yield self._commit_log(*place)
            if kind in (None, "decision"):
                yield self._decisions(*place)
        if kind in (None, "definition") and topology is None:
            yield _MergedLog("definition", "", self._definitions.newest_number, self._definition_line)
        if kind in (None, "option"):
            yield _MergedLog("option", "", self._options.newest_number, self._option_line)

    def _commit_log(self, topology: str, topology_id: str, prefix: str) -> _MergedLog:
        log = self._commits.setdefault(prefix, CommitLog(self._store, prefix))

        def newest() -> int:
            head = log.head()  # remembered, so that the next look costs two probes
            return head[0] if head is not None else 0

        return _MergedLog("entry", topology_id, newest, lambda number: _entry_line(topology, number, log.read(number)))

    def _decisions(self, topology: str, topology_id: str, prefix: str) -> _MergedLog:
        log = self._settlements.setdefault(prefix, SettlementLog(self._store, prefix))

        def line(number: int) -> Line:
            made = log.read(number)
            return {
                "kind": "decision", "topology": topology, "number": number, "written_ms": made.written_ms,
                "action": made.action, "records": made.chosen_count, "by": made.by,
            }  # fmt: skip

        return _MergedLog("decision", topology_id, lambda: log.newest().number, line)

    def _definition_line(self, number: int) -> Line:
        found = self._definitions.read(number)
        return {
            "kind": "definition", "number": number, "written_ms": found.written_ms,
            "is_destroyed": found.is_destroyed, "topologies": len(found.topologies), "depots": len(found.depots),
            "queries": len(found.queries), "revision": found.revision, "by": found.by,
        }  # fmt: skip

    def _option_line(self, number: int) -> Line:
        change = self._options.change(number)
        told = {name: value for name, value in vars(change).items() if name != "at_ms"}
        return {"kind": "option", "number": number, "written_ms": change.at_ms, **told}


def _entry_line(topology: str, number: int, entry: Entry) -> Line:
    line: Line = {
        "kind": entry.kind, "topology": topology, "entry": number, "written_ms": entry.written_ms,
        "owner": entry.owner, "epoch": entry.epoch, "definition": entry.definition,
    }  # fmt: skip
    told = entry.committed[0] if entry.kind == "commit" else entry.attempt if entry.kind == "begin" else None
    if told is not None:
        line |= {"microbatch_id": told.microbatch_id, "version": told.version, "records": told.records}
    if entry.failure is not None:
        failed = entry.failure
        line["failure"] = {
            "microbatch_id": failed.microbatch_id, "version": failed.version, "phase": failed.phase,
            "code": failed.code, "message": failed.message,
        }  # fmt: skip
    return line


def _fits(line: Line, kind: str | None, topology: str | None) -> bool:
    is_kind = kind in (None, line["kind"]) or (kind == "failure" and "failure" in line)
    if topology is None or line["kind"] != "option":
        return is_kind
    return is_kind and line["scope"] == "topology" and line["target"] == topology


def _place(sources: list[_MergedLog], at: list[int]) -> HistoryPlace:
    numbers = list(zip(sources, at, strict=True))
    others = {source.kind: number for source, number in numbers if not source.topology}
    topologies = {source.topology: number for source, number in numbers if source.kind == "entry"}
    decisions = {source.topology: number for source, number in numbers if source.kind == "decision"}
    return HistoryPlace(topologies, decisions, others.get("definition"), others.get("option"))
