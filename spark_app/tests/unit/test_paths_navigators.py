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
MAP_LIST = PState.list_schema(INT_MAP).subindexed()
ABC = {"a": 1, "b": 2, "c": 3, "d": 4}


def is_big(value: int) -> bool:
    return value > 2


def last_index(items: list[Any]) -> int:
    return len(items) - 1


def two_on(items: list[Any], start: int) -> int:
    return start + 2


def host(schema: Any, form: str, start: Any) -> TestPState:
    """A PState whose element at "r" is `start`: an indexed structure, or one plain value."""
    pstate = TestPState.create(PState.map_schema(str, schema if form == "indexed" else object))
    pstate.transform(Path.key("r").term_val(start))
    return pstate


def below(path: Path) -> Path:
    """The path from the element at "r" on."""
    return Path(Path.key("r").path.navs + path.path.navs, path.faults)


def whole(pstate: TestPState, schema: Any, form: str) -> Any:
    """What stands at "r" now, as a plain value."""
    if form == "plain":
        return pstate.select_one(Path.key("r"))
    if schema is MAP_LIST:
        found = pstate.select(Path.key("r").all().subselect(Path.all()))
        return [dict(entries) for entries in found]
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
    ("index", INT_LIST, [5, 6], Path.index(1), [1]),
    ("index of none", INT_LIST, [5, 6], Path.multi_path(Path.index(2), Path.index(-1), Path.index("x")), []),
    ("indexed_vals", INT_LIST, [5, 6], Path.indexed_vals(), [[0, 5], [1, 6]]),
    ("indexes of structures", MAP_LIST, [{"a": 5}, {"a": 6}], Path.indexed_vals().nth(1).key("a"), [5, 6]),
    ("nth of structures", MAP_LIST, [{"a": 5}, {"a": 6}], Path.nth(1).key("a"), [6]),
    (
        "places of new elements", INT_LIST, [5, 6],
        Path.multi_path(Path.before_elem(), Path.after_elem(), Path.before_index(1), Path.before_index(2)), [],
    ),
    ("beginning and end", INT_LIST, [5, 6], Path.multi_path(Path.beginning(), Path.end()), [[], []]),
    ("sublist_dynamic", INT_LIST, [5, 6, 7, 8], Path.sublist_dynamic(Ops.SIZE, two_on), [[]]),
    ("sublist_dynamic of two", INT_LIST, [1, 2, 3, 4], Path.sublist_dynamic(Ops.FIRST, two_on), [[2, 3]]),
    ("sublist_dynamic past the end", INT_LIST, [1, 2], Path.sublist_dynamic(last_index, two_on), [[2]]),
    ("filtered_list", INT_LIST, [5, 1, 6], Path.filtered_list(Path.filter_pred(is_big)), [[5, 6]]),
    ("filtered_list of none", INT_LIST, [5, 1], Path.filtered_list(Path.stop()), [[]]),
    (
        "filtered_list of structures", MAP_LIST, [{"a": 5}, {"b": 6}],
        Path.filtered_list(Path.must("a")).all().key("a"), [5],
    ),
    ("continuous_subseqs", INT_LIST, [5, 6, 1, 7, 1], Path.continuous_subseqs(is_big), [[5, 6], [7]]),
    ("continuous_subseqs of none", INT_LIST, [1], Path.continuous_subseqs(is_big), []),
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
    ("view of membership in a list", INT_LIST, [30, 10], Path.view(Ops.CONTAINS, 10), [True]),
    ("view of no membership in a list", INT_LIST, [30, 10], Path.view(Ops.CONTAINS, 0), [False]),
    ("view of membership in a map", INT_MAP, ABC, Path.view(Ops.CONTAINS, "a"), [True]),
    ("view of no membership in a map", INT_MAP, ABC, Path.view(Ops.CONTAINS, "x"), [False]),
    ("transformed", INT_MAP, ABC, Path.sub_map("a").transformed(Path.key("b").term_val(9)), [{"a": 1, "b": 9}]),
    ("stay", INT_MAP, ABC, Path.stay().key("a"), [1]),
    ("stop", INT_MAP, ABC, Path.map_vals().stop(), []),
    ("if_path then", INT_MAP, ABC, Path.if_path(Path.must("a"), Path.key("b"), Path.key("c")), [2]),
    ("if_path else", INT_MAP, ABC, Path.if_path(Path.must("x"), Path.key("b"), Path.key("c")), [3]),
    ("if_path without else", INT_MAP, ABC, Path.if_path(Path.must("x"), Path.key("b")), []),
    ("if_path goes on", INT_MAP, ABC, Path.if_path(Path.must("a"), Path.key("b")).view(Ops.INC), [3]),
    ("cond_path", INT_MAP, ABC, Path.cond_path(Path.must("x"), Path.key("a"), Path.must("a"), Path.key("b")), [2]),
    (
        "cond_path, the first", INT_MAP, ABC,
        Path.cond_path(Path.must("a"), Path.key("c"), Path.stay(), Path.key("b")), [3],
    ),
    ("cond_path of none", INT_MAP, ABC, Path.cond_path(Path.must("x"), Path.key("a"), Path.stop(), Path.key("b")), []),
    ("cond_path goes on", INT_MAP, ABC, Path.cond_path(Path.stay(), Path.map_vals()).filter_pred(is_big), [3, 4]),
    ("continue_then_stay", INT_LIST, [5, 6], Path.sublist(0, 2).continue_then_stay(Path.all()), [5, 6, [5, 6]]),
    ("continue_then_stay stays", INT_MAP, ABC, Path.continue_then_stay(Path.stop()).key("a"), [1]),
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
        "with_fresh_collected", INT_MAP, ABC,
        Path.put_collected(1).with_fresh_collected(Path.put_collected(2).is_collected(lambda found: found == [2]))
        .put_collected(3).key("a"), [[1, 3, 1]],
    ),
    (
        "with_fresh_collected twice", INT_MAP, ABC,
        Path.put_collected(1).with_fresh_collected(
            Path.put_collected(2).with_fresh_collected(Path.put_collected(3).multi_path(Path.stay(), Path.stay()))
            .is_collected(lambda found: found == [2])
        ).key("a"), [[1, 1], [1, 1]],
    ),
    (
        "with_fresh_collected between arguments", INT_MAP, ABC,
        Path.with_fresh_collected(Path.key("a")).view(Ops.PLUS, 5), [6],
    ),
    ("collected by a branch", INT_MAP, ABC, Path.multi_path(Path.put_collected(7), Path.stay()).key("a"), [[7, 1], 1]),
    (
        "collect what is collected", INT_MAP, {"a": 1},
        Path.collect(Path.put_collected(7).map_vals()).key("a"), [[[[7, 1]], 1]],
    ),
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
    ("index forward", INT_LIST, [5, 6, 7, 8], Path.index(0).term_val(2), [6, 7, 5, 8]),
    ("index back", INT_LIST, [5, 6, 7, 8], Path.index(3).term(Ops.MINUS, 2), [5, 8, 6, 7]),
    ("index stays", INT_LIST, [5, 6], Path.index(1).term_val(1), [5, 6]),
    ("index void", INT_LIST, [5, 6], Path.index(0).term_void(), [6]),
    ("index of none", INT_LIST, [5, 6], Path.index(2).term_val(0), [5, 6]),
    ("indexed_vals", INT_LIST, [5, 6], Path.indexed_vals().term(lambda pair: [pair[0], sum(pair)]), [5, 7]),
    ("indexed_vals reverses", INT_LIST, [5, 6, 7], Path.indexed_vals().first().term_val(0), [7, 6, 5]),
    (
        "indexed_vals to the end", INT_LIST, [5, 6, 7],
        Path.indexed_vals().filter_equal([0, 5]).first().term_val(2), [6, 7, 5],
    ),
    (
        "indexed_vals meets the new index", INT_LIST, [5, 6, 7],
        Path.indexed_vals().first().filter_equal(0).term_val(2), [5, 6, 7],
    ),
    ("indexed_vals, one void", INT_LIST, [5, 6, 7], Path.indexed_vals().filter_equal([1, 6]).term_void(), [5, 7]),
    ("indexed_vals, half void", INT_LIST, [5, 6], Path.indexed_vals().nth(1).filter_equal(5).term_void(), [6]),
    ("before_elem", INT_LIST, [5], Path.before_elem().term_val(4), [4, 5]),
    ("after_elem", INT_LIST, [5], Path.after_elem().term_val(6), [5, 6]),
    ("after_elem of None", INT_LIST, [5], Path.after_elem().term(lambda met: 0 if met is None else 1), [5, 0]),
    ("after_elem void", INT_LIST, [5], Path.after_elem().term_void(), [5]),
    ("after_elem stops", INT_LIST, [5], Path.after_elem().filter_pred(Ops.IS_NOT_NULL).term_val(1), [5]),
    ("before_elem of None", INT_LIST, None, Path.before_elem().term_val(4), [4]),
    ("before_index of None", INT_LIST, None, Path.before_index(0).term_val(4), [4]),
    ("before_index", INT_LIST, [5, 7], Path.before_index(1).term_val(6), [5, 6, 7]),
    ("before_index, at the end", INT_LIST, [5, 7], Path.before_index(2).term_val(8), [5, 7, 8]),
    ("beginning", INT_LIST, [5], Path.beginning().term_val([3, 4]), [3, 4, 5]),
    ("end", INT_LIST, [5], Path.end().term_val([6, 7]), [5, 6, 7]),
    ("end of None", INT_LIST, None, Path.end().term_val([6, 7]), [6, 7]),
    ("end void", INT_LIST, [5], Path.end().term_void(), [5]),
    ("end, after_elem", INT_LIST, [5], Path.end().after_elem().term_val(6), [5, 6]),
    ("sublist_dynamic", INT_LIST, [1, 2, 3, 4], Path.sublist_dynamic(Ops.FIRST, two_on).term_val([9]), [1, 9, 4]),
    (
        "filtered_list", INT_LIST, [5, 1, 6, 7],
        Path.filtered_list(Path.filter_pred(is_big)).term(lambda found: found[::-1]), [7, 1, 6, 5],
    ),
    ("filtered_list, shorter", INT_LIST, [5, 1, 6], Path.filtered_list(Path.filter_pred(is_big)).term_val([9]), [9, 1]),
    ("filtered_list, longer", INT_LIST, [5, 1], Path.filtered_list(Path.filter_pred(is_big)).term_val([9, 8]), [9, 1]),
    ("filtered_list void", INT_LIST, [5, 1, 6], Path.filtered_list(Path.filter_pred(is_big)).term_void(), [1]),
    (
        "continuous_subseqs", INT_LIST, [5, 6, 1, 7],
        Path.continuous_subseqs(is_big).term(lambda run: [sum(run)]), [11, 1, 7],
    ),
    (
        "continuous_subseqs, longer", INT_LIST, [5, 1],
        Path.continuous_subseqs(is_big).after_elem().term_val(0), [5, 0, 1],
    ),
    ("continuous_subseqs void", INT_LIST, [5, 1, 7], Path.continuous_subseqs(is_big).term_void(), [1]),
    ("first of structures, void", MAP_LIST, [{"a": 5}, {"b": 6}], Path.first().term_void(), [{"b": 6}]),
    (
        "all of structures", MAP_LIST, [{"a": 5}, {"b": 6}],
        Path.all().key("a").term_val(1), [{"a": 1}, {"a": 1, "b": 6}],
    ),
    (
        "structures move", MAP_LIST, [{"a": 5}, {"b": 6}, {"c": 7}],
        Path.index(0).term_val(2), [{"b": 6}, {"c": 7}, {"a": 5}],
    ),
    (
        "structures make place", MAP_LIST, [{"a": 5}, {"b": 6}],
        Path.before_index(1).term_val({"z": 0}), [{"a": 5}, {"z": 0}, {"b": 6}],
    ),
    (
        "structures emptied and removed", MAP_LIST, [{"a": 5}, {"b": 6}, {"c": 7}],
        Path.sublist(1, 3).all().multi_path(Path.map_vals().term_void(), Path.term_void()), [{"a": 5}],
    ),
    ("structures at the end", MAP_LIST, [{"a": 5}], Path.after_elem().key("b").term_val(1), [{"a": 5}, {"b": 1}]),
    (
        "structures reversed", MAP_LIST, [{"a": 5}, {"b": 6}, {"c": 7}],
        Path.indexed_vals().first().term_val(0), [{"c": 7}, {"b": 6}, {"a": 5}],
    ),
    (
        "structures with a filter", MAP_LIST, [{"a": 5}, {"b": 6}, {"a": 7}],
        Path.filtered_list(Path.must("a")).first().term_void(), [{"a": 7}, {"b": 6}],
    ),
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
        "cond_path", INT_MAP, ABC,
        Path.map_vals().cond_path(Path.filter_equal(1), Path.term_void(), Path.filter_pred(is_big), Path.term_val(0)),
        {"b": 2, "c": 0, "d": 0},
    ),
    (
        "cond_path goes on", INT_MAP, {"a": 1},
        Path.cond_path(Path.stop(), Path.stop(), Path.stay(), Path.key("a")).term(Ops.INC), {"a": 2},
    ),
    (
        "continue_then_stay", INT_MAP, {"a": 1, "b": 2},
        Path.sub_map("a", "b").continue_then_stay(Path.filter_selected(Path.must("b")).sub_map("b")).term(
            lambda part: {key: value + 1 for key, value in part.items()}
        ), {"a": 2, "b": 4},
    ),
    (
        "with_fresh_collected", INT_MAP, ABC,
        Path.put_collected(10).with_fresh_collected(Path.put_collected(1).key("a")).term(Ops.PLUS), {**ABC, "a": 11},
    ),
    (
        "with_fresh_collected, a terminal", INT_MAP, ABC,
        Path.put_collected(10).with_fresh_collected(Path.collect_one(Path.key("b")).key("a").term(Ops.PLUS)),
        {**ABC, "a": 3},
    ),
    (
        "term with seven arguments", INT_MAP, {"a": 1},
        Path.put_collected(8).key("a").term(lambda *given: sum(given), 10, 20, 30, 40, 50, 60, 70), {"a": 289},
    ),
    ("term_val of a list", INT_LIST, [1], Path.all().term_val(2), [2]),
    (
        "subselect of a list", INT_LIST, [1, 2, 3],
        Path.subselect(Path.all().filter_pred(Ops.IS_ODD)).term_val([7]), [7, 2],
    ),
    (
        "subselect of a set", INT_SET, {1, 2, 3},
        Path.subselect(Path.all()).term(lambda found: [n * 10 for n in found]), {10, 20, 30},
    ),
    (
        "subselect of runs", INT_LIST, [5, 6, 1, 7],
        Path.subselect(Path.continuous_subseqs(is_big)).term(lambda runs: runs[::-1]), [7, 1, 5, 6],
    ),
    (
        "subselect of keys", INT_MAP, {"a": 1, "b": 2},
        Path.subselect(Path.map_keys()).term(lambda found: found[::-1]), {"a": 2, "b": 1},
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
    assert host(schema, form, start).select(below(path)) == expected


@pytest.mark.parametrize("form", ["indexed", "plain"])
@pytest.mark.parametrize(
    ("schema", "start", "path", "expected"), [case[1:] for case in TRANSFORMS], ids=[c[0] for c in TRANSFORMS]
)
def test_structure_when_transformed(schema: Any, start: Any, path: Path, expected: Any, form: str) -> None:
    pstate = host(schema, form, start)
    pstate.transform(below(path))
    assert whole(pstate, schema, form) == expected


@pytest.mark.parametrize("schema", [INT_MAP, INT_SET, INT_LIST])
@pytest.mark.parametrize("form", ["indexed", "plain"])
def test_empty_collection_when_there_is_nothing_yet(schema: Any, form: str) -> None:
    pstate = host(schema, form, None)
    assert pstate.select(Path.key("r").all()) == []
    place, made = {
        "map": (Path.key("a"), {"a": 1}), "set": (Path.void_set_elem(), {1}), "lis": (Path.after_elem(), [1]),
    }[str(schema)[:3]]  # fmt: skip
    pstate.transform(below(place.term_val(1)))
    assert whole(pstate, schema, form) == made
