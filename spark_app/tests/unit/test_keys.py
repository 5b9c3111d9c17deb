"""One rule of which keys are the same, wherever keys are compared."""

from __future__ import annotations

import itertools
from typing import Any

import msgpack
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Path, PState, TestPState
from tidemill.gateway.formats import MSGPACK, records_of
from tidemill.language.dataflow import Aggregator, Var
from tidemill.paths.variables import compile_aggregation
from tidemill.tables.object_keys import encode_object_key
from tidemill.tables.row_groups import group_keys
from tidemill.values.data import decode_canonical, encode_canonical, key_hash
from tidemill.values.errors import BadInput
from tidemill.values.keys import admit, admit_all, has_key, key_token, plain_map, plain_set, same_key
from tidemill.values.message_pack import EXT_SET, pack, unpack, unpack_foreign
from tidemill.values.routing import route_column

NAN = float("nan")
SAME: list[list[Any]] = [
    [1, 1.0], [0, 0.0, -0.0], [NAN, -NAN, float("nan")], [[1, 2], (1, 2), [1.0, 2]], [[NAN], [float("nan")]],
    [True], [False], [[True]], [[1], [1.0]], ["1"], [b"2"], [None], [frozenset({1}), {1.0}],
    [frozenset({NAN}), {NAN, float("nan")}],
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


# --- what comes from outside, and what a function makes --------------------------------------------------------------


def pairs(*entries: tuple[Any, Any]) -> bytes:
    """A dict of MessagePack with these entries, also of keys that no dict of Python holds together."""
    packed = b"".join(pack(key) + pack(value) for key, value in entries)
    return bytes([0x80 + len(entries)]) + packed


FOREIGN: dict[str, bytes] = {
    "a dict": pairs((1, "a"), (True, "b")),
    "a dict with zero": pairs((False, "a"), (0.0, "b")),
    "a dict of lists": pairs(([1], "a"), ([True], "b")),
    "a dict in a list": b"\x91" + pairs((1, "a"), (True, "b")),
    "a set": msgpack.packb(msgpack.ExtType(EXT_SET, msgpack.packb([1, True]))),
    "a set of lists": msgpack.packb(msgpack.ExtType(EXT_SET, msgpack.packb([[0], [False]]))),
    "a set in a dict": b"\x81" + pack("k") + msgpack.packb(msgpack.ExtType(EXT_SET, msgpack.packb([True, 1]))),
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_foreign_bytes_are_refused_when_python_takes_two_of_their_keys_for_one(data: bytes) -> None:
    for count in (None, lambda made: None):
        with pytest.raises(BadInput, match="are two keys"):
            unpack_foreign(data, count)
    body = b"\x81" + pack("record") + data
    with pytest.raises(BadInput, match="are two keys"):
        records_of(body, MSGPACK, lambda size: None)


def test_foreign_bytes_are_read_as_any_when_their_keys_differ_in_python_too() -> None:
    for value in ({True: 1, 2: False}, {(True, 2): 1, (1, 3): 2}, {"é": True}, {True, 0, "x"}, [{1: True}, {True: 1}]):
        assert repr(unpack_foreign(pack(value))) == repr(unpack(pack(value)))
    assert unpack_foreign(pairs((1, "a"), (1.0, "b"))) == {1: "b"}


SUBINDEXED = {False: lambda schema: schema, True: lambda schema: schema.subindexed()}


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_key_is_another_one_when_a_transform_gives_true_for_one(is_indexed: bool) -> None:
    """What replaces a part of a map or set is compared with it by the one rule, in plain and in indexed structures."""
    form = SUBINDEXED[is_indexed]
    maps = TestPState.create(PState.map_schema(str, form(PState.map_schema(object, str))))
    sets = TestPState.create(PState.map_schema(str, form(PState.set_schema(object))))
    for navigate in (lambda at: at.sub_map(1, 2), lambda at: at.sorted_map_range_from(1)):
        maps.transform(Path.key("a").term_void())
        maps.transform(Path.key("a", 1).term_val("x"))
        maps.transform(Path.key("a", 2).term_val("y"))
        maps.transform(navigate(Path.key("a")).term(lambda part: {True: part[1], 2: part[2]}))
        assert sorted(map(repr, maps.select(Path.key("a").all()))) == ["[2, 'y']", "[True, 'x']"]
    for navigate in (lambda at: at.subset(1, 2), lambda at: at.sorted_set_range_from(1)):
        sets.transform(Path.key("a").term_void())
        for element in (1, 2):
            sets.transform(Path.key("a").void_set_elem().term_val(element))
        sets.transform(navigate(Path.key("a")).term(lambda part: {True, 2}))
        assert sorted(map(repr, sets.select(Path.key("a").all()))) == ["2", "True"]


def test_a_part_is_refused_when_it_cannot_hold_the_keys_of_an_indexed_structure() -> None:
    maps = TestPState.create(PState.map_schema(str, PState.map_schema(object, int).subindexed()))
    for key in (1, True, 0):
        maps.transform(Path.key("a", key).term_val(7))
    assert maps.select(Path.key("a").map_keys()) == [True, 0, 1]
    for path in (Path.key("a").sub_map(1, True), Path.key("a").sorted_map_range_from_start(3)):
        with pytest.raises(BadInput, match="are two keys"):
            maps.select(path)
