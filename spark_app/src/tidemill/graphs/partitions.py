"""How the rows of a batch are dealt to the channels of the node that takes them.

Equal keys go to equal channels, whichever node sends them: whole numbers by their remainder (as the document of the
interface has it), whatever their type; all else by a hash that is the same in each process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidemill.values.data import key_hash
from tidemill.values.errors import BadInput
from tidemill.values.routing import route_column

Pieces: TypeAlias = list[tuple[int, pl.DataFrame]]
"""Channels and their rows, in order of channels; channels that get no row are left out."""

FILTERED_CHANNELS = 8
"""To so many channels rows are dealt by filters, which read all of them again each time, but read and write in order:
that takes a third to a seventh of the time of gathering for 2 channels, and as long for 16.
"""


@dataclass(frozen=True)
class RangePartition:
    """Rows by the range of a column: channel 0 takes those below `bounds[0]`, the last one all from `bounds[-1]` on.

    Nulls go to channel 0. `bounds` rise; there is one less than channels.
    """

    column: str
    bounds: tuple[Any, ...]

    def __init__(self, column: str, bounds: Sequence[Any]) -> None:
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "bounds", tuple(bounds))


_HEAVY = "__tidemill_heavy"
_NAN = float("nan")
"""The one that is equal to itself in tuples: two partitions of the same heavy keys are equal."""


@dataclass(frozen=True)
class SplitPartition:
    """Rows by their key, but for a few heavy keys, which would fill one channel: their rows go to all channels in turn,
    or, `copied`, a copy of each to all.

    For joins: split the side with many rows of a heavy key, and copy those of the other side. Each row of the split
    side then meets all of its partners, in one channel. The right side can be split if the join is inner only.
    """

    columns: tuple[str, ...]
    heavy: tuple[tuple[Any, ...], ...]
    copied: bool

    def __init__(self, columns: str | Sequence[str], heavy: Sequence[Any], *, copied: bool = False) -> None:
        """`heavy`: keys, each a tuple where there are several columns; None is a null.

        Raises:
            BadInput: a key has another number of values than there are columns.
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if wrong := [
            k for k in heavy if len(names) > 1 and not (isinstance(k, (tuple, list)) and len(k) == len(names))
        ]:
            raise BadInput(f"a heavy key of {', '.join(names)} is a tuple of {len(names)} values, not {wrong[0]!r}")
        object.__setattr__(self, "columns", names)
        keys = ((key,) if len(names) == 1 else tuple(key) for key in heavy)
        object.__setattr__(self, "heavy", tuple(tuple(_NAN if value != value else value for value in k) for k in keys))
        object.__setattr__(self, "copied", copied)

    def is_heavy(self, frame: pl.DataFrame) -> NDArray[np.bool_]:
        """For each row whether its key is one of these. Raises BadInput where one is not of its column's type."""
        found = [
            pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in zip(self.columns, key, strict=True))
            for key in self.heavy
        ]
        try:
            marked = frame.with_columns(pl.any_horizontal(pl.lit(False), *found).alias(_HEAVY))
        except pl.exceptions.PolarsError as error:
            types = ", ".join(f"{name} ({frame.schema[name]})" for name in self.columns)
            keys = ", ".join(repr(key[0] if len(key) == 1 else key) for key in self.heavy)
            raise BadInput(f"the heavy keys {keys} are not of the type of {types}") from error
        return marked.get_column(_HEAVY).to_numpy()


PartitionKey: TypeAlias = str | Sequence[str] | RangePartition | SplitPartition | Callable[..., Any] | None
"""None copies to all channels; a column or several hash; a callable decides (`split_by_function`)."""


def key_columns(key: PartitionKey) -> tuple[str, ...]:
    """The columns that a batch must have to be partitioned so."""
    if isinstance(key, str):
        return (key,)
    if isinstance(key, RangePartition):
        return (key.column,)
    if isinstance(key, SplitPartition):
        return key.columns
    return () if key is None or callable(key) else tuple(key)


