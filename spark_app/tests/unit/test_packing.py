"""MessagePack of data values: what comes back, and that bytes from anywhere give a value or a refusal, soon."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.values.errors import BadInput
from tidemill.values.message_pack import DEPTH_MAX, EXT_DATETIME, EXT_SET, NESTED_BYTES_MAX, pack, unpack

STACK_BYTES = 2 * 1024 * 1024
"""The least that a thread has anywhere: glibc's where the system sets no bound of its own."""

SECONDS_MAX = 20.0
"""Far more than a linear pass takes, far less than one that doubles with each level."""


def nested(levels: int, innermost: Any) -> bytes:
    """Sets in sets, each of one element, around a value."""
    data: bytes = msgpack.packb([innermost])
    for _ in range(levels - 1):
        data = msgpack.packb([msgpack.ExtType(EXT_SET, data)])
    packed: bytes = msgpack.packb(msgpack.ExtType(EXT_SET, data))
    return packed


def in_a_small_stack(data: bytes) -> Any:
    """What `unpack` gives or raises in a thread that has the least stack."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(unpack(data))
        except BadInput as error:
            outcome.append(error)

    before = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return outcome[0]


def test_sets_come_back_when_they_are_nested_as_deep_as_is_allowed() -> None:
    value: Any = frozenset([1])
    for _ in range(DEPTH_MAX - 1):
        value = frozenset([value])

    assert in_a_small_stack(pack(value)) == value


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 200, 5_000])
def test_bytes_are_refused_when_sets_are_nested_deeper(levels: int) -> None:
    assert isinstance(in_a_small_stack(nested(levels, 1)), BadInput)


def test_a_value_is_refused_when_its_sets_are_nested_deeper() -> None:
    value: Any = frozenset()
    for _ in range(DEPTH_MAX):
        value = frozenset([value])

    with pytest.raises(BadInput, match="nested deeper"):
        pack(value)


@pytest.mark.parametrize("innermost", [{}, {"a": 1}, [{}], {(1, 2): 3}, msgpack.ExtType(9, b"x")])
def test_bytes_are_refused_in_one_pass_when_a_set_holds_what_cannot_be_in_it(innermost: Any) -> None:
    began = time.monotonic()

    with pytest.raises(BadInput):
        unpack(nested(DEPTH_MAX, innermost))
    assert time.monotonic() - began < SECONDS_MAX


def test_nested_sets_are_refused_when_the_copies_of_all_levels_would_be_large() -> None:
    half = b"x" * (NESTED_BYTES_MAX // 2)

    assert unpack(nested(1, 2 * half)) == {2 * half}
    with pytest.raises(BadInput, match="inside"):
        unpack(nested(2, half))
    with pytest.raises(BadInput, match="inside"):
        pack({frozenset([half])})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 3_000 + b"\x90",
        msgpack.packb(1) + b"\x00",
        msgpack.packb(msgpack.ExtType(EXT_DATETIME, b"123")),
        msgpack.packb(msgpack.ExtType(EXT_DATETIME, b"\x7f" + b"\xff" * 7)),
        msgpack.packb(msgpack.ExtType(EXT_SET, msgpack.packb(7))),
        msgpack.packb(msgpack.Timestamp(2**62)),
        msgpack.packb(msgpack.ExtType(77, b"")),
        b"\x81\x81\x01\x02\x03",  # a dict as the key of a dict
        b"\xdd\xff\xff\xff\xff",  # a list that promises four billion elements
    ],
)
def test_bytes_are_refused_when_they_are_no_value(data: bytes) -> None:
    with pytest.raises(BadInput):
        unpack(data)


_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.binary(),
    st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC)),
)  # fmt: skip
_KEYS = st.recursive(_LEAVES, lambda inner: st.frozensets(inner, max_size=3), max_leaves=6)
_VALUES = st.recursive(
    st.one_of(_LEAVES, st.sets(_KEYS, max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=20,
)


@settings(deadline=None)
@given(_VALUES, st.permutations([0, 8, 16, "a", (1, 24), None]))
def test_a_value_has_the_same_bytes_however_its_sets_were_made(value: Any, elements: list[Any]) -> None:
    assert pack([{*elements}, value]) == pack([{0, 8, 16, "a", (1, 24), None}, value])


@settings(deadline=None)
@given(_VALUES)
def test_a_value_comes_back_equal_when_it_was_packed(value: Any) -> None:
    assert unpack(pack(value)) == value


@settings(deadline=None)
@given(_VALUES, st.data())
def test_changed_bytes_give_a_value_or_a_refusal_when_unpacked(value: Any, data: st.DataObject) -> None:
    packed = bytearray(pack(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at] = data.draw(st.integers(0, 255))

    try:
        unpack(bytes(packed))
    except BadInput as error:
        assert str(error)


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 60))
def test_any_bytes_give_a_value_or_a_refusal_when_unpacked(data: bytes, levels: int) -> None:
    body = data
    for _ in range(levels):
        body = msgpack.packb([msgpack.ExtType(EXT_SET, body)])
    began = time.monotonic()

    try:
        unpack(body)
    except BadInput as error:
        assert str(error)
    assert time.monotonic() - began < SECONDS_MAX
