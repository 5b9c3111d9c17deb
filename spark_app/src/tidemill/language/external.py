"""Depots and sinks outside the store: what a class must say of a log of another system, so that a topology can read it,
and what it must do for rows that a topology sends there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.language.objects import TaskGlobalObject


class ExternalDepot(TaskGlobalObject, ABC):
    """A log of another system as a depot: derive a class, declare an instance with `setup.declare_object("*name", …)`,
    and name it as a source.

    It has partitions, numbered from 0; a number means the same partition for ever, and there may come to be more. In a
    partition each record has an offset; offsets rise, and there may be holes. What was read once is read again with the
    same range after a failure, in another process perhaps, and must be the same then: the records of [start, end) never
    change, and no record appears below an end that was told. The log keeps its records until they were read.

    All methods may be called by several threads at once, and should give up after some seconds. What they raise is
    tried again.
    """

    @abstractmethod
    def get_num_partitions(self) -> int:
        """How many partitions there are now; never fewer than before."""

    @abstractmethod
    def start_offset(self, partition: int) -> int:
        """The offset of the first record that the log still has; of an empty partition, the next one."""

    @abstractmethod
    def end_offset(self, partition: int) -> int:
        """The offset behind the last record that may be read."""

    @abstractmethod
    def fetch_from(self, partition: int, start: int, end: int) -> Iterable[Any]:
        """The records of the offsets [start, end), in their order, as data: what a depot may hold."""

    @abstractmethod
    def offset_after_timestamp_millis(self, partition: int, millis: int) -> int:
        """The offset of the first record that was appended after this time (ms since 1970), else the end."""

    def bounds(self) -> Sequence[tuple[int, int]]:
        """(first offset, end) of each partition; a system that answers for all of them at once has a faster way."""
        return [(self.start_offset(p), self.end_offset(p)) for p in range(self.get_num_partitions())]


@dataclass(frozen=True)
class Delivery:
    """What a committed microbatch appended to a sink, to be written there once.

    `topology` and `sink` are their names with ids that no other ones ever have, `store` is the id of this copy of the
    store: after a restore it is another one. `restored_at` is the microbatch that the topology was restored at, 0 if it
    began in this copy; up to there all copies deliver the same. `digest` tells these records from any others. `rows`
    gives the `count` records, some at a time, those of a task in the order in which it appended them; each call begins
    anew.
    """

    store: str
    module: str
    topology: str
    sink: str
    microbatch_id: int
    digest: str
    count: int
    rows: Callable[[], Iterator[list[Any]]] = field(compare=False)
    restored_at: int = 0


class ExternalSink(TaskGlobalObject, ABC):
    """A place in another system to which topologies append: derive a class, declare an instance with
    `setup.declare_object("*name", …)`, and name it in `.depot_partition_append("*name", "*record")`.

    Records are kept with the commit of their microbatch and delivered after it. So another system never sees anything
    of a microbatch that is not committed, and a delivery is the same however often it is tried.
    """

    schema: Any = None
    """What each record must be when it is appended: a schema of PState, or a plain type. None: any data."""

    def check(self, record: Any) -> None:
        """Raise what is wrong with a record that fits the schema and could still not be written; it fails where it is
        appended then. Called before the object is opened, in any process.
        """

    @abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """Write the records of a delivery and its microbatch's ID, both at once or neither; nothing, if that ID or a
        later one is there for its module, topology and sink.

        The deliveries of a topology come in the order of their microbatches, each until this returned once, perhaps
        from two processes at once while one of them is replaced. What is raised is told, and it is tried again.
        """
