"""`format("tidemill")` of Spark: PStates and depots to read, depots to follow as streams and to append to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Union

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as api
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidemill.clients.module import ModuleClient
from tidemill.depot.log import DepotLog
from tidemill.depot.mark import SegmentMark
from tidemill.depot.producer_names import check_own_name
from tidemill.scans.bounds import Bound, Bounds, bounds_of
from tidemill.scans.depots import PLACES, DepotScan, Span, depot_scan
from tidemill.scans.frames import opened
from tidemill.scans.pstates import PStateScan, pstate_scan
from tidemill.spark.depot_batches import DepotBatches
from tidemill.spark.folded_maps import FoldedMaps, folded
from tidemill.spark.source_columns import arrow_batch, polars_types, spark_schema
from tidemill.values.errors import BadInput, UnknownName
from tidemill.values.ids import nonce

NAME: Final = "tidemill"
PARTITIONS: Final = 64
"""So many partitions a PState is read in at most, unless an option says otherwise."""

SPAN_RECORDS: Final = 1_000_000
"""A Spark partition reads at most as many records of a depot's partition."""

BATCH_ROWS: Final = 10_000
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

_OPTIONS: Final = {
    "store", "module", "pstate", "depot", "table", "entry", "microbatch", "maps", "partitions", "startingoffsets",
    "maxrecordsperbatch", "producer", "sequence", "recordcolumn",
}  # fmt: skip
_OF_SPARK: Final = {"path", "checkpointlocation", "querytimeout"}

Source = Union[PStateScan, FoldedMaps, DepotScan]


