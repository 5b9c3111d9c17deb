"""Sizes of subindexed structures: exact, and as cheap in a large one as in a small one, unless they are not tracked."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema
from tidemill.paths.nodes import RecordNode, SetNode
from tidemill.pstate.overlay import TaskTable
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.tables import compaction, sizes
from tidemill.tables.codecs import key_codec
from tidemill.tables.level_merge import order_rows, resolve
from tidemill.tables.lookup import probe_together
from tidemill.tables.parts import PartLoader
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Table, layout_of
from tidemill.tables.view import SnapshotView

LEVELS = 10
KEYS: dict[str, list[Any]] = {
    "int": [None, 0, -(2**62), 5],
    "float": [None, 0.0, -1.5, float("inf"), float("nan")],
    "str": [None, "", "a", "ab", "é"],
    "bool": [None, True, False],
    "object": [None, 1, "x", (1, 2)],
    "datetime": [None, datetime(2020, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)],
}


class Store:
    """Deltas and runs of one PState `$$p`, on one task."""

    def __init__(self, inner: Schema) -> None:
        self.schema = MapSchema("str", inner)
        self.snapshot = Snapshot()
        self.blobs: dict[str, Any] = {}
        self.loader = PartLoader(self.blobs.__getitem__)

    def state(self) -> ThreadState:
        view = SnapshotView(self.snapshot, TaskSet(1, 0), self.loader)
        return ThreadState({"$$p": PStateInfo("$$p", "1", self.schema)}, view)

    def commit(self, state: ThreadState) -> None:
        finished = state.finish()
        assert finished is not None
        number = len(self.snapshot.levels) + 1
        level = Level("delta", number, number, (self._named(finished),))
        self.snapshot = Snapshot((*self.snapshot.levels, level))

    def compact(self) -> None:
        levels = self.snapshot.levels
        merged = compaction.merge({"1": layout_of(self.schema)}, levels, TaskSet(1, 0), self.loader, is_base=True)
        parts = (self._named(merged),) if merged is not None else ()
        self.snapshot = self.snapshot.with_run(Level("run", levels[0].first, levels[-1].last, parts, is_base=True))

    def _named(self, stored: tuple[Any, Part]) -> Part:
        name = f"{len(self.blobs)}"
        self.blobs[name] = stored[0]
        return dataclasses.replace(stored[1], name=name)

    def put(self, keys: Any) -> None:
        """One delta that puts keys below `a`, by columns."""
        state = self.state()
        last = pl.Series(keys, dtype=pl.Int64)
        values = None if isinstance(self.schema.value, SetSchema) else last
        state.put_points("$$p", "0", 0, [pl.Series(["a"]).new_from_index(0, len(last)), last], values)
        self.commit(state)

    def size(self, key: str = "a") -> int:
        return int(self.state().root("$$p", 0).get(key).size())


def filled(inner: Schema, count: int) -> Store:
    """`count` keys below `a` in levels that overlap by half."""
    store, step = Store(inner), count // LEVELS
    for level in range(LEVELS):
        store.put(range(max(0, level * step - step // 2), (level + 1) * step))
    return store


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Rows that were looked for, and rows that were read."""
    done = {"finds": 0, "rows": 0}
    find, read = SortedTable.find, SortedTable.bare_rows

    def counted_find(self: SortedTable, task: int, keys: Any) -> int:
        done["finds"] += 1
        return find(self, task, keys)

    def counted_read(self: SortedTable, start: int, end: int) -> pl.DataFrame:
        done["rows"] += end - start
        return read(self, start, end)

    monkeypatch.setattr(SortedTable, "find", counted_find)
    monkeypatch.setattr(SortedTable, "bare_rows", counted_read)
    return done


@pytest.mark.parametrize("inner", [SetSchema("int", True), MapSchema("int", Leaf("int"), True)])
def test_size_looks_once_into_each_level_when_a_structure_has_a_hundred_times_the_keys(
    inner: Schema, work: dict[str, int]
) -> None:
    costs = []
    for count in (2_000, 200_000):
        store = filled(inner, count)
        work.update(finds=0, rows=0)
        assert store.size() == count
        costs.append(dict(work))
    assert costs == [{"finds": LEVELS, "rows": 0}] * 2


