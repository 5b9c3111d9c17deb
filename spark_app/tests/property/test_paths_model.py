"""Random paths give the same on stored state, on indexed structures in memory and on the equal plain value.

Between changes, stored state is spilled, carried to another superstep or committed, which no path may notice.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.api.path import Path, path_of
from tidemill.api.schemas import PState
from tidemill.journal.snapshot import Level, Snapshot, TaskSet
from tidemill.language.dataflow import Const
from tidemill.language.operations import Ops
from tidemill.language.schema import Schema
from tidemill.paths.compiled import compile_path
from tidemill.paths.memory_nodes import contents, memory_root
from tidemill.paths.nodes import RootValue
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.tables.parts import PartLoader
from tidemill.tables.view import SnapshotView
from tidemill.values.absent import VOID
from tidemill.values.errors import BadPath

MAPS = PState.map_schema(str, PState.map_schema(str, int).subindexed()).schema
SETS = PState.map_schema(str, PState.set_schema(str).subindexed()).schema
DEEP = PState.map_schema(str, PState.map_schema(str, PState.map_schema(str, int).subindexed()).subindexed()).schema
LISTS = PState.map_schema(str, PState.list_schema(int).subindexed()).schema
STRUCTURES = PState.map_schema(str, PState.list_schema(PState.map_schema(str, int).subindexed()).subindexed()).schema
RECORDS = PState.map_schema(
    str, PState.fixed_keys_schema("n", int, "a", PState.map_schema(str, int).subindexed(), "b", PState.set_schema(str))
).schema
PLAIN = PState.map_schema(str, PState.map_schema(str, int)).schema

Move = Literal["stay", "spill", "carry", "commit"]
MOVES: st.SearchStrategy[Move] = st.sampled_from(["stay", "spill", "carry", "commit"])
KEYS = st.sampled_from(["a", "b", "c", "d"])
COUNTS = st.integers(0, 3)
NUMBERS = st.integers(-3, 3)
BOUNDS = st.fixed_dictionaries({"include_start": st.booleans(), "include_end": st.booleans()})


def is_list(value: Any) -> bool:
    return isinstance(value, list)


def joined(*paths: Path) -> Path:
    return Path(
        tuple(nav for path in paths for nav in path.path.navs), tuple(fault for path in paths for fault in path.faults)
    )


def ranges(kind: str) -> st.SearchStrategy[Path]:
    """Every sorted range of maps ("map") or of sets ("set")."""

    def named(name: str) -> Any:
        return getattr(Path, f"sorted_{kind}_{name}")

    limits = st.one_of(st.none(), COUNTS)
    return st.one_of(
        st.builds(lambda a, b, given: named("range")(a, b, **given), KEYS, KEYS, BOUNDS),
        st.builds(lambda a, n, inc: named("range_from")(a, include_start=inc, max_amt=n), KEYS, limits, st.booleans()),
        st.builds(lambda a, n, inc: named("range_to")(a, include_end=inc, max_amt=n), KEYS, limits, st.booleans()),
        st.builds(lambda n: named("range_from_start")(n), COUNTS),
        st.builds(lambda n: named("range_to_end")(n), COUNTS),
    )


FILTERS = st.one_of(
    st.builds(Path.filter_greater_than, NUMBERS), st.builds(Path.filter_not_equal, NUMBERS),
    st.just(Path.filter_pred(Ops.IS_EVEN)), st.just(Path.stay()), st.just(Path.stop()),
    st.builds(lambda n: Path.continue_then_stay(Path.filter_greater_than(n)), NUMBERS),
    st.builds(lambda n, m: Path.cond_path(
        Path.filter_less_than(n), Path.stay(), Path.filter_equal(m), Path.continue_then_stay(Path.stop()),
    ), NUMBERS, NUMBERS),
    st.builds(lambda n: Path.with_fresh_collected(Path.put_collected(n).filter_not_equal(n)), NUMBERS),
)  # fmt: skip
PARTS = st.one_of(ranges("map"), st.builds(Path.sub_map, KEYS, KEYS))
OUTER = st.one_of(
    st.builds(Path.key, KEYS), st.builds(Path.must, KEYS), st.just(Path.map_vals()), st.just(Path.all().nth(1)),
    st.builds(lambda part: part.map_vals(), PARTS),
    st.builds(lambda a, b, c: Path.if_path(Path.must(a), Path.key(b), Path.key(c)), KEYS, KEYS, KEYS),
    st.builds(lambda a, b: Path.multi_path(Path.key(a), Path.must(b)), KEYS, KEYS),
    st.builds(lambda a, b: Path.cond_path(Path.must(a), Path.key(b), Path.must(b), Path.map_vals()), KEYS, KEYS),
    st.builds(lambda a: Path.with_fresh_collected(Path.key(a)), KEYS),
    st.builds(lambda a, b: Path.filter_selected(Path.must(a)).key(b), KEYS, KEYS),
)  # fmt: skip
ENTRIES = st.one_of(
    st.builds(lambda key: Path.key(key).null_to_val(0), KEYS), st.builds(Path.must, KEYS), st.just(Path.map_vals()),
    st.just(Path.all().nth(1)), st.builds(lambda part: part.map_vals(), PARTS),
    st.builds(lambda path: Path.subselect(path).all(), st.just(Path.map_vals())),
    st.builds(lambda key: Path.filter_not_selected(Path.must(key)).map_vals(), KEYS),
)  # fmt: skip
VALUES = st.builds(joined, ENTRIES, FILTERS)
MAP_CHANGES = st.one_of(
    st.builds(lambda path, n: path.term(Ops.PLUS, n), VALUES, NUMBERS),
    st.builds(lambda path: path.term_void(), VALUES),
    st.builds(lambda key, n: Path.key(key).term_val(n), KEYS, NUMBERS),
    st.builds(lambda key: Path.key(key).term_void(), KEYS),
    st.builds(lambda old, new: Path.map_key(old).term_val(new), KEYS, KEYS),
    st.just(Path.map_keys().filter_less_than("c").term(lambda key: chr(ord(key) + 2))),
    st.builds(lambda part, new: part.term_val(new), PARTS, st.dictionaries(KEYS, NUMBERS, max_size=2)),
    st.builds(lambda part: part.term_val(None), PARTS),
    st.builds(lambda new: Path.term_val(new), st.dictionaries(KEYS, NUMBERS, max_size=3)),
    st.just(Path.term_void()),
)
SET_CHANGES = st.one_of(
    st.builds(lambda key: Path.void_set_elem().term_val(key), KEYS),
    st.builds(lambda key: Path.set_elem(key).term_void(), KEYS),
    st.builds(lambda old, new: Path.set_elem(old).term_val(new), KEYS, KEYS),
    st.builds(lambda a, b, new: Path.subset(a, b).term_val(new), KEYS, KEYS, st.sets(KEYS, max_size=2)),
    st.builds(lambda part: part.term_val(None), ranges("set")),
    st.just(Path.all().filter_equal("a").term_val("d")),
    st.builds(lambda new: Path.term_val(new), st.sets(KEYS, max_size=3)),
)
MAP_READS = st.one_of(
    VALUES, st.builds(Path.key, KEYS), st.builds(Path.map_key, KEYS), st.just(Path.map_keys()), st.just(Path.all()),
    PARTS, st.just(Path.view(Ops.SIZE)), st.builds(lambda key: Path.view(Ops.CONTAINS, key), KEYS),
    st.builds(lambda key: Path.collect_one(Path.key(key)).map_vals(), KEYS),
)  # fmt: skip
SET_READS = st.one_of(
    st.just(Path.all()), st.builds(Path.set_elem, KEYS), ranges("set"), st.builds(Path.subset, KEYS, KEYS),
    st.builds(lambda key: Path.view(Ops.CONTAINS, key), KEYS), st.just(Path.view(Ops.SIZE)),
)  # fmt: skip


def near(items: list[int]) -> int:
    """Some place in a list."""
    return items[0] % 3 if items else 0


def two_on(items: list[int], start: int) -> int:
    return start + 2


LIST_PLACES = st.sampled_from([Path.first(), Path.last(), Path.all(), Path.all().filter_pred(Ops.IS_EVEN)])
RUNS = st.just(Path.continuous_subseqs(Ops.IS_EVEN))
LIST_PARTS = st.one_of(
    st.builds(Path.sublist, COUNTS, COUNTS), st.builds(Path.sublist_to_end, COUNTS), RUNS,
    st.builds(lambda kept: Path.filtered_list(kept), FILTERS),
    st.sampled_from([Path.sublist_dynamic(near, two_on), Path.beginning(), Path.end()]),
)  # fmt: skip
INSERTIONS = st.sampled_from([Path.before_elem(), Path.after_elem(), Path.before_index(0)])
INDEXES = st.one_of(st.just(Path.indexed_vals().first()), st.builds(Path.index, COUNTS))
LIST_READS = st.one_of(
    LIST_PLACES, LIST_PARTS, LIST_PARTS.map(lambda part: part.all()), st.just(Path.view(Ops.SIZE)), INSERTIONS, INDEXES,
    st.just(Path.indexed_vals()), st.builds(lambda n: Path.view(Ops.CONTAINS, n), NUMBERS),
)  # fmt: skip
LIST_CHANGES = st.one_of(
    st.builds(lambda part, new: part.term_val(new), LIST_PARTS, st.lists(NUMBERS, max_size=3)),
    st.builds(lambda part: part.term_void(), LIST_PARTS),
    st.builds(lambda part, n: part.all().term(Ops.PLUS, n), LIST_PARTS, NUMBERS),
    st.builds(lambda new: Path.term_val(new), st.lists(NUMBERS, max_size=4)),
    st.builds(lambda path, n: path.term(Ops.PLUS, n), LIST_PLACES, NUMBERS),
    st.builds(lambda path: path.term_void(), LIST_PLACES),
    st.builds(lambda index, n: Path.must(index).term_val(n), COUNTS, NUMBERS),
    st.builds(lambda place, n: place.term_val(n), INSERTIONS, NUMBERS),
    st.builds(lambda part, place, n: joined(part, place).term_val(n), LIST_PARTS, INSERTIONS, NUMBERS),
    st.builds(lambda place: place.term(lambda index: index // 2), INDEXES),
    st.builds(lambda place: place.filter_pred(Ops.IS_ODD).term_void(), INDEXES),
    st.builds(lambda kept, n: joined(Path.indexed_vals().nth(1), kept).term_val(n), FILTERS, NUMBERS),
)
RECORD_CHANGES = st.one_of(
    st.builds(lambda n: Path.key("n").term_val(n), NUMBERS),
    st.just(Path.key("n").term_void()),
    st.builds(lambda change: joined(Path.key("a"), change), MAP_CHANGES),
    st.builds(lambda key: Path.key("b").void_set_elem().term_val(key), KEYS),
    st.builds(
        lambda new: Path.term_val(new),
        st.fixed_dictionaries(
            {}, optional={"n": NUMBERS, "a": st.dictionaries(KEYS, NUMBERS), "b": st.sets(KEYS, min_size=1)}
        ),
    ),
    st.just(Path.term_void()),
)
RECORD_READS = st.one_of(
    st.just(Path.key("n")), st.just(Path.must("n")), st.just(Path.map_keys()), st.just(Path.key("b")),
    st.builds(lambda read: joined(Path.key("a"), read), MAP_READS),
)  # fmt: skip


MEMBERS = st.dictionaries(KEYS, NUMBERS, min_size=1, max_size=2)
STRUCTURE_PLACES = st.one_of(
    st.sampled_from([Path.first(), Path.last(), Path.all(), Path.indexed_vals().nth(1), Path.sublist(1, 3).all()]),
    st.builds(lambda key: Path.filtered_list(Path.must(key)).last(), KEYS),
    st.builds(lambda index: Path.sublist(index, index + 1).first(), COUNTS),
)
STRUCTURE_CHANGES = st.one_of(
    st.builds(lambda place, new: place.term_val(new), st.one_of(STRUCTURE_PLACES, INSERTIONS), MEMBERS),
    st.builds(lambda place: place.term_void(), STRUCTURE_PLACES),
    st.builds(lambda place, key, n: joined(place, Path.key(key)).term_val(n), STRUCTURE_PLACES, KEYS, NUMBERS),
    st.builds(lambda place, key: joined(place, Path.key(key)).term_void(), STRUCTURE_PLACES, KEYS),
    st.builds(lambda place: place.multi_path(Path.map_vals().term_void(), Path.term_void()), STRUCTURE_PLACES),
    st.builds(lambda place: place.term(lambda index: index // 2), INDEXES),
    st.builds(lambda place: place.filter_pred(Ops.IS_ODD).term_void(), INDEXES),
    st.builds(lambda new: Path.term_val(new), st.lists(MEMBERS, max_size=3)),
    st.builds(lambda part, new: part.term_val(new), st.just(Path.end()), st.lists(MEMBERS, max_size=2)),
)
STRUCTURE_READS = st.builds(joined, STRUCTURE_PLACES, MAP_READS)


# What plain Python makes of a list; None where the path is refused.
Change = tuple[Path, Any]


def spliced(items: list[int], start: int, end: int, new: list[int]) -> list[int]:
    return [*items[:start], *new, *items[max(start, end) :]]


def moved(items: list[int], index: int, place: int) -> list[int] | None:
    if index >= len(items):
        return items
    if place >= len(items):
        return None
    rest = [item for at, item in enumerate(items) if at != index]
    return spliced(rest, place, place, [items[index]])


def moved_one_by_one(items: list[int], place_of: Any) -> list[int]:
    """Each element in turn, first come first moved, to where `place_of` says for its index of that moment."""
    known = list(enumerate(items))
    for entry in list(known):
        index = known.index(entry)
        known.remove(entry)
        known.insert(place_of(index, len(items)), entry)
    return [item for _, item in known]


def rewritten(items: list[int], wanted: Any, new: list[int]) -> list[int]:
    left = iter(new)
    made = [next(left, None) if wanted(item) else item for item in items]
    return [item for item in made if item is not None]


def runs_of(items: list[int], wanted: Any) -> list[list[int]]:
    """The list in pieces: each wanted run, and each other element alone."""
    pieces: list[list[int]] = []
    for item in items:
        if pieces and wanted(item) and wanted(pieces[-1][-1]):
            pieces[-1].append(item)
        else:
            pieces.append([item])
    return pieces


def numbered(pieces: list[list[int]]) -> list[tuple[int, list[int]]]:
    """Each piece with the number of its run, from 1 on; 0 for one that is none."""
    numbers = [sum(is_even(piece[0]) for piece in pieces[: at + 1]) for at in range(len(pieces))]
    return [(number if is_even(piece[0]) else 0, piece) for number, piece in zip(numbers, pieces, strict=True)]


def is_even(item: int) -> bool:
    return item % 2 == 0


class EveryOther:
    """A navigator of a user: every other element of a list."""

    def select(self, value: list[int], next_: Any) -> Any:
        for item in value[::2]:
            next_(item)

    def transform(self, value: list[int], next_: Any) -> list[int]:
        made = [item if at % 2 else next_(item) for at, item in enumerate(value)]
        return [item for item in made if item is not VOID]


NEW = st.lists(NUMBERS, max_size=3)
IN_PYTHON: st.SearchStrategy[Change] = st.one_of(
    st.builds(lambda n: (Path.before_elem().term_val(n), lambda items: [n, *items]), NUMBERS),
    st.builds(lambda n: (Path.after_elem().term_val(n), lambda items: [*items, n]), NUMBERS),
    st.builds(lambda i, n: (
        Path.before_index(i).term_val(n), lambda items: spliced(items, i, i, [n]) if i <= len(items) else None,
    ), COUNTS, NUMBERS),
    st.builds(lambda new: (Path.beginning().term_val(new), lambda items: [*new, *items]), NEW),
    st.builds(lambda new: (Path.end().term_val(new), lambda items: [*items, *new]), NEW),
    st.builds(lambda a, b, new: (
        Path.sublist(a, b).term_val(new), lambda items: spliced(items, a, b, new),
    ), COUNTS, COUNTS, NEW),
    st.builds(lambda new: (
        Path.sublist_dynamic(near, two_on).term_val(new),
        lambda items: spliced(items, near(items), near(items) + 2, new),
    ), NEW),
    st.builds(lambda i, n: (
        Path.nth(i).term_val(n), lambda items: spliced(items, i, i + 1, [n]) if i < len(items) else None,
    ), COUNTS, NUMBERS),
    st.builds(lambda i: (
        Path.nth(i).term_void(), lambda items: spliced(items, i, i + 1, []) if i < len(items) else None,
    ), COUNTS),
    st.builds(lambda i, j: (Path.index(i).term_val(j), lambda items: moved(items, i, j)), COUNTS, COUNTS),
    st.just((
        Path.indexed_vals().first().term_val(0), lambda items: moved_one_by_one(items, lambda index, size: 0),
    )),
    st.just((
        Path.indexed_vals().first().term(lambda index: index // 2),
        lambda items: moved_one_by_one(items, lambda index, size: index // 2),
    )),
    st.just((Path.indexed_vals().filter_pred(lambda pair: is_even(pair[0])).term_void(), lambda items: items[1::2])),
    st.builds(lambda n: (
        Path.sublist(0, 99).custom_nav(EveryOther()).term(Ops.PLUS, n),
        lambda items: [item if at % 2 else item + n for at, item in enumerate(items)],
    ), NUMBERS),
    st.just((
        Path.sublist(1, 99).custom_nav_builder(EveryOther).filter_pred(Ops.IS_ODD).term_void(),
        lambda items: [item for at, item in enumerate(items) if at % 2 == 0 or is_even(item)],
    )),
    st.builds(lambda new: (
        Path.subselect(Path.all().filter_pred(Ops.IS_EVEN)).term_val(new), lambda items: rewritten(items, is_even, new),
    ), NEW),
    st.just((
        Path.subselect(Path.continuous_subseqs(Ops.IS_EVEN)).term(lambda runs: [sorted(run) for run in runs[:1]]),
        lambda items: [
            n for number, piece in numbered(runs_of(items, is_even)) for n in (sorted(piece) if number < 2 else [])
        ],
    )),
    st.builds(lambda new: (
        Path.filtered_list(Path.filter_pred(Ops.IS_EVEN)).term_val(new), lambda items: rewritten(items, is_even, new),
    ), NEW),
    st.just((
        Path.continuous_subseqs(Ops.IS_EVEN).term(lambda run: [sum(run)]),
        lambda items: [sum(piece) for piece in runs_of(items, is_even)],
    )),
    st.builds(lambda new: (
        Path.continuous_subseqs(Ops.IS_EVEN).term_val(new),
        lambda items: [n for piece in runs_of(items, is_even) for n in (new if is_even(piece[0]) else piece)],
    ), NEW),
)  # fmt: skip


def transform(node: Any, path: Path, schema: Schema | None) -> None:
    compiled = compile_path(path_of(path), schema, "transform")
    compiled.transform(node, [argument.value for argument in compiled.arguments if isinstance(argument, Const)])


def select(node: Any, path: Path, schema: Schema | None) -> list[Any]:
    """What is selected, in an order that does not depend on the order of a plain dict."""
    compiled = compile_path(path_of(path), schema, "select")
    found = compiled.select(node, [argument.value for argument in compiled.arguments if isinstance(argument, Const)])
    return sorted(map(repr, map(ordered, found)))


def ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    return sorted(value) if isinstance(value, set) else value


def pruned(value: Any, depth: int) -> Any:
    """As an indexed structure has it: in the order of keys, and empty structures only in a list before others."""
    if isinstance(value, list) and depth:
        while value and not value[-1] and isinstance(value[-1], dict):
            value = value[:-1]
    if depth == 0 or not isinstance(value, dict):
        return value
    kept = {key: pruned(value[key], depth - 1) for key in sorted(value)}
    return {key: item for key, item in kept.items() if depth == 1 or item not in ({}, set(), [], None)}


class Whole(RootValue):
    """The same state as one plain value."""

    def __init__(self) -> None:
        self.value: Any = {}

    def get_value(self) -> Any:
        return self.value

    def put_value(self, value: Any) -> None:
        self.value = value


class Stored:
    """The same state as stored rows: committed levels, overlay levels and caches."""

    def __init__(self, schema: Schema) -> None:
        self._info = PStateInfo("$$p", "1", schema)
        self._objects: dict[str, bytes] = {}
        self._snapshot = Snapshot()
        self._state = self._opened(b"")

    def _opened(self, overlay: bytes) -> ThreadState:
        view = SnapshotView(self._snapshot, TaskSet(1, 0), PartLoader(self._objects.__getitem__))
        return ThreadState({"$$p": self._info}, view, overlay=overlay, flush_path_count=0)

    def node(self) -> Any:
        return self._state.root("$$p", 0)

    def committed(self) -> Any:
        """What a client reads."""
        self._commit()
        loader = PartLoader(self._objects.__getitem__)
        return SnapshotReader({"$$p": self._info}, self._snapshot, loader).root("$$p", 0)

    def move(self, move: Move) -> None:
        if move == "spill":
            self._state.maybe_spill()
        elif move == "carry":
            self._state = self._opened(self._state.to_bytes())
        elif move == "commit":
            self._commit()

    def _commit(self) -> None:
        finished = self._state.finish()
        if finished is not None:
            number = len(self._objects) + 1
            content, part = finished
            self._objects[str(number)] = content
            level = Level("delta", number, number, (replace(part, name=str(number)),))
            self._snapshot = Snapshot((*self._snapshot.levels, level))
        self._state = self._opened(b"")


def compare(schema: Schema, depth: int, changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    node, whole, stored = memory_root(schema), Whole(), Stored(schema)
    for change, move in changes:
        transform(node, change, schema)
        transform(whole, change, None)
        transform(stored.node(), change, schema)
        stored.move(move)
        whole.value = pruned(whole.value, depth)
        assert contents(node) == whole.value
        assert contents(stored.node()) == whole.value
    for read in reads:
        expected = select(whole, read, None)
        assert select(node, read, schema) == expected
        assert select(stored.node(), read, schema) == expected
        assert select(stored.committed(), read, schema) == expected


@given(
    st.lists(st.tuples(st.builds(joined, OUTER, MAP_CHANGES), MOVES), max_size=8),
    st.lists(st.builds(joined, OUTER, MAP_READS), max_size=4),
)
@example(
    [
        (Path.key("a").key("b").term_val(0), "stay"),
        (Path.key("a").key("a").term_val(1), "stay"),
        (Path.map_vals().subselect(Path.map_vals()).all().filter_pred(Ops.IS_EVEN).term_void(), "stay"),
    ],
    [],
)
@settings(max_examples=150, deadline=None)
def test_same_maps_when_subindexed(changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    compare(MAPS, 2, changes, reads)


@given(
    st.lists(st.tuples(st.builds(joined, OUTER, SET_CHANGES), MOVES), max_size=8),
    st.lists(st.builds(joined, OUTER, SET_READS)),
)
@settings(max_examples=100, deadline=None)
def test_same_sets_when_subindexed(changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    compare(SETS, 2, changes, reads)


@given(
    st.lists(st.tuples(st.builds(joined, OUTER, OUTER, MAP_CHANGES), MOVES), max_size=6),
    st.lists(st.builds(joined, OUTER, OUTER, MAP_READS), max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_same_maps_when_subindexed_twice(changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    compare(DEEP, 3, changes, reads)


@given(
    st.lists(st.tuples(st.builds(joined, OUTER, MAP_CHANGES), MOVES), max_size=8),
    st.lists(st.builds(joined, OUTER, MAP_READS)),
)
@settings(max_examples=100, deadline=None)
def test_same_maps_when_only_the_top_is_indexed(changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    compare(PLAIN, 1, changes, reads)


@given(
    st.lists(st.tuples(st.builds(joined, OUTER, LIST_CHANGES), MOVES), max_size=8),
    st.lists(st.builds(joined, OUTER, LIST_READS), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_same_lists_when_subindexed(changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    compare(LISTS, 2, changes, reads)


@given(st.lists(st.tuples(IN_PYTHON, MOVES), max_size=10))
@settings(max_examples=150, deadline=None)
def test_lists_are_those_of_plain_python(changes: list[tuple[Change, Move]]) -> None:
    node, whole, stored = memory_root(LISTS), Whole(), Stored(LISTS)
    items: list[int] = []
    for (change, in_python), move in changes:
        expected = in_python(items)
        for root, schema in ((node, LISTS), (whole, None), (stored.node(), LISTS)):
            with pytest.raises(BadPath) if expected is None else nullcontext():
                transform(root, joined(Path.key("a"), change), schema)
        stored.move(move)
        items = items if expected is None else expected
        for held in (contents(node), whole.value, contents(stored.node())):
            assert (held.get("a") or []) == items
    assert select(stored.committed(), Path.key("a").subselect(Path.all()), LISTS) == [repr(items)]


# What plain Python makes of a path that collects: a function from (value, collected) to the list of such pairs.
Found = list[tuple[Any, list[Any]]]


def in_turn(*parts: tuple[Path, Any]) -> tuple[Path, Any]:
    def followed(value: Any, collected: list[Any]) -> Found:
        found: Found = [(value, collected)]
        for _, step in parts:
            found = [pair for item, own in found for pair in step(item, own)]
        return found

    return joined(*(path for path, _ in parts)), followed


def result_of(value: Any, collected: list[Any]) -> Any:
    return [*collected, value] if collected else value


PIECES: st.SearchStrategy[tuple[Path, Any]] = st.recursive(
    st.one_of(
        st.builds(lambda n: (Path.put_collected(n), lambda value, own: [(value, [*own, n])]), NUMBERS),
        st.just((Path.dispense_collected(), lambda value, own: [(value, [])])),
        st.builds(lambda n: (
            Path.is_collected(lambda own: len(own) > n), lambda value, own: [(value, own)] if len(own) > n else [],
        ), COUNTS),
        st.just((
            Path.cond_path(Path.filter_pred(is_list), Path.all(), Path.stay(), Path.stay()),
            lambda value, own: [(item, own) for item in value] if is_list(value) else [(value, own)],
        )),
        st.just((Path.stop(), lambda value, own: [])),
    ),
    lambda inner: st.one_of(
        st.builds(in_turn, inner, inner),
        st.builds(lambda a, b: (
            Path.multi_path(a[0], b[0]), lambda value, own: a[1](value, own) + b[1](value, own),
        ), inner, inner),
        st.builds(lambda a: (
            Path.continue_then_stay(a[0]), lambda value, own: [*a[1](value, own), (value, own)],
        ), inner),
        st.builds(lambda a: (
            Path.with_fresh_collected(a[0]), lambda value, own: [(found, own) for found, _ in a[1](value, [])],
        ), inner),
        st.builds(lambda a: (
            Path.collect(a[0]),
            lambda value, own: [(value, [*own, [result_of(*pair) for pair in a[1](value, [])]])],
        ), inner),
        st.builds(lambda a, b, c: (
            Path.if_path(a[0], b[0], c[0]), lambda value, own: (b if a[1](value, own) else c)[1](value, own),
        ), inner, inner, inner),
    ),
    max_leaves=8,
)  # fmt: skip


@given(PIECES, st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=3), max_leaves=6))
@settings(max_examples=200, deadline=None)
def test_collected_values_are_those_of_plain_python(piece: tuple[Path, Any], value: Any) -> None:
    path, in_python = piece
    whole = Whole()
    whole.value = value
    found = compile_path(path.path, None, "select")
    values = [argument.value for argument in found.arguments if isinstance(argument, Const)]

    assert found.select(whole, values) == [result_of(*pair) for pair in in_python(value, [])]


@given(
    st.lists(st.tuples(st.builds(joined, OUTER, STRUCTURE_CHANGES), MOVES), max_size=6),
    st.lists(st.builds(joined, OUTER, STRUCTURE_READS), max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_same_lists_when_their_elements_are_structures(changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    compare(STRUCTURES, 2, changes, reads)


@given(
    st.lists(st.tuples(st.builds(joined, st.builds(Path.key, KEYS), RECORD_CHANGES), MOVES), max_size=8),
    st.lists(st.builds(joined, st.builds(Path.key, KEYS), RECORD_READS), max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_same_records_when_a_field_is_subindexed(changes: list[tuple[Path, Move]], reads: list[Path]) -> None:
    compare(RECORDS, 3, changes, reads)