class TidemillDataSource(api.DataSource):  # type: ignore[misc] # PySpark has no types that are followed here
    """Options: `store`, `module`, and `pstate` or `depot`; docs/guide/data-doors.md lists the others."""

    def __init__(self, options: dict[str, str]) -> None:
        """Spark keeps this object for all that becomes of a load, and asks `schema` only where the caller named none.
        So what is read is pinned here; a depot that is written to need not be readable.
        """
        super().__init__(options)
        self._pinned: Source | None = None
        if "pstate" in options or "depot" in options:
            with suppress(BadInput, UnknownName):  # who asks for a schema or a reader hears of it
                self._pinned = source_of(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns. Raises: as `source_of`."""
        return schema_of_source(self._pinned or source_of(self.options))

    def reader(self, schema: StructType) -> api.DataSourceReader:
        """A reader of a PState, or of what a depot holds."""
        pinned = self._pinned or source_of(self.options)
        found = named(pinned, schema) if isinstance(pinned, DepotScan) else pinned
        return SourceReader(found, schema, _number(self.options, "partitions"))

    def streamReader(self, schema: StructType) -> api.DataSourceStreamReader:
        """A reader that follows a depot. Raises BadInput for a PState."""
        pinned = self._pinned or source_of(self.options)
        if not isinstance(pinned, DepotScan):
            raise BadInput("Spark can follow a depot, not a PState: use the option depot.")
        found = named(pinned, schema)
        limit = _number(self.options, "maxRecordsPerBatch")
        if limit == 0:
            raise BadInput(
                "The option maxRecordsPerBatch is a whole number from 1 on, not 0: no batch would have records."
            )
        return DepotStreamReader(found, schema, self.options.get("startingOffsets", "earliest"), limit)

    def writer(self, schema: StructType, overwrite: bool) -> api.DataSourceWriter:
        """A writer that appends one batch to a depot."""
        producer, sequence = self.options.get("producer"), _number(self.options, "sequence")
        if (producer is None) != (sequence is None) or producer == "":
            raise BadInput("The options producer (a name) and sequence (a number that rises) go together.")
        if producer is not None:
            check_own_name(producer)
        batches = batches_of(self.options, producer or f"spark/{nonce()}", overwrite)
        return DepotWriter(batches, sequence)

    def streamWriter(self, schema: StructType, overwrite: bool) -> api.DataSourceStreamWriter:
        """A writer that appends the batches of a streaming query to a depot."""
        return DepotStreamWriter(batches_of(self.options, "", overwrite))


def source_of(options: Mapping[str, str]) -> Source:
    """What the options name, as it is now.

    Raises:
        BadInput: an option is missing, unknown or wrong.
        UnknownName: there is no such store, module, PState or depot.
    """
    _check_options(options)
    if ("pstate" in options) == ("depot" in options):
        raise BadInput("Say what to read: the option pstate, or the option depot.")
    client = ModuleClient(opened(_needed(options, "store")), _needed(options, "module"))
    if "depot" in options:
        return depot_scan(client, options["depot"])
    entry, microbatch = _number(options, "entry"), _number(options, "microbatch")
    rows = pstate_scan(client, options["pstate"], options.get("table", ""), entry, microbatch)
    return folded(rows) if _flag(options, "maps") else rows


def named(found: DepotScan, schema: StructType) -> DepotScan:
    """The same records with the fields that a caller named, if the depot has no such columns. Raises BadInput."""
    own = {(field.name, field.dataType) for field in schema_of_source(found).fields}
    if {(field.name, field.dataType) for field in schema.fields} <= own:
        return found
    return found.typed(polars_types(StructType([field for field in schema.fields if field.name not in PLACES])))


def schema_of_source(source: Source) -> StructType:
    """The columns of what is read."""
    places = {name: kind for name, kind in source.schema.items() if name not in source.kinds}
    return spark_schema(places, source.kinds)


def batches_of(options: Mapping[str, str], producer: str, overwrite: bool) -> DepotBatches:
    """Where a job appends. Raises BadInput."""
    _check_options(options)
    if overwrite:
        raise BadInput("A depot is appended to, never overwritten: use mode('append').")
    store, module, depot = (_needed(options, name) for name in ("store", "module", "depot"))
    return DepotBatches(store, module, "*" + depot.removeprefix("*"), producer, options.get("recordColumn", ""))


def _check_options(options: Mapping[str, str]) -> None:
    if unknown := sorted(set(map(str.lower, options)) - _OPTIONS - _OF_SPARK):
        raise BadInput(f"The format tidemill has no option {unknown[0]}; it has {', '.join(sorted(_OPTIONS))}.")


def _needed(options: Mapping[str, str], name: str) -> str:
    if not options.get(name):
        raise BadInput(f"The format tidemill needs the option {name}.")
    return options[name]


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    if not options[name].isdecimal():
        raise BadInput(f"The option {name} is a whole number from 0 on, not {options[name]!r}.")
    return int(options[name])


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise BadInput(f"The option {name} is true or false, not {value!r}.")
    return value == "true"


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass
class SourcePart(api.InputPartition):  # type: ignore[misc] # as above
    """What one task reads: of a PState some tasks, of a depot some records."""

    value: Any


class SourceReader(api.DataSourceReader):  # type: ignore[misc] # as above
    """Reads a PState or a depot. Filters bound what is read, and Spark applies them again."""

    def __init__(self, source: Source, schema: StructType, partitions: int | None) -> None:
        known = set(source.schema)
        if unknown := [name for name in schema.names if name not in known]:
            raise BadInput(f"There is no column {unknown[0]!r}; there are {', '.join(source.schema)}.")
        self.source, self.schema = source, schema
        self.count = PARTITIONS if partitions is None else max(1, partitions)
        self.bounds: Bounds = {}

    def pushFilters(self, filters: list[api.Filter]) -> Iterable[api.Filter]:
        """Note what the filters say of columns by which rows are found; all of them stay with Spark.

        A column that the caller gave another type is compared as that type, so its filters bound nothing here.
        """
        own = {(field.name, field.dataType) for field in schema_of_source(self.source).fields}
        known = {field.name for field in self.schema.fields if (field.name, field.dataType) in own}
        terms = (term for each in filters for term in bounds_in(each))
        self.bounds = bounds_of(term for term in terms if term.column in known)
        return filters

    def partitions(self) -> Sequence[api.InputPartition]:
        """Tasks are dealt in turn; spans of records are cut where they are long."""
        if isinstance(self.source, DepotScan):
            return [SourcePart([span]) for span in cut_spans(self.source.spans)]
        tasks = range(_pstate(self.source).tasks)
        dealt = [tuple(tasks[number :: self.count]) for number in range(min(self.count, len(tasks)))]
        return [SourcePart(part) for part in dealt]

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, as Arrow batches."""
        if partition.value is None:  # of a source without parts
            return
        yield from arrow_batches(self._part(partition.value), self.bounds, self.schema)

    def _part(self, part: Any) -> Source:
        if isinstance(self.source, DepotScan):
            return self.source.within(part)
        mine = replace(_pstate(self.source), of_tasks=part)
        return FoldedMaps(mine) if isinstance(self.source, FoldedMaps) else mine


def arrow_batches(source: Source, bounds: Bounds, schema: StructType) -> Iterator[pa.RecordBatch]:
    """What a task reads of a source, as Spark wants it."""
    for frame in source.read(bounds, schema.names, BATCH_ROWS):
        if frame.height:
            yield arrow_batch(frame, schema)


def _pstate(source: PStateScan | FoldedMaps) -> PStateScan:
    return source.scan if isinstance(source, FoldedMaps) else source


def cut_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans, none of them of more records than one task shall read."""
    return [
        (partition, first, min(end, first + SPAN_RECORDS))
        for partition, start, end in spans
        for first in range(start, end, SPAN_RECORDS)
    ]


def bounds_in(found: api.Filter) -> Iterator[Bound]:
    """What a filter of Spark says of a column, as far as bounds can."""
    signs = {
        api.EqualTo: "==", api.EqualNullSafe: "==", api.In: "in", api.GreaterThan: ">=", api.GreaterThanOrEqual: ">=",
        api.LessThan: "<=", api.LessThanOrEqual: "<=", api.StringStartsWith: ">=",
    }  # fmt: skip
    sign = signs.get(type(found))
    if sign is not None and len(found.attribute) == 1:
        value = list(found.value) if sign == "in" else found.value
        if sign != "==" or value is not None:
            yield Bound(found.attribute[0], sign, value)


# --- following a depot -----------------------------------------------------------------------------------------------


class DepotStreamReader(api.DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc] # as above
    """Follows a depot. An offset is `{"depot": its id, "offsets": {"0": next offset of partition 0, …}}`, with the
    number and the nonce of the "segment" that holds the last record before it.
    """

    def __init__(self, scan: DepotScan, schema: StructType, starting: str, limit: int | None) -> None:
        self.scan, self.schema, self.limit = scan, schema, limit
        self._starting = starting
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query begins that has no checkpoint. Raises BadInput: the option startingOffsets is wrong."""
        log = self.scan.log()
        starts, ends = log.starts(), log.ends()
        if self._starting in ("earliest", "latest"):
            return self._offset(log, starts if self._starting == "earliest" else ends)
        try:
            given = {str(int(number)): int(offset) for number, offset in json.loads(self._starting).items()}
        except (ValueError, TypeError, AttributeError) as error:
            text = 'The option startingOffsets is earliest, latest, or JSON such as {"0": 17, "1": 4}'
            raise BadInput(f"{text}, not {self._starting!r}.") from error
        if below := {number: offset for number, offset in given.items() if offset < 0}:
            raise BadInput(f"The option startingOffsets has offsets from 0 on, not {json.dumps(below)}.")
        if unknown := sorted(given.keys() - set(map(str, range(self.scan.partitions)))):
            raise BadInput(f"{self.scan.depot.name} has {self.scan.partitions} partitions, and none {unknown[0]}.")
        if beyond := {number: offset for number, offset in given.items() if offset > ends[int(number)]}:
            raise BadInput(
                f"{self.scan.depot.name} ends at {json.dumps(_by_number(ends))}, and the option startingOffsets "
                f"begins beyond it, at {json.dumps(beyond)}: to begin at the end, leave the option at latest."
            )
        return self._offset(log, [given.get(str(number), start) for number, start in enumerate(starts)])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far a batch from `start` on goes: to the end, or as many records as the limit says.

        Raises:
            CorruptState: the depot lost records that were read.
        """
        log = self.scan.log()
        before, ends = self._offsets(log, start), self._target or _by_number(log.ends())
        room = {number: max(0, ends[number] - offset) for number, offset in before.items()}
        taken = dealt(room, limit.max_rows) if isinstance(limit, ReadMaxRows) else room
        if not any(taken.values()):
            return start
        return self._offset(log, [before[number] + taken[number] for number in map(str, range(self.scan.partitions))])

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the option maxRecordsPerBatch says."""
        return ReadAllAvailable() if self.limit is None else ReadMaxRows(self.limit)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Where the depot ends now."""
        log = self.scan.log()
        return self._offset(log, log.ends())

    def prepareForTriggerAvailableNow(self) -> None:
        """Go no farther than where the depot ends now."""
        self._target = _by_number(self.scan.log().ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[api.InputPartition]:
        """A task a partition of the depot that has records, more where these are many. Raises: as `latestOffset`."""
        log = self.scan.log()
        first, last = self._offsets(log, start), self._offsets(log, end)
        spans = [(int(number), offset, last[number]) for number, offset in first.items() if offset < last[number]]
        return [SourcePart([span]) for span in cut_spans(spans)]

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a span, as Arrow batches."""
        return arrow_batches(self.scan.within(partition.value), {}, self.schema)

    def _offset(self, log: DepotLog, offsets: Sequence[int]) -> dict[str, Any]:
        mark = log.reached(offsets)
        segment = {} if mark is None else {"segment": asdict(mark)}
        return {"depot": self.scan.depot.id, "offsets": _by_number(offsets), **segment}

    def _offsets(self, log: DepotLog, offset: dict[str, Any]) -> dict[str, int]:
        """Those of an offset, if the depot still holds what was read up to there."""
        if offset["depot"] != self.scan.depot.id:
            raise BadInput(f"{self.scan.depot.name} was made anew since this query's checkpoint: begin with a new one.")
        if segment := offset.get("segment"):  # offsets of older versions name none
            log.check_holds(SegmentMark(**segment))
        return dict(offset["offsets"])


def _by_number(offsets: Sequence[int]) -> dict[str, int]:
    """Offsets by the number of their partition, as JSON has them."""
    return {str(number): at for number, at in enumerate(offsets)}


def dealt(room: Mapping[str, int], count: int) -> dict[str, int]:
    """`count` records dealt over partitions: as even as what each of them has allows."""
    taken = dict.fromkeys(room, 0)
    left = count
    for place, number in enumerate(sorted(room, key=lambda number: room[number])):
        taken[number] = min(room[number], left // (len(room) - place))
        left -= taken[number]
    return taken


# --- appending -------------------------------------------------------------------------------------------------------


@dataclass
class StagedRows(api.WriterCommitMessage):  # type: ignore[misc] # as above
    """What one task staged, and for whom."""

    names: tuple[str, ...]
    producer: str


class DepotWriter(api.DataSourceArrowWriter):  # type: ignore[misc] # as above
    """Appends the rows of one job when all its tasks are done."""

    def __init__(self, batches: DepotBatches, sequence: int | None) -> None:
        self.batches, self.sequence = batches, sequence

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage a task's rows."""
        return StagedRows(self.batches.stage(iterator, self.sequence), self.batches.producer)

    def commit(self, messages: list[Any]) -> None:
        """Append what the tasks staged."""
        self.batches.commit(self.sequence or 0, names_of(messages))
        if self.sequence is None:
            self.batches.finish()

    def abort(self, messages: list[Any]) -> None:
        """Take back what the tasks staged, unless it is decided that the job is these rows."""
        if self.sequence is None:  # nobody can run it again as the same
            self.batches.finish()
        else:
            self.batches.discard(self.sequence, names_of(messages))


class DepotStreamWriter(api.DataSourceStreamArrowWriter):  # type: ignore[misc] # as above
    """Appends each batch of a streaming query; the query, which its checkpoint names, is the producer."""

    def __init__(self, batches: DepotBatches) -> None:
        self.batches = batches

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage a task's rows. Raises BadInput: Spark does not say which query it is."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        if not query:
            raise BadInput("Spark does not say which streaming query this task belongs to, so nothing can be appended.")
        mine, batch = replace(self.batches, producer=f"spark/{query}"), context.getLocalProperty(BATCH_ID)
        return StagedRows(mine.stage(iterator, int(batch) if batch else None), mine.producer)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Append what the tasks of a batch staged, unless it is appended already."""
        for batches in self._of(messages):
            batches.commit(batchId, names_of(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Take back what the tasks staged, unless it is decided that the batch is these rows."""
        for batches in self._of(messages):
            batches.discard(batchId, names_of(messages))

    def _of(self, messages: list[Any]) -> list[DepotBatches]:
        """The batches as the query numbers them whose tasks sent the messages: none where no task staged anything."""
        found = {message.producer for message in messages if message is not None}
        return [replace(self.batches, producer=producer) for producer in found]


def names_of(messages: Iterable[StagedRows | None]) -> list[str]:
    """What the tasks staged, in the order of the tasks."""
    return [name for message in messages if message is not None for name in message.names]
