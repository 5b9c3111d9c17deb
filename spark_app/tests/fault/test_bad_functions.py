"""Functions of the module that raise, hang, answer nonsense, or end the program: said clearly, and nothing is lost."""

from __future__ import annotations

import sys
import threading
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest
from poison import Tally, append, commit_log, counts, failure, launch, objects, state, wait

from tidemill import Agg, DefinitionError, InProcessCluster, PState, vectorized
from tidemill.clients.history import topology_history
from tidemill.clients.status_reader import topology_status

MAX_MS = "topology.microbatch.retry.delay.max.millis"
BASE_MS = "topology.microbatch.retry.delay.base.millis"
FAST = {BASE_MS: 1, MAX_MS: 20}


def refuse_poison(word: str) -> str:
    if word == "poison":
        raise KeyError("no such thing")
    return word


def test_user_traceback_step_and_sample_are_shown_when_one_record_raises() -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, Tally(refuse_poison, options=FAST))
        append(cluster, "a", "poison", "b")
        failed = failure(cluster)
        assert failed.code == "UserCodeFailed"
        assert failed.step.startswith("each(refuse_poison) at ")
        assert "poison.py" in failed.step or "test_bad_functions" in failed.step
        assert failed.sample == "*record='poison'"
        assert 'raise KeyError("no such thing")' in failed.trace
        assert "tidemill/engine" not in failed.trace
        with pytest.raises(TimeoutError) as waited:
            wait(cluster, 3, timeout_millis=300)
        for wanted in (
            "0 of 3",
            "each(refuse_poison)",
            "KeyError",
            "*record='poison'",
            'raise KeyError("no such thing")',
        ):
            assert wanted in str(waited.value)
        assert counts(cluster, "a", "poison", "b") == [None, None, None]


def test_status_and_log_tell_the_failure_when_the_topology_retries() -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, Tally(refuse_poison, options=FAST))
        append(cluster, "poison")
        with pytest.raises(TimeoutError):
            wait(cluster, 1, timeout_millis=500)
        definition = cluster._client("Tally").definition()
        status = topology_status(cluster.store, definition, "tally")
        assert status.failure is not None
        assert 'raise KeyError("no such thing")' in status.failure.trace
        told = [line for line in topology_history(cluster.store, definition, "tally") if line["failure"]]
        assert told and told[-1]["failure"]["sample"] == "*record='poison'"


def test_pauses_grow_and_the_records_stay_the_same_when_an_attempt_fails_again_and_again() -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, Tally(refuse_poison, options={BASE_MS: 30, MAX_MS: 10_000}))
        append(cluster, "poison", "a")
        wanted = cluster._running["Tally"].topologies["tally"]
        # A failure is reported before the next version is noted: here the fifth is there, the sixth may not be.
        wanted.wait_for(lambda now: now.report.failures_in_row >= 5, 30)
        append(cluster, "later")
        entries = [entry for _, entry in commit_log(cluster).tail(20) if entry.kind == "begin"]
        attempts = [entry.attempt for entry in entries if entry.attempt is not None]
        assert [attempt.version for attempt in attempts][:4] == [1, 2, 3, 4]
        assert {attempt.microbatch_id for attempt in attempts} == {1}
        assert len({str(attempt.ranges) for attempt in attempts}) == 1
        # A failure is noted at once, with the begin of the next version; the pause comes before its start.
        pauses = [after.written_ms - before.written_ms for before, after in zip(entries, entries[1:], strict=False)]
        assert all(pause >= least - 2 for pause, least in zip(pauses[1:4], (30, 60, 120), strict=True)), pauses


@pytest.mark.parametrize("how", ["update", "restart"])
def test_every_record_counts_once_when_the_code_is_fixed(tmp_path: Folder, how: str) -> None:
    url = tmp_path.as_uri()
    cluster = InProcessCluster.create(store=url)
    launch(cluster, Tally(refuse_poison, options=FAST))
    append(cluster, "a", "poison", "b")
    assert failure(cluster).microbatch_id == 1
    if how == "update":
        cluster.update_module(Tally())
    else:
        cluster.close()
        cluster = InProcessCluster.create(store=url)
        launch(cluster)
    with cluster:
        wait(cluster, 3)
        assert counts(cluster, "a", "poison", "b") == [1, 1, 1]
        microbatch_id, version = cluster.microbatch_state("Tally", "tally")
        assert microbatch_id == 1
        assert version >= 2
        assert state(cluster).report.failure is None


