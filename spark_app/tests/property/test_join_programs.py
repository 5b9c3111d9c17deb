"""Whole programs with joins give what nested loops give, on any number of tasks and threads, with keys of all kinds."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path as Folder
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Folder(__file__).parents[1] / "unit"))
from attempts import Attempts
from test_joins import kept, module_of
from test_joins_model import by_loops

from tidemill import Block, Ops, Path
from tidemill.plan.check.module import check
from tidemill.values.keys import key_token

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
PLACES = [(1, 1), (2, 1), (4, 3), (8, 2)]

keys = st.sampled_from(
    [None, float("nan"), True, False, 0, 1, 1.0, -0.0, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, "", "1", "é", b"1",
     [1, "a"], [1.0, "a"], [None], {"a": 1}, {"a": 1.0}]
)  # fmt: skip


@st.composite
def tables(draw: Any) -> tuple[list[Any], list[Any], int]:
    """Records of both sides as [side, keys…, number]."""
    width = draw(st.integers(1, 2))
    pool = draw(st.lists(keys, min_size=1, max_size=4))
    row = st.lists(st.sampled_from(pool), min_size=width, max_size=width)
    sides = [[[side, *found, number] for number, found in enumerate(draw(st.lists(row, max_size=6)))] for side in "lr"]
    return sides[0], sides[1], width


def side(name: str, width: int, value: str) -> Block:
    """The records of one side; all but the keys is delayed, so that either side can be outer."""
    record = f"*___{name}"
    rows = Block.explode_microbatch("*mb").out(record).each(Ops.FIRST, record).out(f"*___side {name}")
    rows = rows.each(Ops.EQUAL, f"*___side {name}", name).out(f"*___is {name}").keep_true(f"*___is {name}")
    names = [f"*k{i}" for i in range(width)]
    return rows.each(Ops.EXPAND, record).out(f"*___again {name}", *names, value)


@FEW
@given(tables(), st.sampled_from(["inner", "left", "right", "full"]), st.sampled_from(PLACES), st.booleans())
def test_joined_records_are_those_of_nested_loops_whatever_the_keys_and_places(
    sides: tuple[list[Any], list[Any], int], kind: str, place: tuple[int, int], as_bytes: bool
) -> None:
    left, right, width = sides
    a = "**a" if kind in ("right", "full") else "*a"
    b = "**b" if kind in ("left", "full") else "*b"
    names = [*(f"*k{i}" for i in range(width)), a, b]
    block = side("l", width, a).macro(side("r", width, b)).macro(kept(*names))
    module = module_of(lambda mb: mb.source("*d").out("*mb").batch_block(block))
    with tempfile.TemporaryDirectory() as folder:
        attempts = Attempts(Folder(folder), module, *place, as_bytes=as_bytes)
        assert check(attempts.declaration) == []
        attempts.feed("*d", [*left, *right])
        attempts.attempt()
        (found,) = attempts.select("$$rows", Path.stay(), 0)

    one, other = [row[1:] for row in left], [row[1:] for row in right]
    expected = by_loops(one, other, width, (kind in ("left", "full"), kind in ("right", "full")))
    assert Counter(map(key_token, found)) == Counter(key_token(list(row)) for row in expected)
