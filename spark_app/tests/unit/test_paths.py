"""What a path as a whole promises: its arguments, its errors, what it refuses, the published examples."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.api.arguments import Expr
from tidemill.api.path import Path
from tidemill.api.schemas import PState
from tidemill.language import dataflow, schema
from tidemill.language.dataflow import Const, Function, FunctionKind, Nav, Var
from tidemill.language.operations import Ops
from tidemill.paths.compiled import compile_path
from tidemill.pstate.test_pstate import TestPState
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadInput, BadPath, NotOneValue, NotSelectable, SchemaMismatch

COUNTS = PState.map_schema(str, PState.map_schema(str, int).subindexed())
RECORD = PState.fixed_keys_schema("name", str, "likes", PState.set_schema(str).subindexed())
RECORDS = PState.map_schema(str, RECORD)


class WriteOnly:
    """A node that fails when anything is read from it."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def put(self, key: Any, value: Any) -> None:
        self.written.append(("put", key, value))

    def delete(self, key: Any) -> None:
        self.written.append(("delete", key))

    def discard(self, element: Any) -> None:
        self.written.append(("discard", element))

    def add(self, element: Any) -> None:
        self.written.append(("add", element))


class Parent:
    """A map of nodes; getting a node reads nothing."""

    def __init__(self, child: WriteOnly) -> None:
        self.child = child

    def get(self, key: Any) -> Any:
        return self.child


def run(node: Any, path: Path, recorded: schema.Schema) -> None:
    compiled = compile_path(path.path, recorded, "transform")
    compiled.transform(node, [argument.value for argument in compiled.arguments if isinstance(argument, Const)])


# --- published examples ----------------------------------------------------------------------------------------------


def test_key_is_renamed_when_map_key() -> None:
    pstate = TestPState.create(dict, {"a": 0, "b": 1})
    pstate.transform(Path.map_key("a").term_val("c"))
    assert pstate.select_one() == {"b": 1, "c": 0}


def test_odd_numbers_are_reversed_in_place_when_subselect() -> None:
    pstate = TestPState.create(list, [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]])
    pstate.transform(Path.subselect(Path.all().all().filter_pred(Ops.IS_ODD)).term(lambda odds: odds[::-1]))
    assert pstate.select_one() == [[9, 2, 7, 4], [5, 6, 3], [8, 1, 10]]


def test_sorted_pairs_when_all_of_nested_counts() -> None:
    pstate = TestPState.create(COUNTS)
    for name in ("y", "y", "z", "y"):
        pstate.transform(Path.key("x", name).null_to_val(0).term(Ops.INC))
    assert pstate.select(Path.key("x").all()) == [["y", 3], ["z", 1]]


# --- arguments -------------------------------------------------------------------------------------------------------


def test_arguments_stand_in_order_when_paths_nest() -> None:
    path = Path.key("*a", "b").filter_selected(Path.must("*c")).sorted_map_range_from("*d", max_amt="*e")
    compiled = compile_path(path.path, None, "select")
    assert compiled.arguments == (Var("*a"), Const("b"), Var("*c"), Var("*d"), Var("*e"))
    value = {"x": {"b": {"k": 1, "l": 2, "m": 3}}}
    assert compiled.select(value, ["x", "b", "k", "l", 1]) == [{"l": 2}]


def test_leading_key_when_the_path_begins_with_a_key() -> None:
    assert Path.must("*k").all().path.leading_key == Var("*k")
    assert Path.all().path.leading_key is None
    assert Path.key(Expr(Ops.INC, "*k")).path.leading_key is not None


@pytest.mark.parametrize(
    ("recorded", "path", "keys"),
    [
        (PState.map_schema(str, int), Path.key("a"), (0,)),
        (PState.map_schema(str, dict), Path.key("a"), (0,)),
        (PState.map_schema(str, dict), Path.key("a", "b"), None),
        (COUNTS, Path.key("a", "b"), (0, 1)),
        (COUNTS, Path.key("a"), None),
        (COUNTS, Path.key("a").must("b"), None),
        (RECORDS, Path.key("a", "name"), None),
    ],
)
def test_point_keys_when_only_keys_lead_to_one_plain_element(recorded: Any, path: Path, keys: Any) -> None:
    assert compile_path(path.path, recorded.schema, "select").point_keys == keys


