"""Each navigator, on an indexed structure and on the equal plain value: the results must be the same."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.api.path import Path
from tidemill.api.schemas import PState
from tidemill.language.operations import Ops
from tidemill.pstate.test_pstate import TestPState

INT_MAP = PState.map_schema(str, int).subindexed()
INT_SET = PState.set_schema(int).subindexed()
INT_LIST = PState.list_schema(int).subindexed()
ABC = {"a": 1, "b": 2, "c": 3, "d": 4}


def is_big(value: int) -> bool:
    return value > 2


def host(schema: Any, form: str, start: Any) -> TestPState:
    """A PState whose element at "r" is `start`: an indexed structure, or one plain value."""
    pstate = TestPState.create(PState.map_schema(str, schema if form == "indexed" else object))
    pstate.transform(Path.key("r").term_val(start))
    return pstate


def whole(pstate: TestPState, schema: Any, form: str) -> Any:
    """What stands at "r" now, as a plain value."""
    if form == "plain":
        return pstate.select_one(Path.key("r"))
    elements = pstate.select(Path.key("r").all())
    return dict(elements) if schema is INT_MAP else set(elements) if schema is INT_SET else elements


SELECTS: list[tuple[str, Any, Any, Path, list[Any]]] = [
    ("key", INT_MAP, ABC, Path.key("b"), [2]),
    ("key absent", INT_MAP, ABC, Path.key("x"), [None]),
    ("must", INT_MAP, ABC, Path.must("b"), [2]),
    ("must absent", INT_MAP, ABC, Path.must("x"), []),
    ("map_vals", INT_MAP, ABC, Path.map_vals(), [1, 2, 3, 4]),
    ("map_keys", INT_MAP, ABC, Path.map_keys(), ["a", "b", "c", "d"]),
    ("map_key", INT_MAP, ABC, Path.map_key("a"), ["a"]),
    ("map_key absent", INT_MAP, ABC, Path.map_key("x"), []),
    ("all of a map", INT_MAP, {"a": 1, "b": 2}, Path.all(), [["a", 1], ["b", 2]]),
    ("sub_map", INT_MAP, ABC, Path.sub_map("b", "x", "a"), [{"b": 2, "a": 1}]),
    ("range", INT_MAP, ABC, Path.sorted_map_range("b", "d"), [{"b": 2, "c": 3}]),
    (
        "range with flipped ends", INT_MAP, ABC,
        Path.sorted_map_range("b", "d", include_start=False, include_end=True), [{"c": 3, "d": 4}],
    ),
    ("range from", INT_MAP, ABC, Path.sorted_map_range_from("c"), [{"c": 3, "d": 4}]),
    ("range from, limited", INT_MAP, ABC, Path.sorted_map_range_from("b", 2), [{"b": 2, "c": 3}]),
    (
        "range from, excluded", INT_MAP, ABC,
        Path.sorted_map_range_from("b", include_start=False, max_amt=1), [{"c": 3}],
    ),
    ("range from start", INT_MAP, ABC, Path.sorted_map_range_from_start(2), [{"a": 1, "b": 2}]),
    ("range to", INT_MAP, ABC, Path.sorted_map_range_to("c"), [{"a": 1, "b": 2}]),
    ("range to, closest", INT_MAP, ABC, Path.sorted_map_range_to("d", 2), [{"b": 2, "c": 3}]),
    ("range to, included", INT_MAP, ABC, Path.sorted_map_range_to("d", include_end=True, max_amt=1), [{"d": 4}]),
    ("range to end", INT_MAP, ABC, Path.sorted_map_range_to_end(2), [{"c": 3, "d": 4}]),
    ("range of nothing", INT_MAP, ABC, Path.sorted_map_range_to_end(0), [{}]),
    ("all of a range", INT_MAP, ABC, Path.sorted_map_range_from("c").all(), [["c", 3], ["d", 4]]),
    ("all of a set", INT_SET, {3, 1, 2}, Path.all(), [1, 2, 3]),
    ("set_elem", INT_SET, {1, 2}, Path.set_elem(2), [2]),
    ("set_elem absent", INT_SET, {1, 2}, Path.set_elem(3), []),
    ("void_set_elem", INT_SET, {1, 2}, Path.void_set_elem(), []),
    ("subset", INT_SET, {1, 2, 3}, Path.subset(2, 9), [{2}]),
    ("set range", INT_SET, {1, 2, 3}, Path.sorted_set_range(1, 3), [{1, 2}]),
    ("set range from", INT_SET, {1, 2, 3}, Path.sorted_set_range_from(2), [{2, 3}]),
    ("set range from start", INT_SET, {1, 2, 3}, Path.sorted_set_range_from_start(1), [{1}]),
    ("set range to", INT_SET, {1, 2, 3}, Path.sorted_set_range_to(3, 1), [{2}]),
    ("set range to end", INT_SET, {1, 2, 3}, Path.sorted_set_range_to_end(2), [{2, 3}]),
    ("all of a list", INT_LIST, [3, 1], Path.all(), [3, 1]),
    ("nth", INT_LIST, [3, 1], Path.nth(1), [1]),
    ("key of a list", INT_LIST, [3, 1], Path.key(1), [1]),
    ("first", INT_LIST, [3, 1], Path.first(), [3]),
    ("last", INT_LIST, [3, 1], Path.last(), [1]),
    ("sublist", INT_LIST, [5, 6, 7, 8], Path.sublist(1, 3), [[6, 7]]),
    ("sublist past the end", INT_LIST, [5, 6], Path.sublist(1, 9), [[6]]),
    ("sublist behind the end", INT_LIST, [5, 6], Path.sublist(8, 9), [[]]),
    ("sublist of nothing", INT_LIST, [5, 6], Path.sublist(1, 0), [[]]),
    ("all of a sublist", INT_LIST, [5, 6, 7], Path.sublist(1, 3).all(), [6, 7]),
    ("sublist_to_end", INT_LIST, [5, 6, 7], Path.sublist_to_end(2), [[6, 7]]),
    ("sublist_to_end of fewer", INT_LIST, [5, 6], Path.sublist_to_end(3), [[5, 6]]),
    ("sublist_to_end of none", INT_LIST, [5, 6], Path.sublist_to_end(0), [[]]),
    ("filter_pred", INT_MAP, ABC, Path.map_vals().filter_pred(is_big), [3, 4]),
    ("filter_equal", INT_MAP, ABC, Path.map_vals().filter_equal(2), [2]),
    ("filter_not_equal", INT_MAP, ABC, Path.map_vals().filter_not_equal(2), [1, 3, 4]),
    ("filter_less_than", INT_MAP, ABC, Path.map_vals().filter_less_than(2), [1]),
    ("filter_less_than_or_equal", INT_MAP, ABC, Path.map_vals().filter_less_than_or_equal(2), [1, 2]),
    ("filter_greater_than", INT_MAP, ABC, Path.map_vals().filter_greater_than(3), [4]),
    ("filter_greater_than_or_equal", INT_MAP, ABC, Path.map_vals().filter_greater_than_or_equal(3), [3, 4]),
    ("filter_selected", INT_MAP, ABC, Path.filter_selected(Path.must("a")).key("b"), [2]),
    ("filter_selected stops", INT_MAP, ABC, Path.filter_selected(Path.must("x")).key("b"), []),
    ("filter_not_selected", INT_MAP, ABC, Path.filter_not_selected(Path.must("x")).key("b"), [2]),
    ("null_to_val", INT_MAP, ABC, Path.key("x").null_to_val(7), [7]),
    ("null_to_val of a value", INT_MAP, ABC, Path.key("a").null_to_val(7), [1]),
    ("null_to_list", INT_MAP, ABC, Path.key("x").null_to_list(), [[]]),
    ("null_to_set", INT_MAP, ABC, Path.key("x").null_to_set(), [set()]),
    ("view", INT_MAP, ABC, Path.key("b").view(Ops.PLUS, 10), [12]),
    ("view of the size", INT_MAP, ABC, Path.view(Ops.SIZE), [4]),
    ("view of membership", INT_SET, {1, 2}, Path.view(Ops.CONTAINS, 2), [True]),
    ("transformed", INT_MAP, ABC, Path.sub_map("a").transformed(Path.key("b").term_val(9)), [{"a": 1, "b": 9}]),
    ("stay", INT_MAP, ABC, Path.stay().key("a"), [1]),
    ("stop", INT_MAP, ABC, Path.map_vals().stop(), []),
    ("if_path then", INT_MAP, ABC, Path.if_path(Path.must("a"), Path.key("b"), Path.key("c")), [2]),
    ("if_path else", INT_MAP, ABC, Path.if_path(Path.must("x"), Path.key("b"), Path.key("c")), [3]),
    ("if_path without else", INT_MAP, ABC, Path.if_path(Path.must("x"), Path.key("b")), []),
    ("if_path goes on", INT_MAP, ABC, Path.if_path(Path.must("a"), Path.key("b")).view(Ops.INC), [3]),
    ("multi_path", INT_MAP, ABC, Path.multi_path(Path.key("c"), Path.key("a")).view(Ops.INC), [4, 2]),
    (
        "multi_path as or", INT_MAP, ABC,
        Path.filter_selected(Path.multi_path(Path.stop(), Path.must("a"))).key("b"), [2],
    ),
    ("subselect", INT_MAP, ABC, Path.subselect(Path.map_vals().filter_pred(is_big)), [[3, 4]]),
    ("with_page_size", INT_MAP, ABC, Path.with_page_size(1, Path.map_keys()), ["a", "b", "c", "d"]),
    ("collect", INT_MAP, {"a": 1}, Path.collect(Path.map_vals()).key("a"), [[[1], 1]]),
    ("collect_one", INT_MAP, ABC, Path.collect_one(Path.key("a")).key("b"), [[1, 2]]),
    ("put_collected", INT_MAP, {"a": 1}, Path.put_collected("x").put_collected("y").map_vals(), [["x", "y", 1]]),
    ("dispense_collected", INT_MAP, ABC, Path.put_collected("x").dispense_collected().key("a"), [1]),
    (
        "is_collected", INT_MAP, ABC,
        Path.multi_path(Path.put_collected(1), Path.put_collected(2)).is_collected(lambda found: found == [2]).key("a"),
        [[2, 1]],
    ),
]  # fmt: skip

TRANSFORMS: list[tuple[str, Any, Any, Path, Any]] = [
    ("key, term_val", INT_MAP, {"a": 1}, Path.key("b").term_val(2), {"a": 1, "b": 2}),
    ("key, term", INT_MAP, {"a": 1}, Path.key("a").term(Ops.PLUS, 10), {"a": 11}),
    ("key, term_void", INT_MAP, {"a": 1, "b": 2}, Path.key("a").term_void(), {"b": 2}),
    ("key, None stays", INT_MAP, {"a": 1}, Path.key("b").term_val(None), {"a": 1, "b": None}),
    ("must absent", INT_MAP, {"a": 1}, Path.must("b").term_val(2), {"a": 1}),
    ("must", INT_MAP, {"a": 1}, Path.must("a").term_val(2), {"a": 2}),
    ("map_vals", INT_MAP, {"a": 1, "b": 2}, Path.map_vals().term(Ops.INC), {"a": 2, "b": 3}),
    ("map_vals void", INT_MAP, ABC, Path.map_vals().filter_pred(is_big).term_void(), {"a": 1, "b": 2}),
    ("map_keys", INT_MAP, {"a": 1, "b": 2}, Path.map_keys().term(lambda k: chr(ord(k) + 1)), {"b": 1, "c": 2}),
    ("map_keys void", INT_MAP, {"a": 1, "b": 2}, Path.map_keys().filter_equal("a").term_void(), {"b": 2}),
    ("map_key", INT_MAP, {"a": 0, "b": 1}, Path.map_key("a").term_val("c"), {"b": 1, "c": 0}),
    ("map_key absent", INT_MAP, {"a": 0}, Path.map_key("x").term_val("c"), {"a": 0}),
    ("all of a map", INT_MAP, {"a": 1}, Path.all().term(lambda pair: [pair[0] * 2, pair[1] + 1]), {"aa": 2}),
    ("all, nth", INT_MAP, {"a": 1, "b": 2}, Path.all().nth(1).term(Ops.INC), {"a": 2, "b": 3}),
    ("all void", INT_MAP, {"a": 1, "b": 2}, Path.all().filter_equal(["a", 1]).term_void(), {"b": 2}),
    ("all, half void", INT_MAP, {"a": 1, "b": 2}, Path.all().nth(1).filter_equal(1).term_void(), {"b": 2}),
    ("sub_map", INT_MAP, ABC, Path.sub_map("a", "b").term_val({"b": 9, "z": 0}), {"b": 9, "c": 3, "d": 4, "z": 0}),
    ("sub_map void", INT_MAP, ABC, Path.sub_map("a", "b").term_void(), {"c": 3, "d": 4}),
    ("range None", INT_MAP, ABC, Path.sorted_map_range_to("c").term_val(None), {"c": 3, "d": 4}),
    ("range empty", INT_MAP, ABC, Path.sorted_map_range("b", "d").term_val({}), {"a": 1, "d": 4}),
    ("range vals", INT_MAP, ABC, Path.sorted_map_range_to_end(1).map_vals().term(Ops.INC), {**ABC, "d": 5}),
    ("set_elem", INT_SET, {1, 2}, Path.set_elem(1).term_val(5), {2, 5}),
    ("set_elem void", INT_SET, {1, 2}, Path.set_elem(1).term_void(), {2}),
    ("set_elem absent", INT_SET, {1, 2}, Path.set_elem(9).term_val(5), {1, 2}),
    ("void_set_elem", INT_SET, {1}, Path.void_set_elem().term_val(2), {1, 2}),
    ("subset", INT_SET, {1, 2, 3}, Path.subset(1, 2).term_val({9}), {3, 9}),
    ("set range None", INT_SET, {1, 2, 3}, Path.sorted_set_range_from(2).term_val(None), {1}),
    ("all of a set", INT_SET, {1, 2, 3}, Path.all().term(Ops.INC), {2, 3, 4}),
    ("all of a set void", INT_SET, {1, 2, 3}, Path.all().filter_pred(Ops.IS_ODD).term_void(), {2}),
    ("all of a list", INT_LIST, [1, 2], Path.all().term(Ops.INC), [2, 3]),
    ("all of a list void", INT_LIST, [1, 2, 3], Path.all().filter_pred(Ops.IS_ODD).term_void(), [2]),
    ("nth", INT_LIST, [1, 2], Path.nth(0).term_val(9), [9, 2]),
    ("nth void", INT_LIST, [1, 2], Path.nth(0).term_void(), [2]),
    ("key of a list", INT_LIST, [1, 2], Path.key(0).term_val(9), [9, 2]),
    ("first and last", INT_LIST, [1, 2], Path.multi_path(Path.first(), Path.last()).term(Ops.INC), [2, 3]),
    ("sublist longer", INT_LIST, [1, 2, 3], Path.sublist(1, 2).term_val([7, 8, 9]), [1, 7, 8, 9, 3]),
    ("sublist None", INT_LIST, [1, 2, 3], Path.sublist(0, 2).term_val(None), [3]),
    ("sublist void", INT_LIST, [1, 2, 3], Path.sublist(1, 9).term_void(), [1]),
    ("sublist inserts", INT_LIST, [1, 2], Path.sublist(1, 1).term_val([5]), [1, 5, 2]),
    ("sublist, all", INT_LIST, [1, 2, 3], Path.sublist(1, 3).all().term(Ops.INC), [1, 3, 4]),
    ("sublist, stopped", INT_LIST, [1, 2], Path.sublist(0, 1).filter_equal([9]).term_void(), [1, 2]),
    ("sublist_to_end", INT_LIST, [1, 2, 3], Path.sublist_to_end(2).term(lambda last: last[::-1]), [1, 3, 2]),
    ("sublist_to_end keeps", INT_LIST, [1, 2, 3], Path.subselect(Path.sublist_to_end(2)).first().term_val([]), [1]),
    ("sublist_to_end appends", INT_LIST, [1, 2], Path.sublist_to_end(0).term_val([3]), [1, 2, 3]),
    ("filter stops", INT_MAP, {"a": 1}, Path.key("x").filter_pred(Ops.IS_NOT_NULL).term_val(1), {"a": 1}),
    (
        "filter_selected", INT_MAP, ABC,
        Path.filter_selected(Path.must("a")).key("b").term_void(), {"a": 1, "c": 3, "d": 4},
    ),
    ("null_to_val", INT_MAP, {"a": 1}, Path.key("b").null_to_val(10).term(Ops.INC), {"a": 1, "b": 11}),
    ("view", INT_MAP, {"a": 1}, Path.key("a").view(Ops.PLUS, 5).term(Ops.INC), {"a": 7}),
    ("view alone replaces", INT_MAP, {"a": 1}, Path.key("a").view(Ops.PLUS, 5).stop(), {"a": 6}),
    ("transformed", INT_MAP, {"a": 1}, Path.key("a").transformed(Path.term(Ops.INC)).term(Ops.INC), {"a": 3}),
    ("if_path", INT_MAP, ABC, Path.if_path(Path.must("a"), Path.key("b"), Path.key("c")).term_val(0), {**ABC, "b": 0}),
    (
        "if_path with terminals", INT_MAP, ABC,
        Path.if_path(Path.must("x"), Path.key("b").term_val(0), Path.key("c").term_void()), {"a": 1, "b": 2, "d": 4},
    ),
    (
        "multi_path in turn", INT_MAP, {"a": 1},
        Path.multi_path(Path.key("a").term(Ops.INC), Path.key("a").term(Ops.INC), Path.key("b").term_val(0)),
        {"a": 3, "b": 0},
    ),
    (
        "subselect", INT_MAP, ABC,
        Path.subselect(Path.map_vals().filter_pred(Ops.IS_ODD)).term(lambda found: found[::-1]),
        {**ABC, "a": 3, "c": 1},
    ),
    ("subselect too short", INT_MAP, ABC, Path.subselect(Path.map_vals()).term(lambda found: found[:1]), {"a": 1}),
    ("with_page_size", INT_MAP, {"a": 1}, Path.with_page_size(5, Path.map_vals()).term(Ops.INC), {"a": 2}),
    (
        "collected go first", INT_MAP, ABC,
        Path.collect_one(Path.key("d")).key("a").term(lambda d, a, x: d - a + x, 9), {**ABC, "a": 12},
    ),
    ("stop", INT_MAP, ABC, Path.stop(), ABC),
]  # fmt: skip


@pytest.mark.parametrize("form", ["indexed", "plain"])
@pytest.mark.parametrize(
    ("schema", "start", "path", "expected"), [case[1:] for case in SELECTS], ids=[c[0] for c in SELECTS]
)
def test_values_when_selected(schema: Any, start: Any, path: Path, expected: list[Any], form: str) -> None:
    assert host(schema, form, start).select(Path(Path.key("r").path.navs + path.path.navs)) == expected


@pytest.mark.parametrize("form", ["indexed", "plain"])
@pytest.mark.parametrize(
    ("schema", "start", "path", "expected"), [case[1:] for case in TRANSFORMS], ids=[c[0] for c in TRANSFORMS]
)
def test_structure_when_transformed(schema: Any, start: Any, path: Path, expected: Any, form: str) -> None:
    pstate = host(schema, form, start)
    pstate.transform(Path(Path.key("r").path.navs + path.path.navs))
    assert whole(pstate, schema, form) == expected


@pytest.mark.parametrize("schema", [INT_MAP, INT_SET, INT_LIST])
@pytest.mark.parametrize("form", ["indexed", "plain"])
def test_empty_collection_when_there_is_nothing_yet(schema: Any, form: str) -> None:
    pstate = host(schema, form, None)
    assert pstate.select(Path.key("r").all()) == []
    place = {"map": Path.key("a"), "set": Path.void_set_elem()}.get(str(schema)[:3])
    if place is not None:
        pstate.transform(Path(Path.key("r").path.navs + place.term_val(1).path.navs))
        assert whole(pstate, schema, form) == ({"a": 1} if schema is INT_MAP else {1})
