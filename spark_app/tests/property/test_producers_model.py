"""Idempotent appends against a model: what is acknowledged is stored, once, whoever shares a name or a number."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.depot.commit import SegmentBatch
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.depot.rows import of_pairs
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.errors import KeyReused, SequenceUnknown

NAMES = ("topology/t", "p", "key/k")
SENDS = st.tuples(
    st.sampled_from(NAMES), st.integers(0, 6), st.sampled_from(["a", "b"]), st.integers(0, 1), st.booleans()
)
"""Producer, number, content, which process sends it, and whether somebody rolls the log before."""


@dataclass
class Model:
    """What was stored: contents by producer and number, in the order in which they went in."""

    stored: dict[tuple[str, int], str] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def answer(self, name: str, number: int, content: str) -> str:
        if number > self.last.get(name, -1):
            self.stored[name, number], self.last[name] = content, number
            return "stored"
        known = self.stored.get((name, number))
        return "SequenceUnknown" if known is None else "stored" if known == content else "KeyReused"


def record(name: str, number: int, content: str) -> str:
    return f"{name} {number} {content}"


@settings(max_examples=150, deadline=None)
@given(st.lists(SENDS, max_size=25))
def test_appends_are_stored_once_or_refused_when_two_processes_share_names(
    sends: list[tuple[str, int, str, int, bool]],
) -> None:
    store, model = MemoryStore(), Model()
    processes = [DepotLog(store, "d", 1, lambda: 0, ()) for _ in range(2)]
    for name, number, content, process, is_rolled in sends:
        if is_rolled:
            roll(DepotLog(store, "d", 1, lambda: 0, ()), RollingLimits(segments_min=1))
        told = send(processes[process], name, number, content)
        assert told == model.answer(name, number, content)
    assert records(store) == [record(*key, content) for key, content in model.stored.items()]


def send(depot: DepotLog, name: str, number: int, content: str) -> str:
    try:
        ((_, start, end),) = depot.append([(0, [record(name, number, content)])], (name, number))
    except (KeyReused, SequenceUnknown) as error:
        return error.code
    assert columns.to_values(depot.read_columns(0, start, end)) == [record(name, number, content)]
    return "stored"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(SENDS, min_size=1, max_size=6), max_size=6))
def test_each_of_a_group_is_answered_for_itself(groups: list[list[tuple[str, int, str, int, bool]]]) -> None:
    store, model = MemoryStore(), Model()
    depot = DepotLog(store, "d", 1, lambda: 0, ())
    for group in groups:
        batches = [SegmentBatch(of_pairs([(0, [record(n, s, c)])]), (n, s)) for n, s, c, _, _ in group]
        told = [at.code if isinstance(at, Exception) else "stored" for at in depot.append_group(batches)]
        assert told == [model.answer(name, number, content) for name, number, content, _, _ in group]
    assert records(store) == [record(*key, content) for key, content in model.stored.items()]


def records(store: MemoryStore) -> list[str]:
    depot = DepotLog(store, "d", 1, lambda: 0, ())
    depot.follow()
    return columns.to_values(depot.read_columns(0, 0, depot.ends()[0])) if depot.ends()[0] else []
