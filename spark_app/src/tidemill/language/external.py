"""Depots outside the store: what a class must say of a log of another system, so that a topology can read it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
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