def split(frame: pl.DataFrame, key: PartitionKey, source_channel: int, channels: int) -> Pieces:
    """The rows of a batch by channel, in their order.

    Raises:
        BadInput: a column is missing, or a callable gives a channel that does not exist.
    """
    if key is None:
        return [(channel, frame) for channel in range(channels)]
    if callable(key):
        return split_by_function(frame, key, source_channel, channels)
    missing = [column for column in key_columns(key) if column not in frame.columns]
    if missing:
        raise BadInput(f"the partition key {', '.join(missing)} is no column of the batch ({', '.join(frame.columns)})")
    if channels == 1:
        return [(0, frame)]
    if isinstance(key, RangePartition):
        return _dealt(frame, _range_channels(frame[key.column], key.bounds), channels)
    if isinstance(key, SplitPartition):
        return _split_heavy(frame, key, source_channel, channels)
    return _dealt(frame, hash_channels([frame[column] for column in key_columns(key)], channels), channels)


def _split_heavy(frame: pl.DataFrame, key: SplitPartition, source_channel: int, channels: int) -> Pieces:
    numbers = hash_channels([frame[column] for column in key.columns], channels)
    is_heavy = key.is_heavy(frame)
    if not key.copied:
        numbers[is_heavy] = (np.arange(np.count_nonzero(is_heavy)) + source_channel) % channels
        return _dealt(frame, numbers, channels)
    pieces = [(number, frame.filter((numbers == number) | is_heavy)) for number in range(channels)]
    return [(number, piece) for number, piece in pieces if piece.height]


def hash_channels(columns: Sequence[pl.Series], channels: int) -> NDArray[np.int64]:
    """The channel of each row by its key: the remainder of one whole number, else a hash of all columns.

    A number is whole whatever its type: one batch has 2, another one 2.0, and both are one key.
    """
    if len(columns) > 1:
        return _hashes(columns, channels)
    (numbers,) = columns
    if numbers.dtype == pl.Boolean:
        numbers = numbers.cast(pl.Int64)
    if numbers.dtype.is_integer():
        return _remainders(numbers, channels)
    found = _hashes(columns, channels)
    if numbers.dtype.is_decimal():
        whole = numbers.cast(pl.Int128)
        is_whole = (whole.cast(numbers.dtype) == numbers).fill_null(False)
        found[is_whole.to_numpy()] = _remainders(whole.filter(is_whole), channels)
    elif numbers.dtype.is_float():
        floats = numbers.cast(pl.Float64).fill_null(np.nan).to_numpy()
        are_whole = np.isfinite(floats) & (np.trunc(floats) == floats)
        found[are_whole] = np.mod(floats[are_whole], channels).astype(np.int64)
    return found


def places_of(key: Sequence[pl.Series], channels: int) -> set[int]:
    """Where the rows of one key may be: older versions dealt floats, decimals and booleans by a hash only."""
    dealers = (hash_channels,) if key[0].dtype.is_integer() else (hash_channels, _hashes)
    return {int(deal(key, channels)[0]) for deal in dealers}


def _hashes(columns: Sequence[pl.Series], channels: int) -> NDArray[np.int64]:
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        total = total * np.uint64(31) + route_column(_plain(column), 1 << 31).astype(np.uint64)
    return (total % np.uint64(channels)).astype(np.int64)


def _remainders(numbers: pl.Series, channels: int) -> NDArray[np.int64]:
    """Never negative, as Python has it; nulls go where those of other types go."""
    if numbers.dtype in (pl.Int128, pl.UInt128):  # numpy has none
        remainder = pl.lit(numbers) % pl.lit(channels, dtype=numbers.dtype)
        numbers = pl.select(remainder.cast(pl.Int64)).to_series()
    found = numbers.fill_null(0).to_numpy()
    if found.dtype.kind == "u":
        remainders = (found % np.uint64(channels)).astype(np.int64)
    else:
        remainders = np.mod(found.astype(np.int64, copy=False), channels)
    if numbers.null_count():
        remainders[numbers.is_null().to_numpy()] = key_hash(None) % (1 << 31) % channels
    return remainders


