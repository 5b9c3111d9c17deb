"""Facts that a handle gives about its depot or PState."""

from __future__ import annotations

from typing import NamedTuple


class ObjectInfo(NamedTuple):
    """Whose a depot or a PState is, what it is called, and how many partitions it has."""

    module_name: str
    name: str
    num_partitions: int


class PartitionInfo(NamedTuple):
    """The offsets of the records that a partition has now: [start_offset, end_offset)."""

    start_offset: int
    end_offset: int
