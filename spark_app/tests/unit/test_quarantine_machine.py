"""What the machine does with a record to blame, and how it is found: without a store, without a program."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import CHANGE, DATA, Driver, leading
from polars.exceptions import PanicException

from tidemill.engine.failures import user_error
from tidemill.engine.work import AttemptWork, SourceWork
from tidemill.journal.entries import QUARANTINE, Poison
from tidemill.journal.failures import Repetition
from tidemill.journal.settlements import Settlement, joined, spans
from tidemill.journal.snapshot import Part, Snapshot, TaskSet
from tidemill.language.dataflow import Location
from tidemill.language.options import ModuleOptions
from tidemill.leader import diagnosis, events, ranges
from tidemill.leader.attempt_failures import attempt_failed, is_of_record
from tidemill.leader.diagnosis import SourceRecord, TooManyProbes, find_poison
from tidemill.leader.quarantine_limits import HELD_MAX, MICROBATCH_MAX, ON_ERROR, SHARE_MAX
from tidemill.values.errors import StoreUnavailable, UserCodeError
from tidemill.values.offsets import OffsetRanges
from tidemill.values.threads import in_thread

DEPOTS = {"*d": "d-1", QUARANTINE: QUARANTINE}


def options(**more: Any) -> ModuleOptions:
    return ModuleOptions(1, {("module", ""): {ON_ERROR: "quarantine", **more}})


def poisoned(records: int, given: ModuleOptions | None = None) -> Driver:
    """A machine with records under way, whose options put poison into quarantine."""
    driver = leading(DATA, depots=DEPOTS)
    driver.options = given or options()
    driver.grow(records)
    return driver


def fail(driver: Driver, offset: int | None, code: str = UserCodeError.code) -> events.StartAttempt:
    """The attempt under way fails, at a record or at none."""
    running = driver.machine.running
    assert running is not None
    found = None
    if offset is not None:
        part = Part("", TaskSet(1, 0), {QUARANTINE: 1}).sealed(b"told")
        found = events.FoundPoison(Poison("*d", 0, offset, part), b"told")
    driver.say(events.AttemptFailed(running.token, code, "no", found=found))
    started = [each for each in driver.seen if isinstance(each, events.StartAttempt)]
    return started[0] if started else driver.machine.running  # type: ignore[return-value]


def test_next_version_runs_at_once_without_the_record_when_one_is_to_blame() -> None:
    driver = poisoned(5)
    started = fail(driver, 3)
    begun = driver.written[-1]
    assert begun.kind == "begin" and begun.attempt == started.attempt
    assert [(each.source_id, each.partition, each.offset) for each in begun.attempt.poisons] == [("*d", 0, 3)]
    assert begun.attempt.poisons[0].part.name == f"log/{len(driver.written):020d}.zip#append-0.arrow"
    assert begun.failure is not None and begun.failure.code == "RecordQuarantined"
    assert not Repetition().sees(begun.failure)
    assert (started.is_traced, started.is_diagnosed) == (True, True)


def test_commit_names_the_records_in_quarantine_as_an_append_when_they_were_left_out() -> None:
    driver = poisoned(5)
    fail(driver, 3)
    fail(driver, 0)
    driver.done(CHANGE)
    entry = next(entry for entry in driver.written if entry.kind == "commit")
    assert (entry.processed, entry.quarantined) == (5, 2)
    (append,) = entry.appends
    assert (append.depot, append.records, [len(part.rows) for part in append.parts]) == (QUARANTINE, 2, [1, 1])


def test_nothing_goes_to_the_quarantine_when_the_source_did_not_move() -> None:
    driver = poisoned(5)
    fail(driver, 3)
    driver.done(CHANGE, exploded=())
    entry = next(entry for entry in driver.written if entry.kind == "commit")
    assert (entry.processed, entry.quarantined, entry.appends) == (0, 0, ())


@pytest.mark.parametrize("bound", [MICROBATCH_MAX, HELD_MAX])
def test_microbatch_is_tried_as_it_is_when_a_bound_is_reached(bound: str) -> None:
    driver = poisoned(5, options(**{bound: 1}))
    assert fail(driver, 3).is_diagnosed is False
    fail(driver, None)
    assert len(driver.written[-1].attempt.poisons) == 1  # type: ignore[union-attr]
    failure = driver.written[-1].failure
    assert failure is not None and failure.code == UserCodeError.code
    assert "No record goes to the quarantine" in failure.message and f"{bound} is 1" in failure.message
    assert Repetition().sees(replace(failure, version=1)) is False


@pytest.mark.parametrize(
    ("records", "share", "most"),
    [(5, 0.0, 1), (5, 0.3, 1), (5, 0.4, 2), (1, 0.01, 1), (100, 0.03, 3), (100, 0.029, 2), (7, 1.0, 7), (10, 0.7, 7)],
)
def test_only_so_large_a_share_of_a_microbatch_is_left_out_when_more_of_it_is_bad(
    records: int, share: float, most: int
) -> None:
    driver = poisoned(records, options(**{SHARE_MAX: share}))
    for offset in range(most):
        fail(driver, offset)
    assert len(driver.written[-1].attempt.poisons) == most  # type: ignore[union-attr]
    fail(driver, None)
    failure = driver.written[-1].failure
    assert failure is not None and failure.code == UserCodeError.code
    told = f"{most} of the {records} records of this microbatch are there, and {SHARE_MAX} is {share:g}"
    assert (told in failure.message) == (most < records)


def test_nobody_looks_for_a_record_when_the_option_is_retry() -> None:
    driver = leading(DATA, depots=DEPOTS)
    driver.grow(5)
    assert driver.one(events.StartAttempt).is_diagnosed is False
    fail(driver, None)
    assert "quarantine" not in driver.written[-1].failure.message  # type: ignore[union-attr]


def test_reason_is_told_when_no_record_is_to_blame() -> None:
    driver = poisoned(5)
    fail(driver, None)
    failure = driver.written[-1].failure
    assert failure is not None and "it fails without any record too, or not each time" in failure.message


def test_time_begins_anew_when_a_part_is_tried() -> None:
    driver = poisoned(5)
    running = driver.machine.running
    assert running is not None
    before = running.deadline
    driver.at += 1_000
    driver.say(events.ProbeStarted(running.token + 1))
    assert running.deadline == before
    driver.say(events.ProbeStarted(running.token))
    assert running.deadline == before + 1_000


def test_next_leader_leaves_the_same_records_out_when_the_first_one_dies() -> None:
    driver = poisoned(5)
    poisons = fail(driver, 3).attempt.poisons
    entry = driver.written[-1]
    other = Driver(DATA, depots=DEPOTS)
    other.options, other.written, other.end = driver.options, [entry], 5
    other.say(events.TimePassed())
    assert other.one(events.StartAttempt).attempt.poisons == poisons
    assert [part.name for part in entry.named_parts()] == [poisons[0].part.name]


def test_next_microbatch_is_not_smaller_when_only_poison_failed() -> None:
    attempt = poisoned(8).written[-1].attempt
    assert attempt is not None
    part = Part("", TaskSet(1, 0))
    after = replace(attempt, version=3, poisons=(Poison("*d", 0, 1, part), Poison("*d", 0, 2, part)))
    assert ranges.limit_after(None, after) is None
    assert ranges.limit_after(None, replace(after, version=4)) == 4


# --- finding the record ----------------------------------------------------------------------------------------------

Fails = Callable[[list[tuple[str, int, int]]], bool]


def work_of(*counts: tuple[str, tuple[int, ...]]) -> AttemptWork:
    sources = {
        name: SourceWork(name, name, OffsetRanges.of((10, 10 + count) for count in each), depot=name)
        for name, each in counts
    }
    return AttemptWork("", "M", "m", None, 4, 1, 1, 1, Snapshot(), sources)  # type: ignore[arg-type] # nothing runs


def records_of(work: AttemptWork) -> list[tuple[str, int, int]]:
    return [
        (source.source_id, partition, offset)
        for source in work.sources.values()
        for partition, (start, end) in enumerate(source.ranges)
        for offset in range(start, end)
        if (partition, offset) not in source.left_out
    ]


class Runs:
    """Runs that fail as a function of their records says."""

    def __init__(self, fails: Fails) -> None:
        self.fails, self.count = fails, 0

    def __call__(self, work: AttemptWork) -> None:
        self.count += 1
        if self.fails(records_of(work)):
            raise UserCodeError("no")


@pytest.fixture(autouse=True)
def _untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "traced", lambda program: program)


@given(st.data())
def test_first_poison_is_found_in_few_runs_when_no_row_names_it(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3))
    work = work_of(*((f"*{index}", pair) for index, pair in enumerate(counts)))
    every = records_of(work)
    if not every:
        assert find_poison(Runs(lambda _: True), work, UserCodeError("no")) is None
        return
    bad = data.draw(st.sets(st.sampled_from(every), min_size=1, max_size=4))
    runs = Runs(lambda records: not bad.isdisjoint(records))
    blamed = find_poison(runs, work, UserCodeError("no"))
    assert blamed is not None and blamed.record == SourceRecord(*min(bad, key=every.index))
    assert runs.count <= 4 + math.ceil(math.log2(len(every) + 1))


def test_two_runs_are_enough_when_the_row_names_its_record() -> None:
    runs = Runs(lambda records: ("*a", 1, 12) in records)
    blamed = find_poison(runs, work_of(("*a", (5, 5))), UserCodeError("no", source="*a", partition=1, offset=12))
    assert blamed is not None and (blamed.record, runs.count) == (SourceRecord("*a", 1, 12), 2)


def test_named_record_is_not_to_blame_when_it_does_not_fail_alone() -> None:
    runs = Runs(lambda records: ("*a", 1, 13) in records)
    blamed = find_poison(runs, work_of(("*a", (5, 5))), UserCodeError("no", source="*a", partition=0, offset=10))
    assert blamed is not None and blamed.record == SourceRecord("*a", 1, 13)


@given(st.integers(0, 19))
def test_the_one_is_to_blame_that_fails_with_all_others_when_none_fails_alone(bad: int) -> None:
    record = ("*a", 0, 10 + bad)
    runs = Runs(lambda records: record in records and len(records) > 1)
    blamed = find_poison(runs, work_of(("*a", (20,))), UserCodeError("no"))
    assert blamed is not None and blamed.record == SourceRecord(*record)


def test_later_one_is_to_blame_when_two_fail_only_together() -> None:
    runs = Runs(lambda records: {("*a", 0, 12), ("*b", 0, 15)} <= set(records))
    blamed = find_poison(runs, work_of(("*a", (9,)), ("*b", (9,))), UserCodeError("no"))
    assert blamed is not None and blamed.record == SourceRecord("*b", 0, 15)


@pytest.mark.parametrize("fails", [lambda records: True, lambda records: False], ids=["without records", "only once"])
def test_nobody_is_to_blame_when_records_do_not_decide(fails: Fails) -> None:
    assert find_poison(Runs(fails), work_of(("*a", (9,))), UserCodeError("no")) is None


def test_nobody_is_to_blame_when_it_is_one_that_is_left_out_already() -> None:
    """The code fails now and then: what it says of a record that it did not get is nothing."""
    work = diagnosis.without(work_of(("*a", (9,))), SourceRecord("*a", 0, 12))
    named = UserCodeError("no", source="*a", partition=0, offset=12)
    fails = iter([False, True])
    assert find_poison(Runs(lambda _: next(fails)), work, named) is None


@given(st.integers(0, 2**32))
def test_record_that_is_left_out_is_never_blamed_when_the_code_fails_by_chance(seed: int) -> None:
    chance = random.Random(seed)
    work = work_of(("*a", (20, 20)))
    for offset in range(10, 30, 2):
        work = diagnosis.without(work, SourceRecord("*a", 0, offset))
    try:
        blamed = find_poison(Runs(lambda _: chance.random() < 0.5), work, UserCodeError("no"))
    except TooManyProbes:
        return
    assert blamed is None or blamed.record in {SourceRecord(*record) for record in records_of(work)}


@pytest.mark.parametrize(
    ("error", "is_of"),
    [
        (UserCodeError("no"), True), (SystemExit(1), True), (KeyboardInterrupt(), True), (PanicException("oh"), True),
        (UserCodeError("late", is_general=True), False), (StoreUnavailable("away"), False), (ValueError("ours"), False),
        (user_error(TimeoutError("slow"), "each", Location(), None), False),
        (user_error(ValueError("bad"), "each", Location(), None), True),
    ],
)  # fmt: skip
def test_record_is_to_blame_for_what_the_code_raises_but_not_for_bounds(error: BaseException, is_of: bool) -> None:
    in_the_runners_thread = in_thread("runner", lambda: is_of_record(error))
    assert in_the_runners_thread.result() is is_of
    if isinstance(error, UserCodeError):
        assert (attempt_failed(1, error).not_found == "") is is_of


@pytest.mark.parametrize(
    ("error", "is_of"), [(SystemExit(1), False), (KeyboardInterrupt(), False), (PanicException("oh"), True)]
)
def test_no_record_is_to_blame_when_the_process_is_asked_to_end(error: BaseException, is_of: bool) -> None:
    """Signals come to the main thread, in which tests run."""
    assert is_of_record(error) is is_of


def test_search_ends_when_it_takes_too_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "PROBES_MAX", 5)
    with pytest.raises(TooManyProbes):
        find_poison(Runs(lambda records: ("*a", 0, 900) in records), work_of(("*a", (1_000,))), UserCodeError("no"))


def test_error_passes_when_it_is_not_the_modules() -> None:
    def run(work: AttemptWork) -> None:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        find_poison(run, work_of(("*a", (9,))), UserCodeError("no"))


# --- decisions -------------------------------------------------------------------------------------------------------


@given(st.lists(st.sets(st.integers(0, 30), max_size=8), max_size=4), st.integers(0, 31))
def test_settled_records_are_those_that_were_chosen(decisions: list[set[int]], end: int) -> None:
    settled: tuple[tuple[int, int], ...] = ()
    for numbers in decisions:
        settled = joined((*settled, *spans(numbers)))
    every = set().union(*decisions)
    settlement = Settlement(settled=settled)
    assert {at for first, last in settlement.open(0, end) for at in range(first, last)} == set(range(end)) - every
    assert settlement.count == len(every)
    assert settlement.start == next(number for number in range(32) if number not in every)
