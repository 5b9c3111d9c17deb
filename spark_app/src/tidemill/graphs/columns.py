"""Frames of equal columns, whatever their order in each of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import polars as pl

_EXACT = 1 << 53
"""Up to here each whole number is a float."""
_ADVICE = "cast it to one type"


def in_order(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The frame with its columns in this order, if these are its columns; else as it is."""
    if frame.columns == list(names) or set(frame.columns) != set(names):
        return frame
    return frame.select(names)


def stacked(
    frames: Sequence[pl.DataFrame], *, rechunk: bool = False, called: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """The rows of several frames, in the first one's order of columns; types that differ (ints and floats, nulls only)
    are widened. Raises the errors of Polars where the columns differ, and SchemaError where values would change: of
    numbers beside text would come text, and keys that differ would be one. `called`: what errors call columns.
    """
    if len(frames) == 1:
        return frames[0]
    if any(frame.schema != frames[0].schema for frame in frames):
        _common_types(frames, called or {})
    names = frames[0].columns
    return pl.concat([in_order(frame, names) for frame in frames], how="vertical_relaxed", rechunk=rechunk)


def _common_types(frames: Sequence[pl.DataFrame], called: Mapping[str, str]) -> pl.Schema:
    """The columns in types that hold the values of all. Refuses frames for which Polars would make text of numbers,
    numbers of times, times of fewer digits, or other numbers of whole ones.
    """
    shown = {name: called.get(name, f"column {name!r}") for name in frames[0].columns}
    for name in shown:
        types = {frame.schema.get(name, pl.Null()) for frame in frames} - {pl.Null()}
        if _are_of_several_kinds(types):
            raise pl.exceptions.SchemaError(f"{shown[name]} is {_listed(types)} in several batches: {_ADVICE}")
    cleared = [in_order(frame.clear(), frames[0].columns) for frame in frames]
    wide = pl.concat(cleared, how="vertical_relaxed").schema
    for name in shown:
        _check_whole(shown[name], "in several batches", [frame.get_column(name) for frame in frames], wide[name])
    return wide


def _check_whole(shown: str, where: str, columns: Sequence[pl.Series], wide: pl.DataType) -> None:
    """Refuses whole numbers and decimals that become other ones as floats, since two of them become one."""
    for column in columns:
        if (found := _changed(column, wide)) is not None:
            value, made = found
            types = _listed({column.dtype for column in columns} - {pl.Null()})
            text = f"{shown} is {types} {where}, and {value} would become {made:.0f}"
            raise pl.exceptions.SchemaError(f"{text}: {_ADVICE}")


def _changed(values: pl.Series, wide: pl.DataType) -> tuple[Any, float] | None:
    """A number among values, or in parts of them, that another type changes, and what it becomes."""
    own = values.dtype
    if own == wide:
        return None
    if isinstance(own, (pl.List, pl.Array)) and isinstance(wide, (pl.List, pl.Array)):
        return _changed(values.explode(), cast("pl.DataType", wide.inner))
    if isinstance(own, pl.Struct) and isinstance(wide, pl.Struct):
        types = {each.name: cast("pl.DataType", each.dtype) for each in wide.fields}
        parts = (_changed(values.struct.field(each.name), types[each.name]) for each in own.fields)
        return next((found for found in parts if found is not None), None)
    if not wide.is_float() or not (own.is_integer() or own.is_decimal()):
        return None
    values = values.drop_nulls()
    if own.is_integer() and (not len(values) or -_EXACT <= values.min() <= values.max() <= _EXACT):  # type: ignore[operator]  # they are ints
        return None
    changed = values.filter((values.cast(wide).cast(own, strict=False) != values).fill_null(True))
    return (changed[0], changed.cast(wide)[0]) if len(changed) else None


def _listed(types: Collection[pl.DataType]) -> str:
    return " and ".join(sorted(map(str, types)))


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
    left: pl.DataFrame, right: pl.DataFrame, left_on: Sequence[str], right_on: Sequence[str], *, exactly: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two frames that can be joined on these columns. Polars joins neither nulls of the type Null with others, nor ints
    with floats, and rows `by` columns of one type only (`exactly`): such columns get the type that holds the values of
    both. Raises the error of Polars where values would change.
    """
    for one, other in zip(left_on, right_on, strict=True):
        sides = left.get_column(one), right.get_column(other).alias(one)
        types = sides[0].dtype, sides[1].dtype
        if types[0] == types[1] or (not exactly and _are_joined(*types)) or not _have_common_type(*types):
            continue
        wide = pl.concat([side.clear().to_frame() for side in sides], how="vertical_relaxed").schema[one]
        _check_whole(f"the key {one!r}", "on two sides of a join", sides, wide)
        left, right = left.with_columns(pl.col(one).cast(wide)), right.with_columns(pl.col(other).cast(wide))
    return left, right


def _are_joined(one: pl.DataType, other: pl.DataType) -> bool:
    """Whether Polars joins columns of these types, which differ."""
    return (one.is_integer() and other.is_integer()) or (one.is_float() and other.is_float())


def _have_common_type(one: pl.DataType, other: pl.DataType) -> bool:
    return pl.Null in (one, other) or _kind(one) == _kind(other) == "number"


def widened(one: pl.DataFrame, other: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two frames of the same columns in types that hold the values of both, as `stacked` makes them."""
    if one.schema == other.schema:
        return one, other
    wide = _common_types([one, other], {})
    return in_order(one, wide.names()).cast(wide), in_order(other, wide.names()).cast(wide)
