"""Frames of equal columns, whatever their order in each of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import polars as pl


def in_order(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The frame with its columns in this order, if these are its columns; else as it is."""
    if frame.columns == list(names) or set(frame.columns) != set(names):
        return frame
    return frame.select(names)


def stacked(frames: Sequence[pl.DataFrame], *, rechunk: bool = False) -> pl.DataFrame:
    """The rows of several frames, in the first one's order of columns; types that differ (ints and floats, nulls only)
    are widened. Raises the errors of Polars where the columns differ, and SchemaError where values would change: of
    numbers beside text would come text, and keys that differ would be one.
    """
    if len(frames) == 1:
        return frames[0]
    _check_kinds(frames)
    names = frames[0].columns
    return pl.concat([in_order(frame, names) for frame in frames], how="vertical_relaxed", rechunk=rechunk)


def _check_kinds(frames: Sequence[pl.DataFrame]) -> None:
    """Refuses frames for which Polars would make text of numbers, numbers of times, or times of fewer digits."""
    if all(frame.schema == frames[0].schema for frame in frames):
        return
    for name in frames[0].columns:
        types = {frame.schema.get(name, pl.Null()) for frame in frames} - {pl.Null()}
        if _are_of_several_kinds(types):
            shown = " and ".join(sorted(map(str, types)))
            raise pl.exceptions.SchemaError(f"column {name!r} is {shown} in several batches: cast it to one type")


def _are_of_several_kinds(types: Collection[pl.DataType]) -> bool:
    """Whether values of these types, or parts of them, cannot become those of one type without a change."""
    known = [of for of in types if of != pl.Null]
    if len({_kind(of) for of in known}) > 1 or len({of.time_unit for of in known if hasattr(of, "time_unit")}) > 1:
        return True
    parts: dict[str, list[pl.DataType]] = {}
    for of in known:
        fields = of.fields if isinstance(of, pl.Struct) else [of] if isinstance(of, (pl.List, pl.Array)) else []
        for each in fields:
            name, part = (each.name, each.dtype) if isinstance(each, pl.Field) else ("", each.inner)
            parts.setdefault(name, []).append(cast("pl.DataType", part))
    return any(map(_are_of_several_kinds, parts.values()))


def _kind(of: pl.DataType) -> str:
    """What types have in common that can be widened to one without changing what values are."""
    if of.is_numeric() or of == pl.Boolean:
        return "number"
    kinds = {pl.Date: "time", pl.Datetime: "time", pl.String: "text", pl.Categorical: "text", pl.Enum: "text"}
    return kinds.get(of.base_type(), str(of.base_type()))


def typed(
    left: pl.DataFrame, right: pl.DataFrame, left_on: Sequence[str], right_on: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two frames that can be joined on these columns: one of nulls only has the type Null, which Polars joins with no
    other, so it takes that of its partner.
    """
    for one, other in zip(left_on, right_on, strict=True):
        if left.schema[one] == pl.Null:
            left = left.with_columns(pl.col(one).cast(right.schema[other]))
        if right.schema[other] == pl.Null:
            right = right.with_columns(pl.col(other).cast(left.schema[one]))
    return left, right


def widened(one: pl.DataFrame, other: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two frames of the same columns in types that hold the values of both, as `stacked` makes them."""
    if one.schema == other.schema:
        return one, other
    empty = stacked([one.clear(), other.clear()])
    return in_order(one, empty.columns).cast(empty.schema), in_order(other, empty.columns).cast(empty.schema)
