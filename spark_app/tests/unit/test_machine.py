"""The runner machine alone: what it asks for, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import CHANGE, DATA, TICK, Driver, leading

from tidemill.engine.work import AttemptOutcome, CurrentStep
from tidemill.language.options import ModuleOptions
from tidemill.leader import events
from tidemill.leader.events import DepotEnds
from tidemill.leader.machine import Machine
from tidemill.leader.maintenance import Maintenance
from tidemill.leader.report import Now
from tidemill.values.ids import Ids


def kinds(driver: Driver) -> list[str]:
    return [entry.kind for entry in driver.written]


def test_first_microbatch_costs_two_entries_and_the_next_one_when_more_waits() -> None:
    driver = leading()
    driver.grow(3)
    driver.end += 2
    driver.done(CHANGE)
    driver.done(CHANGE)
    assert kinds(driver) == ["claim", "begin", "commit", "commit"]
    assert (driver.written[-1].processed, driver.written[-1].last_id) == (5, 2)


def test_nothing_is_written_when_an_empty_attempt_changes_nothing() -> None:
    driver = leading()
    driver.at += 10_000
    driver.say(events.TimePassed())
    assert driver.one(events.StartAttempt).attempt.microbatch_id == 1
    driver.done()
    assert kinds(driver) == ["claim"]
    driver.at += 10_000
    driver.say(events.TimePassed())
    assert driver.one(events.StartAttempt).attempt.microbatch_id == 1


def test_one_entry_is_written_when_an_empty_attempt_changes_state() -> None:
    driver = leading()
    driver.at += 10_000
    driver.say(events.TimePassed())
    driver.done(CHANGE)
    assert kinds(driver) == ["claim", "commit"]
    assert (driver.written[-1].last_id, driver.written[-1].processed) == (1, 0)


def test_retry_reads_the_same_records_when_more_came_meanwhile() -> None:
    driver = leading()
    driver.grow(3)
    first = driver.one(events.StartAttempt)
    driver.end += 10
    driver.say(events.AttemptFailed(first.token, "UserCodeFailed", "no"))
    assert driver.written[-1].failure is not None
    driver.at += 100
    driver.say(events.TimePassed())
    second = driver.one(events.StartAttempt)
    assert second.attempt == replace(first.attempt, version=2)


def test_waits_grow_to_a_bound_when_an_attempt_fails_again_and_again() -> None:
    driver = leading()
    driver.grow(1)
    waits = []
    for _ in range(14):
        token = driver.one(events.StartAttempt).token
        driver.say(events.AttemptFailed(token, "UserCodeFailed", "no"))
        until = driver.one(events.Wait).until_ms
        waits.append(until - driver.at)
        driver.at = until
        driver.say(events.TimePassed())
    assert waits[:4] == [100, 200, 400, 800]
    assert waits[-1] == 30_000


def test_attempt_is_cancelled_and_retried_when_its_phase_takes_too_long() -> None:
    driver = leading()
    driver.grow(1)
    token = driver.one(events.StartAttempt).token
    driver.at += 300_000
    driver.say(events.TimePassed())
    assert driver.one(events.CancelAttempt).token == token
    failure = driver.written[-1].failure
    assert failure is not None
    assert failure.code == "PhaseTimeout"
    driver.say(events.AttemptDone(token, AttemptOutcome((), frozenset())))
    assert driver.written[-1].kind == "begin"


def test_begun_microbatch_is_finished_and_no_other_begun_when_a_pause_is_asked_for() -> None:
    driver = leading()
    driver.grow(1)
    driver.end += 5
    driver.options = ModuleOptions(7, {}, {"mb": 7})
    driver.done(CHANGE)
    assert kinds(driver) == ["claim", "begin", "commit", "note"]
    assert driver.written[-1].paused_seen == 7
    assert driver.written[-1].attempt is None
    driver.options = ModuleOptions(8)
    driver.say(events.TimePassed(has_news=True))
    assert driver.one(events.StartAttempt).attempt.records == 5


def test_a_pause_holds_at_once_when_the_microbatch_under_way_fails_each_time() -> None:
    driver = leading()
    driver.grow(2)
    fail(driver)
    driver.options = ModuleOptions(7, {}, {"mb": 7})
    driver.say(events.TimePassed(has_news=True))
    paused = driver.written[-1]
    assert (paused.kind, paused.paused_seen) == ("note", 7)
    assert paused.attempt is not None and paused.failure is not None
    driver.at += 3_600_000
    driver.say(events.TimePassed())
    assert driver.machine.running is None and driver.machine.report.phase == "paused"
    driver.options = ModuleOptions(8)
    driver.say(events.TimePassed(has_news=True))
    assert driver.one(events.StartAttempt).attempt.records == 2


def test_a_pause_holds_at_once_when_a_new_leader_finds_a_microbatch_that_fails() -> None:
    before = leading()
    before.grow(2)
    fail(before)
    driver = Driver(DATA)
    driver.written, driver.end, driver.options = before.written, 2, ModuleOptions(7, {}, {"mb": 7})
    driver.machine = Machine(driver.machine.spec, Ids(2), "other", Maintenance(lambda _, __: None), claim_wait_ms=0)
    driver.say(events.TimePassed())
    assert driver.written[-1].paused_seen == 7
    assert driver.machine.running is None


def test_a_pause_holds_when_a_new_leader_reads_options_that_are_older_than_it() -> None:
    before = leading()
    before.options = ModuleOptions(7, {}, {"mb": 7})
    before.say(events.TimePassed(has_news=True))
    driver = Driver(DATA)
    driver.written, driver.end, driver.options = before.written, 5, ModuleOptions(6)
    driver.machine = Machine(driver.machine.spec, Ids(2), "other", Maintenance(lambda _, __: None), claim_wait_ms=0)
    for _ in range(20):
        driver.say(events.TimePassed())
        driver.at = driver.one(events.Wait).until_ms
        assert driver.machine.running is None
        assert "entry 7 of the options" in driver.machine.report.store_trouble
    assert driver.at > 20_000, "it waits longer and longer"
    driver.options = before.options
    driver.say(events.TimePassed())
    assert (driver.machine.report.phase, driver.machine.report.store_trouble) == ("paused", "")
    driver.options = ModuleOptions(8)
    driver.say(events.TimePassed(has_news=True))
    assert driver.one(events.StartAttempt).attempt.records == 5


def fail(driver: Driver) -> None:
    running = driver.machine.running
    assert running is not None
    driver.say(events.AttemptFailed(running.token, "UserCodeFailed", "no"))


def test_source_stays_when_the_attempt_did_not_explode_it() -> None:
    driver = leading()
    driver.grow(4)
    driver.done(CHANGE, exploded=())
    assert driver.written[-1].processed == 0
    assert driver.written[-1].progress["*d"].offsets == (0,)
    assert driver.machine.running is None
    driver.grow(1)
    assert driver.one(events.StartAttempt).attempt.records == 5


def test_tick_fires_once_and_is_not_counted_when_many_periods_passed() -> None:
    driver = leading(DATA, TICK)
    driver.at += 5_500
    driver.say(events.TimePassed())
    assert driver.one(events.StartAttempt).attempt.ticks == {"*t": 1_005_500}
    driver.done(CHANGE)
    assert driver.written[-1].processed == 0
    assert driver.machine.running is None
    assert driver.one(events.Wait).until_ms == driver.at + 1_000


def test_option_holds_from_the_next_range_when_it_is_edited() -> None:
    driver = leading()
    driver.options = ModuleOptions(1, {("depot", "*d"): {"depot.microbatch.max.records": 2}})
    driver.grow(5)
    assert driver.one(events.StartAttempt).attempt.records == 2


def test_leader_stops_fenced_when_its_entry_collides() -> None:
    driver = leading()
    driver.grow(1)
    start = driver.one(events.StartAttempt)
    now = Now(1_000_000, driver.at)
    driver.machine.handle(events.AttemptDone(start.token, AttemptOutcome((), frozenset(["*d"]))), now)
    driver.machine.handle(events.SourcesProbed({"*d": DepotEnds((0,), (1,))}, ModuleOptions(), 1), now)
    made = driver.machine.handle(events.EntryLost(3), now)
    assert made == [events.Stop("fenced", "entry 3 is another leader's")]
    assert driver.machine.handle(events.TimePassed(), now) == []


def test_same_entry_is_written_again_when_the_store_gave_no_answer() -> None:
    driver = leading()
    driver.end = 1
    now = Now(1_000_000, driver.at)
    driver.machine.handle(events.TimePassed(has_news=True), now)
    asked = driver.machine.handle(events.SourcesProbed({"*d": DepotEnds((0,), (1,))}, ModuleOptions(), 1), now)
    waiting = driver.machine.handle(events.StoreFailed("no answer"), now)
    assert isinstance(waiting[-1], events.Wait)
    again = driver.machine.handle(events.TimePassed(), Now(1_000_000, waiting[-1].until_ms))
    assert again == asked[-1:]


def test_old_definition_never_claims_when_a_newer_one_exists() -> None:
    driver = Driver(DATA)
    driver.definition = 2
    driver.say(events.TimePassed())
    assert driver.one(events.Stop).reason == "superseded"
    assert driver.written == []


def test_one_note_tells_the_failure_when_empty_attempts_fail_and_one_that_they_go_on() -> None:
    driver = leading()
    driver.at += 10_000
    driver.say(events.TimePassed())
    for _ in range(3):
        token = driver.one(events.StartAttempt).token
        driver.say(events.AttemptFailed(token, "UserCodeFailed", "no"))
        driver.at += 1_000
        driver.say(events.TimePassed())
    assert kinds(driver) == ["claim", "note"]
    assert driver.written[-1].failure is not None
    driver.done()
    assert kinds(driver) == ["claim", "note", "note"]
    assert driver.written[-1].failure is None


def test_attempt_is_committed_and_no_other_begun_when_asked_to_leave_gently() -> None:
    driver = leading()
    driver.grow(3)
    token = driver.one(events.StartAttempt).token
    driver.end += 5
    driver.say(events.StopRequested(is_gentle=True))
    assert driver.machine.role == "leader"
    driver.say(events.AttemptDone(token, AttemptOutcome((CHANGE,), frozenset({"*d"}))))
    assert kinds(driver) == ["claim", "begin", "commit"]
    assert driver.written[-1].attempt is None
    assert driver.one(events.Stop).reason == "stopped"


def test_runner_stops_at_once_when_asked_to_leave_gently_with_nothing_under_way() -> None:
    driver = leading()
    driver.say(events.StopRequested(is_gentle=True))
    assert driver.one(events.Stop).reason == "stopped"
    assert kinds(driver) == ["claim"]


def test_runner_leaves_a_failed_attempt_to_the_next_leader_when_asked_to_leave_gently() -> None:
    driver = leading()
    driver.grow(1)
    token = driver.one(events.StartAttempt).token
    driver.say(events.StopRequested(is_gentle=True))
    driver.say(events.AttemptFailed(token, "UserCodeFailed", "no"))
    assert driver.one(events.Stop).reason == "stopped"
    assert kinds(driver) == ["claim", "begin"]


def test_attempt_is_cancelled_when_a_gentle_stop_is_followed_by_a_plain_one() -> None:
    driver = leading()
    driver.grow(1)
    token = driver.one(events.StartAttempt).token
    driver.say(events.StopRequested(is_gentle=True))
    driver.say(events.StopRequested())
    assert driver.one(events.CancelAttempt).token == token


def test_the_step_that_hangs_is_told_when_an_attempt_is_late() -> None:
    driver = leading()
    driver.grow(1)
    driver.at += 300_000
    late = Now(1_300_000, driver.at, CurrentStep("each(f) at m.py:3", "f, line 9"))
    made = driver.machine.handle(events.TimePassed(), late)
    assert isinstance(made[0], events.CancelAttempt)
    failure = driver.machine.report.failure
    assert failure is not None
    assert (failure.phase, failure.step, failure.trace) == ("process", "each(f) at m.py:3", "f, line 9")
    assert "it was at: each(f) at m.py:3; if it needs longer, set topology.microbatch.phase" in failure.message


@pytest.mark.parametrize("written", ["begin", "commit"])
def test_microbatch_is_begun_again_when_the_prime_phase_took_too_long(written: str) -> None:
    driver = leading()
    driver.slow = written
    driver.grow(3)
    if written == "commit":
        driver.end += 2
        driver.done(CHANGE)
    failure = driver.written[-1].failure
    assert failure is not None
    assert (failure.phase, failure.code) == ("prime", "PhaseTimeout")
    assert "the prime phase took longer than 300 s; it was at: the store" in failure.message
    driver.at = driver.one(events.Wait).until_ms
    driver.say(events.TimePassed())
    attempt = driver.one(events.StartAttempt).attempt
    assert (attempt.version, failure.version) == (2, 1)
    assert attempt.ranges == driver.written[-1].attempt.ranges  # type: ignore[union-attr]