def test_same_results_when_the_schema_is_not_known() -> None:
    for path in (Path.key("a"), Path.key("a").stay()):
        compiled = compile_path(path.path, None, "select")
        assert compiled.select({"a": [1]}, ["a"]) == [[1]]


# --- what is not read ------------------------------------------------------------------------------------------------


def test_nothing_is_read_when_a_value_is_only_put_or_removed() -> None:
    node = WriteOnly()
    flat, nested = PState.map_schema(str, int).schema, COUNTS.schema
    run(node, Path.key("a").term_val(1), flat)
    run(node, Path.key("a").term_void(), flat)
    run(Parent(node), Path.key("x", "b").term_val(2), nested)
    run(Parent(node), Path.key("x", "b").term_void(), nested)
    assert node.written == [("put", "a", 1), ("delete", "a"), ("put", "b", 2), ("delete", "b")]


def test_nothing_is_read_when_an_element_is_only_added_or_removed() -> None:
    node = WriteOnly()
    sets = PState.map_schema(str, PState.set_schema(int).subindexed()).schema
    run(Parent(node), Path.key("x").set_elem(1).term_void(), sets)
    run(Parent(node), Path.key("x").void_set_elem().term_val(2), sets)
    assert node.written == [("discard", 1), ("add", 2)]


# --- values stay what they were --------------------------------------------------------------------------------------


def test_state_is_untouched_when_a_function_changes_what_it_was_given() -> None:
    pstate = TestPState.create(PState.map_schema(str, list))
    pstate.transform(Path.key("a").term_val([1]))
    assert pstate.select(Path.key("a").view(lambda found: found.append(2) or len(found))) == [2]
    pstate.select_one(Path.key("a")).append(3)
    assert pstate.select_one(Path.key("a")) == [1]


def test_new_list_is_stored_when_a_function_changes_its_argument_and_returns_it() -> None:
    pstate = TestPState.create(PState.map_schema(str, list))
    for number in (1, 2):
        pstate.transform(Path.key("a").null_to_list().term(lambda found, n: found.append(n) or found, number))
    assert pstate.select_one(Path.key("a")) == [1, 2]


def test_structure_is_cleared_when_it_is_replaced_by_nothing() -> None:
    for terminal in (Path.key("x").term_val(None), Path.key("x").term_val({}), Path.key("x").term_void()):
        pstate = TestPState.create(COUNTS)
        pstate.transform(Path.key("x", "a").term_val(1))
        pstate.transform(Path.key("y", "b").term_val(2))
        pstate.transform(terminal)
        assert pstate.select(Path.map_keys()) == ["y"]
        assert pstate.select(Path.must("x")) == []


def test_whole_pstate_is_replaced_when_the_path_begins_with_its_terminal() -> None:
    pstate = TestPState.create(COUNTS)
    pstate.transform(Path.key("x", "a").term_val(1))
    pstate.transform(Path.term_val({"y": {"b": 2}}))
    assert pstate.select(Path.all().collect_one(Path.first()).last().all()) == [["y", ["b", 2]]]


def test_fields_are_navigated_when_a_record_holds_a_subindexed_set() -> None:
    pstate = TestPState.create(RECORDS)
    pstate.transform(Path.key("k", "name").term_val("n"))
    pstate.transform(Path.key("k", "likes").void_set_elem().term_val("tea"))
    assert pstate.select(Path.key("k").multi_path(Path.key("name"), Path.key("likes").all())) == ["n", "tea"]
    pstate.transform(Path.key("k").term_val({"name": "m"}))
    assert pstate.select(Path.key("k").multi_path(Path.key("name"), Path.key("likes").all())) == ["m"]