is_free = threading.Event()


def hang(word: str) -> str:
    is_free.wait(20)
    return word


def test_module_is_refused_when_a_function_holds_what_cannot_travel_to_workers() -> None:
    lock = threading.Lock()

    def locked(word: str) -> str:
        with lock:
            return word

    with InProcessCluster.create() as cluster, pytest.raises(DefinitionError) as refused:
        launch(cluster, Tally(locked))
    assert "poison.py" in refused.value.faults[0].location
    assert "cannot be sent to workers" in str(refused.value)
    assert "lock" in str(refused.value)


def test_attempt_times_out_and_the_topology_goes_on_when_a_function_hangs() -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, Tally(hang, options={**FAST, "topology.microbatch.phase.timeout.seconds": 0.1}))
        append(cluster, "a")
        failed = failure(cluster)
        assert failed.code == "PhaseTimeout"
        assert "0.1 s" in failed.message
        assert "topology.microbatch.phase.timeout.seconds" in failed.message
        assert failed.step.startswith("each(hang) at ")
        assert f"it was at: {failed.step}" in failed.message
        assert "is_free.wait(20)" in failed.trace
        assert "tidemill/engine" not in failed.trace
        is_free.set()
        wait(cluster, 1)
        assert counts(cluster, "a") == [1]
        assert cluster.microbatch_state("Tally", "tally")[1] >= 2


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def end_program(word: str) -> str:
    sys.exit(3)


def interrupt(word: str) -> str:
    raise KeyboardInterrupt


def stop_iteration(word: str) -> str:
    raise StopIteration


def unspeakable(word: str) -> str:
    raise Unspeakable


def recurse(word: str) -> str:
    return recurse(word)


def give_object(word: str) -> Any:
    return object()


@vectorized
def too_short(words: pl.Series) -> pl.Series:
    return words.head(1)


@vectorized
def no_series(words: pl.Series) -> Any:
    return 5


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (end_program, "SystemExit"),
        (interrupt, "KeyboardInterrupt"),
        (stop_iteration, "StopIteration"),
        (unspeakable, "Unspeakable"),
        (recurse, "RecursionError"),
        (give_object, "Not data"),
        (too_short, "returned 1 values for 2 rows"),
        (no_series, "returns a Polars series"),
    ],
)
def test_nothing_is_committed_when_a_function_misbehaves(function: Any, text: str) -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, Tally(function, options=FAST))
        append(cluster, "a", "b")
        failed = failure(cluster)
        assert failed.code == "UserCodeFailed"
        assert text in failed.message
        assert cluster.microbatch_state("Tally", "tally") == (0, 0)
        cluster.update_module(Tally())
        wait(cluster, 2)
        assert counts(cluster, "a", "b") == [1, 1]


def number(word: str) -> Any:
    return 5 if word == "bad" else word


ANY = PState.map_schema(object, int)


@pytest.mark.parametrize(
    ("module", "records", "text", "sample"),
    [
        (Tally(number, options=FAST), ("a", "bad"), "5 (int) does not fit, expected str", "*word=5"),
        (Tally(by=Agg.sum("*record"), schema=ANY, options=FAST), (1, "x"), "not 'x'", "*record='x'"),
        (Tally(lambda _: "k", by=Agg.sum("*record"), options=FAST), (2**62,) * 3, "signed 64 bits", "*word='k'"),
    ],
    ids=["key", "operand", "overflow"],
)  # fmt: skip
def test_schema_mismatch_names_the_value_and_its_record_when_a_write_does_not_fit(
    module: Tally, records: tuple[Any, ...], text: str, sample: str
) -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, module)
        append(cluster, *records)
        failed = failure(cluster)
        assert text in failed.message
        assert sample in failed.sample
        assert failed.step.startswith("agg($$counts) at ")
        assert cluster.microbatch_state("Tally", "tally") == (0, 0)


def test_stored_objects_are_never_overwritten_when_attempts_fail(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=tmp_path.as_uri()) as cluster:
        launch(cluster, Tally(refuse_poison, options=FAST))
        append(cluster, "a")
        wait(cluster, 1)
        before = objects(tmp_path)
        append(cluster, "poison")
        failure(cluster)
        after = objects(tmp_path)
        assert {name: after.get(name) for name in before} == before
