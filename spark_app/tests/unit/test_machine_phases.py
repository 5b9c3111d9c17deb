"""The machine's phases, in the order that the table allows; and that it stops where what must hold does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from machines import CHANGE, Driver, leading

from tidemill.engine.work import AttemptOutcome
from tidemill.journal.entries import Attempt, Failure
from tidemill.language.options import ModuleOptions
from tidemill.leader import events
from tidemill.leader.machine import Machine
from tidemill.leader.phases import FOLLOWING, MachinePhase
from tidemill.leader.report import Now, Running
from tidemill.leader.transitions import Finished
from tidemill.values.errors import InvariantViolation
from tidemill.values.offsets import OffsetRanges

OTHER = Attempt(7, 1, {"*d": OffsetRanges((0,), (1,))}, {}, {})
FAILURE = Failure(1, 1, "process", "UserCodeFailed", "no", 5)


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> list[MachinePhase]:
    """The phases of all machines from here on, each change once."""
    seen: list[MachinePhase] = []
    note = Machine._note_phase

    def noted(self: Machine) -> None:
        note(self)
        if seen[-1:] != [self.phase]:
            seen.append(self.phase)

    monkeypatch.setattr(Machine, "_note_phase", noted)
    return seen


def fail(driver: Driver) -> None:
    running = driver.machine.running
    assert running is not None
    driver.say(events.AttemptFailed(running.token, "UserCodeFailed", "no"))


def wait(driver: Driver, millis: float) -> None:
    driver.at += millis
    driver.say(events.TimePassed(has_news=True))


def test_phases_follow_each_other_when_a_microbatch_is_committed(phases: list[MachinePhase]) -> None:
    driver = leading()
    driver.grow(1)
    driver.done(CHANGE)

    assert phases == ["standby", "claiming", "idle", "prime", "process", "commit", "idle"]


def test_a_commit_goes_straight_on_when_it_begins_the_next_microbatch(phases: list[MachinePhase]) -> None:
    driver = leading()
    driver.grow(1)
    driver.end += 1
    driver.done(CHANGE)

    assert phases[-4:] == ["process", "commit", "prime", "process"]


def test_an_attempt_backs_off_and_is_paused_when_it_fails(phases: list[MachinePhase]) -> None:
    driver = leading()
    driver.grow(1)
    fail(driver)
    assert (driver.machine.phase, driver.machine.report.failures_in_row) == ("back-off", 1)
    driver.options = ModuleOptions(1, paused={"mb": 1})
    wait(driver, 60_000)
    assert driver.machine.phase == "paused"
    driver.options = ModuleOptions(2)
    wait(driver, 60_000)
    driver.say(events.StopRequested())

    assert phases[4:] == ["process", "back-off", "prime", "back-off", "paused", "back-off", "process", "over"]


def test_every_phase_has_its_followers_when_the_table_is_read() -> None:
    named = {phase for following in FOLLOWING.values() for phase in following} | {"standby"}

    assert named == set(FOLLOWING)
    assert all("over" in following and phase not in following for phase, following in FOLLOWING.items() if following)
    assert [phase for phase, following in FOLLOWING.items() if not following] == ["over"]


# What must hold


def set_fields(**fields: Any) -> Callable[[Machine], None]:
    def change(machine: Machine) -> None:
        for name, value in fields.items():
            setattr(machine, name, value(machine) if callable(value) else value)

    return change


def running(attempt: Attempt) -> Running:
    return Running(9, attempt, True, 1e12, 0.0)


def finished(attempt: Attempt) -> tuple[Finished, bool]:
    return Finished(attempt, AttemptOutcome((), frozenset()), {}), True


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (set_fields(role="standby"), "a phase follows as the table says"),
        (set_fields(role="standby", _phase_before="standby"), "only a leader has an attempt"),
        (set_fields(_finished=lambda m: finished(m.running.attempt)), "one attempt at a time"),
        (set_fields(entry=lambda m: replace(m.entry, epoch=9)), "a leader's head is its own"),
        (set_fields(entry=lambda m: replace(m.entry, owner="another")), "a leader's head is its own"),
        (set_fields(_failures=2), "a failure counts"),
        (set_fields(failure=FAILURE), "a failure counts"),
        (set_fields(running=running(OTHER)), "starts from the state before its ID"),
        (set_fields(running=running(replace(OTHER, microbatch_id=1, version=2))), "what runs is what the log began"),
        (set_fields(entry=lambda m: replace(m.entry, attempt=None)), "what runs is what the log began"),
        (
            set_fields(_question=lambda m: events.WriteEntry(m.number + 2, m.entry), _ask_at=1e12),
            "an entry follows the head",
        ),
    ],
)
def test_the_machine_stops_when_what_must_hold_does_not(change: Callable[[Machine], None], text: str) -> None:
    driver = leading()
    driver.grow(1)
    machine = driver.machine
    machine.validate()
    change(machine)

    with pytest.raises(InvariantViolation, match=text):
        machine.handle(events.TimePassed(), Now(1_000_000, driver.at))


def test_nothing_new_is_begun_when_the_check_of_a_pause_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "_paused_step", lambda self, now: self._new_attempt(self.look, now))
    driver = leading()
    driver.options = ModuleOptions(1, paused={"mb": 1})

    with pytest.raises(InvariantViolation, match="nothing new is begun in a pause"):
        driver.grow(1)
