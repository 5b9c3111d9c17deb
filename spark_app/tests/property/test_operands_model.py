"""Aggregation by columns against the row form of the aggregators, merged on read or at once."""

from __future__ import annotations

import dataclasses
import math
from functools import reduce
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.journal.snapshot import Level, Snapshot, TaskSet
from tidemill.language.combiners import combiner_of
from tidemill.language.dataflow import AggList, AggMap, Aggregator, AggTree, Const, Var
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema
from tidemill.paths.nodes import ListNode, MapNode, RootValue, SetNode
from tidemill.paths.variables import compile_aggregation
from tidemill.pstate.operands import compile_writer
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.tables import compaction
from tidemill.tables.parts import PartLoader
from tidemill.tables.view import SnapshotView
from tidemill.values.columns import from_values, to_values
from tidemill.values.errors import SchemaMismatch

INT, FLOAT, STR = Leaf("int"), Leaf("float"), Leaf("str")
NAMES = ["k", "k2", "n", "x", "s", "b"]
K, K2, N, X, S, B = map(Var, NAMES)

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 2),
        st.integers(-100, 100),
        st.sampled_from([0.1, 0.2, -3.5, 1e16, 7.0, float("nan")]),
        st.sampled_from(["p", "q", None]),
        st.sampled_from([True, False]),
    ),
    max_size=12,
)


def agg(name: str, *args: Any, **options: Any) -> Aggregator:
    return Aggregator(name, "void" if name == "voided" else "combiner", args, options=tuple(options.items()))


def by_key(tree: AggTree) -> AggMap:
    return AggMap(((K, tree),))


RECORD = FixedKeysSchema((("n", INT), ("sum", INT), ("max", FLOAT), ("min", INT), ("last", STR), ("all", Leaf("list"))))
RECORD_TREE = AggMap(
    (
        (Const("n"), agg("count")),
        (Const("sum"), agg("sum", N)),
        (Const("max"), agg("max", X)),
        (Const("min"), agg("min", N)),
        (Const("last"), agg("last", S)),
        (Const("all"), agg("list", N)),
    )
)
CASES: dict[str, tuple[Schema, AggTree]] = {
    "count": (MapSchema("str", INT), by_key(agg("count"))),
    "sum": (MapSchema("str", INT), by_key(agg("sum", N))),
    "sum of floats": (MapSchema("str", FLOAT), by_key(agg("sum", X))),
    "min of floats": (MapSchema("str", FLOAT), by_key(agg("min", X))),
    "max of floats": (MapSchema("str", FLOAT), by_key(agg("max", X))),
    "max of text": (MapSchema("str", STR), by_key(agg("max", S))),
    "first": (MapSchema("str", STR), by_key(agg("first", S))),
    "last": (MapSchema("str", STR), by_key(agg("last", S))),
    "and": (MapSchema("str", Leaf("bool")), by_key(agg("and", B))),
    "or of any": (MapSchema("str", Leaf("object")), by_key(agg("or", S))),
    "list": (MapSchema("str", ListSchema(INT)), by_key(agg("list", N))),
    "set": (MapSchema("str", SetSchema("int")), by_key(agg("set", N))),
    "multi_set": (MapSchema("str", MapSchema("int", INT)), by_key(agg("multi_set", N))),
    "map": (MapSchema("str", MapSchema("int", INT)), by_key(agg("map", K2, N))),
    "set_remove": (MapSchema("str", SetSchema("int")), by_key(agg("set_remove", K2))),
    "top": (MapSchema("str", Leaf("list")), by_key(agg("top_monotonic", Const(2), N, amount=2))),
    "record": (MapSchema("str", RECORD), by_key(RECORD_TREE)),
    "record by number": (
        MapSchema("int", FixedKeysSchema(RECORD.fields[:4])),
        AggMap(((K2, AggMap(RECORD_TREE.entries[:4])),)),
    ),
    "nested value": (MapSchema("str", MapSchema("int", INT)), by_key(AggMap(((K2, agg("sum", N)),)))),
    "list of two": (MapSchema("str", Leaf("list")), by_key(AggList((agg("count"), agg("max", N))))),
    "nested count": (MapSchema("str", MapSchema("int", INT, True)), by_key(AggMap(((K2, agg("count")),)))),
    "nested set": (MapSchema("str", SetSchema("int", True)), by_key(agg("set", N))),
    "nested map": (MapSchema("str", MapSchema("int", INT, True)), by_key(agg("map", K2, N))),
    "nested list": (MapSchema("str", ListSchema(INT, True)), by_key(agg("list", N))),
    "two at once": (MapSchema("str", INT), AggMap(((K, agg("count")), (Const("a"), agg("sum", N))))),
    "whole value": (INT, agg("sum", N)),
    "top record": (
        FixedKeysSchema((("n", INT), ("m", INT))),
        AggMap(((Const("n"), agg("count")), (Const("m"), agg("max", N)))),
    ),
}  # fmt: skip


def arg_index(arg: Any) -> int:
    return NAMES.index(arg.name) if isinstance(arg, Var) else len(NAMES)


