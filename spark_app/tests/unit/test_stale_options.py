"""Reads of small objects that come too late, as from a cache: nobody may take what they say for the newest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill.definition.definition import StoredDefinition
from tidemill.depot.log import DepotLog
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Entry
from tidemill.journal.options_log import OptionsLog
from tidemill.language.dataflow import StartFrom
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import StoreUnavailable

RECORDS = "depot.microbatch.max.records"


class Stale:
    """The first answers of a verb are too old: what was created last is not there yet."""

    def __init__(self, verb: str, times: int) -> None:
        self.verb, self.times = verb, times

    def __call__(self, verb: str, key: str, answer: Any) -> Any:
        if verb != self.verb or not self.times or (verb == "list" and not answer):
            return answer
        self.times -= 1
        if verb == "get":
            raise NotFound(f"No object {key}.", key=key)
        return answer[:-1] if verb == "list" else False


def options(store: MemoryStore, spoil: Callable[[str, str, Any], Any]) -> OptionsLog:
    return OptionsLog(FaultyObjectStore(store, FaultPlan(spoil=spoil)), "M")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("stale-options")


def test_options_are_found_when_their_newest_entry_is_not_there_at_first(store: MemoryStore) -> None:
    OptionsLog(store, "M").set("module", "", RECORDS, 5)
    assert options(store, Stale("get", 9)).read().values == {("module", ""): {RECORDS: 5}}


def newest_of_depot(store: ObjectStore) -> object:
    return DepotLog(store, "M/depots/d", 1).newest().last


def newest_of_topology(store: ObjectStore) -> object:
    return CommitLog(store, "M/topologies/t").head()


def newest_definition(store: ObjectStore) -> object:
    return DefinitionLog(store, "M").newest()


@pytest.mark.parametrize("newest", [newest_of_depot, newest_of_topology, newest_definition])
def test_newest_entry_is_looked_for_again_when_it_is_not_there_at_first(
    store: MemoryStore, newest: Callable[[ObjectStore], object]
) -> None:
    DefinitionLog(store, "M").append(StoredDefinition("M", 1, 1, {}, {}))
    DepotLog(store, "M/depots/d", 1).append([(0, [1])])
    CommitLog(store, "M/topologies/t").append(1, Entry("claim", "n", 1, 1, 0), {})
    late = FaultyObjectStore(store, FaultPlan(spoil=Stale("get", 9)))
    assert newest(late) == newest(store) is not None
    with pytest.raises(StoreUnavailable, match=r"was not found 10 times in a row, .* try again"):
        newest(FaultyObjectStore(store, FaultPlan(spoil=Stale("get", 1_000_000))))


def test_an_error_says_which_entry_when_the_newest_options_are_never_there(store: MemoryStore) -> None:
    OptionsLog(store, "M").set("module", "", RECORDS, 5)
    with pytest.raises(StoreUnavailable, match=r"M/options/0+1\.json was not found 10 times"):
        options(store, Stale("get", 1_000_000)).read()


@pytest.mark.parametrize("verb", ["exists", "list"])
def test_a_pause_is_a_new_one_when_the_first_look_does_not_see_that_the_last_one_ended(
    store: MemoryStore, verb: str
) -> None:
    first = OptionsLog(store, "M")
    before = first.pause("mb")
    late = options(store, Stale(verb, 1))
    if verb == "exists":
        late = options(store, spoil := Stale(verb, 0))
        late.read()
        spoil.times = 1
    first.resume("mb")
    assert late.pause("mb") == before + 2
    assert first.read().paused == {"mb": before + 2}


def test_a_topology_goes_on_when_the_first_look_does_not_see_that_it_was_paused(store: MemoryStore) -> None:
    first = OptionsLog(store, "M")
    first.pause("mb")
    options(store, Stale("list", 1)).resume("mb")
    assert first.read().paused == {}


def test_options_never_go_back_when_a_listing_is_too_old(store: MemoryStore) -> None:
    first = OptionsLog(store, "M")
    first.set("module", "", RECORDS, 1)
    known = options(store, lambda verb, key, answer: [] if verb == "list" and late else answer)
    late = False
    assert known.read().number == 1
    for value in range(2, 20):
        first.set("module", "", RECORDS, value)
    late = True
    assert known.read().number == 1, "too many entries for probes, and none is listed"
    late = False
    assert known.read().number == 19


@pytest.mark.parametrize("kind", ["end", "beginning"])
def test_a_source_starts_at_the_real_end_when_the_first_listing_is_too_old(store: MemoryStore, kind: Any) -> None:
    depot = DepotLog(store, "M/depots/d", 1)
    for _ in range(3):
        depot.append([(0, [1, 2])])
    depot.record_starts([4])
    if kind == "end":
        depot.append([(0, [3])])
    late = DepotLog(FaultyObjectStore(store, FaultPlan(spoil=Stale("list", 1))), "M/depots/d", 1)
    assert late.resolve_start(StartFrom(kind), 0) == ((7,) if kind == "end" else (4,))
