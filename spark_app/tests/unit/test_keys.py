"""One rule of which keys are the same, wherever keys are compared."""

from __future__ import annotations

import itertools
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.language.dataflow import Aggregator, Var
from tidemill.paths.variables import compile_aggregation
from tidemill.tables.combining import group_keys
from tidemill.tables.object_keys import encode_object_key
from tidemill.values.data import decode_canonical, encode_canonical, key_hash
from tidemill.values.errors import BadInput
from tidemill.values.keys import admit, admit_all, has_key, key_token, plain_map, plain_set, same_key
from tidemill.values.packing import pack, unpack
from tidemill.values.routing import route_column

NAN = float("nan")
SAME: list[list[Any]] = [
    [1, 1.0], [0, 0.0, -0.0], [NAN, -NAN, float("nan")], [[1, 2], (1, 2), [1.0, 2]], [[NAN], [float("nan")]],
    [True], [False], [[True]], [[1], [1.0]], ["1"], [b"2"], [None], [frozenset({1}), {1.0}],
    [2**53, 2.0**53], [2**53 + 1],
]  # fmt: skip
KEYS = [(number, key) for number, group in enumerate(SAME) for key in group]
MIXED_UP = [{key_token(a), key_token(b)} for a, b in ((1, True), (0, False), ([1], [True]))]
"""Keys that Python takes for one."""
PAIRS = list(itertools.combinations_with_replacement(KEYS, 2))


@pytest.mark.parametrize("form", [key_token, encode_object_key, key_hash], ids=["token", "stored", "route"])
def test_forms_are_equal_for_equal_keys_only(form: Any) -> None:
    for (a, one), (b, other) in PAIRS:
        assert (form(one) == form(other)) == (a == b), (one, other)
        assert same_key(one, other) == (a == b)


def test_a_column_of_any_keys_is_routed_and_grouped_like_its_values() -> None:
    keys = [key for _, key in KEYS]
    assert route_column(keys, 1 << 20).tolist() == [key_hash(key) % (1 << 20) for key in keys]
    codes = group_keys([keys])["g0"].to_list()
    assert [codes.index(code) for code in codes] == [[n for n, _ in KEYS].index(number) for number, _ in KEYS]


def test_each_group_has_all_of_its_rows_when_keys_are_nan() -> None:
    mean = compile_aggregation([Aggregator("avg", "accumulator", (Var("*v"),))], lambda _: 0)
    groups, results = mean.run([pl.Series([NAN, 1.0, NAN, 0.0, -0.0])], [[1, 2, 3, 4, 6]], 5)
    assert [len(groups[0]), list(results[0])] == [3, [2.0, 2.0, 5.0]]


@given(st.lists(st.sampled_from([key for _, key in KEYS]), max_size=6))
def test_a_plain_structure_holds_each_key_once_or_refuses_what_python_mixes_up(keys: list[Any]) -> None:
    tokens = {key_token(key) for key in keys}
    mixed_up = any(a & tokens == a for a in MIXED_UP)
    if mixed_up:
        with pytest.raises(BadInput):
            plain_set(keys)
        return
    held = plain_set(keys)
    assert len(held) == len(plain_map((key, 1) for key in keys)) == len(tokens)
    for through in (lambda value: unpack(pack(value)), lambda value: decode_canonical(encode_canonical(value))):
        assert len(through(held) | held) == len(held)
        assert len({**through(dict.fromkeys(held, 1)), **dict.fromkeys(held, 2)}) == len(held)


@pytest.mark.parametrize(("held", "key"), [(1, True), (True, 1), (0.0, False), ((1,), (True,)), (False, -0.0)])
def test_refused_when_python_takes_two_keys_for_one(held: Any, key: Any) -> None:
    assert not has_key({held: 1}, key)
    with pytest.raises(BadInput, match="one plain map or set cannot hold both"):
        admit({held}, key)
    with pytest.raises(BadInput, match="two keys"):
        admit_all({held, "x"}, {key, "y"})
    admit_all({held, "x"}, {held: 1, "y": 2})