@pytest.mark.parametrize("name", [["name"], {"name": 1}, (["name"],), None, "nope"])
@pytest.mark.parametrize("indexed", [Path.key("k"), Path()])
def test_a_record_says_which_fields_it_has_when_a_path_names_another(name: Any, indexed: Path) -> None:
    pstate = TestPState.create(RECORDS if indexed.path.navs else RECORD)
    with pytest.raises(SchemaMismatch, match="likes"):
        pstate.select(indexed.key(name))
    with pytest.raises(SchemaMismatch, match="likes"):
        pstate.transform(indexed.key(name).term_val("x"))


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [Path.stay(), Path.key("x"), Path.all(), Path.sorted_map_range_from("a"), Path.key("x").view(len)]
)
def test_refused_when_an_indexed_structure_is_taken_whole(path: Path) -> None:
    pstate = TestPState.create(COUNTS)
    pstate.transform(Path.key("x", "a").term_val(1))
    with pytest.raises(NotSelectable, match="navigate into it"):
        pstate.select(path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (Path.map_vals(), "map_vals needs a map but met int"),
        (Path.key("a"), "key needs a map but met int"),
        (Path.set_elem(1), "set_elem needs a set but met int"),
        (Path.all(), "all needs a list but met int"),
        (Path.nth(0), "nth needs a list but met int"),
        (Path.sublist(0, 1), "sublist needs a list but met int"),
        (Path.sublist_to_end(1), "sublist_to_end needs a list but met int"),
        (Path.filter_less_than("x"), "cannot compare int with str"),
    ],
)
def test_error_names_navigator_and_value_when_they_do_not_fit(path: Path, text: str) -> None:
    compiled = compile_path(path.path, None, "select", pstate="$$p")
    with pytest.raises(BadPath, match=text) as caught:
        compiled.select(5, [argument.value for argument in compiled.arguments if isinstance(argument, Const)])
    assert str(caught.value).startswith("$$p: ")


@pytest.mark.parametrize(
    "path",
    [
        Path.key("a"),
        Path(),
        Path.key("a").term_val(1).stay(),
        Path.multi_path(Path.key("a").term_val(1), Path.key("b")),
        Path.if_path(Path.key("a"), Path.key("a").term_val(1), Path.key("b")),
        Path.transformed(Path.key("a")).term_val(1),
        Path.continue_then_stay(Path.key("a").term_val(1)),
        Path.cond_path(Path.key("a"), Path.term_val(1), Path.stay(), Path.key("b")),
        Path.cond_path(),
        Path.with_fresh_collected(Path.key("a")),
    ],
)
def test_refused_when_a_transform_has_no_terminal_at_its_end(path: Path) -> None:
    with pytest.raises(BadPath, match="term"):
        compile_path(path.path, None, "transform")


def test_refused_when_a_select_changes_state() -> None:
    with pytest.raises(BadPath, match="term_val changes state"):
        compile_path(Path.key("a").term_val(1).path, None, "select")


def test_refused_when_collected_values_are_inside_a_subselect() -> None:
    with pytest.raises(BadPath, match="cannot be inside a subselect"):
        compile_path(Path.subselect(Path.collect(Path.all()).all()).path, None, "select")


def test_refused_when_term_void_has_nothing_around_it() -> None:
    for pstate in (TestPState.create(int, 1), TestPState.create(COUNTS)):
        with pytest.raises(BadPath, match="term_void"):
            pstate.transform(Path.term_void())


def test_refused_when_a_structure_would_move_to_another_key() -> None:
    pstate = TestPState.create(COUNTS)
    pstate.transform(Path.key("x", "a").term_val(1))
    with pytest.raises(BadPath, match="cannot rename"):
        pstate.transform(Path.map_key("x").term_val("y"))


def test_refused_when_nth_is_out_of_range() -> None:
    with pytest.raises(BadPath, match="no place 3"):
        TestPState.create(list, [1]).select(Path.nth(3))


@pytest.mark.parametrize("place", [-1, "0", True, None])
def test_refused_when_a_sublist_begins_or_ends_at_no_place(place: Any) -> None:
    for path in (Path.sublist(place, 1), Path.sublist(0, place)):
        with pytest.raises(BadPath, match="no place"):
            TestPState.create(list, [1]).select(path)