INNER = MapSchema("int", Leaf("int"), True)
RECORD = FixedKeysSchema((("x", Leaf("int")), ("s", SetSchema("int", True)), ("m", INNER)))


@pytest.mark.parametrize("element", [INNER, SetSchema("int", True), RECORD])
def test_size_looks_once_into_each_level_when_a_hundred_times_the_elements_are_structures(
    element: Schema, work: dict[str, int]
) -> None:
    costs = []
    for count in (20, 2_000):
        store = Store(MapSchema("int", element, True))
        for level in range(LEVELS):
            state = store.state()
            node = state.root("$$p", 0).get("a")
            for key in range(level * count // LEVELS, (level + 1) * count // LEVELS):
                _write(node.get(key), key)
            store.commit(state)
        work.update(finds=0, rows=0)
        assert store.size() == count
        costs.append(dict(work))
    assert costs == [{"finds": LEVELS, "rows": 0}] * 2


def _write(node: Any, key: int) -> None:
    if isinstance(node, SetNode):
        node.add(key)
    elif isinstance(node, RecordNode):
        node.put("x", key) if key % 2 else node.get("s").add(key)
    else:
        node.put(key, key)


def test_an_attempt_looks_once_at_what_it_wrote_when_it_asks_for_the_size_after_each_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, looks = Store(MapSchema("int", SetSchema("int", True), True)), 0
    looked = TaskTable.changed_keys

    def counted(self: TaskTable, prefix: Any) -> Any:
        nonlocal looks
        looks += 1
        return looked(self, prefix)

    monkeypatch.setattr(TaskTable, "changed_keys", counted)
    state = store.state()
    node, sizes = state.root("$$p", 0).get("a"), []
    for key in range(50):
        node.get(key % 30).add(key)
        node.get(key // 2).discard(key // 2)
        sizes.append(node.size())
    assert looks == 1
    assert sizes[:5] == [0, 1, 1, 2, 2]
    held = {key % 30: {other for other in range(50) if other % 30 == key % 30} for key in range(50)}
    assert sizes[-1] == sum(1 for key, items in held.items() if items - ({key} if key < 25 else set()))
    store.commit(state)
    assert store.size() == sizes[-1]


def test_no_key_is_looked_for_when_a_map_whose_size_is_not_kept_has_structures_whose_sizes_are(
    work: dict[str, int],
) -> None:
    store = Store(SetSchema("int", True))
    state = store.state()
    for key in range(500):
        state.root("$$p", 0).get(f"k{key}").add(key)
    store.commit(state)
    state = store.state()
    state.root("$$p", 0).delete("k7")
    state.root("$$p", 0).get("k8").discard(8)
    assert state.root("$$p", 0).size() == 498
    store.commit(state)
    work.update(finds=0, rows=0)
    assert store.state().root("$$p", 0).size() == 498
    assert work == {"finds": 0, "rows": 0}


def test_no_clear_of_other_structures_is_read_when_the_elements_of_one_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def counted_resolve(table: Table, levels: Any, *, is_base: bool) -> Any:
        read.append(sum(frame.height for frame, _ in levels))
        return resolve(table, levels, is_base=is_base)

    store = Store(MapSchema("int", SetSchema("int", True), True, tracks_size=False))
    for changed, key in ((lambda root: None, 1), (lambda root: [root.delete(f"k{i}") for i in range(200)], 2)):
        state = store.state()
        changed(state.root("$$p", 0))
        for name in ("k7", *(f"k{i}" for i in range(200, 400)), *(f"k{i}" for i in range(200) if key == 1)):
            state.root("$$p", 0).get(name).get(key).add(key)
        store.commit(state)
    monkeypatch.setattr(sizes, "resolve", counted_resolve)
    assert [store.size(name) for name in ("k7", "k8", "k300")] == [1, 0, 2]
    assert read == [1, 0, 2]


@pytest.mark.parametrize("without", ["outer", "inner"])
def test_no_size_of_structures_is_kept_when_one_of_them_is_not_tracked(without: str) -> None:
    inner = MapSchema("int", Leaf("int"), True, tracks_size=without != "inner")
    store = Store(MapSchema("int", inner, True, tracks_size=without != "outer"))
    state = store.state()
    for key in range(5):
        state.root("$$p", 0).get("a").get(key).put(1, 1)
    state.root("$$p", 0).get("a").get(3).delete(1)
    assert state.root("$$p", 0).get("a").size() == 4
    store.commit(state)
    assert store.size() == 4
    assert "1/0#size1" not in next(store.snapshot.parts()).rows


def test_size_reads_every_key_when_it_is_not_tracked(work: dict[str, int]) -> None:
    store = filled(SetSchema("int", True, tracks_size=False), 2_000)
    work.update(finds=0, rows=0)
    assert store.size() == 2_000
    assert work["rows"] > 2_000
    assert all(set(part.rows) == {"1/0"} for part in store.snapshot.parts())


def test_sizes_are_exact_when_keys_come_again_go_and_are_cleared() -> None:
    store = filled(SetSchema("int", True), 100)
    state = store.state()
    node = state.root("$$p", 0).get("a")
    for key in range(40):
        node.discard(key)
    node.add(7)
    assert node.size() == 61
    store.commit(state)
    assert store.size() == 61
    state = store.state()
    state.root("$$p", 0).delete("a")
    state.root("$$p", 0).get("a").add(3)
    state.root("$$p", 0).get("b").add(4)
    assert state.root("$$p", 0).get("a").size() == 1
    store.commit(state)
    assert (store.size(), store.size("b"), store.size("c")) == (1, 1, 0)
    store.compact()
    assert (store.size(), store.size("b"), store.size("c")) == (1, 1, 0)


def test_no_row_stays_for_a_size_when_the_last_element_went() -> None:
    store = Store(SetSchema("int", True))
    store.put(range(3))
    state = store.state()
    for key in range(3):
        state.root("$$p", 0).get("a").discard(key)
    store.commit(state)
    assert store.size() == 0
    store.compact()
    assert store.size() == 0
    assert list(store.snapshot.parts()) == []


def test_appends_do_not_read_the_list_when_it_is_long(work: dict[str, int]) -> None:
    store = filled(ListSchema(Leaf("int"), True), 20_000)
    work.update(finds=0, rows=0)
    state = store.state()
    node = state.root("$$p", 0).get("a")
    for value in range(5):
        node.append(value)
    store.commit(state)
    assert work["rows"] == 0
    assert work["finds"] <= 4 * LEVELS * 5
    assert store.size() == 20_005


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(KEYS)), st.sampled_from(sorted(KEYS)), st.data())
def test_search_for_many_keys_finds_what_single_ones_find(first: str, second: str, data: Any) -> None:
    table = Table("0", (first, second))
    pairs = st.tuples(st.integers(0, 2), st.sampled_from(KEYS[first]), st.sampled_from(KEYS[second]))
    stored, wanted = (data.draw(st.lists(pairs, min_size=1, max_size=30)) for _ in range(2))
    level = SortedTable(table, order_rows(table, frame_of(table, stored)), ())
    keys = frame_of(table, wanted)
    singly = [level.find(row[0], row[1:]) for row in keys.select("task", "k0", "k1").iter_rows()]
    assert probe_together(level, keys).tolist() == sorted(row for row in singly if row >= 0)


def frame_of(table: Table, rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Distinct rows as puts."""
    columns = [
        pl.Series(name, [key_codec(kind).check(row[i + 1]) for row in rows], dtype=key_codec(kind).dtype)
        for i, (name, kind) in enumerate(zip(table.key_names, table.keys, strict=True))
    ]
    task = pl.Series("task", [row[0] for row in rows], dtype=pl.Int32)
    frame = pl.DataFrame([task, *columns]).unique(maintain_order=True)
    return frame.with_columns(pl.lit(0, pl.Int8).alias("kind"))
