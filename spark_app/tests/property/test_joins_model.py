"""Joins give what nested loops over both sides give, whatever the keys: numbers, flags, None, NaN, texts, lists."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import polars as pl
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tidemill.engine import joins
from tidemill.engine.frame import Frame
from tidemill.language.dataflow import Location, Var
from tidemill.plan.program import Gather
from tidemill.values import columns as cols
from tidemill.values.keys import key_token, same_key

MANY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
NAN = float("nan")

flat = st.sampled_from(
    [None, NAN, -NAN, True, False, 0, 1, 2, 0.0, -0.0, 1.0, 2.5, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63),
     2**63, 10**30, 1e30, "", "1", "é", b"1", float("inf")]
)  # fmt: skip
nested = st.lists(flat, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), flat, max_size=2) | st.tuples(flat)
mixed = flat | nested
one_kind = st.sampled_from([
    st.integers(-2, 2), st.sampled_from([0.0, -0.0, 1.0, NAN, None]), st.sampled_from([1, 2, None]), st.booleans(),
    st.sampled_from(["a", "b", None]), st.lists(st.integers(0, 1), min_size=2, max_size=2), mixed,
])  # fmt: skip


@st.composite
def tables(draw: Any) -> tuple[list[Any], list[Any], int]:
    """Rows of both sides as (keys…, value); each key column is of one kind on each side, or of all kinds."""
    width = draw(st.integers(1, 2))
    sides = []
    for side in ("left", "right"):
        keys = [draw(st.lists(draw(one_kind), min_size=8, max_size=8)) for _ in range(width)]
        count = draw(st.integers(0, 8))
        sides.append([(*row, f"{side} {number}") for number, row in enumerate(zip(*keys, strict=True))][:count])
    return sides[0], sides[1], width


def frame(rows: list[Any], names: list[str]) -> Frame | None:
    columns = [cols.from_values(list(column)) for column in zip(*rows, strict=True)]
    tasks = pl.Series("", range(len(rows)), dtype=pl.Int32)
    return Frame(len(rows), tasks, dict(zip(names, columns, strict=True))) if rows else None


def gather(width: int, keeps: bool) -> Gather:
    return Gather(0, 0, Location(), tuple(Var(f"*k{i}") for i in range(width)), (), keeps)


def by_loops(left: list[Any], right: list[Any], width: int, keeps: tuple[bool, bool]) -> Iterator[tuple[Any, ...]]:
    """What a join means."""
    met: set[int] = set()
    for row in left:
        partners = [i for i, other in enumerate(right) if all(map(same_key, row[:width], other[:width]))]
        met.update(partners)
        yield from ((*row, right[i][width]) for i in partners)
        if not partners and keeps[0]:
            yield (*row, None)
    if keeps[1]:
        yield from ((*row[:width], None, row[width]) for i, row in enumerate(right) if i not in met)


@MANY
@given(tables(), st.tuples(st.booleans(), st.booleans()), st.booleans(), st.sampled_from([1, 2, 3, 1000]))
@example(([(1, "l")], [(1.0, "r"), (True, "no")], 1), (True, True), False, 1)
@example(([(None, "l")], [(None, "r")], 1), (False, False), False, 1000)
@example(([(NAN, "l")], [(NAN, "r")], 1), (False, False), False, 1000)
@example(([(NAN, "l")], [(NAN, "r")], 1), (True, True), True, 1000)
def test_a_join_gives_what_nested_loops_give_whatever_the_keys(
    sides: tuple[list[Any], list[Any], int], keeps: tuple[bool, bool], in_order: bool, slice_rows: int
) -> None:
    left, right, width = sides
    keys = [f"*k{i}" for i in range(width)]
    names = [*keys, "*a", "*b"]
    with patch.object(joins, "SLICE_ROWS", slice_rows):
        found = list(
            joins.joined(
                frame(left, [*keys, "*a"]), frame(right, [*keys, "*b"]), gather(width, keeps[0]),
                gather(width, keeps[1]), names, in_order=in_order,
            )
        )  # fmt: skip

    assert all(0 < part.rows <= slice_rows for part in found)
    assert all(len(part.tasks()) == part.rows for part in found)
    rows = [row for part in found for row in zip(*(cols.to_values(part.columns[n]) for n in names), strict=True)]
    expected = list(by_loops(left, right, width, keeps))
    tokens, wanted = list(map(key_token, rows)), list(map(key_token, expected))
    assert Counter(tokens) == Counter(wanted)
    if in_order:
        assert tokens == wanted


def test_pairs_of_values_differ_exactly_where_keys_differ() -> None:
    """The strategies above hold values that are one key though they look different, and the other way round."""
    pool = [0, 0.0, False, 1, 1.0, True, NAN, None, 2**53, float(2**53), 2**53 + 1]
    same = {(repr(a), repr(b)) for a, b in itertools.combinations(pool, 2) if same_key(a, b)}
    assert same == {("0", "0.0"), ("1", "1.0"), ("9007199254740992", "9007199254740992.0")}
