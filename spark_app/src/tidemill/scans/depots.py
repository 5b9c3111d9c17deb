"""Depots as tables: partition, offset and time of each record, and the record itself, whole or a column a field."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidemill.clients.module import ModuleClient
from tidemill.definition.definition import StoredDepot
from tidemill.depot import record_reader
from tidemill.depot.log import DepotLog
from tidemill.language.dataflow import DepotMigration
from tidemill.language.schema import FixedKeysSchema, Leaf, Schema
from tidemill.scans.bounds import Allowed, Bounds
from tidemill.scans.columns import check_fit, column_type, field_of, series_of_values, shown_names
from tidemill.store.urls import open_store
from tidemill.tables.migrated_records import migrated_records
from tidemill.values import columns
from tidemill.values.call_checks import checked_name
from tidemill.values.columns import DATETIME, Column
from tidemill.values.errors import BadInput, SchemaMismatch
from tidemill.values.offsets import OffsetRanges

PARTITION, OFFSET, TIME, RECORD = "partition", "offset", "time", "record"
PLACES: Final = {PARTITION: pl.Int32, OFFSET: pl.Int64, TIME: DATETIME}

Span = tuple[int, int, int]
"""(partition, first offset, end)."""


@dataclass(frozen=True)
class DepotScan:
    """Records of a depot: those of `spans`. It is plain data, so that it can be read in any process.

    `types` are the fields of records that are columns, with their Polars types; None: those of the depot's schema, or
    the whole record.
    """

    url: str
    prefix: str
    depot: StoredDepot
    partitions: int
    spans: tuple[Span, ...]
    types: Mapping[str, Any] | None = None
    migration: DepotMigration | None = None

    @cached_property
    def fields(self) -> dict[str, str]:
        """The columns that are fields of records: as they are shown -> as the records have them."""
        names = [str(name) for name, _ in self._declared] if self.types is None else list(self.types)
        return shown_names(names, PLACES, RECORD)

    @property
    def _declared(self) -> tuple[tuple[Any, Any], ...]:
        schema = self.depot.schema
        return schema.fields if isinstance(schema, FixedKeysSchema) else ()

    @property
    def schema(self) -> dict[str, Any]:
        """The columns with their Polars types."""
        if not self.fields:
            return {**PLACES, RECORD: column_type(self.depot.schema or Leaf("object"))}
        declared = {str(name): field for name, field in self._declared}
        types = {
            name: column_type(declared[field]) if self.types is None else self.types[field]
            for name, field in self.fields.items()
        }
        return {**PLACES, **types}

    @property
    def kinds(self) -> dict[str, Schema]:
        """The schemas of the columns that hold records, as far as the depot says them: not of `types`."""
        if not self.fields:
            return {RECORD: self.depot.schema or Leaf("object")}
        declared = {str(name): field for name, field in self._declared}
        return {name: declared[field] for name, field in self.fields.items()} if self.types is None else {}

    def log(self) -> DepotLog:
        """The depot, as it is looked at now."""
        return DepotLog(open_store(self.url, probe=False), self.prefix, self.partitions)

    def within(self, spans: Sequence[Span]) -> DepotScan:
        """The same of other records."""
        return replace(self, spans=tuple(spans))

    def typed(self, types: Mapping[str, Any]) -> DepotScan:
        """The same with these fields of records as columns. Raises BadInput: they are no names with Polars types."""
        if not _are_types(types):
            text = "schema= names the fields of records that become columns, with their Polars types"
            raise BadInput(f"{text}; leave it out for whole records.")
        return replace(self, types=types)

    def read(self, bounds: Bounds, columns: Sequence[str], batch_rows: int) -> Iterator[pl.DataFrame]:
        """The records within the bounds, those of a partition in their order.

        Raises:
            BadInput: retention gave some of them up since the scan was made.
            SchemaMismatch: a field does not have the type that was asked for.
            NeedsCode: they wait for a migration whose function is not here.
        """
        log = self.log()
        for partition, start, end in _narrowed(log, self.spans, bounds):
            for first in range(start, end, batch_rows):
                last = min(end, first + batch_rows)
                records = log.read_columns(partition, first, last)
                times = _times(log, partition, first, last) if TIME in columns else None
                yield self._shown(partition, first, records, times, columns)

    def _shown(
        self, partition: int, first: int, records: Column, times: NDArray[np.int64] | None, wanted: Sequence[str]
    ) -> pl.DataFrame:
        count = columns.length(records)
        offsets = np.arange(first, first + count, dtype=np.int64)
        if self.migration is not None and not set(wanted) <= set(PLACES):
            here = np.full(count, partition, dtype=np.int32)
            records, kept = migrated_records(self.depot, self.migration, records, here, {partition: first})
            offsets, times = offsets[kept], None if times is None else times[kept]
        places = {
            PARTITION: lambda: pl.Series(PARTITION, [partition], dtype=pl.Int32).new_from_index(0, len(offsets)),
            OFFSET: lambda: pl.Series(OFFSET, offsets),
            TIME: lambda: pl.Series(TIME, times).cast(pl.Int64).cast(pl.Datetime("ms", "UTC")).cast(DATETIME),
        }
        return pl.DataFrame([places[n]() if n in places else self._column(n, records, first) for n in wanted])

    def _column(self, name: str, records: Column, first: int) -> pl.Series:
        if name == RECORD and not self.fields:
            return series_of_values(name, self.depot.schema or Leaf("object"), records)
        field = self.fields[name]
        values = field_of(records, field)
        if self.types is None:
            declared = {str(key): schema for key, schema in self._declared}
            return series_of_values(name, declared[field], values)
        if isinstance(values, pl.Series) and values.dtype == self.types[field]:
            return values.alias(name)
        try:
            held = columns.to_values(values)
            check_fit(self.types[field], held)
            return pl.Series(name, held, dtype=self.types[field], strict=True)
        except (TypeError, OverflowError, ValueError, pl.exceptions.PolarsError) as error:
            text = f"A record of {self.depot.name} from offset {first} on has a field {field!r} that is no"
            said = str(error).splitlines()[0]
            raise SchemaMismatch(f"{text} {self.types[field]} ({said}); name another type, or leave it out.") from error


def _narrowed(log: DepotLog, spans: Sequence[Span], bounds: Bounds) -> Iterator[Span]:
    """The parts of spans that the bounds of partition, offset and time leave."""
    partitions, offsets = bounds.get(PARTITION, Allowed()), bounds.get(OFFSET, Allowed())
    after, until = _between_times(log, bounds.get(TIME, Allowed()))
    lows = [offsets.low, min(offsets.values) if offsets.values else None]
    highs = [offsets.high, max(offsets.values) if offsets.values else None]
    if offsets.values == () or partitions.values == ():
        return
    for partition, start, end in spans:
        if partitions.values is not None and partition not in partitions.values:
            continue
        if not _lies_within(partition, partitions):
            continue
        start = max([start, *(int(low) for low in lows if _is_finite(low)), after[partition] if after else start])
        end = min([end, *(int(high) + 1 for high in highs if _is_finite(high)), until[partition] if until else end])
        if start < end:
            yield partition, start, end


def _is_finite(bound: Any) -> bool:
    return isinstance(bound, (int, float)) and math.isfinite(bound)


def _lies_within(partition: int, allowed: Allowed) -> bool:
    """Nothing is beyond NaN, which Polars has above all numbers."""
    is_above = allowed.low is None or partition >= allowed.low
    return is_above and (allowed.high is None or allowed.high != allowed.high or partition <= allowed.high)


def _between_times(log: DepotLog, allowed: Allowed) -> tuple[Sequence[int] | None, Sequence[int] | None]:
    """The first offset of each partition that may be within the times, and the end."""
    lows = _datetimes(allowed.low, min(allowed.values) if allowed.values else None)
    highs = _datetimes(allowed.high, max(allowed.values) if allowed.values else None)
    if not lows and not highs:
        return None, None
    log.follow()
    newest = log.newest()
    after = record_reader.offsets_after(log.files, newest, _millis(max(lows)) - 1) if lows else None
    until = record_reader.offsets_after(log.files, newest, _millis(min(highs))) if highs else None
    return after, until


def _datetimes(*bounds: Any) -> list[datetime.datetime]:
    return [bound for bound in bounds if isinstance(bound, datetime.datetime)]


def _millis(time: datetime.datetime) -> int:
    """Whole milliseconds since 1970, rounded down: a segment's time has no parts of them."""
    known = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    since = known - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return since // datetime.timedelta(milliseconds=1)


