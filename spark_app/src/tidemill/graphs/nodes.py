"""A task graph as data: its nodes, in the order in which they were made. Nothing here reads or runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, runtime_checkable

import polars as pl

from tidemill.graphs.executor import Executor
from tidemill.graphs.partitions import PartitionKey
from tidemill.language.dataflow import Location
from tidemill.values.errors import BadInput

Cursor: TypeAlias = Any
"""Where a channel of an input goes on reading: plain data that pickles. None where it is at the end."""
BatchFunction: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]


def _nothing_to_check() -> None:
    """Values that are made of bytes that were read."""


@dataclass(frozen=True)
class LazyBatch:
    """A batch whose values are not made yet: what a batch function does not want is never made. `bytes` in the file;
    `place` says where that is. `is_part`: the next one is read in the same wave. `check` raises BadInput where what the
    values were made of is not what it was; call it behind that.
    """

    frame: pl.LazyFrame
    bytes: int
    place: str
    is_part: bool = False
    check: Callable[[], None] = _nothing_to_check

    def collect(self) -> pl.DataFrame:
        """All rows. Raises BadInput where they are not of the types that they should have, or `check` does."""
        try:
            found = self.frame.collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            self.check()
            reason = str(error).splitlines()[0]
            advice = "Name the types of columns with schema=, as schema={'price': pl.Float64}."
            raise BadInput(f"{self.place} is not as the first rows are: {reason}. {advice}") from error
        self.check()
        return found


class Reader(Protocol):
    """What an input reads. It pickles, and gives the same rows for the same cursor in any process."""

    @property
    def schema(self) -> dict[str, pl.DataType] | None:
        """The columns of its batches; None where they are not known before it reads."""

    @property
    def batch_bytes(self) -> int:
        """About as many bytes as a batch has; what batches really had is counted from then on."""

    def plan(self, channels: int) -> list[Cursor]:
        """Where each channel begins, so that together they read each row once; asked once, when the graph starts."""

    def read(self, cursor: Cursor) -> tuple[pl.DataFrame | LazyBatch | None, Cursor]:
        """The next batch, None where there is none just now, and where to go on (None at the end)."""

    def describe(self) -> str:
        """What it reads, for `explain`."""


@runtime_checkable
class Follower(Protocol):
    """A reader of a log, which may grow for ever."""

    @property
    def is_endless(self) -> bool:
        """Whether it reads on when it is at the end of the log, instead of ending there."""

    def behind(self, cursor: Cursor) -> int:
        """The records that follow a cursor, as of the last read."""


@runtime_checkable
class ReadsDataset(Protocol):
    """A reader of a Dataset."""

    dataset: Any


OUTPUT_DEPOT = "new_output_depot"
"""The call of nodes that append to depots."""
WINDOWS = "windows"
"""The kind of Datasets of which each window is one."""


@dataclass(frozen=True)
class DatasetSink:
    """A node's output becomes a Dataset: `dataset` names it, `key` are the columns by which it is looked up. `schema`:
    the columns that it has where no row comes; None where nobody knows.
    """

    dataset: str
    kind: str
    key: tuple[str, ...] = ()
    schema: pl.Schema | None = None


@dataclass(frozen=True)
class DepotSink:
    """A node's output is appended to a depot of a module."""

    module: str
    depot: str


@dataclass(frozen=True)
class GraphNode:
    """What all nodes have: an ID (its number in the order of definition), channels and a place in the user's file."""

    id: int
    channels: int
    location: Location
    call: str

    @property
    def name(self) -> str:
        """How people call it in messages."""
        return f"node {self.id} ({self.call} at {self.location})"


@dataclass(frozen=True)
class InputNode(GraphNode):
    """Reads batches from outside; `dependents` are inputs that must be done before it begins."""

    reader: Reader
    batch_function: BatchFunction | None = None
    dependents: tuple[int, ...] = ()

    @property
    def is_endless(self) -> bool:
        """Whether it ends only when nobody takes its rows any more."""
        return isinstance(self.reader, Follower) and self.reader.is_endless


@dataclass(frozen=True)
class TaskNode(GraphNode):
    """Takes batches of `sources` (its own names for streams, and the nodes that send them)."""

    sources: Mapping[int, int]
    executor: Any
    partitions: Mapping[int, PartitionKey]
    datasets: tuple[Any, ...] = ()
    sink: DatasetSink | DepotSink | None = None

    @property
    def idle_after(self) -> timedelta | None:
        """How long its inputs find nothing new before it is told so; None where it is never."""
        found: timedelta | None = getattr(self.executor, "idle_after", None)
        return found

    @property
    def hears_ends(self) -> bool:
        """Whether its executor does something where one of its streams ends before the others."""
        return getattr(type(self.executor), "ended", None) is not Executor.ended

    @property
    def keeps_windows(self) -> bool:
        """Whether each window becomes a Dataset as soon as it has ended."""
        return isinstance(self.sink, DatasetSink) and self.sink.kind == WINDOWS

    @property
    def publishes_early(self) -> bool:
        """Whether others see what it makes before the graph has ended."""
        return self.keeps_windows or isinstance(self.sink, DepotSink)


@dataclass(frozen=True)
class Edge:
    """A stream as its sender sees it: the node that takes it, and under which name."""

    target: int
    stream: int
    key: PartitionKey
    channels: int


@dataclass
class GraphDefinition:
    """The nodes of a graph by ID; an ID is the place in the list."""

    nodes: list[InputNode | TaskNode] = field(default_factory=list)

    def edges(self, node: int) -> list[Edge]:
        """The streams that leave a node."""
        return [
            Edge(taker.id, stream, taker.partitions.get(stream), taker.channels)
            for taker in self.nodes
            if isinstance(taker, TaskNode)
            for stream, source in taker.sources.items()
            if source == node
        ]

    @property
    def inputs(self) -> list[InputNode]:
        """The nodes that read."""
        return [node for node in self.nodes if isinstance(node, InputNode)]

    @property
    def marks(self) -> list[str]:
        """Of files and frames that are read, what tells them from others of their names and sizes."""
        files = [file.mark for node in self.inputs for file in getattr(node.reader, "files", ())]
        return [*files, *filter(None, (getattr(node.reader, "mark", "") for node in self.inputs))]

    @property
    def tasks(self) -> list[TaskNode]:
        """The nodes that take batches."""
        return [node for node in self.nodes if isinstance(node, TaskNode)]

    def datasets(self) -> list[Any]:
        """The Datasets that its inputs and its executors read."""
        streams = [node.reader.dataset for node in self.inputs if isinstance(node.reader, ReadsDataset)]
        return [*streams, *(each for node in self.tasks for each in node.datasets)]

    def feeding(self) -> list[frozenset[int]]:
        """For each node the inputs from which rows come to it, directly or through others."""
        found: list[frozenset[int]] = []
        for node in self.nodes:  # sources stand before those that take them
            if isinstance(node, InputNode):
                found.append(frozenset([node.id]))
            else:
                found.append(frozenset().union(*(found[source] for source in node.sources.values())))
        return found


@dataclass(frozen=True)
class StoredGraph:
    """What is stored of a graph, to be resumed in another process. It stands here since workers of Spark read it, who
    need the nodes and nothing of what defines, draws or runs them.
    """

    definition: GraphDefinition
    engine: str
    memory_bytes: int
    checkpoint_waves: int | None
    retention: timedelta | None
