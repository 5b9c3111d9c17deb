"""When a leader publishes what its microbatches appended to depots, and what waits for it: the machine alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import CHANGE, TICK, Driver, leading

from tidemill.definition import definition as definitions
from tidemill.engine.work import DeltaPart
from tidemill.journal.entries import SEGMENTS_MAX, AppendIdentity, Entry, StagedAppend
from tidemill.journal.snapshot import Part, TaskSet
from tidemill.language.dataflow import (
    DepotDeclaration,
    Location,
    ModuleDeclaration,
    SourceDeclaration,
    StartFrom,
    TopologyDeclaration,
)
from tidemill.language.options import ModuleOptions
from tidemill.leader import events, publication, transitions
from tidemill.leader.events import StartsResolved, TopologySpec
from tidemill.leader.report import RunnerState
from tidemill.leader.transitions import Author
from tidemill.values.errors import InvariantViolation
from tidemill.values.ids import Ids

AT = Location()
DEPOTS = {"*out": "out-1", "*more": "more-1"}


def staged(depot: str = "*out", size: int = 10) -> DeltaPart:
    return DeltaPart(Part("", TaskSet(1, 0), {depot: 3}, size, checksum="c"), b"x")


def with_appends(driver: Driver, *parts: DeltaPart) -> events.PublishAppends:
    """A microbatch with appends; what is published then."""
    driver.grow(1)
    driver.done(CHANGE, appends=parts or (staged(),))
    return driver.one(events.PublishAppends)


def settle(driver: Driver, start: events.PublishAppends, text: str = "") -> None:
    identities = frozenset() if text else frozenset(each.identity for each in start.appends)
    driver.say(events.AppendsPublished(start.token, identities, text))


def listed(driver: Driver) -> list[AppendIdentity]:
    return [each.identity for each in driver.written[-1].appends]


def test_appends_are_published_after_the_commit_that_names_them_when_an_attempt_has_some() -> None:
    driver = leading(depots=DEPOTS)

    start = with_appends(driver, staged("*out"), staged("*more"), staged("*out"))

    assert driver.written[-1].kind == "commit"
    assert [(each.depot, len(each.parts)) for each in start.appends] == [("out-1", 2), ("more-1", 1)]
    assert [each.sequence for each in start.appends] == [SEGMENTS_MAX, SEGMENTS_MAX]
    assert start.appends == driver.written[-1].appends
    names = [part.name.rpartition("#")[2] for each in start.appends for part in each.parts]
    assert sorted(names) == ["append-0.arrow", "append-1.arrow", "append-2.arrow"]


def test_an_append_is_cut_when_its_parts_are_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "SEGMENT_BYTES_MAX", 25)

    start = with_appends(leading(depots=DEPOTS), *[staged()] * 5)

    assert [(each.sequence - SEGMENTS_MAX, len(each.parts)) for each in start.appends] == [(0, 2), (1, 2), (2, 1)]


def test_nothing_is_written_for_it_when_appends_are_published() -> None:
    driver = leading(depots=DEPOTS)
    start = with_appends(driver)
    before = len(driver.written)

    settle(driver, start)

    assert len(driver.written) == before
    assert listed(driver) == [("out-1", SEGMENTS_MAX)]


def test_the_next_entry_leaves_them_out_when_appends_are_published() -> None:
    driver = leading(depots=DEPOTS)
    settle(driver, with_appends(driver))

    driver.grow(1)

    assert (driver.written[-1].kind, listed(driver)) == ("begin", [])
    assert driver.machine.report.unpublished == 0


def test_a_note_leaves_out_what_a_sink_has_when_nothing_else_is_to_be_done() -> None:
    driver = leading(depots=DEPOTS, sinks=["more-1"])

    settle(driver, with_appends(driver, staged("*out"), staged("*more")))

    assert (driver.written[-1].kind, listed(driver)) == ("note", [])
    before = len(driver.written)
    driver.say(events.TimePassed(has_news=True))
    assert len(driver.written) == before


def test_no_note_is_written_when_a_sink_has_nothing_new() -> None:
    driver = leading(depots=DEPOTS, sinks=["more-1"])
    start = with_appends(driver, staged("*out"), staged("*more"))
    before = len(driver.written)

    driver.say(events.AppendsPublished(start.token, frozenset({("out-1", SEGMENTS_MAX)}), "to more-1: it is away"))

    assert len(driver.written) == before
    assert driver.machine.report.unpublished == 1


def test_a_leader_notes_what_a_sink_has_when_it_leaves() -> None:
    driver = leading(depots=DEPOTS, sinks=["out-1"])
    start = with_appends(driver)

    driver.say(events.StopRequested(is_gentle=True))
    settle(driver, start)

    assert (driver.written[-1].kind, listed(driver)) == ("note", [])
    assert driver.machine.role == "stopped"


def test_what_a_sink_has_is_noted_when_the_topology_is_paused() -> None:
    driver = leading(depots=DEPOTS, sinks=["out-1"])
    start = with_appends(driver)
    driver.options = ModuleOptions(paused={"mb": 1})
    driver.say(events.TimePassed(has_news=True))
    assert [entry.kind for entry in driver.written][-2:] == ["commit", "note"]
    assert listed(driver) == [("out-1", SEGMENTS_MAX)]

    settle(driver, start)

    assert (driver.written[-1].kind, listed(driver)) == ("note", [])


def test_one_publication_is_under_way_when_several_microbatches_append() -> None:
    driver = leading(depots=DEPOTS)
    first = with_appends(driver)
    driver.grow(1)
    driver.done(CHANGE, appends=(staged(),))

    assert not any(isinstance(each, events.PublishAppends) for each in driver.seen)
    assert driver.machine.report.unpublished == 2
    settle(driver, first)
    assert [each.microbatch_id for each in driver.one(events.PublishAppends).appends] == [2]


def test_it_is_tried_again_after_a_while_when_a_publication_fails() -> None:
    driver = leading(depots=DEPOTS)
    start = with_appends(driver)

    settle(driver, start, "to out-1: the store is away")

    assert driver.machine.report.publishing_trouble == "to out-1: the store is away"
    wait = driver.seen[-1]
    assert isinstance(wait, events.Wait)
    assert wait.until_ms == driver.at + publication.BACK_OFF_MS[0]
    driver.at = wait.until_ms
    driver.say(events.TimePassed())
    again = driver.one(events.PublishAppends)
    assert again.appends == start.appends
    settle(driver, again)
    assert driver.machine.report.publishing_trouble == ""


def test_nothing_new_is_begun_when_too_much_is_not_published() -> None:
    driver = leading(depots=DEPOTS)
    start = with_appends(driver)
    for _ in range(publication.MICROBATCHES_MAX - 1):
        driver.grow(1)
        driver.done(CHANGE, appends=(staged(),))
    written = len(driver.written)

    driver.grow(1)
    assert len(driver.written) == written
    assert driver.machine.running is None

    settle(driver, start)
    assert driver.written[-1].kind == "begin"


def test_nothing_new_is_begun_when_the_parts_that_are_not_published_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "PARTS_MAX", 3)
    driver = leading(depots=DEPOTS)
    with_appends(driver, *[staged()] * 3)

    driver.grow(1)

    assert driver.written[-1].kind == "commit"


def test_no_attempt_begins_with_the_commit_when_it_would_be_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "MICROBATCHES_MAX", 1)
    driver = leading(depots=DEPOTS)
    driver.grow(1)
    driver.end += 1

    driver.done(CHANGE, appends=(staged(),))

    assert (driver.written[-1].kind, driver.written[-1].attempt) == ("commit", None)


def test_appends_are_committed_when_an_attempt_read_nothing() -> None:
    driver = leading(TICK, depots=DEPOTS)
    driver.at += 2_000
    driver.say(events.TimePassed(has_news=True))

    driver.done(exploded=(), appends=(staged(),))

    assert driver.written[-1].kind == "commit"
    assert len(driver.one(events.PublishAppends).appends) == 1


def test_an_attempt_fails_when_it_appends_more_than_an_entry_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "MICROBATCH_PARTS_MAX", 2)
    driver = leading(depots=DEPOTS)
    driver.grow(1)

    driver.done(CHANGE, appends=(staged(),) * 3)

    failure = driver.machine.failure
    assert failure is not None
    assert (failure.code, failure.microbatch_id) == ("TooManyAppends", 1)
    assert "it appends 30 bytes to depots, in 3 parts, 2 are the most" in failure.message
    assert all(entry.kind != "commit" for entry in driver.written)


def test_a_paused_leader_publishes_when_something_is_left() -> None:
    driver = leading(depots=DEPOTS)
    start = with_appends(driver)
    settle(driver, start, "the store is away")
    driver.options = replace(driver.options, paused={"mb": 1}, number=1)
    driver.say(events.TimePassed(has_news=True))
    assert driver.machine.phase == "paused"

    driver.at += 1_000
    driver.say(events.TimePassed())

    assert driver.one(events.PublishAppends).appends == start.appends


def test_a_leader_publishes_before_it_goes_when_it_is_asked_gently() -> None:
    driver = leading(depots=DEPOTS)
    start = with_appends(driver)

    driver.say(events.StopRequested(is_gentle=True))
    assert isinstance(driver.seen[-1], events.Wait)

    settle(driver, start)
    assert isinstance(driver.seen[-1], events.Stop)


def test_a_new_leader_publishes_first_when_the_one_before_died() -> None:
    driver = leading(depots=DEPOTS)
    with_appends(driver)
    successor = Driver(*driver.machine.spec.sources, depots=DEPOTS)
    successor.written, successor.end = [replace(driver.written[-1], written_ms=0)], driver.end

    successor.say(events.TimePassed())

    assert successor.written[-1].kind == "claim"
    assert [each.identity for each in successor.one(events.PublishAppends).appends] == [("out-1", SEGMENTS_MAX)]


def entry_with(*depots: str) -> Entry:
    part = Part("log/x.zip#append-0.arrow", TaskSet(1, 0), {"*out": 3}, 10, checksum="c")
    return Entry(
        "commit", "n", 1, 1, 5, appends=tuple(StagedAppend(1, depot, SEGMENTS_MAX, (part,)) for depot in depots)
    )


@pytest.mark.parametrize(
    ("depots", "retired", "kept"),
    [
        ({"*out": "out-1"}, frozenset(), ["out-1"]),
        ({}, frozenset({"out-1"}), ["out-1"]),
        ({"*out": "out-2"}, frozenset(), []),
    ],
    ids=["living", "a rollback may bring it back", "gone for good, and another of its name"],
)  # fmt: skip
def test_a_claim_keeps_the_appends_that_a_depot_may_still_get(
    depots: dict[str, str], retired: frozenset[str], kept: list[str]
) -> None:
    spec = TopologySpec("mb", 2, (), depots=depots, retired_depots=retired)

    claimed = transitions.claim(entry_with("out-1"), spec, StartsResolved({}), Author("m", 9, "me"))

    assert [each.depot for each in claimed.appends] == kept


def test_nothing_waits_for_it_when_an_append_is_for_a_depot_that_an_update_deleted() -> None:
    waiting = publication.Publication(frozenset({"more-1"}))

    assert waiting.work(replace(entry_with("out-1")), 1, 0.0) == []
    assert not waiting.is_crowded(entry_with(*["out-1"] * 100))


def test_it_is_an_invariant_that_only_what_is_committed_is_published() -> None:
    with pytest.raises(InvariantViolation, match="S8"):
        publication.Publication(frozenset({"out-1"})).work(entry_with("out-1"), 1, 0.0)


def test_a_newer_entry_counts_with_all_its_appends_when_the_leader_did_not_say_yet_that_it_wrote_it() -> None:
    """Who waits for a count of records would else see the commit, and what was not published before it."""
    driver = leading(depots=DEPOTS)
    state = RunnerState("leader", len(driver.written), driver.machine.entry, driver.machine.report)
    with_appends(driver)
    source = SourceDeclaration("*d", "*d", None, StartFrom(), (), AT)
    declared = ModuleDeclaration(
        "M", (DepotDeclaration("*d", "random", AT),), (TopologyDeclaration("mb", (), (source,), AT),)
    )
    definition = definitions.launch(declared, 1, 1, Ids(1))

    newer = state.status(definition, "mb", (len(driver.written), driver.written[-1]))

    assert (newer.processed, newer.unpublished) == (1, 1)