def test_refused_when_a_sublist_would_become_something_else() -> None:
    with pytest.raises(BadPath, match="sublist can become a list or None, not 3"):
        TestPState.create(list, [1]).transform(Path.sublist(0, 1).term_val(3))


@pytest.mark.parametrize("place", [-1, 3, "0", True, None])
def test_refused_when_an_element_would_stand_at_no_place(place: Any) -> None:
    pair = Path.indexed_vals().filter_equal([1, 6]).term_val([place, 6])
    for path in (Path.before_index(place).term_val(7), Path.index(0).term_val(place), pair):
        pstate = TestPState.create(list, [5, 6])
        with pytest.raises(BadPath, match="a list of 2 elements has no place"):
            pstate.transform(path)
        assert pstate.select_one() == [5, 6]


@pytest.mark.parametrize(
    "path", [Path.sublist_dynamic(lambda items: -1, Ops.GET), Path.sublist_dynamic(Ops.FIRST, lambda items, start: "x")]
)
def test_refused_when_a_function_gives_no_place(path: Path) -> None:
    with pytest.raises(BadPath, match="no place"):
        TestPState.create(list, [0]).select(path)


@pytest.mark.parametrize("path", [Path.filtered_list(Path.stay()), Path.continuous_subseqs(Ops.IS_ODD), Path.end()])
def test_refused_when_a_part_of_a_list_would_become_something_else(path: Path) -> None:
    with pytest.raises(BadPath, match="can become a list or None, not 3"):
        TestPState.create(list, [1]).transform(path.term_val(3))


def test_refused_when_an_element_with_its_index_would_become_something_else() -> None:
    with pytest.raises(BadPath, match=r"an element can become \[index, value\], not 3"):
        TestPState.create(list, [1]).transform(Path.indexed_vals().term_val(3))


def test_a_list_grows_at_its_end_when_a_key_names_the_index_after_the_last() -> None:
    for kind in (PState.list_schema(int).subindexed(), PState.list_schema(int), list):
        pstate = TestPState.create(PState.map_schema(str, kind))
        pstate.transform(Path.key("x").term_val([1, 2]))
        pstate.transform(Path.key("x").key(2).term_val(3))
        assert pstate.select(Path.key("x").all()) == [1, 2, 3]


def test_a_function_has_parameters_for_the_collected_values_when_the_path_collects() -> None:
    one = Path.put_collected(10).term(lambda found, value: found + value)
    branch = Path.collect_one(Path.stay()).if_path(Path.stay(), Path.term(lambda found, value, more: found + more, 1))
    for path, expected in ((one, 13), (branch, 4), (Path.with_fresh_collected(one), 13)):
        pstate = TestPState.create(int, 3)
        pstate.transform(path)
        assert pstate.select_one() == expected
    for path in (Path.term(lambda found, value: value), Path.multi_path(Path.term(lambda found, value: value))):
        with pytest.raises(BadPath, match="takes the arguments"):
            TestPState.create(int, 3).transform(path)


def test_refused_when_collect_one_finds_several() -> None:
    with pytest.raises(NotOneValue, match="selected 2"):
        TestPState.create(list, [1, 2]).select(Path.collect_one(Path.all()).first())


def test_refused_when_select_one_finds_several_or_none() -> None:
    for found in ([], [1, 2]):
        with pytest.raises(NotOneValue, match=f"{len(found)} values"):
            TestPState.create(list, found).select_one(Path.all())


def test_refused_when_what_is_written_does_not_fit_the_schema() -> None:
    with pytest.raises(SchemaMismatch, match="'x' does not fit int"):
        TestPState.create(PState.map_schema(str, int)).transform(Path.key("a").term_val("x"))


def test_refused_when_an_indexed_structure_would_become_a_plain_value() -> None:
    with pytest.raises(SchemaMismatch, match="an indexed map cannot become int"):
        TestPState.create(COUNTS).transform(Path.key("x").term_val(3))


