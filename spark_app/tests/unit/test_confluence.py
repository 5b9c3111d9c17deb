"""check_confluence finds executors whose results depend on interleaving, on batching, or that lose state."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tidemill import Executor, StatelessExecutor
from tidemill.graphs.executors.aggregation import AggExecutor
from tidemill.graphs.executors.rows import LimitExecutor
from tidemill.testing import NotConfluent, check_confluence

LEFT = pl.DataFrame({"k": [1, 2, 3, 4], "a": [10, 20, 30, 40]})
RIGHT = pl.DataFrame({"k": [4, 3, 2, 9], "b": [1, 2, 3, 4]})
TIMES = pl.DataFrame({"t": [1, 2, 3, 8, 9, 10, 20, 21], "v": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]})
BY_ORDER = "depend on the order in which batches of several streams come"
BY_BATCH = "depend on how the rows of a stream are cut into batches"


class BuildProbe(Executor):
    """Probes whatever is built so far: right only if the build side comes first."""

    def __init__(self) -> None:
        self.built: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        if stream_id == 1:
            self.built += batches
            return None
        return [left.join(right, on="k") for left in batches for right in self.built]


class BlocksByArrival(Executor):
    """Numbers the batches as they come, as a matrix product did that placed blocks by arrival."""

    def __init__(self) -> None:
        self.count = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.count += len(batches)
        return [batch.select("k", block=pl.lit(self.count)) for batch in batches]


class FirstOfKey(Executor):
    """Passes the first row of each key whole: the other columns are those of whoever comes first."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        fresh = [row for batch in batches for row in batch.select("k").with_columns(s=stream_id).rows()]
        kept = [row for row in fresh if row[0] not in self.seen]
        self.seen |= {row[0] for row in kept}
        return pl.DataFrame(kept, schema=["k", "s"], orient="row")


class SpilledLeftJoin(Executor):
    """Joins to each stored file by itself: right for inner joins, wrong for left ones."""

    def __init__(self) -> None:
        self.files: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        if stream_id == 1:
            self.files += batches
            return None
        return [left.join(file, on="k", how="left") for left in batches for file in self.files]


class MeanOfMeans(Executor):
    """The mean of the means of batches."""

    def __init__(self) -> None:
        self.means: list[float] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.means += [batch["v"].mean() for batch in batches]

    def done(self, channel: int) -> Any:
        return pl.DataFrame({"mean": [sum(self.means) / max(1, len(self.means))]})


class MatchesInABatch(StatelessExecutor):
    """Finds a row and the next one, but never across two batches."""

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Any:
        return batch.filter(pl.col("t").shift(-1) - pl.col("t") == 1)


class LatestBatch(Executor):
    """Looks at one batch of its state instead of all of them."""

    def __init__(self) -> None:
        self.state: dict[int, list[pl.DataFrame]] = {0: [], 1: []}

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.state[stream_id] += batches
        others = self.state[1 - stream_id][-1:]
        return [batch.select("k").join(other.select("k"), on="k") for batch in batches for other in others]


class NoSuchState(Executor):
    """Forgets to serialize what it counts."""

    def __init__(self) -> None:
        self.rows = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.rows += sum(batch.height for batch in batches)

    def done(self, channel: int) -> Any:
        return pl.DataFrame({"rows": [self.rows]})

    def serialize(self) -> Any:
        return {}


class Overflowing(Executor):
    """Fails if two batches come at once."""

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        if len(batches) > 1:
            raise ValueError("too much")


KNOWN_BAD = [
    (BuildProbe(), {0: LEFT, 1: RIGHT}, BY_ORDER),
    (BlocksByArrival(), {0: LEFT, 1: LEFT}, BY_BATCH),
    (FirstOfKey(), {0: LEFT, 1: RIGHT}, BY_ORDER),
    (SpilledLeftJoin(), {0: LEFT, 1: RIGHT}, BY_ORDER),
    (MeanOfMeans(), {0: TIMES}, BY_BATCH),
    (MatchesInABatch(), {0: TIMES}, BY_BATCH),
    (LatestBatch(), {0: LEFT, 1: RIGHT}, BY_BATCH),
    (NoSuchState(), {0: LEFT}, "does not go on from what serialize gave"),
    (Overflowing(), {0: LEFT}, "fails for some orders"),
]


@pytest.mark.parametrize(("executor", "inputs", "reason"), KNOWN_BAD, ids=lambda each: type(each).__name__)
def test_a_known_bad_executor_fails_with_its_reason(executor: Any, inputs: Any, reason: str) -> None:
    with pytest.raises(NotConfluent) as caught:
        check_confluence(executor, inputs)

    assert reason in caught.value.reason
    assert type(executor).__name__ in caught.value.reason
    assert caught.value.reason.count(".") == 1
    assert caught.value.reason in str(caught.value)


def test_the_counterexample_is_small_when_there_are_many_rows() -> None:
    many = pl.DataFrame({"k": range(500)})

    with pytest.raises(NotConfluent) as caught:
        check_confluence(BuildProbe(), {0: many, 1: many})

    lines = str(caught.value).splitlines()
    assert lines[3].count("'k'") == 1
    assert lines[4].count("'k'") == 1
    assert "One run: 1 row(s) of stream 0, then 1 row(s) of stream 1" in lines
    assert "Another run: 1 row(s) of stream 1, then 1 row(s) of stream 0" in lines


def test_left_joins_by_file_differ_too_when_the_build_side_comes_first() -> None:
    with pytest.raises(NotConfluent):
        check_confluence(SpilledLeftJoin(), {0: LEFT, 1: RIGHT}, dependents={0: [1]})


def test_a_build_side_that_comes_first_is_enough_when_dependents_say_so() -> None:
    check_confluence(BuildProbe(), {0: LEFT, 1: RIGHT}, dependents={0: [1]})


def test_floats_are_compared_with_a_tolerance_when_sums_are_made_in_another_order() -> None:
    rows = pl.DataFrame({"v": [0.1, 1e16, -1e16, 0.3] * 3})

    with pytest.raises(NotConfluent):
        check_confluence(AggExecutor(), {0: rows})
    check_confluence(AggExecutor(), {0: pl.DataFrame({"v": [0.1, 0.2, 0.3] * 9})})


def test_another_view_is_compared_when_any_rows_will_do() -> None:
    with pytest.raises(NotConfluent):
        check_confluence(LimitExecutor(2), {0: LEFT.select("k"), 1: RIGHT.select("k")})
    check_confluence(
        LimitExecutor(2), {0: LEFT.select("k"), 1: RIGHT.select("k")}, view=lambda rows: rows.select(pl.len())
    )


def test_an_executor_is_made_anew_when_a_function_is_given() -> None:
    check_confluence(lambda: AggExecutor("k"), {0: [LEFT, LEFT.clear()]})
