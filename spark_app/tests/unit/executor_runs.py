"""Runs executors on frames without a graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tidemill.graphs.confluence import check_confluence
from tidemill.graphs.executor import Executor, StatelessExecutor, has_ended_early
from tidemill.graphs.multisets import difference


def frames_of(output: Any) -> list[pl.DataFrame]:
    """What `execute` or `done` gave, as a list."""
    if output is None:
        return []
    return [output] if isinstance(output, pl.DataFrame) else list(output)


def run(
    executor: Executor, streams: Mapping[int, Sequence[pl.DataFrame]], datasets: Sequence[Any] = ()
) -> pl.DataFrame:
    """All that comes out if streams come one after the other."""
    executor.initialize(datasets, 0)
    made: list[pl.DataFrame] = []
    for number, batches in streams.items():
        for batch in (batch for batch in batches if batch.height and not has_ended_early(executor)):
            taken: Any = batch if isinstance(executor, StatelessExecutor) else [batch]
            made += frames_of(executor.execute(taken, number, 0))
        made += frames_of(executor.ended(number, 0))
    made += frames_of(executor.done(0))
    rows = [frame for frame in made if frame.height]
    return pl.concat(rows, how="diagonal_relaxed") if rows else pl.DataFrame()


def check(executor: Any, streams: Mapping[int, pl.DataFrame], expected: pl.DataFrame, **how: Any) -> None:
    """The executor is confluent on these rows, and its result is this one, in any order."""
    check_confluence(executor, streams, trials=12, **how)
    found = run(copy.deepcopy(executor), {n: [rows] for n, rows in streams.items()}, how.get("datasets", ()))
    assert difference(found, expected) == ""
