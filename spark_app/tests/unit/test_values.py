"""Canonical encoding, routing, order and text of values; the golden vectors are what existing stores depend on."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.values.columns import from_values
from tidemill.values.data import check_data, decode_canonical, encode_canonical, key_hash, route, sort_key, to_text
from tidemill.values.errors import CorruptState, RecordRefused
from tidemill.values.routing import route_column

GOLDEN = json.loads((Path(__file__).parent / "golden" / "routing.json").read_text())
NAMES = {"math": math, "datetime": datetime, "UTC": UTC}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.binary(max_size=20)
    | st.datetimes(timezones=st.just(UTC))
)
# Several NaN may be keys of one dict, since NaN differs from itself: such a dict has no canonical order.
keys = st.recursive(
    scalars.filter(lambda value: value == value),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.sets(keys, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["python"])
def test_encoding_and_routing_are_unchanged_when_compared_with_golden_vectors(case: dict[str, Any]) -> None:
    value = eval(case["python"], dict(NAMES))
    assert encode_canonical(value).hex() == case["canonical"]
    assert f"{key_hash(value):016x}" == case["hash"]
    assert (route(value, 8), route(value, 512)) == (case["task_of_8"], case["task_of_512"])
    assert route_column(from_values([value]), 512).tolist() == [case["task_of_512"]]


def test_hash_equals_published_vectors_when_algorithms_are_standard() -> None:
    assert key_hash(0) == 0xE220A8397B1DCDAF  # splitmix64, first output of seed 0
    assert key_hash("") == key_hash(b"") == 0xEF46DB3751D8E999  # xxh64 of nothing, seed 0


@given(values)
def test_value_comes_back_when_encoded_and_decoded(value: Any) -> None:
    again = decode_canonical(encode_canonical(value))
    assert sort_key(again) == sort_key(value)
    assert encode_canonical(again) == encode_canonical(value)


@given(st.dictionaries(keys, scalars, max_size=6), st.randoms(use_true_random=False))
def test_encoding_is_equal_when_only_insertion_order_differs(value: dict[Any, Any], random: Any) -> None:
    entries = list(value.items())
    random.shuffle(entries)
    assert encode_canonical(dict(entries)) == encode_canonical(value)


@given(st.lists(values, max_size=8), st.sampled_from([1, 3, 8, 512]))
def test_columns_route_as_values_when_mixed(items: list[Any], tasks: int) -> None:
    assert route_column(items, tasks).tolist() == [route(item, tasks) for item in items]


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([1, None, -5, 2**63 - 1, -(2**63)]),
        pl.Series([1.0, None, 0.5, math.nan, -0.0, 1e300, float(2**63), -float(2**63), -math.inf]),
        pl.Series(["a", None, "é😀", "", "x" * 100]),
        pl.Series([b"\xff", None, b""]),
        pl.Series([True, None, False]),
        pl.Series([datetime(2024, 1, 1, tzinfo=UTC), None]),
        pl.Series([], dtype=pl.String),
    ],
    ids=lambda series: str(series.dtype),
)
@pytest.mark.parametrize("tasks", [1, 7, 512])
def test_columns_route_as_values_when_typed(series: pl.Series, tasks: int) -> None:
    routed = route_column(series, tasks)
    assert routed.dtype == np.int32
    assert routed.tolist() == [route(value, tasks) for value in series.to_list()]


def test_bool_is_not_an_int_when_routed() -> None:
    assert key_hash(True) != key_hash(1)
    assert key_hash(1.0) == key_hash(1)


@pytest.mark.parametrize(
    ("value", "where", "advice"),
    [
        (2**63, "", "str"),
        ({"a": [1, lambda: 1]}, "['a'][1]", "data"),
        ([object()], "[0]", "None, bool"),
        ({"t": datetime(2024, 1, 1)}, "['t']", "tzinfo"),
        (date(2024, 1, 1), "", "isoformat"),
        (np.int64(1), "", ".item()"),
        ("\ud800", "", "bytes"),
    ],
)
def test_value_is_refused_with_place_and_advice_when_it_is_no_data(value: Any, where: str, advice: str) -> None:
    for refuse in (check_data, encode_canonical):
        with pytest.raises(RecordRefused) as caught:
            refuse(value)
        assert where in str(caught.value) and advice in str(caught.value)


def test_value_is_refused_when_it_contains_itself() -> None:
    value: list[Any] = []
    value.append(value)
    for refuse in (check_data, encode_canonical):
        with pytest.raises(RecordRefused, match="nested deeper"):
            refuse(value)


def test_bytes_are_corrupt_when_nobody_encoded_them() -> None:
    for data in (b"", b"\xc1", b"\x92\x01", b"\xd4\x07\x00"):
        with pytest.raises(CorruptState):
            decode_canonical(data)


def test_time_zones_do_not_matter_when_the_moment_is_equal() -> None:
    local = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert encode_canonical(local) == encode_canonical(datetime(2024, 1, 1, tzinfo=UTC))


def test_order_is_by_type_rank_then_value_when_keys_are_mixed() -> None:
    ordered = [None, False, True, -math.inf, -1, 0.5, 1, math.nan, "", "a", "é", b"", b"a",
               datetime(2024, 1, 1, tzinfo=UTC), [], [1], [1, "a"], ["a"], {1}, {"a": 1}]  # fmt: skip
    mixed = ordered[::-1]
    assert list(map(to_text, sorted(mixed, key=sort_key))) == list(map(to_text, ordered))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([["b", 2], ["c", 1]], '[["b" 2] ["c" 1]]'),
        ({"a": 1, "b": None}, '{"a" 1, "b" null}'),
        ({2, 1, "x"}, '#{1 2 "x"}'),
        ((True, 1.0, -0.5), "[true 1.0 -0.5]"),
        (11, "11"),
        ('say "é"\n', '"say \\"é\\"\\n"'),
        ([math.nan, math.inf, b"\x01"], '[NaN Infinity #bytes "01"]'),
        (datetime(2024, 1, 1, tzinfo=UTC), '#inst "2024-01-01T00:00:00+00:00"'),
    ],
)
def test_text_is_as_the_seed_prints_when_rendered(value: Any, text: str) -> None:
    assert to_text(value) == text