def expected_after(tree: AggTree, current: Any, row: tuple[Any, ...]) -> Any:
    """One row aggregated into a plain value: what the documentation says, without columns."""
    if isinstance(tree, Aggregator):
        combiner = combiner_of(tree)
        return combiner.onto(current, combiner.lift(*(value_of(arg, row) for arg in tree.args)))
    if isinstance(tree, AggList):
        items = list(current or [None] * len(tree.items))
        return [expected_after(inner, item, row) for inner, item in zip(tree.items, items, strict=True)]
    value = dict(current or {})
    for key, inner in tree.entries:
        at = value_of(key, row)
        value[at] = expected_after(inner, value.get(at), row)
    return value


def value_of(arg: Any, row: tuple[Any, ...]) -> Any:
    return row[NAMES.index(arg.name)] if isinstance(arg, Var) else arg.value


def plain(node: Any) -> Any:
    if isinstance(node, MapNode):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, SetNode):
        return set(node.elements())
    if isinstance(node, RootValue):
        return node.get_value()
    return list(node.elements()) if isinstance(node, ListNode) else node


def same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, float):
        return math.isclose(expected, actual, rel_tol=1e-12) or (expected != expected and actual != actual)
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(same(expected[key], actual[key]) for key in expected)
    return type(expected) is type(actual) and bool(expected == actual)


class Store:
    def __init__(self, schema: Schema, initial_value: Any = None) -> None:
        self.info = {"$$p": PStateInfo("$$p", "1", schema, initial_value=initial_value)}
        self.snapshot, self.blobs, self.loader = Snapshot(), {}, PartLoader(lambda name: self.blobs[name])

    def state(self, overlay: bytes = b"") -> ThreadState:
        return ThreadState(self.info, SnapshotView(self.snapshot, TaskSet(1, 0), self.loader), overlay=overlay)

    def commit(self, state: ThreadState) -> None:
        number = len(self.blobs)
        if (finished := state.finish()) is not None:
            self.blobs[f"d{number}"] = finished[0]
            level = Level("delta", number, number, (dataclasses.replace(finished[1], name=f"d{number}"),))
            self.snapshot = Snapshot((*self.snapshot.levels, level))

    def compact(self, first: int) -> None:
        levels = self.snapshot.levels[first:]
        layouts = {"1": self.info["$$p"].layout}
        merged = compaction.merge(layouts, levels, TaskSet(1, 0), self.loader, is_base=first == 0)
        if levels and merged is not None:
            name = f"r{len(self.blobs)}"
            self.blobs[name] = merged[0]
            parts = (dataclasses.replace(merged[1], name=name),)
            run = Level("run", levels[0].first, levels[-1].last, parts, is_base=first == 0)
            self.snapshot = self.snapshot.with_run(run)


@pytest.mark.parametrize("case", sorted(CASES))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_aggregates_equal_the_row_form_when_written_by_columns(case: str, data: Any) -> None:
    schema, tree = CASES[case]
    writer = compile_writer(tree, schema, arg_index, merge_on_read=data.draw(st.booleans()))
    store, expected = Store(schema), None if isinstance(schema, Leaf) else {}
    for _ in range(data.draw(st.integers(1, 4))):
        state = store.state()
        for rows in data.draw(st.lists(ROWS, max_size=2)):
            if rows:
                columns = [from_values(list(column)) for column in zip(*rows, strict=True)]
                writer.write(state, "$$p", 0, [*columns, from_values(["a"] * len(rows))])
            for row in rows:
                expected = expected_after(tree, expected, row)
            if data.draw(st.booleans()):
                state = store.state(state.to_bytes())
        assert same(expected, plain(state.root("$$p", 0))), (expected, plain(state.root("$$p", 0)))
        store.commit(state)
        if data.draw(st.booleans()):
            store.compact(data.draw(st.integers(0, len(store.snapshot.levels))))
        assert same(expected, plain(store.state().root("$$p", 0))), (expected, plain(store.state().root("$$p", 0)))


@settings(max_examples=100, deadline=None)
@given(st.lists(ROWS, max_size=3), st.sampled_from([[], ["k"], ["k", "b"]]))
def test_two_phases_equal_one_when_combined_by_columns(batches: list[Any], group: list[str]) -> None:
    trees = [agg("count"), agg("sum", N), agg("min", X), agg("max", X), agg("first", S), agg("set", N), agg("and", S)]
    compiled = compile_aggregation(trees, arg_index)
    parts = []
    for rows in batches:
        columns = [from_values(list(column)) for column in zip(*rows, strict=True)] if rows else [[] for _ in NAMES]
        parts.append(compiled.partial([columns[NAMES.index(name)] for name in group], columns, len(rows)))
    groups = [from_values([v for part in parts for v in to_values(part[0][i])]) for i in range(len(group))]
    operands = [from_values([v for part in parts for v in to_values(part[1][i])]) for i in range(len(trees))]
    merged_groups, merged = compiled.merge(groups, operands)
    results = list(zip(*map(to_values, [*merged_groups, *compiled.finish(merged)]), strict=True))
    expected: dict[Any, list[Any]] = {}
    for row in (row for rows in batches for row in rows):
        at = tuple(row[NAMES.index(name)] for name in group)
        expected[at] = [
            expected_after(t, v, row) for t, v in zip(trees, expected.get(at, [None] * len(trees)), strict=True)
        ]
    actual = {row[: len(group)]: list(row[len(group) :]) for row in results}
    assert actual.keys() == expected.keys()
    # `and` of None is not `onto` None: rows are folded from zero here, so compare it only where no None came first.
    assert all(same(dict(enumerate(expected[k][:6])), dict(enumerate(actual[k][:6]))) for k in expected)