def _times(log: DepotLog, partition: int, start: int, end: int) -> NDArray[np.int64]:
    """When each record of [start, end) was appended, in ms since 1970: segment by segment."""
    ends: list[int] = []
    times: list[int] = []
    number, last = log.locate(OffsetRanges.only(log.partitions, partition, start, end))
    while number < last:
        header = log.files.header(number)
        for entry in header.entries:
            if entry.number >= number:
                ends.append(entry.ends[partition])
                times.append(entry.time)
        number = header.number + 1
    found = np.searchsorted(np.array(ends, dtype=np.int64), np.arange(start, end, dtype=np.int64), side="right")
    return np.array(times, dtype=np.int64)[found]


def _are_types(types: Any) -> bool:
    """Whether these are names of fields with types that Polars knows; one at least."""
    try:
        return isinstance(types, Mapping) and all(isinstance(name, str) for name in types) and bool(pl.Schema(types))
    except TypeError:
        return False


def depot_scan(client: ModuleClient, depot: str, types: Mapping[str, Any] | None = None) -> DepotScan:
    """The records that a depot holds now. Fields that are columns are those of `types`, if it is given.

    Raises:
        UnknownName: there is no such depot.
        BadInput: its records are not in the store, or `types` is empty.
    """
    definition = client.definition()
    stored = definition.depot("*" + checked_name("depot", depot).removeprefix("*"))
    if not stored.has_log:
        raise BadInput(f"{stored.name} keeps no records in the store, so it cannot be scanned.")
    prefix, partitions = definition.depot_prefix(stored.name), definition.partitions(stored.name)
    log = DepotLog(client.store, prefix, partitions)
    log.follow()
    held = zip(log.starts(), log.ends(), strict=True)
    spans = tuple((number, start, end) for number, (start, end) in enumerate(held) if start < end)
    known = client.depot_migration(stored)
    found = DepotScan(client.store.url, prefix, stored, partitions, spans, migration=known)
    return found if types is None else found.typed(types)
