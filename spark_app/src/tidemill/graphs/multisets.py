"""Comparison of frames as multisets of rows: in any order of rows and columns, floats with a tolerance."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

TOLERANCE = 1e-9
"""The share of their size by which floats may differ."""
NEAR_MAX = 2_000
"""So many rows without an exact partner are compared pair by pair; more of them count as different."""


def difference(first: pl.DataFrame, second: pl.DataFrame) -> str:
    """How two frames differ, in a line; empty if they do not. A frame without rows has no columns."""
    if first.height != second.height:
        return f"One gave {first.height} rows, the other {second.height}."
    if not first.height:
        return ""
    names = sorted(first.columns)
    if names != sorted(second.columns):
        return f"One gave the columns {names}, the other {sorted(second.columns)}."
    mine, others = _counted(first.select(names)), _counted(second.select(names))
    only_mine, only_others = _beyond(mine, others), _beyond(others, mine)
    if len(only_mine) > NEAR_MAX:
        return f"{len(only_mine)} rows of one are not in the other."
    for row in only_mine:
        partner = next((number for number, other in enumerate(only_others) if _are_near(row, other)), None)
        if partner is None:
            return f"Only one of them gave the row {dict(zip(names, row, strict=True))}."
        del only_others[partner]
    return ""


def _counted(frame: pl.DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    counted: dict[str, list[tuple[Any, ...]]] = {}
    for row in frame.rows():
        counted.setdefault(repr(row), []).append(row)
    return counted


def _beyond(mine: dict[str, list[tuple[Any, ...]]], others: dict[str, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    return [row for text, rows in mine.items() for row in rows[len(others.get(text, ())) :]]


def _are_near(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_are_near, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_near(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(one) is type(other) and bool(one == other)
