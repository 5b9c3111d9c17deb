"""Which partition of a depot each appended record goes to: the module's choice, carried out by whoever appends."""

from __future__ import annotations

import itertools
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidemill.clients.depot_fields import field_key, field_keys
from tidemill.definition.definition import StoredDepot
from tidemill.language.dataflow import DepotDeclaration, Function
from tidemill.language.operations import Op, op_named
from tidemill.values import columns
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.data import route
from tidemill.values.errors import RecordRefused, UserCodeError, message_of
from tidemill.values.routing import route_column

Partitions = NDArray[np.int32]

_MANY: Any = object()
_SHOWN_CHARS = 200

_turn = itertools.count(int.from_bytes(os.urandom(2), "big"))
"""Where the next append of a random depot begins: any start will do, taking turns keeps the load even."""


def check_takes_appends(depot: StoredDepot) -> None:
    """Raises RecordRefused: clients cannot append to the depot."""
    if depot.tick_millis is not None:
        raise RecordRefused(f"{depot.name} is a tick depot: it cannot be appended to.")
    if depot.partitioner in ("external", "sink"):
        raise RecordRefused(f"{depot.name} is outside the store: append to it with its own system's means.")
    if depot.partitioner == "disallow":
        raise RecordRefused(f"{depot.name} is declared with Depot.disallow(): clients cannot append to it.")


def partitions_of(
    depot: StoredDepot, code: DepotDeclaration | None, records: Column, partitions: int, first: int = 0
) -> Partitions:
    """The partition of each record; `first` is the number of the first one in what the caller appends.

    Raises:
        RecordRefused: the depot takes no appends of clients, the partitioner needs the module's code and it is
            not here, it gave no partition for a record, or a record lacks a field that it is partitioned by.
        UserCodeError: the partitioner raised.
    """
    check_takes_appends(depot)
    count = columns.length(records)
    if depot.fields:
        return route_column(field_keys(depot, records, first), partitions) if count else np.zeros(0, dtype=np.int32)
    if depot.is_global or partitions == 1:
        return np.zeros(count, dtype=np.int32)
    if depot.partitioner == "random":
        return _random(count, partitions)
    if depot.partitioner == "hash_by":
        return route_column(_keys(depot, _function(depot, code), records, first), partitions)
    return _custom(depot, _function(depot, code), records, partitions, first)


def partition_of(depot: StoredDepot, code: DepotDeclaration | None, record: Any, partitions: int) -> int:
    """`partitions_of` for one record, without making a column of it."""
    if depot.fields:
        return route(field_key(depot, record), partitions)
    is_hashed = depot.partitioner == "hash_by" and depot.tick_millis is None and not depot.is_global
    if is_hashed and partitions > 1:
        function = _function(depot, code)
        if function.kind != "vectorized":
            return route(_key(depot, function, record), partitions)
    return int(partitions_of(depot, code, [record], partitions)[0])


def _random(count: int, partitions: int) -> Partitions:
    """Consecutive records stay together: an even share for each partition, and nothing to sort."""
    if count >= partitions:
        return (np.arange(count) * partitions // count).astype(np.int32)
    return ((np.arange(count) + next(_turn)) % partitions).astype(np.int32)


def _function(depot: StoredDepot, code: DepotDeclaration | None) -> Function:
    if code is not None and code.function is not None and code.partitioner == depot.partitioner:
        return code.function
    if depot.operation is not None:
        return Function(depot.operation, "builtin", op_named(depot.operation))
    raise RecordRefused(
        f"{depot.name} is partitioned by a function of the module, which is not loaded here: append from a process "
        "that has the module's code (command line: --module MODULE:CLASS; gateway: --entry MODULE:CLASS), or let the "
        'module name a field of its records, as in Depot.hash_by("account").',
        depot=depot.name,
    )


def _keys(depot: StoredDepot, function: Function, records: Column, first: int) -> Column:
    """The values that `hash_by` hashes."""
    if isinstance(function.call, Op):
        known = _key_column(function.call.name, records)
        if known is not None:
            return known
    if function.kind == "vectorized":
        return _call(depot, function, lambda: function.call(_series(records)))  # type: ignore[no-any-return]
    values = enumerate(columns.to_values(records), first)
    return columns.from_values([_key(depot, function, value, index) for index, value in values])


def _key(depot: StoredDepot, function: Function, record: Any, index: int = 0) -> Any:
    return _call(depot, function, lambda: function.call(record), record, index)


def _key_column(name: str, records: Column) -> Column | None:
    """The keys without making Python objects, for the operations that most depots use."""
    if name == "IDENTITY":
        return records
    if isinstance(records, RecordColumn) and records.kind == "list" and name in ("FIRST", "LAST"):
        return records.fields[0 if name == "FIRST" else -1]
    return None


def _series(records: Column) -> pl.Series:
    if isinstance(records, pl.Series):
        return records
    if isinstance(records, RecordColumn):
        fields = [columns.to_values(field) for field in records.fields]
        return pl.DataFrame(dict(zip(records.names, fields, strict=True)), strict=False).to_struct()
    return pl.Series(records, strict=False)


def _call(depot: StoredDepot, function: Function, call: Callable[[], Any], record: Any = _MANY, index: int = 0) -> Any:
    """The function's answer. A record that a built-in operation cannot take is refused; a raise of the module's own
    function is an error of its code.
    """
    try:
        return call()
    except RecordRefused:
        raise
    except Exception as error:
        given = "" if record is _MANY else f" on {str(record)[:_SHOWN_CHARS]!r}"
        said = f"{type(error).__name__}{given}: {message_of(error)}"
        text = f"The partitioner {function.name} of {depot.name} raised {said.rstrip('.')}."
        if isinstance(function.call, Op):
            raise RecordRefused(f"{text} Append records that it can take.", depot=depot.name, index=index) from error
        trace = "".join(traceback.format_exception(error))
        step = f"partitioner of {depot.name}"
        sample = "" if record is _MANY else str(record)[:_SHOWN_CHARS]
        raise UserCodeError(text, step=step, trace=trace, sample=sample, index=index) from error


def _custom(depot: StoredDepot, function: Function, records: Column, partitions: int, first: int) -> Partitions:
    values = columns.to_values(records)

    def choose(index: int, value: Any) -> Any:
        return _call(depot, function, lambda: function.call(value, partitions), value, index)

    chosen = [choose(index, value) for index, value in enumerate(values, first)]
    for index, (value, partition) in enumerate(zip(values, chosen, strict=True), first):
        is_index = isinstance(partition, (int, np.integer)) and not isinstance(partition, bool)
        if not is_index or not 0 <= partition < partitions:
            text = (
                f"The partitioner {function.name} of {depot.name} gave {partition!r} for {str(value)[:_SHOWN_CHARS]!r}"
            )
            raise RecordRefused(f"{text}: not a partition from 0 to {partitions - 1}.", depot=depot.name, index=index)
    return np.array(chosen, dtype=np.int32)
