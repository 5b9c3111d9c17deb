"""After a compaction failed, the code of its error decides what a leader does; the words are for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.journal.entries import ENTRY_BYTES_MAX, Entry, to_bytes
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.leader import events
from tidemill.leader.attempt_failures import compaction_failed
from tidemill.leader.maintenance import BACK_OFF_MS, PIECE_ROWS, Maintenance
from tidemill.leader.transitions import Author, claim
from tidemill.spark import wire
from tidemill.values.errors import BadInput, CombinersDiffer, TidemillError

OPTIONS = events.ModuleOptions()
LEVELS = tuple(Level("delta", i, i, (Part(f"d{i}", TaskSet(1, 0), {"1/0": 1}),)) for i in range(1, 5))
ENTRY = Entry("commit", "n", 1, 1, 0, snapshot=Snapshot(LEVELS))


def levels_after(error: TidemillError, at: float) -> list[tuple[Level, ...]]:
    """The levels that are merged next, when a merge of the second and the third raised `error` in a Spark task."""
    maintenance = Maintenance(lambda snapshot, newest: (1, 3), collected_at=1e9)
    assert _started(maintenance, 0.0) == [LEVELS[1:3]]
    with pytest.raises(type(error)) as raised:
        wire.raise_failure(wire.pack_failure(error))
    maintenance.take(compaction_failed(7, raised.value), 0.0)
    return _started(maintenance, at)


def _started(maintenance: Maintenance, at: float) -> list[tuple[Level, ...]]:
    work = maintenance.work(ENTRY, OPTIONS, 7, at)
    return [each.levels for each in work if isinstance(each, events.StartCompaction)]


def test_the_next_merge_goes_down_to_the_base_when_combiners_differ() -> None:
    assert levels_after(CombinersDiffer("other words"), 0.0) == [LEVELS[:3]]


def test_the_same_merge_waits_when_another_error_has_the_same_words() -> None:
    words = "An update changed a combiner: levels with different combiners can only be merged down to the base."
    assert levels_after(BadInput(words), 0.0) == []
    assert levels_after(BadInput(words), BACK_OFF_MS) == [LEVELS[1:3]]


def test_a_merge_down_to_the_base_is_not_repeated_at_once_when_combiners_differ() -> None:
    maintenance = Maintenance(lambda snapshot, newest: (0, 2), collected_at=1e9)
    assert _started(maintenance, 0.0) == [LEVELS[:2]]
    maintenance.take(compaction_failed(7, CombinersDiffer("text")), 0.0)
    assert (_started(maintenance, 0.0), maintenance.trouble) == ([], "CombinersDiffer: text")


# --- pieces of a migration -------------------------------------------------------------------------------------------

TABLE = "1/0"


def migrating(threads: int = 1) -> Maintenance:
    """One for which the four levels wait, whose plan merges two levels or more."""

    def plan(snapshot: Snapshot, newest: int) -> tuple[int, int] | None:
        return (0, len(snapshot.levels)) if len(snapshot.levels) > 1 else None

    return Maintenance(plan, collected_at=1e9, generations={TABLE: 1}, tasks=4, threads=threads)


def begun(maintenance: Maintenance, entry: Entry) -> tuple[TaskSet, ...] | None:
    """The pieces that are merged next; None for no work at all."""
    work = [each for each in maintenance.work(entry, OPTIONS, 7, 0.0) if isinstance(each, events.StartCompaction)]
    return work[0].pieces if work else None


def ended(maintenance: Maintenance, entry: Entry, *names: str) -> Entry:
    """The entry that takes in what was merged."""
    parts = tuple(Part(name, TaskSet(4, 0), {TABLE: 1}, generations={TABLE: 1}) for name in names)
    maintenance.take(events.CompactionDone(7, parts), 0.0)
    made = maintenance.with_compaction(entry, 9)
    maintenance.note_asked(made, 9)
    return made


def with_deltas(entry: Entry, *ids: int) -> Entry:
    deltas = tuple(
        Level("delta", i, i, (Part(f"d{i}", TaskSet(1, 0), {TABLE: 1}, generations={TABLE: 1}),)) for i in ids
    )
    return replace(entry, snapshot=Snapshot((*entry.snapshot.levels, *deltas)))


def test_pieces_are_named_by_entries_until_all_stand_for_the_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.leader.maintenance.PIECE_ROWS", 1)
    maintenance, entry = migrating(threads=2), ENTRY
    assert begun(maintenance, entry) == (TaskSet(4, 0), TaskSet(4, 1))
    entry = ended(maintenance, entry, "a", "b")
    assert (entry.snapshot, entry.compacted) == (ENTRY.snapshot, 0)
    assert [(p.pieces, p.done, [part.name for part in p.parts]) for p in entry.pending] == [(4, 2, ["a", "b"])]
    assert {"a", "b"} <= {part.name for part in entry.named_parts()}
    assert begun(maintenance, entry) == (TaskSet(4, 2), TaskSet(4, 3))
    entry = ended(maintenance, entry, "c")  # one of them had no rows
    assert (entry.pending, entry.compacted) == ((), 9)
    (level,) = entry.snapshot.levels
    assert (level.is_base, [part.name for part in level.parts]) == (True, ["a", "b", "c"])
    assert begun(maintenance, entry) is None


def test_levels_above_are_merged_in_turns_with_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.leader.maintenance.PIECE_ROWS", 1)
    maintenance, entry = migrating(), ENTRY
    assert begun(maintenance, entry) == (TaskSet(4, 0),)
    entry = with_deltas(ended(maintenance, entry, "a"), 5, 6)
    assert begun(maintenance, entry) == (), "the new levels, as a whole"
    entry = ended(maintenance, entry, "run")
    assert [(level.first, level.last) for level in entry.snapshot.levels][3:] == [(4, 4), (5, 6)]
    assert [(p.done, p.pieces) for p in entry.pending] == [(1, 4)]
    assert begun(maintenance, entry) == (TaskSet(4, 1),)


@pytest.mark.parametrize("definition", [1, 2])
def test_the_next_leader_goes_on_from_the_pieces_that_are_done_unless_an_update_came(
    monkeypatch: pytest.MonkeyPatch, definition: int
) -> None:
    monkeypatch.setattr("tidemill.leader.maintenance.PIECE_ROWS", 1)
    first = migrating()
    begun(first, ENTRY)
    entry = ended(first, ENTRY, "a")
    spec = events.TopologySpec("mb", definition, ())
    claimed = claim(entry, spec, events.StartsResolved({}), Author("n", 1, "me"))
    assert begun(migrating(), claimed) == (TaskSet(4, 2 - definition),)
    assert bool(claimed.pending) is (definition == 1)


def test_few_rows_are_migrated_at_once() -> None:
    assert begun(migrating(), ENTRY) == ()


@pytest.mark.parametrize(("tables", "pieces"), [(1, 32), (200, 4), (600, 2), (5_000, 1)])
def test_entries_have_room_for_what_came_of_pieces_when_there_are_many_tables(tables: int, pieces: int) -> None:
    rows = {f"12345678{number}/0": 100 * PIECE_ROWS for number in range(tables)}
    held = Level("run", 1, 4, (Part("old", TaskSet(1, 0), rows),), is_base=True)
    maintenance = Maintenance(lambda snapshot, newest: None, generations=dict.fromkeys(rows, 1), tasks=1 << 14)
    pending = maintenance._migration(replace(ENTRY, snapshot=Snapshot((held,))))
    assert pending.pieces == pieces
    done = tuple(
        Part(f"runs/{1:020d}-{0:06d}-{0:04d}-0123456789abcdef.zip", TaskSet(pieces, n), rows, 1 << 40, rows, "c" * 32,
             dict.fromkeys(rows, 1))
        for n in range(pieces)
    )  # fmt: skip
    named = replace(ENTRY, pending=(replace(pending, done=pieces - 1, parts=done[1:]),))
    assert len(to_bytes(named)) <= ENTRY_BYTES_MAX