def test_initial_value_counts_when_a_plain_value_is_aggregated() -> None:
    store = Store(INT, initial_value=10)
    writer = compile_writer(agg("sum", N), INT, arg_index, merge_on_read=True)
    state = store.state()
    writer.write(state, "$$p", 0, [[], [], pl.Series([1, 2])], rows=2)
    store.commit(state)
    assert store.state().root("$$p", 0).get_value() == 13
    assert store.state().root("$$p", 1).get_value() == 10


def test_overflow_is_refused_with_its_key_when_sums_leave_64_bits() -> None:
    schema = MapSchema("str", INT)
    store, writer = Store(schema), compile_writer(by_key(agg("sum", N)), schema, arg_index, merge_on_read=True)
    state = store.state()
    writer.write(state, "$$p", 0, [["a", "b"], [0, 0], pl.Series([2**62, 5])])
    store.commit(state)
    state = store.state()
    with pytest.raises(SchemaMismatch, match=r"\$\$p\['a'\]"):
        writer.write(state, "$$p", 0, [["a", "b"], [0, 0], pl.Series([2**62, 5])])
    state = store.state()
    writer.write(state, "$$p", 0, [["a", "b"], [0, 0], pl.Series([2**62 - 1, 2**62])])
    assert dict(state.root("$$p", 0).items()) == {"a": 2**63 - 1, "b": 2**62 + 5}


def test_a_value_that_does_not_fit_is_refused_when_aggregated() -> None:
    schema = MapSchema("str", INT)
    writer = compile_writer(by_key(agg("last", S)), schema, arg_index, merge_on_read=True)
    with pytest.raises(SchemaMismatch, match="expected int"):
        writer.write(Store(schema).state(), "$$p", 0, [["a"], [0], [0], [0.0], ["text"]])
    with pytest.raises(SchemaMismatch, match="expected str"):
        writer.write(Store(schema).state(), "$$p", 0, [[5], [0], [0], [0.0], [1]])


def test_elements_go_when_voided() -> None:
    schema = MapSchema("str", FixedKeysSchema((("n", INT), ("m", INT))))
    store = Store(schema)
    state = store.state()
    count = compile_writer(
        by_key(AggMap(((Const("n"), agg("count")), (Const("m"), agg("sum", N))))), schema, arg_index, True
    )
    count.write(state, "$$p", 0, [["a", "b", "c"], [0, 0, 0], [1, 2, 3]])
    compile_writer(by_key(AggMap(((Const("m"), agg("voided")),))), schema, arg_index).write(state, "$$p", 0, [["b"]])
    compile_writer(by_key(agg("voided")), schema, arg_index).write(state, "$$p", 0, [["c"]])
    store.commit(state)
    assert dict(store.state().root("$$p", 0).items()) == {"a": {"n": 1, "m": 1}, "b": {"n": 1}}


ZEROS = st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, float("nan"), None]), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["min", "max"]), st.lists(ZEROS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_sign_of_zero_is_the_same_in_whatever_order_rows_come(name: str, batches: list[list[Any]], random: Any) -> None:
    def folded(batches: list[list[Any]], compacts: bool) -> str:
        schema = MapSchema("str", FLOAT)
        store, writer = Store(schema), compile_writer(by_key(agg(name, X)), schema, arg_index, merge_on_read=True)
        for values in batches:
            state, keys = store.state(), ["a"] * len(values)
            writer.write(state, "$$p", 0, [keys, keys, keys, from_values(values)])
            store.commit(state)
            if compacts:
                store.compact(0)
        return repr(plain(store.state().root("$$p", 0)))

    shuffled = [value for values in batches for value in values]
    random.shuffle(shuffled)
    assert len({folded(batches, False), folded(batches, True), folded([shuffled], False)}) == 1


@given(st.lists(st.sampled_from([0.0, -0.0, 0, False, 1, 1.0, True, [0.0], [-0.0], [0]]), min_size=1))
def test_equal_values_that_differ_do_not_show_the_order_of_rows(values: list[Any]) -> None:
    for name in ("min", "max"):
        combine = combiner_of(agg(name, X)).combine
        same_kind = [value for value in values if isinstance(value, list) == isinstance(values[0], list)]
        assert repr(reduce(combine, same_kind)) == repr(reduce(combine, same_kind[::-1]))
