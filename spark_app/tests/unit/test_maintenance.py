"""After a compaction failed, the code of its error decides what a leader does; the words are for people."""

from __future__ import annotations

import pytest

from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.leader import events
from tidemill.leader.attempt_failures import compaction_failed
from tidemill.leader.maintenance import BACK_OFF_MS, Maintenance
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
