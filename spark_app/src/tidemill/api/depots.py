"""`Depot`: how the records that clients append are partitioned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidemill.api.arguments import to_chooser, to_plain_function
from tidemill.api.locations import caller_location
from tidemill.language.dataflow import TOMBSTONE, DepotPartitioner, Function, Location
from tidemill.values.data import has_utf8
from tidemill.values.errors import Fault
from tidemill.values.suggestions import Suggesting


class Partitioning:
    """A way to choose the partition of an appended record."""

    def __init__(
        self,
        kind: DepotPartitioner,
        function: Function | None = None,
        faults: tuple[Fault, ...] = (),
        fields: tuple[str, ...] = (),
    ) -> None:
        self.kind: DepotPartitioner = kind
        self.function = function
        self.fields = fields
        self.faults = faults

    def __repr__(self) -> str:
        by = self.fields or (() if self.function is None else (self.function.name,))
        return f"Depot.{self.kind}({', '.join(by)})"


class Depot(metaclass=Suggesting):
    """The ways to partition a depot.

    In place of one of them, a function of (record, number of partitions) gives the partition, counted from 0; so does
    an object or class with a method `choose_partition_index` of these arguments.
    """

    TOMBSTONE: Final = TOMBSTONE
    """What the function of a depot migration returns for a record that goes: nobody reads it, and offsets stay."""

    @staticmethod
    def random() -> Partitioning:
        """Any partition: even load, no promise about order."""
        return Partitioning("random")

    @staticmethod
    def hash_by(function: Callable[[Any], Any] | str | Sequence[str]) -> Partitioning:
        """The partition of `function(record)`'s hash: records with equal results stay in order on one task.

        Instead of a function: the name of a field of dict records (`"account"`), hashed as `hash_partition` would its
        value, or a list of names, hashed as the list of their values. Then whoever appends needs no code of the module.
        """
        at = caller_location()
        found: list[Fault] = []
        if isinstance(function, (str, list, tuple)):
            fields = _to_fields(function, at, found)
            return Partitioning("hash_by", None, tuple(found), fields)
        recorded = to_chooser(function, 1, at, found)
        return Partitioning("hash_by", recorded, tuple(found))

    @staticmethod
    def disallow() -> Partitioning:
        """Clients may not append; only topologies do."""
        return Partitioning("disallow")


def _to_fields(names: str | Sequence[Any], at: Location, faults: list[Fault]) -> tuple[str, ...]:
    """The fields that a depot is hashed by; they are names in records, not variables."""
    fields = (names,) if isinstance(names, str) else tuple(names)
    if not fields:
        faults.append(Fault(str(at), "hash_by names no field.", 'Write it like Depot.hash_by("account").'))
    for name in fields:
        if not isinstance(name, str) or not name:
            faults.append(
                Fault(str(at), f"The name of a field is a string, not {name!r}.", "Name a key of the records.")
            )
        elif not has_utf8(name):
            text = f"The name of a field {name!r} has a lone surrogate, which no record can hold."
            faults.append(Fault(str(at), text, "Name a key of the records."))
        elif name.startswith("*"):
            text = f"'{name}' is written like a variable; hash_by takes the name of a field of the records."
            faults.append(Fault(str(at), text, f'Write "{name.lstrip("*")}".'))
    return tuple(str(name) for name in fields)


def to_partitioning(value: Any, at: Location, faults: list[Fault]) -> Partitioning:
    """The recorded form of a depot's partitioning; what is wrong with it is added to `faults`."""
    if isinstance(value, Partitioning):
        faults.extend(value.faults)
        return value
    chooser = value() if isinstance(value, type) else value
    function = getattr(chooser, "choose_partition_index", chooser)
    if not callable(function):
        text = f"{value!r} is not a way to partition a depot."
        faults.append(Fault(str(at), text, "Use Depot.random(), Depot.hash_by(…), Depot.disallow() or a callable."))
        return Partitioning("random")
    return Partitioning("custom", to_plain_function(function, 2, at, faults))
