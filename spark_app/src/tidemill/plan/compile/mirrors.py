"""Partitioners of other modules' objects: functions that give the number of a partition there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.language import dataflow as df
from tidemill.values.data import route
from tidemill.values.errors import BadInput, DefinitionError, Fault


def chosen_partition(node: df.Partition, mirrored: df.MirroredObject) -> df.Function:
    """The function of the partitioner's arguments that gives one partition of the object, or for "all" each of them.

    Raises:
        DefinitionError: this partitioner chooses none.
    """
    name = f"{node.kind}_partition"
    count = mirrored.tasks
    if count == 1 and node.kind != "custom":
        return df.Function(name, "function", _First())
    if node.kind == "hash":
        return df.Function(name, "function", _Hashed(count))
    if node.kind == "path" and node.args:
        return _by_path(name, mirrored, count)
    if node.kind == "direct":
        return df.Function(name, "function", _Checked(count, None))
    if node.kind == "custom" and node.function is not None:
        return df.Function(name, "function", _Checked(count, node.function.call))
    if node.kind == "all":
        return df.Function(name, "operation", _All(count))
    if node.kind == "global":
        return df.Function(name, "function", _First())
    text = f"{name} chooses no partition of '{node.target}', which belongs to another module."
    raise DefinitionError([Fault(str(node.at), text, "Use hash_partition, direct_partition or all_partition of it.")])


def _by_path(name: str, mirrored: df.MirroredObject, count: int) -> df.Function:
    declared = mirrored.declared
    partitioner = declared.key_partitioner if isinstance(declared, df.PStateDeclaration) else None
    call = _Hashed(count) if partitioner is None else _Checked(count, partitioner.call)
    return df.Function(name, "function", call)


@dataclass(frozen=True)
class _First:
    """The one partition of a global object."""

    def __call__(self, *args: Any) -> int:
        return 0


@dataclass(frozen=True)
class _Hashed:
    """The partition of a key's hash, as clients and the other module find it."""

    partitions: int

    def __call__(self, key: Any) -> int:
        return route(key, self.partitions)


@dataclass(frozen=True)
class _Checked:
    """What a function of (number of partitions, arguments) chooses, or the number itself."""

    partitions: int
    choose: Callable[..., Any] | None

    def __call__(self, *args: Any) -> int:
        chosen = args[0] if self.choose is None else self.choose(self.partitions, *args)
        if type(chosen) is not int or not 0 <= chosen < self.partitions:
            raise BadInput(f"{chosen!r} is no partition from 0 to {self.partitions - 1}")
        return chosen


@dataclass(frozen=True)
class _All:
    """Every partition, one after the other."""

    partitions: int

    def __call__(self) -> Iterator[int]:
        yield from range(self.partitions)