def _plain(column: pl.Series) -> pl.Series:
    """Values that are equal become equal values of one type; text stays, so do floats, and integers become 64 bits."""
    kind = column.dtype
    if kind in (pl.String, pl.Binary, pl.Int64):
        return column
    if kind == pl.UInt64:
        return column.reinterpret(signed=True)
    if kind in (pl.Int128, pl.UInt128):
        return column.cast(pl.Int64, wrap_numerical=True)
    if kind == pl.Null:
        return column.cast(pl.Int64)
    if kind.is_integer() or kind == pl.Boolean:
        return column.cast(pl.Int64)
    if kind.is_float():
        return column.cast(pl.Float64) + 0.0  # -0.0 and 0.0 are equal
    if kind.is_decimal():
        return column.cast(pl.Float64)
    if kind == pl.Date:
        return column.cast(pl.Int32).cast(pl.Int64)
    if kind == pl.Datetime:
        return column.dt.epoch("us")
    if kind in (pl.Time, pl.Duration):
        return column.to_physical()
    if kind in (pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    raise BadInput(f"a column of type {kind} cannot be a partition key: {column.name}")


def _range_channels(column: pl.Series, bounds: Sequence[Any]) -> NDArray[np.int64]:
    found = np.zeros(len(column), dtype=np.int64)
    try:
        for bound in bounds:
            is_above = column.to_frame().select((pl.col(column.name) >= bound).fill_null(False))
            found += is_above.to_series().to_numpy()
    except (TypeError, pl.exceptions.PolarsError) as error:
        text = f"the bounds {', '.join(map(repr, bounds))} are not of the type of {column.name} ({column.dtype})"
        raise BadInput(text) from error
    return found


def _dealt(frame: pl.DataFrame, channel: NDArray[np.int64], channels: int) -> Pieces:
    """Filters the rows of each channel, or gathers them if there are many; rows of one channel alone are passed as
    they are.
    """
    counts = np.bincount(channel, minlength=channels)
    if len(counts) > channels:
        raise BadInput(f"a row goes to channel {len(counts) - 1}, but the channels are 0 to {channels - 1}")
    used = np.flatnonzero(counts)
    if len(used) == 1:
        return [(int(used[0]), frame)]
    if len(used) <= FILTERED_CHANNELS:
        return [(int(c), frame.filter(pl.Series(channel == c))) for c in used]
    order = np.argsort(channel.astype(np.uint16), kind="stable")  # a radix sort, for 16 bits
    ordered = frame[order]
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [(int(c), ordered.slice(int(starts[c]), int(counts[c]))) for c in used]


def split_by_function(frame: pl.DataFrame, function: Callable[..., Any], source_channel: int, channels: int) -> Pieces:
    """What a callable decides: `f(batch)` gives a series of channels; `f(batch, channel)` the rows of a channel;
    `f(batch, source_channel, channels)` a dict of channels and their rows.

    Raises:
        BadInput: a channel does not exist, or the series has not one for each row.
    """
    arity = len(inspect.signature(function).parameters)
    if arity == 1:
        numbers = pl.Series(function(frame)).to_numpy().astype(np.int64)
        if len(numbers) != frame.height:
            raise BadInput(f"it gave {len(numbers)} channels for {frame.height} rows")
        if len(numbers) and numbers.min() < 0:
            raise BadInput(f"a row goes to channel {numbers.min()}, but the channels are 0 to {channels - 1}")
        return _dealt(frame, numbers, channels)
    if arity == 2:
        found = {channel: function(frame, channel) for channel in range(channels)}
    else:
        found = function(frame, source_channel, channels)
    unknown = [channel for channel in found if channel not in range(channels)]
    if unknown:
        raise BadInput(f"rows go to channel {unknown[0]}, but the channels are 0 to {channels - 1}")
    return [(channel, piece) for channel, piece in sorted(found.items()) if piece is not None and piece.height]
