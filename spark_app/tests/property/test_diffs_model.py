"""A diff makes the new value of the old one, whatever they are, and says so as data."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemill.clients.diffs import (
    AppendDiff,
    Diff,
    KeyDiff,
    KeyRemoveDiff,
    KeysDiff,
    MultiDiff,
    NewValueDiff,
    SequenceIndexChangesDiff,
    SequenceIndexRemoveDiff,
    SequenceInsertDiff,
    SetAddDiff,
    SetRemoveDiff,
    diff_of,
)
from tidemill.values.data import encode_canonical
from tidemill.values.json import jsonable

leaves = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.5, float("nan"), "a", "b", b"x"]))
keys = st.one_of(st.booleans(), st.integers(2, 4), st.sampled_from(["a", "b", float("nan")]))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4), st.sets(keys, max_size=4)
    ),
    max_leaves=12,
)


@given(values, values)
def test_the_new_value_comes_out_when_a_diff_is_applied(old: Any, new: Any) -> None:
    before = encode_canonical(old)
    diff = diff_of(old, new)

    if diff is None:
        assert encode_canonical(old) == encode_canonical(new)
    else:
        assert encode_canonical(diff.apply(old)) == encode_canonical(new)
        assert encode_canonical(old) == before, "the old value is left as it is"


def test_a_diff_is_the_smallest_when_one_place_changed() -> None:
    cases: list[tuple[Any, Any, Diff]] = [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, KeyDiff("b", NewValueDiff(3))),
        ({"a": {"x": [1]}}, {"a": {"x": [1, 2]}}, KeyDiff("a", KeyDiff("x", AppendDiff((2,))))),
        ({"a": 1}, {"a": 2, "b": 3}, KeysDiff((("a", NewValueDiff(2)), ("b", NewValueDiff(3))))),
        ({"a": 1, "b": 2}, {"a": 1}, KeyRemoveDiff("b")),
        ({"a": 1}, {"b": 1}, MultiDiff((KeyRemoveDiff("a"), KeyDiff("b", NewValueDiff(1))))),
        ({1}, {1, 2}, SetAddDiff((2,))),
        ({1, 2}, {1}, SetRemoveDiff((2,))),
        ([1, 3], [1, 2, 3], SequenceInsertDiff(1, (2,))),
        ([1, 2, 3], [1, 3], SequenceIndexRemoveDiff(1, 1)),
        ([1, 2, 3], [1, 5, 3], SequenceIndexChangesDiff(((1, NewValueDiff(5)),))),
        ([1, 2, 3], [5], NewValueDiff([5])),
        (True, 1, NewValueDiff(1)),
        ([1], {1: 1}, NewValueDiff({1: 1})),
    ]
    for old, new, diff in cases:
        assert diff_of(old, new) == diff
        assert json.loads(json.dumps(diff.to_json()))["kind"] == diff.name


def test_keys_are_named_in_json_as_in_the_maps_themselves() -> None:
    diff = diff_of({(1, 2): 1, b"k": 1, "a": 1}, {(1, 2): 2, b"k": 2})
    value = jsonable({(1, 2): 2, b"k": 2})

    assert diff is not None
    removed, changed = diff.to_json()["diffs"]
    assert removed == {"kind": "keyRemove", "key": "a"}
    assert {key for key, _ in changed["diffs"]} == value.keys()
