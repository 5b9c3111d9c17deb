"""The records of a depot as a stream: those that were there when the graph was defined, or all that ever come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from tidemill.clients.module import ModuleClient
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.header import SegmentSummary
from tidemill.depot.log import DepotLog
from tidemill.depot.mark import SegmentMark
from tidemill.graphs.nodes import Cursor
from tidemill.journal.definition_log import DefinitionLog
from tidemill.language.dataflow import StartFrom
from tidemill.store.urls import open_store
from tidemill.values.columns import Column, RecordColumn, to_values
from tidemill.values.errors import BadInput, Deleted
from tidemill.values.offsets import OffsetRanges

BATCH_RECORDS = 10_000
VALUE = "value"
"""The column of records that are no dicts."""
BEGINNING = StartFrom("beginning")
_NUMBER = {bool: float, int: float}
_PLAIN = (pl.Int64, pl.Float64, pl.String, pl.Boolean)


class DepotPlace(NamedTuple):
    """Where a channel is in a partition: the next offset, and where that ends, if it does. A program that is started
    again finds more records, or another depot of this name: it reads up to where the first one saw an end, of that
    depot only. `reached` is the segment of the last record before it. Checkpoints of older versions say none of these.
    """

    partition: int
    offset: int
    end: int | None = None
    prefix: str = ""
    reached: SegmentMark | None = None


@dataclass(frozen=True)
class DepotInput:
    """`starts`: the first offset of each partition; `ends` where they end, None where the depot is read for ever.
    `start`: where reading begins, which is found out when the graph begins.

    Records that are dicts are rows; others are one column, VALUE. `types` are the columns and their types; None takes
    those of each batch. A channel reads its partitions together, in the order in which segments were appended; in each
    segment, which may hold several appends of one process, by partition.
    """

    url: str
    module: str
    depot: str
    prefix: str
    starts: tuple[int, ...]
    ends: tuple[int, ...] | None
    types: Mapping[str, Any] | None = None
    start: StartFrom = BEGINNING

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_log", "_definitions")}

    @cached_property
    def _log(self) -> DepotLog:
        """The depot as this process follows it."""
        return DepotLog(open_store(self.url, probe=False), self.prefix, len(self.starts))

    @cached_property
    def _definitions(self) -> DefinitionLog:
        return DefinitionLog(open_store(self.url, probe=False), self.module)

    @property
    def schema(self) -> dict[str, pl.DataType] | None:
        return None if self.types is None else dict(pl.Schema(self.types))

    @property
    def batch_bytes(self) -> int:
        return BATCH_RECORDS * 100

    @property
    def is_endless(self) -> bool:
        return self.ends is None

    def describe(self) -> str:
        return f"the depot {self.depot} of {self.module}{', for ever' if self.is_endless else ''}"

    def plan(self, channels: int) -> list[Cursor]:
        """Partitions are dealt in turn; a cursor is a `DepotPlace` in each that is not read to its end."""
        starts = self.starts
        if self.start != BEGINNING:
            starts = self._log.resolve_start(self.start, self._log.now_millis())
        ends, reached = self.ends or [None] * len(starts), self._log.reached(starts)
        pairs = enumerate(zip(starts, ends, strict=True))
        places = [DepotPlace(number, *each, self.prefix, reached) for number, each in pairs]
        dealt = [place for place in places if place.end is None or place.offset < place.end]
        return [tuple(dealt[channel::channels]) or None for channel in range(channels)]

    def read(self, cursor: Cursor) -> tuple[pl.DataFrame | None, Cursor]:
        """The next records of these partitions, about BATCH_RECORDS, in the order of the segments of the log.

        Raises:
            BadInput: retention gave up records that were not read yet, or an update gave the depot a migration.
            Deleted: an update deleted the depot.
            CorruptState: the depot lost records that were read.
        """
        places = [DepotPlace(*each) for each in cursor]
        if any(place.prefix not in ("", self.prefix) for place in places):
            raise self._deleted()
        if self.is_endless:
            self._log.follow()
            self._check_definition()
        for mark in {place.reached for place in places if place.reached is not None}:
            self._log.check_holds(mark)
        limits = self._limits(places)
        ranges = self._next({place.partition: place.offset for place in places}, limits)
        if not ranges.records:
            return None, self._left(places, limits)
        records = self._log.read_rows(ranges, as_appended=True)[0]
        reached = self._log.reached(ranges.ends)
        read = [place._replace(offset=ranges.ends[place.partition], reached=reached) for place in places]
        return self._frame(records), self._left(read, limits)

    def _left(self, places: Sequence[DepotPlace], limits: Mapping[int, int]) -> Cursor:
        """Where to go on: in partitions that are not read to their end."""
        return tuple(place for place in places if self.is_endless or place.offset < limits[place.partition]) or None

    def behind(self, cursor: Cursor) -> int:
        """The records that follow a cursor, as of the last read."""
        places = [DepotPlace(*each) for each in cursor or ()]
        limits = self._limits(places)
        return sum(limits[place.partition] - place.offset for place in places)

    def _check_definition(self) -> None:
        """Of a depot that was deleted nothing ever comes, also where another one has its name now."""
        newest = self._definitions.newest()
        if newest is None or self.depot not in newest.depots or newest.depot_prefix(self.depot) != self.prefix:
            raise self._deleted()
        _check_readable(newest, self.depot)

    def _deleted(self) -> Deleted:
        text = f"The depot {self.depot} of {self.module} was deleted, with the records that this graph reads."
        return Deleted(f"{text} Give a graph of another one with this name another id.")

    def _limits(self, places: Sequence[DepotPlace]) -> dict[int, int]:
        """Where each of these partitions ends now, or ended when the graph began."""
        known = self.ends or self._log.newest().ends
        return {place.partition: known[place.partition] if place.end is None else place.end for place in places}

    def _next(self, starts: dict[int, int], limits: Mapping[int, int]) -> OffsetRanges:
        """Up to the segment with which there are BATCH_RECORDS, or to the end; of that one not more than as many of a
        partition.
        """
        newest = self._log.newest()

        def ends(entry: SegmentSummary) -> dict[int, int]:
            return {number: min(limits[number], entry.ends[number]) for number in starts}

        def is_enough(entry: SegmentSummary) -> bool:
            return sum(max(0, end - starts[number]) for number, end in ends(entry).items()) >= BATCH_RECORDS

        found, before = {number: limits[number] for number in starts}, self.starts
        if sum(end - starts[number] for number, end in found.items()) > BATCH_RECORDS:
            at = self._log.files.first_after(is_enough, newest.number)
            if at <= newest.number:
                found, before = ends(self._log.files.entry(at)), self._log.files.ends_before(at)
        pairs = [(0, 0)] * len(self.starts)
        for number, start in starts.items():
            most = max(start, before[number]) + BATCH_RECORDS
            pairs[number] = (start, max(start, min(found[number], most)))
        return OffsetRanges.of(pairs)

    def _frame(self, column: Column) -> pl.DataFrame:
        if self.types is None and isinstance(column, RecordColumn) and column.kind == "dict":
            fields = dict(zip(column.names, column.fields, strict=True))
            if all(isinstance(each, pl.Series) and each.dtype in _PLAIN for each in column.fields):
                return pl.DataFrame(fields)
        values = to_values(column)
        try:
            if self.types is None:
                _check_kinds(VALUE, values)
            are_rows = all(isinstance(value, dict) for value in values)
            if are_rows:
                strict = self.types is not None  # else kinds are known, and lists of ints and floats are no mistake
                frame = pl.DataFrame(values, schema=self.types, infer_schema_length=None, strict=strict)
            else:
                frame = pl.DataFrame({VALUE: values}, schema=self.types, strict=False)
            if not frame.width:
                raise TypeError("they have no fields")
            for name in frame.columns:
                given = [value.get(name) for value in values] if are_rows else values
                if not _are_taken(given, frame[name]):
                    raise TypeError(f"{name!r} has values that are no {frame[name].dtype}")
            return frame
        except (TypeError, pl.exceptions.PolarsError) as error:
            text = f"Records of {self.depot} of {self.module} make no columns: {error}"
            raise BadInput(f"{text}. Name the types of columns with schema=.") from error


def _are_taken(given: Sequence[Any], made: pl.Series) -> bool:
    """Whether Polars made no null, and no other whole number, of a value or of a part of one."""
    kind = made.dtype
    if made.null_count() != given.count(None) or kind == pl.Object:
        return False
    if isinstance(kind, (pl.List, pl.Array, pl.Struct)):
        return all(map(_is_taken, given, made.to_list()))
    return not (kind.is_integer() and float in set(map(type, given))) or all(map(_is_taken, given, made.to_list()))


def _is_taken(given: Any, made: Any) -> bool:
    if isinstance(made, list):
        return len(given) == len(made) and all(map(_is_taken, given, made))
    if isinstance(made, dict):
        return all(_is_taken(given.get(key), value) for key, value in made.items())
    is_cut = isinstance(made, int) and isinstance(given, float) and made != given
    return (given is None) == (made is None) and not is_cut


def _check_kinds(name: str, values: Sequence[Any]) -> None:
    """Polars would make text of numbers, numbers of times, and null of what is no struct. Raises TypeError."""
    found = set(map(type, values)) - {type(None)}
    kinds = {_NUMBER.get(kind, kind) for kind in found}
    if len(kinds) > 1:
        raise TypeError(f"{name!r} has values of several kinds ({', '.join(sorted(kind.__name__ for kind in kinds))})")
    if found >= {int, float} and any(type(value) is int and int(float(value)) != value for value in values):
        raise TypeError(f"{name!r} has floats and whole numbers that no float can be")
    held = [value for value in values if value is not None] if kinds & {list, tuple, dict} else []
    if dict in kinds:
        for key in dict.fromkeys(chain.from_iterable(held)):
            _check_kinds(key, [value.get(key) for value in held])
    elif held:
        _check_kinds(name, list(chain.from_iterable(held)))


def depot_input(
    url: str,
    module: str,
    depot: str,
    types: Mapping[str, Any] | None,
    is_endless: bool = False,
    start: StartFrom = BEGINNING,
) -> DepotInput:
    """A depot as it is now, or for ever.

    Raises:
        UnknownName: there is no such module or depot. BadInput: its records are elsewhere, or go through a migration.
    """
    store = open_store(url)
    definition = ModuleClient(store, module).definition()
    name = definition.depot(depot).name
    _check_readable(definition, name)
    prefix = definition.depot_prefix(name)
    log = DepotLog(store, prefix, definition.partitions(name))
    log.follow()
    return DepotInput(url, module, name, prefix, log.starts(), None if is_endless else log.ends(), types, start)


def _check_readable(definition: StoredDefinition, name: str) -> None:
    depot = definition.depots[name]
    if not depot.has_log:
        raise BadInput(f"The depot {name} of {definition.module} keeps no records in the store, so a graph has none.")
    if depot.migration:
        text = f"The records of {name} of {definition.module} go through the migration '{depot.migration}'"
        advice = "Let a topology of the module append them to another depot, and read that."
        raise BadInput(f"{text}, a function of the module's code, which a task graph does not have. {advice}")
