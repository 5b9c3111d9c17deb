"""A log of values: which entry is the newest, and what may be put behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tidemill.store.entry_log import EntryLog
from tidemill.store.json_codec import JsonCodec
from tidemill.store.log import Log, Lost
from tidemill.store.objects import NotFound
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import CorruptState, InvariantViolation


@dataclass(frozen=True)
class Note:
    nonce: str
    text: str


JSON: JsonCodec[Note] = JsonCodec(Note)


def log_of(store: Any) -> EntryLog[Note]:
    return EntryLog(Log(store, "notes", ".json", JSON.read_nonce, patience=(0.0,)), JSON.decode)


def put(log: EntryLog[Note], number: int, note: Note) -> None:
    log.put(number, note, JSON.encode(note, log.log.key(number)))


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore("notes")
    for number in range(1, 5):
        put(log_of(store), number, Note(str(number), f"note {number}"))
    return store


def test_the_head_is_the_newest_entry_and_none_before_any(store: MemoryStore) -> None:
    log = log_of(store)
    assert (log.known, log.head(), log.known) == (0, (4, Note("4", "note 4")), 4)
    assert log_of(MemoryStore("empty")).head() is None
    put(log, 5, Note("5", "mine"))
    assert log.known == 5 and log.head() == (5, Note("5", "mine")) == log_of(store).head()


def test_the_tail_ends_where_the_log_is_trimmed(store: MemoryStore) -> None:
    assert [number for number, _ in log_of(store).tail(2)] == [3, 4]
    log_of(store).log.trim(3)
    assert [number for number, _ in log_of(store).tail(9)] == [3, 4]


def test_an_entry_that_was_trimmed_is_not_read_when_a_stalled_writer_put_it_back(store: MemoryStore) -> None:
    log = log_of(store)
    kept = store.get(log.log.key(1))
    log.log.trim(3)
    store.create(log.log.key(1), kept)
    assert log.read(1) == Note("1", "note 1")
    with pytest.raises(NotFound, match="was trimmed"):
        log.read_kept(1)


def test_the_head_stays_when_another_writer_was_first(store: MemoryStore) -> None:
    log = log_of(store)
    log.head()
    put(log_of(store), 5, Note("theirs", "5"))
    with pytest.raises(Lost):
        put(log, 5, Note("mine", "5"))
    assert log.known == 4
    assert log.head() == (5, Note("theirs", "5"))


def test_a_writer_is_fenced_when_a_newer_version_wrote_the_entry(store: MemoryStore) -> None:
    key = log_of(store).log.key(5)
    store.create(key, f'{{"key": "{key}", "format": 2, "nonce": "newer", "other": []}}'.encode())
    with pytest.raises(Lost):
        put(log_of(store), 5, Note("mine", "5"))


def test_nothing_is_written_when_it_could_not_be_read_again(store: MemoryStore) -> None:
    log = log_of(store)
    with pytest.raises(InvariantViolation, match="could not be read again"):
        put(log, 5, Note("5", 5))  # type: ignore[arg-type] # a value of another type is what this is about
    assert log.newest_number() == 4


def test_bytes_that_make_no_sense_are_read_once_more(store: MemoryStore) -> None:
    answers = [b"garbage"]
    plan = FaultPlan(spoil=lambda verb, key, answer: answers.pop() if verb == "get" and answers else answer)
    assert log_of(FaultyObjectStore(store, plan)).read(2) == Note("2", "note 2")
    answers = [b"garbage"] * 2
    with pytest.raises(CorruptState, match=r"notes/0+2\.json: this object cannot be read"):
        log_of(FaultyObjectStore(store, plan)).read(2)


def test_the_head_does_not_go_back_when_another_thread_put_an_entry_meanwhile(store: MemoryStore) -> None:
    """A collection looks for the head while the runner goes on: what it found last must not undo what was put since."""
    log = log_of(store)
    log.head()
    put(log_of(store), 5, Note("5", "found"))
    look = log.log.read_newest

    def overtaken(known: int, read: Callable[[int], Note]) -> tuple[int, Note] | None:
        found = look(known, read)
        put(log, 6, Note("6", "put meanwhile"))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "read_newest", lambda _, known, read: overtaken(known, read))
        assert log.head() == (6, Note("6", "put meanwhile"))
    assert log.known == 6
