"""PStates against plain dicts: random schemas, writes, spills, overlays in transit, commits and compaction."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.journal.snapshot import Level, Snapshot, TaskSet
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema, has_indexed
from tidemill.paths.nodes import Node
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.tables import compaction, verify
from tidemill.tables.parts import PartLoader
from tidemill.tables.view import SnapshotView
from tidemill.values.absent import ABSENT
from tidemill.values.errors import SchemaMismatch
from tidemill.values.keys import NAN

TASKS = 8
USED_TASKS = (0, 3, 6)
THREADS = st.sampled_from([1, 2, 4, 8])
CHUNK_ROWS = st.sampled_from([1, 2, 5, 1_000])
"""Chunks of compaction: so small that they cut tasks, prefixes and cleared ranges, or all in one."""

UTC = datetime.UTC

KEYS: dict[str, list[Any]] = {
    "int": [0, 1, -5, 7, 2**62],
    "str": ["", "a", "b", "ab", "é", "a\x00b"],
    "float": [0.0, -1.5, 2.5, float("inf"), 1.0, NAN],
    "bool": [True, False],
    "bytes": [b"", b"a", b"\x00", b"\xff"],
    "datetime": [datetime.datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)],
    "object": [True, 2, 2.5, "x", b"x", (1, "a"), (1,), "y\x00", NAN, (NAN,), 2**63 - 1, -1e300],
}
VALUES: dict[str, list[Any]] = {
    **{kind: [None, *keys] for kind, keys in KEYS.items()},
    "list": [None, [], [1, [2, None]]],
    "dict": [None, {}, {"b": 1, "a": [1.5]}],
    "set": [None, set(), {1, "a"}],
    "object": [None, 3, "z", [1, {"k": None}], {1: {2}}],
}

keys_of_schemas = st.sampled_from(sorted(KEYS))
leaves = st.sampled_from(sorted(VALUES)).map(Leaf)
plain = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(MapSchema, st.sampled_from(["str", "int"]), inner, nullable=st.booleans()),
        st.builds(ListSchema, inner),
        st.builds(SetSchema, st.sampled_from(["str", "int"]), nullable=st.booleans()),
        st.lists(inner, min_size=1, max_size=2).map(lambda fs: FixedKeysSchema(tuple(zip("ab", fs, strict=False)))),
    ),
    max_leaves=2,
)
nested = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.builds(MapSchema, keys_of_schemas, inner, st.just(True), st.booleans(), st.booleans()),
        st.builds(SetSchema, keys_of_schemas, st.just(True), st.booleans(), st.booleans()),
        st.builds(ListSchema, inner, st.just(True), st.booleans()),
        st.lists(inner, min_size=1, max_size=3).map(lambda fs: FixedKeysSchema(tuple(zip("xyz", fs, strict=False)))),
    ),
    max_leaves=3,
)
schemas = st.one_of(
    st.builds(MapSchema, keys_of_schemas, nested, nullable=st.booleans()),
    st.lists(nested, min_size=1, max_size=3).map(lambda fs: FixedKeysSchema(tuple(zip("pqr", fs, strict=False)))),
    plain.filter(lambda schema: isinstance(schema, Leaf)),
)


def draw_key(draw: Any, schema: MapSchema | SetSchema) -> Any:
    """A key of a map, or an element of a set; None now and then where it is one."""
    kind = schema.key if isinstance(schema, MapSchema) else schema.element
    return draw(st.sampled_from([*KEYS[kind], *([None] if schema.nullable else [])]))


def draw_value(draw: Any, schema: Schema) -> Any:
    """A value that fits a schema without indexed structures."""
    if isinstance(schema, Leaf):
        return draw(st.sampled_from(VALUES[schema.type]))
    if draw(st.integers(0, 5)) == 0:
        return None
    size = draw(st.integers(0, 2))
    if isinstance(schema, MapSchema):
        keys = [draw_key(draw, schema) for _ in range(size)]
        return {key: draw_value(draw, schema.value) for key in keys}
    if isinstance(schema, SetSchema):
        return {draw_key(draw, schema) for _ in range(size)}
    if isinstance(schema, ListSchema):
        return [draw_value(draw, schema.element) for _ in range(size)]
    return {name: draw_value(draw, field) for name, field in schema.fields if draw(st.booleans())}


# --- the model: nested dicts, sets and lists; an indexed structure without elements does not exist ---


def empty(schema: Schema) -> Any:
    if isinstance(schema, SetSchema):
        return set()
    return [] if isinstance(schema, ListSchema) else {}


def change(draw: Any, schema: Schema, node: Any, model: Any) -> None:
    """One random write below a structure, to both."""
    if isinstance(schema, (MapSchema, SetSchema)) and not schema.nullable and draw(st.integers(0, 9)) == 0:
        refused_change(draw, schema, node)
    elif draw(st.integers(0, 19)) == 0:
        node.clear()
        model.clear()
    elif isinstance(schema, MapSchema):
        change_map(draw, schema, node, model)
    elif isinstance(schema, SetSchema):
        element = draw_key(draw, schema)
        is_added = draw(st.integers(0, 2)) > 0
        (node.add if is_added else node.discard)(element)
        (model.add if is_added else model.discard)(element)
    elif isinstance(schema, ListSchema):
        change_list(draw, schema, node, model)
    else:
        change_record(draw, schema, node, model)


def refused_change(draw: Any, schema: MapSchema | SetSchema, node: Any) -> None:
    """A write at the key None, or below it, where None is no key: the model stays as it is."""
    with pytest.raises(SchemaMismatch, match=r"^\$\$p.*\[None\].*: None is no key here"):
        if isinstance(schema, SetSchema):
            (node.add if draw(st.booleans()) else node.discard)(None)
        elif draw(st.booleans()):
            node.delete(None)
        elif has_indexed(schema.value):
            below = node.get(None)
            assert read(schema.value, below) == empty(schema.value)
            write_one(draw, schema.value, below)
        else:
            assert node.get(None) is ABSENT
            node.put(None, draw_value(draw, schema.value))


def write_one(draw: Any, schema: Schema, node: Any) -> None:
    """One write that would change an empty structure, at any depth."""
    if isinstance(schema, MapSchema):
        key = draw(st.sampled_from(KEYS[schema.key]))
        if has_indexed(schema.value):
            write_one(draw, schema.value, node.get(key))
        else:
            node.put(key, draw_value(draw, schema.value))
    elif isinstance(schema, SetSchema):
        node.add(draw(st.sampled_from(KEYS[schema.element])))
    elif isinstance(schema, ListSchema):
        node.append(empty(schema.element) if has_indexed(schema.element) else draw_value(draw, schema.element))
        node.clear()
    else:
        name, field = draw(st.sampled_from(schema.fields))
        if has_indexed(field):
            write_one(draw, field, node.get(name))
        else:
            node.put(name, draw_value(draw, field))


def change_map(draw: Any, schema: MapSchema, node: Any, model: Any) -> None:
    key = draw_key(draw, schema)
    choice = draw(st.integers(0, 4))
    if choice == 0:
        node.delete(key)
        model.pop(key, None)
    elif has_indexed(schema.value):
        change(draw, schema.value, node.get(key), model.setdefault(key, empty(schema.value)))
    else:
        value = draw_value(draw, schema.value)
        node.put(key, value)
        model[key] = value


def change_list(draw: Any, schema: ListSchema, node: Any, model: Any) -> None:
    if has_indexed(schema.element):
        if model:
            index = draw(st.integers(0, len(model) - 1))
            child = node.get(index)
            if child is not ABSENT:
                change(draw, schema.element, child, model[index])
        return
    value = draw_value(draw, schema.element)
    if model and draw(st.booleans()):
        index = draw(st.integers(0, len(model) - 1))
        node.put(index, value)
        model[index] = value
    else:
        node.append(value)
        model.append(value)


def change_record(draw: Any, schema: FixedKeysSchema, node: Any, model: Any) -> None:
    name, field = draw(st.sampled_from(schema.fields))
    if draw(st.integers(0, 4)) == 0:
        node.delete(name)
        model.pop(name, None)
    elif has_indexed(field):
        change(draw, field, node.get(name), model.setdefault(name, empty(field)))
    else:
        value = draw_value(draw, field)
        node.put(name, value)
        model[name] = value


def pruned(schema: Schema, model: Any) -> Any:
    """The model without indexed structures that hold nothing."""
    if not has_indexed(schema):
        return model
    if isinstance(schema, MapSchema):
        held = {key: pruned(schema.value, value) for key, value in model.items()}
        return {key: v for key, v in held.items() if v or not has_indexed(schema.value)}
    if isinstance(schema, ListSchema):
        return [pruned(schema.element, value) for value in model]
    if isinstance(schema, FixedKeysSchema):
        fields = dict(schema.fields)
        held = {name: pruned(fields[name], value) for name, value in model.items()}
        return {name: v for name, v in held.items() if v or not has_indexed(fields[name])}
    return model


def read(schema: Schema, node: Any) -> Any:
    """Everything below a node, as plain values; sizes must be those of what is there."""
    if not isinstance(node, Node):
        return node
    size = None if isinstance(schema, FixedKeysSchema) else node.size()
    held = _read(schema, node)
    assert size in (None, len(held))
    return held


def _read(schema: Schema, node: Any) -> Any:
    if isinstance(schema, MapSchema):
        return {key: read(schema.value, value) for key, value in node.items()}
    if isinstance(schema, SetSchema):
        return set(node.elements())
    if isinstance(schema, ListSchema):
        return [read(schema.element, value) for value in node.elements()]
    return {name: read(schema.field(name), value) for name, value in node.items()}


# --- the store around it ---


class Store:
    """Commits, packing over threads and compaction, as the runner does them."""

    def __init__(self, schema: Schema) -> None:
        self.info = PStateInfo("$$p", "7", schema)
        self.snapshot = Snapshot()
        self.blobs: dict[str, bytes] = {}
        self.committed = 0
        self.states: dict[int, ThreadState] = {}
        self.threads = 1

    def begin(self, threads: int) -> None:
        self.threads = threads
        self.states = {thread: self.state(thread) for thread in range(threads)}

    def state(self, thread: int, overlay: bytes = b"") -> ThreadState:
        loader = PartLoader(self.blobs.__getitem__)
        view = SnapshotView(self.snapshot, TaskSet(self.threads, thread), loader)
        return ThreadState({"$$p": self.info}, view, overlay=overlay, flush_path_count=1)

    def root(self, task: int) -> Any:
        return self.states[task % self.threads].root("$$p", task)

    def committed_root(self, task: int) -> Any:
        """What a client reads."""
        return SnapshotReader({"$$p": self.info}, self.snapshot, PartLoader(self.blobs.__getitem__)).root("$$p", task)

    def travel(self, thread: int) -> None:
        self.states[thread] = self.state(thread, self.states[thread].to_bytes())

    def commit(self) -> None:
        self.committed += 1
        parts = []
        for thread, state in self.states.items():
            finished = state.finish()
            if finished is not None:
                name = f"d{self.committed}-{thread}.zip"
                self.blobs[name] = finished[0]
                parts.append(dataclasses.replace(finished[1], name=name))
        level = Level("delta", self.committed, self.committed, tuple(parts))
        self.snapshot = Snapshot((*self.snapshot.levels, level))
        self.check()

    def compact(self, first: int, last: int, threads: int, chunk_rows: int) -> None:
        levels = self.snapshot.levels[first:last]
        if not levels:
            return
        is_base, parts = first == 0, []
        for thread in range(threads):
            loader = PartLoader(self.blobs.__getitem__)
            merged = compaction.merge(
                {"7": self.info.layout},
                levels,
                TaskSet(threads, thread),
                loader,
                is_base=is_base,
                chunk_rows=chunk_rows,
            )
            if merged is not None:
                name = f"r{levels[-1].last}-{first}-{len(self.blobs)}.zip"
                self.blobs[name] = merged[0]
                parts.append(dataclasses.replace(merged[1], name=name))
        self.snapshot = self.snapshot.with_run(
            Level("run", levels[0].first, levels[-1].last, tuple(parts), is_base=is_base)
        )
        self.check()

    def check(self) -> None:
        for level in self.snapshot.levels:
            for part in level.parts:
                content = self.blobs[part.name]
                assert list(verify.faults_of(part, content, {"7": self.info.layout}, is_base=level.is_base)) == []


def is_plain_root(schema: Schema) -> bool:
    return not isinstance(schema, (MapSchema, FixedKeysSchema))


def same(expected: Any, actual: Any) -> bool:
    """Equal, and of equal types in depth (`1 == True == 1.0` in Python)."""
    if type(expected) is not type(actual):
        return False
    if isinstance(expected, dict):
        return expected.keys() == actual.keys() and all(same(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    return bool(expected == actual) or (expected != expected and actual != actual)


@settings(max_examples=150, deadline=None)
@given(schemas, st.data())
def test_state_equals_dicts_when_written_by_nodes(schema: Schema, data: Any) -> None:
    draw = data.draw
    store = Store(schema)
    models: dict[int, Any] = {task: None if is_plain_root(schema) else {} for task in range(TASKS)}
    for _ in range(draw(st.integers(1, 4))):
        store.begin(draw(THREADS))
        for _ in range(draw(st.integers(0, 12))):
            task = draw(st.sampled_from(USED_TASKS))
            if is_plain_root(schema):
                value = draw_value(draw, schema)
                store.root(task).put_value(value)
                models[task] = value
            else:
                change(draw, schema, store.root(task), models[task])
            event = draw(st.integers(0, 7))
            if event == 0:
                store.travel(task % store.threads)
            elif event == 1:
                store.states[task % store.threads].maybe_spill()
        compare(schema, store.root, models)
        store.commit()
        compare(schema, store.committed_root, models)
        if draw(st.booleans()):
            first = draw(st.integers(0, len(store.snapshot.levels) - 1))
            last = draw(st.integers(first, len(store.snapshot.levels)))
            store.compact(first, last, draw(THREADS), draw(CHUNK_ROWS))
            compare(schema, store.committed_root, models)
            store.begin(draw(THREADS))
            compare(schema, store.root, models)
        store.begin(draw(THREADS))
        compare(schema, store.root, models)


def compare(schema: Schema, root: Callable[[int], Any], models: dict[int, Any]) -> None:
    for task in USED_TASKS:
        if is_plain_root(schema):
            assert same(models[task], root(task).get_value())
            continue
        expected = models[task]
        actual = read(schema, root(task))
        if isinstance(schema, FixedKeysSchema):
            expected = {n: pruned(schema.field(n), v) for n, v in expected.items()}
            expected = {n: v for n, v in expected.items() if v or not has_indexed(schema.field(n))}
        else:
            expected = {k: pruned(schema.value, v) for k, v in expected.items()}
            expected = {k: v for k, v in expected.items() if v or not has_indexed(schema.value)}
        assert same(expected, actual), (expected, actual)
        if isinstance(schema, MapSchema):
            assert root(task).size() == len(expected)


@dataclasses.dataclass
class Range:
    start: Any = None
    end: Any = None
    includes_start: bool = True
    includes_end: bool = False
    limit: int | None = None
    is_reverse: bool = False


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_ranges_are_slices_of_sorted_keys_when_levels_overlap(data: Any) -> None:
    draw = data.draw
    store, model = Store(MapSchema("int", Leaf("int"))), dict[int, int]()
    for _ in range(draw(st.integers(1, 5))):
        store.begin(1)
        for key in draw(st.lists(st.integers(0, 60), max_size=40)):
            if draw(st.integers(0, 3)) == 0:
                store.root(0).delete(key)
                model.pop(key, None)
            else:
                store.root(0).put(key, key)
                model[key] = key
        store.commit()
        if draw(st.integers(0, 3)) == 0:
            first = draw(st.integers(0, len(store.snapshot.levels) - 1))
            store.compact(first, len(store.snapshot.levels), draw(THREADS), draw(CHUNK_ROWS))
    store.begin(1)
    ends = st.one_of(st.none(), st.integers(-1, 61))
    bounds = Range(
        draw(ends), draw(ends), draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([None, 1, 3]))
    )
    bounds.is_reverse = bounds.limit is not None and draw(st.booleans())
    keys = sorted(model)
    inside = [key for key in keys if _is_inside(key, bounds)]
    if bounds.limit is not None:
        inside = inside[-bounds.limit :] if bounds.is_reverse else inside[: bounds.limit]
    for root in (store.root(0), store.committed_root(0)):
        assert [key for key, _ in root.items()] == keys
        assert [key for key, _ in root.items(bounds)] == inside
        assert root.size() == len(keys)


def _is_inside(key: int, bounds: Range) -> bool:
    low = bounds.start is None or key > bounds.start or (key == bounds.start and bounds.includes_start)
    high = bounds.end is None or key < bounds.end or (key == bounds.end and bounds.includes_end)
    return low and high


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_keys_come_back_in_order_when_they_are_of_any_type(kind: str) -> None:
    store, keys = Store(MapSchema(kind, Leaf("int"), nullable=True)), [*KEYS[kind], None]
    store.begin(1)
    for i, key in enumerate(keys):
        store.root(0).put(key, i)
    before = list(store.root(0).items())
    store.commit()
    store.begin(1)
    assert len(before) == len(keys)
    for root in (store.root(0), store.committed_root(0)):
        assert list(root.items()) == before
        assert [root.get(key) for key in keys] == list(range(len(keys)))