@pytest.mark.parametrize("index", [-1, 3, True, "a"])
def test_refused_when_a_list_of_rows_has_no_such_index(index: Any) -> None:
    pstate = TestPState.create(PState.map_schema(str, PState.list_schema(int).subindexed()))
    pstate.transform(Path.key("x").term_val([1, 2]))
    assert pstate.select(Path.key("x").key(index)) == [None]
    with pytest.raises(BadPath, match="a list of 2 elements has no index"):
        pstate.transform(Path.key("x").key(index).term_val(3))
    assert pstate.select(Path.key("x").all()) == [1, 2]


def test_absent_when_a_key_cannot_be_a_key() -> None:
    pstate = TestPState.create(object, {"a": {1}})
    assert pstate.select(Path.key({"a": 1})) == [None]
    assert pstate.select(Path.key("a").set_elem({1: 1})) == []
    pstate.transform(Path.key({"a": 1}).filter_pred(Ops.IS_NOT_NULL).term_void())
    for path in (Path.key({"a": 1}).term_val(1), Path.key("a").void_set_elem().term_val({1: 1})):
        with pytest.raises(BadInput, match="cannot be"):
            pstate.transform(path)


def test_lists_are_keys_and_elements_of_plain_structures() -> None:
    pstate = TestPState.create(object, {"a": {1}})
    assert pstate.select(Path.key(["a"])) == [None]
    for path in (Path.key(["a"]).term_val(1), Path.key("a").void_set_elem().term_val([1])):
        pstate.transform(path)
    assert pstate.select_one(Path.stay()) == {"a": {1, (1,)}, ("a",): 1}
    assert pstate.select(Path.key("a").set_elem([1])) == [[1]]


def test_keys_are_the_same_in_memory_as_in_stored_structures() -> None:
    pstate = TestPState.create(PState.map_schema(object, int))
    for key in (True, 1, 1.0, float("nan"), float("nan"), [1], [1.0], [True], 0.0, -0.0):
        pstate.transform(Path.key(key).null_to_val(0).term(Ops.INC))
    assert sorted(count for _, count in pstate.select(Path.all())) == [1, 1, 2, 2, 2, 2]
    assert pstate.select(Path.key(True)) == [1] and pstate.select(Path.key(float("nan"))) == [2]


def test_one_key_of_nan_and_two_of_true_and_1_in_plain_structures() -> None:
    pstate = TestPState.create(object, {"a": {1}})
    for number in (1, 2):
        pstate.transform(Path.key(float("nan")).term_val(number))
    assert pstate.select(Path.key(float("nan"))) == [2] and len(pstate.select_one(Path.stay())) == 2
    assert pstate.select(Path.key("a").set_elem(True)) == []
    with pytest.raises(BadInput, match="two keys, but Python takes them for one"):
        pstate.transform(Path.key("a").void_set_elem().term_val(True))


@pytest.mark.parametrize(("kind", "text"), [("operation", "f is an operation"), ("vectorized", "f works on columns")])
def test_refused_when_a_function_does_not_give_one_value_for_another(kind: FunctionKind, text: str) -> None:
    with pytest.raises(BadPath, match=text):
        compile_path(dataflow.RecordedPath((Nav("view", (Function("f", kind, lambda value: value),)),)), None, "select")


def test_refused_when_there_is_no_such_navigator() -> None:
    with pytest.raises(BadPath, match="there is no navigator nope"):
        compile_path(dataflow.RecordedPath((Nav("nope"),)), None, "select")


def test_no_element_is_not_an_element_that_is_none() -> None:
    pstate = TestPState.create(PState.map_schema(str, int))
    pstate.transform(Path.key("a").term_val(None))
    assert pstate.select(Path.must("a")) == [None]
    assert pstate.select(Path.must("b")) == []
    assert not ABSENT


def test_a_test_pstate_is_empty_when_its_with_statement_ends() -> None:
    with TestPState.create(PState.map_schema(str, int)) as held:
        held.transform(Path.key("a").term_val(1))
        assert held.select_one(Path.key("a")) == 1

    assert held.select(Path.all()) == []
