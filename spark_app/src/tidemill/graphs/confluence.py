"""The check that an executor's result depends neither on how batches are cut nor on how streams interleave.

It runs an executor on the same rows in many ways, all of which a graph may choose, and compares what comes out.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import cloudpickle
import polars as pl

from tidemill.graphs.executor import Executor, StatelessExecutor, has_ended_early
from tidemill.graphs.multisets import difference
from tidemill.values.errors import TidemillError

Streams: TypeAlias = dict[int, pl.DataFrame]
"""The rows of each stream, in their order."""
Inputs: TypeAlias = Mapping[int, pl.DataFrame | Sequence[pl.DataFrame]]
SHRINK_RUNS_MAX = 3000
"""Runs that the search for a small counterexample may take."""
PIECES_MAX = 6
"""Into so many pieces the rows of a stream are cut at most, while looking."""


class NotConfluent(TidemillError, AssertionError):
    """An executor gives different results for the same rows; `reason` says in one sentence of what it depends."""

    code = "NotConfluent"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class _Turn:
    """The next rows of a stream (`rows` in one or several frames), or a restart from a checkpoint (`stream` -1)."""

    stream: int
    rows: tuple[int, ...] = ()


@dataclass
class _Result:
    """What came out: a frame, or the error that stopped it."""

    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    error: str = ""


@dataclass(frozen=True)
class _Counterexample:
    streams: Streams
    first: list[_Turn]
    second: list[_Turn]
    difference: str


def check_confluence(
    executor: Executor | Callable[[], Executor],
    inputs: Inputs,
    *,
    dependents: Mapping[int, Sequence[int]] | None = None,
    datasets: Sequence[Any] = (),
    view: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    trials: int = 100,
    seed: int = 0,
) -> None:
    """Run an executor on `inputs` in many interleavings and batchings, and compare the results as multisets of rows.

    Batches of one stream keep their order. Between steps the executor may be replaced by a copy that gets what its
    `serialize` gave, as after a failure. Floats are compared with a tolerance of 1e-9 of their size.

    Args:
        executor: what to check, as it would be given to a node; each run takes a copy. Or a function that makes one.
        inputs: for each stream its frames, or one frame.
        dependents: streams that begin only when others have ended, as `dependents` of inputs: `{0: [1]}`.
        datasets: what `initialize` gets.
        view: what to compare instead of the result, for executors that may give any of several, as a limit.
        trials: the number of random runs.
        seed: the same seed makes the same runs.

    Raises:
        NotConfluent: two runs differ. Its text holds few rows for which they do, the two runs and what they gave.
    """
    runs = _Runs(executor, dict(dependents or {}), datasets, view)
    streams = {number: _whole(frames) for number, frames in inputs.items()}
    found = runs.search(streams, random.Random(seed), trials)
    if found is not None:
        small = _shrunk(runs, found)
        reason = _reason(runs, small)
        raise NotConfluent(_text(runs, small, reason), reason)


class _Runs:
    """Runs one executor on rows, in the steps that it is told."""

    def __init__(
        self,
        executor: Executor | Callable[[], Executor],
        dependents: dict[int, Sequence[int]],
        datasets: Sequence[Any],
        view: Callable[[pl.DataFrame], pl.DataFrame] | None,
    ) -> None:
        self._executor = executor
        self._dependents = dependents
        self._datasets = datasets
        self._view = view
        self.count = 0

    @property
    def name(self) -> str:
        """The executor's class."""
        return type(self._made()).__name__

    def search(self, streams: Streams, chosen: random.Random, trials: int) -> _Counterexample | None:
        """A run that differs from the plain one, which takes one stream after the other, each in one batch."""
        plain = self.plain(streams)
        expected = self.run(streams, plain)
        for _ in range(trials):
            steps = self._random(streams, chosen)
            differs = self.difference(expected, self.run(streams, steps))
            if differs:
                return _Counterexample(streams, plain, steps, differs)
        return None

    def plain(self, streams: Streams) -> list[_Turn]:
        """One stream after the other, each in one batch."""
        waiting, steps = set(streams), []
        while waiting:
            number = min(n for n in waiting if not waiting & set(self._dependents.get(n, ())))
            waiting.remove(number)
            steps += [_Turn(number, (streams[number].height,))] if streams[number].height else []
        return steps

    def run(self, streams: Streams, steps: Sequence[_Turn]) -> _Result:
        """All that comes out."""
        self.count += 1
        executor, left, made = self._started(), dict(streams), list[pl.DataFrame]()
        ended: set[int] = set()
        try:
            for step in steps:
                if step.stream < 0:
                    executor = self._restarted(executor)
                    continue
                batches = []
                for count in step.rows:
                    batches.append(left[step.stream].head(count))
                    left[step.stream] = left[step.stream].slice(count)
                made += self._executed(executor, batches, step.stream)
                if has_ended_early(executor):
                    break
                for number in [n for n, rows in left.items() if rows.is_empty() and n not in ended]:
                    ended.add(number)
                    made += _frames(executor.ended(number, 0))
            made += _frames(executor.done(0))
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises in one run only is a difference
            return _Result(error=f"{type(error).__name__}: {error}")
        with_rows = [frame for frame in made if frame.height]
        whole = pl.concat(with_rows, how="diagonal_relaxed") if with_rows else pl.DataFrame()
        return _Result(whole if self._view is None else self._view(whole))

    def difference(self, first: _Result, second: _Result) -> str:
        """How two results differ; empty if they do not."""
        if first.error or second.error:
            return "" if first.error == second.error else "one of them fails"
        return difference(first.rows, second.rows)

    def _made(self) -> Executor:
        if isinstance(self._executor, Executor):
            return copy.deepcopy(self._executor)
        return self._executor()

    def _started(self) -> Executor:
        executor = self._made()
        executor.initialize(self._datasets, 0)
        return executor

    def _restarted(self, executor: Executor) -> Executor:
        state = pickle.loads(cloudpickle.dumps(executor.serialize()))
        again = self._started()
        again.deserialize(state)
        return again

    @staticmethod
    def _executed(executor: Executor, batches: list[pl.DataFrame], stream: int) -> list[pl.DataFrame]:
        if isinstance(executor, StatelessExecutor):
            return [frame for batch in batches for frame in _frames(executor.execute(batch, stream, 0))]
        return _frames(executor.execute(batches, stream, 0))

    def _random(self, streams: Streams, chosen: random.Random) -> list[_Turn]:
        """Streams in turns, cut anywhere, in the order that dependents leave open."""
        left = {number: rows.height for number, rows in streams.items() if rows.height}
        restarts, steps = chosen.random() < 0.5, list[_Turn]()
        size = max(1, max(left.values(), default=1) // chosen.randint(1, PIECES_MAX))
        while left:
            number = chosen.choice([n for n in left if not set(left) & set(self._dependents.get(n, ()))])
            cuts = [min(left[number], chosen.randint(1, size))]
            while chosen.random() < 0.3 and sum(cuts) < left[number]:
                cuts.append(min(left[number] - sum(cuts), chosen.randint(1, size)))
            left[number] -= sum(cuts)
            if not left[number]:
                del left[number]
            steps.append(_Turn(number, tuple(cuts)))
            if restarts and chosen.random() < 0.3:
                steps.append(_Turn(-1))
        return steps


def _shrunk(runs: _Runs, found: _Counterexample) -> _Counterexample:
    """The fewest rows for which two runs still differ: parts of them are left out as long as that is so."""
    limit = runs.count + SHRINK_RUNS_MAX
    size = max(rows.height for rows in found.streams.values())
    while size and runs.count < limit:
        smaller = _without(runs, found, size, limit)
        found, size = (found, size // 2) if smaller is None else (smaller, size)
    return _fewest_steps(runs, found)


def _without(runs: _Runs, found: _Counterexample, size: int, limit: int) -> _Counterexample | None:
    for number, rows in found.streams.items():
        for start in range(0, rows.height, size):
            left = pl.concat([rows.head(start), rows.slice(start + size)])
            smaller = runs.search({**found.streams, number: left}, random.Random(size + start), 25)
            if smaller is not None or runs.count >= limit:
                return smaller
    return None


def _fewest_steps(runs: _Runs, found: _Counterexample) -> _Counterexample:
    """The run with the fewest steps among some more."""
    for seed in range(50):
        other = runs.search(found.streams, random.Random(seed), 10)
        if other is not None and len(other.second) < len(found.second):
            found = other
    return found


def _reason(runs: _Runs, found: _Counterexample) -> str:
    """Of what the result depends, in one sentence."""
    name, steps = runs.name, found.second
    expected = runs.run(found.streams, found.first)
    without = [step for step in steps if step.stream >= 0]
    if not runs.difference(expected, runs.run(found.streams, without)):
        return f"{name} does not go on from what serialize gave as if nothing had happened."
    if runs.run(found.streams, steps).error or expected.error:
        return f"{name} fails for some orders of the same rows, and not for others."
    if not runs.difference(expected, runs.run(found.streams, _uncut(without))):
        return f"{name} gives results that depend on how the rows of a stream are cut into batches."
    return f"{name} gives results that depend on the order in which batches of several streams come."


def _uncut(steps: Sequence[_Turn]) -> list[_Turn]:
    """The same order of streams, with what follows on one stream in one batch."""
    groups = groupby(steps, key=lambda step: step.stream)
    return [_Turn(stream, (sum(sum(step.rows) for step in group),)) for stream, group in groups]


def _text(runs: _Runs, found: _Counterexample, reason: str) -> str:
    lines = [reason, "", "The rows of each stream:"]
    lines += [f"  {number}: {rows.to_dicts()}" for number, rows in sorted(found.streams.items())]
    for title, steps in (("One run", found.first), ("Another run", found.second)):
        result = runs.run(found.streams, steps)
        gave = result.error or str(result.rows.to_dicts())
        lines += ["", f"{title}: {', then '.join(map(_step_text, steps)) or 'no rows'}", f"  gave {gave}"]
    return "\n".join([*lines, "", found.difference])


def _step_text(step: _Turn) -> str:
    if step.stream < 0:
        return "a restart from a checkpoint"
    return f"{' + '.join(map(str, step.rows))} row(s) of stream {step.stream}"


def _whole(frames: pl.DataFrame | Sequence[pl.DataFrame]) -> pl.DataFrame:
    return frames if isinstance(frames, pl.DataFrame) else pl.concat(frames, how="vertical_relaxed")


def _frames(output: pl.DataFrame | Iterable[pl.DataFrame] | None) -> list[pl.DataFrame]:
    if output is None:
        return []
    return [output] if isinstance(output, pl.DataFrame) else [frame for frame in output if frame is not None]
