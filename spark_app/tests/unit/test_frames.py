"""What frames push down, refuse and show; their results are in property/test_frames_model.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest
from polars.testing import assert_frame_equal

from tidemill import Executor, SessionWindowExecutor
from tidemill.graphs.executors import sort
from tidemill.graphs.executors.aggregation import AggExecutor, MergingAggExecutor
from tidemill.graphs.executors.joins import JoinExecutor
from tidemill.graphs.executors.rows import StorageExecutor
from tidemill.graphs.executors.spilled_frames import spilled
from tidemill.graphs.frames.expressions import comparisons
from tidemill.graphs.frames.frame import GraphFrame
from tidemill.graphs.frames.plans import ScanPlan
from tidemill.graphs.frames.samples import KEPT_SHARE_MIN, kept_share
from tidemill.graphs.frames.steps import SAMPLE_ROWS, GatherGroups
from tidemill.graphs.nodes import InputNode, TaskNode
from tidemill.graphs.task_graph import TaskGraph
from tidemill.values.errors import BadInput, UserCodeError

c = pl.col


@pytest.fixture
def graph(tmp_path: Path) -> TaskGraph:
    rows = pl.DataFrame({"k": range(100), "v": range(100), "unused": ["x" * 50] * 100})
    rows.write_csv(tmp_path / "big.csv")
    rows.head(3).select("k", "v", w="unused").write_csv(tmp_path / "small.csv")
    return TaskGraph(tmp_path / "store", parallelism=2)


def csv(graph: TaskGraph, name: str) -> GraphFrame:
    return graph.read_csv(str(Path(graph.store).parent / f"{name}.csv"))


def inputs(frame: GraphFrame) -> list[InputNode]:
    return list(frame.graph._definition.inputs)


def executors(frame: GraphFrame) -> list[Any]:
    return [node.executor for node in frame.graph._definition.tasks]


def test_filters_and_columns_go_into_the_input_when_they_are_written_behind_other_steps(graph: TaskGraph) -> None:
    big, small = csv(graph, "big"), csv(graph, "small")
    query = (
        big.join(small, "k").with_columns(z=c("v") + 1).filter((c("k") > 1) & (c("w") != "y")).select("z", "v_right")
    )

    readers: list[Any] = [node.reader for node in inputs(query)]

    assert [sorted(reader.columns) for reader in readers] == [["k", "v", "w"], ["k", "v"]]
    assert [str(reader.predicate) for reader in readers] == [str(c("w") != "y"), str(c("k") > 1)]
    assert query.collect().rows() == [(3, 2)]


def test_the_smaller_side_is_built_first_whichever_it_is(graph: TaskGraph) -> None:
    big, small = csv(graph, "big"), csv(graph, "small")
    for query, build in ((big.join(small, "k"), 1), (small.join(big, "k"), 0)):
        first, second = inputs(query)
        (join, _) = executors(query)

        assert first.reader.files[0].path.endswith("small.csv")  # type: ignore[attr-defined]  # a CsvInput
        assert second.dependents == (first.id,)
        assert isinstance(join, JoinExecutor)
        assert join._build == build
        assert query.collect().height == 3


def test_large_sides_are_partitioned_and_small_ones_copied(graph: TaskGraph, monkeypatch: Any) -> None:
    def keys() -> list[Any]:
        query = csv(graph, "big").join(csv(graph, "small"), "k")
        (join,) = [node for node in query.graph._definition.tasks if isinstance(node.executor, JoinExecutor)]
        assert isinstance(join, TaskNode)
        assert query.collect().height == 3
        return list(join.partitions.values())

    assert None in keys()
    monkeypatch.setattr("tidemill.graphs.frames.compiler.BROADCAST_BYTES", 0)
    assert keys() == [["k"], ["k"]]


@pytest.mark.parametrize(("kept", "is_copied"), [(40, True), (40_000, False)])
def test_a_side_is_copied_when_a_sample_shows_that_its_filter_keeps_few_rows(
    graph: TaskGraph, monkeypatch: Any, kept: int, is_copied: bool
) -> None:
    monkeypatch.setattr("tidemill.graphs.frames.compiler.BROADCAST_BYTES", 20_000)
    rows = pl.DataFrame({"k": pl.int_range(50_000, eager=True), "n": pl.int_range(50_000, eager=True).shuffle(1)})
    file = Path(graph.store).parent / "rows.parquet"
    rows.write_parquet(file, row_group_size=5_000)
    query = graph.read_parquet(str(file)).filter(c("n") < kept).join(graph.from_frames([rows] * 4), "k")

    (join,) = [node for node in query.graph._definition.tasks if isinstance(node.executor, JoinExecutor)]

    assert (None in join.partitions.values()) == is_copied
    assert query.agg(pl.len()).collect().item() == 4 * kept


def test_no_sample_is_believed_when_it_shows_that_a_filter_keeps_nothing() -> None:
    def sample(columns: Any, predicates: Any) -> pl.DataFrame:
        return pl.DataFrame({"n": [1] * 8_000})

    scan = ScanPlan(None, pl.Schema({"n": pl.Int64}), 1, predicates=(c("n") > 1,), sample=sample)  # type: ignore[arg-type]

    assert kept_share(scan) == KEPT_SHARE_MIN
    assert kept_share(replace(scan, sample=lambda columns, predicates: sample((), ())[:10])) == pytest.approx(0.3)
    assert kept_share(replace(scan, sample=lambda columns, predicates: sample((), ())[:0])) is None
    assert kept_share(replace(scan, sample=None)) is None


def test_batches_are_aggregated_before_they_are_sent_where_that_makes_fewer_rows(graph: TaskGraph) -> None:
    few = csv(graph, "big").with_columns(g=c("k") % 2).group_by("g")
    query = few.agg(c("v").sum())
    assert isinstance(executors(query)[0], MergingAggExecutor)
    assert isinstance(executors(few.agg(c("v").n_unique()))[0], AggExecutor)
    graph_of = query.graph
    graph_of.run()
    assert graph_of.metrics()[0].rows_out <= 4

    gather = GatherGroups(("k",), (c("v").sum(),), (c("v"),))
    many = pl.DataFrame({"k": range(SAMPLE_ROWS), "v": 1})
    assert gather(many).equals(many)
    assert gather(many.with_columns(k=pl.lit(1))).rows() == [(1, SAMPLE_ROWS)]


def test_inputs_stop_when_a_limit_is_reached(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path, parallelism=1, memory_bytes=1000)
    frames = [pl.DataFrame({"k": range(100)}) for _ in range(200)]
    query = graph.from_frames(frames).limit(5)
    run = query.graph
    run.run()

    assert run.metrics()[0].rows_in < 20_000 / 2
    assert query.collect().height == 5


def test_a_dataset_is_a_frame_in_another_graph(graph: TaskGraph) -> None:
    dataset = csv(graph, "big").filter(c("k") < 10).materialize()

    assert graph.read_dataset(dataset).filter(c("v") > 7).select("k").sort("k").collect()["k"].to_list() == [8, 9]


def test_nothing_stays_in_the_store_when_rows_are_collected(graph: TaskGraph) -> None:
    csv(graph, "big").collect()

    assert list(Path(graph.store).rglob("dataset.json")) == []


WRONG: list[tuple[Any, str]] = [
    (lambda f, g: f.filter(c("v") > c("v").mean()), "several"),
    (lambda f, g: f.with_columns(c("v").shift()), "several"),
    (lambda f, g: f.select(c("v").sum()), "several"),
    (lambda f, g: f.select(c("v").rank().over("k")), "several"),
    (lambda f, g: f.select(pl.all().max()), "several"),
    (lambda f, g: f.with_columns(pl.col("^v.*$").cum_sum()), "several"),
    (lambda f, g: f.filter(pl.all_horizontal(cs.numeric() > cs.numeric().mean())), "several"),
    (lambda f, g: f.agg(c("k").cast(pl.Date).mean()), "mean of numbers"),
    (lambda f, g: f.agg(c("v").sum() / pl.len()), "behind agg"),
    (lambda f, g: f.agg(c("v").median()), "agg takes"),
    (lambda f, g: f.agg(c("v").cum_sum().max()), "several"),
    (lambda f, g: f.agg(c("v").drop_nulls().n_unique()), "more or fewer"),
    (lambda f, g: f.agg(c("v").filter(c("k") > 1).sum()), "more or fewer"),
    (lambda f, g: f.select(c("unused").str.split("x").list.explode()), "more or fewer"),
    (lambda f, g: f.agg(pl.lit(1).sum()), "reads no column"),
    (lambda f, g: f.agg(), "at least one"),
    (lambda f, g: f.agg(pl.all().sum()), "one column"),
    (lambda f, g: f.join(g.from_frames(pl.DataFrame({"k": [1]})), "k"), "one graph"),
    (lambda f, g: f.union(f.select("k")), "equal columns"),
    (lambda f, g: f.limit(-1), "0 or more"),
    (lambda f, g: g.from_frames([pl.DataFrame({"k": [1]}), pl.DataFrame({"k": [1.5]})]), "these differ"),
]


@pytest.mark.parametrize(("make", "text"), WRONG)
def test_an_operation_that_batches_would_spoil_is_refused(graph: TaskGraph, make: Any, text: str) -> None:
    other = TaskGraph(Path(graph.store))

    with pytest.raises(BadInput, match=text):
        make(csv(graph, "big"), other)


def test_a_missing_column_is_said_where_it_is_written(graph: TaskGraph) -> None:
    frame = csv(graph, "big")
    for make in (
        lambda: frame.filter(c("none") > 1),
        lambda: frame.sort("none"),
        lambda: frame.group_by("none").agg(pl.len()),
    ):
        with pytest.raises(pl.exceptions.ColumnNotFoundError):
            make()


class HearsEnds(Executor):
    """Gives a row for each stream that has ended, with the rows that came before."""

    def __init__(self) -> None:
        self.rows = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.rows += sum(batch.height for batch in batches)

    def ended(self, stream_id: int, channel: int) -> Any:
        return pl.DataFrame({"stream": [stream_id], "rows": [self.rows]})


def test_an_executor_hears_once_that_a_stream_has_ended(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    first = graph.new_input_frames([pl.DataFrame({"k": [1, 2]})], 1)
    second = graph.new_input_frames([pl.DataFrame({"k": [3]})] * 3, 1, dependents=[first])
    through = graph.new_non_blocking_node({0: second}, StorageExecutor(), 1, {0: None})
    heard = graph.new_blocking_node({0: through, 1: first}, HearsEnds(), 1, {0: None, 1: None})
    graph.run()

    assert heard.to_polars().sort("stream").rows() == [(0, 5), (1, 2)]


@pytest.mark.parametrize(
    ("predicate", "conditions"),
    [
        (c("k") > 5, [("k", ">", 5)]),
        (c("w") == "a", [("w", "==", "a")]),
        (c("k").is_between(1, 3, closed="left"), [("k", ">=", 1), ("k", "<", 3)]),
        (c("k").is_between(1, 3), [("k", ">=", 1), ("k", "<=", 3)]),
        (c("k") > c("v"), []),
        (c("k") + 1 > 2, []),
        (c("k").is_null(), []),
        (c("w").is_in(["a", "b"]), []),
        (~(c("k") > 5), []),
    ],
)
def test_comparisons_with_constants_are_known(predicate: pl.Expr, conditions: Any) -> None:
    assert comparisons(predicate) == conditions


def test_row_groups_are_skipped_when_a_filter_rules_them_out(graph: TaskGraph, tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": range(1000), "v": [number % 7 for number in range(1000)], "w": ["x"] * 1000})
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
    frame = graph.read_parquet(str(tmp_path / "rows.parquet"))
    query = frame.filter((c("k") >= 850) & (c("v") + 1 == 1)).select("k")
    (node,) = inputs(query)
    reader: Any = node.reader

    assert len(reader.groups) == 2
    assert sorted(reader.columns) == ["k", "v"]
    assert query.sort("k").collect()["k"].to_list() == [k for k in range(850, 1000) if k % 7 == 0]


def test_columns_by_pattern_are_those_of_polars(graph: TaskGraph) -> None:
    rows = pl.DataFrame({"k": [1, 2], "v": [3, 4], "w": ["a", "b"]})
    for change in (pl.col("k", "v") * 2, pl.all().exclude("w") + 1, pl.selectors.numeric().name.suffix("_n")):
        found = graph.from_frames(rows).with_columns(change).filter(c("k") > 1).select("w", c("v") + 1).collect()

        assert found.equals(rows.with_columns(change).filter(c("k") > 1).select("w", c("v") + 1))


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_days_are_not_added_up(graph: TaskGraph, kind: str) -> None:
    rows = pl.DataFrame({"day": [date(2020, 1, 1)]})

    with pytest.raises((BadInput, UserCodeError, pl.exceptions.PolarsError)):
        graph.from_frames(rows).agg(getattr(c("day"), kind)()).collect()


def test_keys_that_cannot_be_dealt_to_channels_still_meet(graph: TaskGraph, monkeypatch: Any) -> None:
    monkeypatch.setattr("tidemill.graphs.frames.compiler.BROADCAST_BYTES", 0)
    rows = pl.DataFrame({"k": [1, 1, 2], "none": [None] * 3, "both": [[1], [1], [2]]})
    frame = graph.from_frames([rows, rows])

    assert frame.group_by("both").agg(pl.len()).sort("len").collect()["len"].to_list() == [2, 4]
    assert frame.group_by("none", "k").agg(pl.len()).sort("k").collect()["len"].to_list() == [4, 2]
    assert frame.distinct().collect().height == 2
    assert frame.distinct("none").collect().height == 1
    assert frame.join(graph.from_frames(rows), "both").agg(pl.len()).collect().item() == 10


def test_a_union_takes_sources_that_have_more_columns_than_it_needs(graph: TaskGraph) -> None:
    rows = graph.from_frames(pl.DataFrame({"k": [1, 1], "v": [2, 3]}))
    for one, other in ((rows.distinct(), rows), (rows, rows.distinct())):
        assert one.union(other).select("k").collect()["k"].to_list() == [1] * 4


def test_a_selection_of_columns_is_taken_when_it_looks_at_one_row(graph: TaskGraph) -> None:
    found = csv(graph, "small").select((cs.numeric() * 2).name.suffix("_2"), pl.exclude("k", "v")).sort("k_2").collect()

    assert found.columns == ["k_2", "v_2", "w"]
    assert found["k_2"].to_list() == [0, 2, 4]


def test_an_aggregate_reads_the_column_itself_when_a_key_takes_its_name(graph: TaskGraph) -> None:
    found = csv(graph, "small").group_by(c("v") % 2).agg(total=c("v").sum(), n=pl.len()).sort("v").collect()

    assert found.columns == ["v", "total", "n"]
    assert found.rows() == [(0, 2, 2), (1, 1, 1)]


@pytest.mark.parametrize("of", [c("v").sum(), c("v").n_unique(), pl.len()])
def test_a_row_of_all_rows_stays_one_when_none_of_its_columns_is_wanted(graph: TaskGraph, of: pl.Expr) -> None:
    found = csv(graph, "small").agg(of.alias("a"))

    assert found.select(x=pl.lit(1)).collect().rows() == [(1,)]
    assert found.filter(pl.lit(False)).collect().rows() == []
    assert found.filter(pl.lit(True)).collect().height == 1


@pytest.mark.parametrize("falling", [False, True])
def test_all_channels_sort_a_range_of_about_as_many_rows(tmp_path: Path, falling: bool) -> None:
    table = pl.DataFrame({"k": [(n * 7919) % 20_011 for n in range(20_000)], "v": range(20_000)})
    table = table.with_columns(k=pl.when(c("v") % 10 == 0).then(None).otherwise("k"))
    graph = TaskGraph(tmp_path, parallelism=4)
    frame = graph.from_frames([table.slice(at, 500) for at in range(0, 20_000, 500)]).sort(
        ["k", "v"], descending=falling
    )

    out = frame.select("v", "k").materialize()

    assert out.to_polars().equals(table.sort(["k", "v"], descending=falling).select("v", "k"))
    by_channel = [sum(each.rows for each in out.record.objects if each.channel == number) for number in range(4)]
    assert all(2_500 < rows < 7_500 for rows in by_channel), by_channel


@pytest.mark.parametrize(
    "key",
    [
        [{"a": 2}, {"a": 1}], [[2], [1, 3]], [True, None], [float("nan"), -0.0], ["b", ""], [b"b", b""],
        [datetime(2024, 1, 2), datetime(2024, 1, 1)], [None, None],
    ],
)  # fmt: skip
def test_rows_are_sorted_by_keys_of_any_type(tmp_path: Path, key: list[Any]) -> None:
    table = pl.DataFrame({"k": key * 30})
    frame = TaskGraph(tmp_path, parallelism=3).from_frames([*table.iter_slices(7)]).sort("k", descending=True)
    assert frame.collect().equals(table.sort("k", descending=True))


def test_runs_of_a_sort_are_files_when_they_exceed_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counting(frame: pl.DataFrame, folder: str | None = None) -> pl.DataFrame:
        made.append(frame.height)
        return spilled(frame, folder)

    monkeypatch.setattr(sort, "spilled", counting)
    monkeypatch.setattr(sort, "MEMORY_LIMIT", 4_000)
    table = pl.DataFrame({"k": [(n * 7919) % 10_007 for n in range(10_000)]})
    frame = TaskGraph(tmp_path, parallelism=3).from_frames([*table.iter_slices(100)])

    assert frame.sort("k").collect()["k"].to_list() == sorted(table["k"].to_list())
    assert len(made) > 10


def test_sorted_files_are_in_order_by_their_names(tmp_path: Path) -> None:
    table = pl.DataFrame({"k": [(n * 7919) % 10_007 for n in range(10_000)]})
    frame = TaskGraph(tmp_path / "store", parallelism=3).from_frames(
        [table.slice(at, 100) for at in range(0, 10_000, 100)]
    )

    files = frame.sort("k").write_parquet(tmp_path / "out")

    assert files == sorted(files)
    assert pl.concat(map(pl.read_parquet, files))["k"].to_list() == sorted(table["k"].to_list())


TIMES = [datetime(2024, 1, 30, 22) + timedelta(hours=5 * n) for n in range(12)]


@pytest.mark.parametrize("every", ["6h", "1d", "1mo", timedelta(days=1), timedelta(hours=7)])
@pytest.mark.parametrize("period", [None, "3h", "2d"])
def test_windows_of_times_are_those_of_polars(tmp_path: Path, every: Any, period: Any) -> None:
    table = pl.DataFrame({"at": TIMES, "k": ["a", "b"] * 6, "v": range(12)})
    frame = TaskGraph(tmp_path, parallelism=2).from_frames([table.slice(7), table.head(7)])

    found = frame.group_by_dynamic("at", every=every, period=period, group_by="k").agg(c("v").sum()).collect()

    expected = table.group_by_dynamic("at", every=every, period=period, group_by="k").agg(c("v").sum())
    # Where windows overlap there are some before the first row.
    after = found.join(expected.group_by("k").agg(first=c("at").min()), on="k").filter(c("at") >= c("first"))
    assert after.drop("first").sort("k", "at").equals(expected.sort("k", "at"))
    assert found.height == expected.height or period == "2d"
    assert found.schema == expected.schema


def test_windows_of_dates_are_those_of_polars(tmp_path: Path) -> None:
    table = pl.DataFrame({"at": [time.date() for time in TIMES], "v": range(12)})
    frame = TaskGraph(tmp_path).from_frames(table)
    found = frame.group_by_dynamic("at", every="1w").agg(pl.len().alias("n")).sort("at").collect()
    assert found.equals(table.group_by_dynamic("at", every="1w").agg(pl.len().alias("n")))


@pytest.mark.parametrize(
    ("column", "every", "period", "says"),
    [
        ("none", 1, None, "no column 'none'"), ("w", 1, None, "'w' is String"), ("v", "1h", None, "whole number"),
        ("v", 0, None, "above 0"), ("at", 5, None, "a time above 0"), ("at", timedelta(0), None, "a time above 0"),
        ("v", 1, 5_000, "too many windows"), ("at", "0h", None, "."), ("at", "1 hour", None, "."),
    ],
)  # fmt: skip
def test_windows_are_refused_when_spans_do_not_fit(
    tmp_path: Path, column: str, every: Any, period: Any, says: str
) -> None:
    frame = TaskGraph(tmp_path).from_frames(pl.DataFrame({"at": TIMES[:1], "v": [1], "w": ["a"]}))
    with pytest.raises((BadInput, pl.exceptions.PolarsError), match=says):
        frame.group_by_dynamic(column, every=every, period=period)


def test_filters_and_columns_pass_windows_and_as_of_joins(tmp_path: Path) -> None:
    rows = pl.DataFrame({"at": range(20), "k": [1, 2] * 10, "v": range(20), "unused": ["x"] * 20})
    rows.write_parquet(tmp_path / "rows.parquet")
    rows.rename({"v": "q"}).write_parquet(tmp_path / "quotes.parquet")
    graph = TaskGraph(tmp_path / "store", parallelism=2)
    left, right = (graph.read_parquet(str(tmp_path / f"{name}.parquet")) for name in ("rows", "quotes"))

    joined = left.join_asof(right, on="at", by="k").filter(c("v") > 15).select("at", "q")
    windows = left.group_by_dynamic("at", every=5, group_by="k").agg(c("v").sum()).filter(c("k") == 1)

    assert sorted(joined.collect().rows()) == [(n, n) for n in range(16, 20)]
    readers = [node.reader for node in inputs(joined)]
    assert [set(reader.schema or ()) for reader in readers] == [{"at", "k", "v"}, {"at", "k", "q"}]
    assert [reader.predicate is None for reader in readers] == [False, True]
    assert sorted(windows.collect().rows()) == [(1, 0, 6), (1, 5, 14), (1, 10, 36), (1, 15, 34)]
    assert inputs(windows)[0].reader.predicate is not None


def test_an_as_of_join_is_refused_when_it_cannot_be(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    frame = graph.from_frames(pl.DataFrame({"at": [1], "k": [1]}))
    with pytest.raises(BadInput, match="columns of times"):
        frame.join_asof(frame, by="k")
    with pytest.raises(BadInput, match="one graph"):
        frame.join_asof(TaskGraph(tmp_path).from_frames(pl.DataFrame({"at": [1]})), on="at")
    with pytest.raises(pl.exceptions.PolarsError):
        frame.join_asof(frame, on="none")
    with pytest.raises(BadInput, match="backward, forward, nearest"):
        frame.join_asof(frame, on="at", strategy="next")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("kind", [pl.Date, pl.Datetime("ms"), pl.Datetime("us", "Europe/Zurich"), pl.Datetime("ns")])
def test_sessions_end_where_nothing_comes_for_a_while(tmp_path: Path, kind: Any) -> None:
    days = [1, 2, 2, 6, 7, 20, None]
    times = [None if day is None else datetime(2024, 3, day) for day in days]
    table = pl.DataFrame({"at": pl.Series(times).cast(pl.Datetime("us")), "k": ["a", None, "a", "a", None, "a", "a"]})
    at = c("at").cast(kind) if kind == pl.Date else c("at").cast(pl.Datetime(kind.time_unit))
    if getattr(kind, "time_zone", None):
        at = at.dt.replace_time_zone(kind.time_zone)
    table = table.with_columns(at)
    frame = TaskGraph(tmp_path, parallelism=2).from_frames([table.slice(3), table.head(3)])

    for gap in ("5d", timedelta(days=5)):
        found = frame.group_by_session("at", gap=gap, group_by="k").agg(n=pl.len()).sort(["k", "at"]).collect()
        assert found.schema == {"k": pl.String, "at": table.schema["at"], "n": pl.UInt32}
        assert [(k, start.day, n) for k, start, n in found.rows()] == [
            (None, 2, 1), (None, 7, 1), ("a", 1, 3), ("a", 20, 1),
        ]  # fmt: skip
    alone = frame.group_by_session("at", gap="2d").agg(pl.len().alias("n")).sort("at").collect()
    assert alone["n"].to_list() == [3, 2, 1]


@pytest.mark.parametrize("kind", [pl.Int32, pl.Int64])
def test_sessions_end_when_the_next_row_is_further_away_than_there_are_numbers(tmp_path: Path, kind: Any) -> None:
    table = pl.select(at=pl.concat([kind.min(), kind.max() - 1, kind.max()]))
    frame = TaskGraph(tmp_path, parallelism=1).from_frames(table)
    assert frame.group_by_session("at", gap=5).agg(n=pl.len()).sort("at").collect()["n"].to_list() == [1, 2]
    windows = SessionWindowExecutor("at", 5, aggregations={"n": "len"})
    windows.execute([table.select(pl.col("at").clip(upper_bound=kind.max() - 9)).head(2)], 0, 0)
    assert [each["n"].to_list() for each in [windows.done(0)] if isinstance(each, pl.DataFrame)] == [[1, 1]]


@pytest.mark.parametrize(
    ("unit", "gap", "lengths"),
    [
        ("ns", "1ns", [2, 1, 1, 1]), ("ns", "2ns", [4, 1]), ("us", "2us", [4, 1]),
        ("us", timedelta(microseconds=4), [5]), ("ms", "1ms1000us", [4, 1]), ("ms", "2000000ns", [4, 1]),
    ],
)  # fmt: skip
def test_sessions_are_told_apart_by_the_unit_of_their_times(tmp_path: Path, unit: Any, gap: Any, lengths: Any) -> None:
    table = pl.DataFrame({"at": [0, 0, 1, 2, 5]}).cast(pl.Datetime(unit))
    frame = TaskGraph(tmp_path, parallelism=1).from_frames(table)

    found = frame.group_by_session("at", gap=gap).agg(n=pl.len()).sort("at").collect()

    assert found["n"].to_list() == lengths


@pytest.mark.parametrize(
    ("kind", "span"),
    [
        (pl.Datetime("us"), "1ns"), (pl.Datetime("us"), "1h1ns"), (pl.Datetime("ms"), "1us"), (pl.Date, "1ns"),
        (pl.Datetime("ms", "UTC"), "1500us"), (pl.Datetime("ms"), timedelta(microseconds=1)),
    ],
)  # fmt: skip
def test_spans_are_refused_when_they_have_parts_of_the_unit_of_times(tmp_path: Path, kind: Any, span: Any) -> None:
    frame = TaskGraph(tmp_path).from_frames(pl.DataFrame({"at": [0]}).cast(kind))

    with pytest.raises(BadInput, match="'at', which is .*, take whole (micro|milli)seconds, not "):
        frame.group_by_session("at", gap=span)
    with pytest.raises(BadInput, match="'at', which is .*, take whole (micro|milli)seconds, not "):
        frame.group_by_dynamic("at", every=span)


def test_sessions_are_refused_when_they_cannot_be(tmp_path: Path) -> None:
    frame = TaskGraph(tmp_path).from_frames(pl.DataFrame({"at": TIMES[:1], "v": [1], "w": ["a"], "l": [[1]]}))
    wrong: list[tuple[str, Any, str]] = [
        ("none", 1, "no column 'none'"), ("w", 1, "'w' is String"), ("v", "1h", "whole number"), ("v", 0, "above 0"),
        ("at", 5, "a time above 0"), ("at", "0h", "a gap above 0"), ("at", "-1h", "a gap above 0"),
        ("at", "1 hour", "."),
    ]  # fmt: skip
    for column, gap, says in wrong:
        with pytest.raises((BadInput, pl.exceptions.PolarsError), match=says):
            frame.group_by_session(column, gap=gap)
    with pytest.raises(BadInput, match="'l' has none"):
        frame.group_by_session("at", gap="1h", group_by="l")


def test_filters_pass_sessions_by_their_keys_only(tmp_path: Path) -> None:
    rows = pl.DataFrame({"at": [0, 1, 2, 9], "k": [1, 1, 1, 2], "v": [0, 5, 0, 0], "unused": ["x"] * 4})
    rows.write_parquet(tmp_path / "rows.parquet")
    frame = TaskGraph(tmp_path / "store", parallelism=2).read_parquet(str(tmp_path / "rows.parquet"))
    made = frame.group_by_session("at", gap=2, group_by="k").agg(n=pl.len()).filter(c("k") == 1, c("at") < 5)

    assert made.collect().rows() == [(1, 0, 3)]
    (reader,) = [node.reader for node in inputs(made)]
    assert set(reader.schema or ()) == {"at", "k"}
    assert reader.predicate is not None


@pytest.mark.parametrize("kind", [pl.Int32, pl.UInt32, pl.Int8])
def test_a_sum_is_right_when_it_does_not_fit_the_type_of_its_column(tmp_path: Path, kind: Any) -> None:
    largest = pl.select(kind.max()).item()
    table = pl.DataFrame({"k": [1, 1, 2], "v": [largest, largest, 5]}, schema={"k": pl.Int64, "v": kind})
    frame = TaskGraph(tmp_path).from_frames(table)

    by_key = frame.group_by("k").agg(pl.col("v").sum()).sort("k")
    total = frame.agg(pl.col("v").sum())

    assert by_key.collect().rows() == [(1, 2 * largest), (2, 5)]
    assert total.collect().rows() == [(2 * largest + 5,)]
    assert by_key.schema["v"] == total.schema["v"] == total.collect().schema["v"] == pl.Int64


def test_a_sum_is_right_when_its_column_has_128_bits(tmp_path: Path) -> None:
    table = pl.DataFrame({"v": [2**70, 2**70]}, schema={"v": pl.Int128})
    assert TaskGraph(tmp_path).from_frames(table).agg(pl.col("v").sum()).collect().item() == 2**71


def test_a_filter_that_may_fail_sees_only_the_rows_that_the_steps_before_it_let_pass(graph: TaskGraph) -> None:
    rows = pl.DataFrame({"k": [1, 2, 3, 4], "t": ["10", "x", "30", "y"]})
    is_large = c("t").cast(pl.Int64) > 10
    frame, numbers = graph.from_frames([rows]), graph.from_frames([pl.DataFrame({"k": [1, 3]})])

    made = [
        frame.filter(c("t").str.contains(r"^\d+$")).filter(is_large, c("k") > 0),
        frame.join(numbers, "k").filter(is_large & (c("k") > 0)),
        frame.join(numbers, "k", how="semi").filter(is_large).filter(c("k") < 9),
        frame.filter(c("k") != 2, c("k") != 4).filter(c("k").map_batches(without_two, pl.Boolean)),
    ]
    assert [each.collect().select("k", "t").rows() for each in made] == [[(3, "30")]] * 4


def without_two(keys: pl.Series) -> pl.Series:
    if 2 in keys:
        raise ValueError("two")
    return keys > 1


@pytest.mark.parametrize("name", ["_0", "_0_sum", "_0_null", "_1_count", "_12"])
def test_keys_have_any_names_when_they_are_those_of_partial_results(graph: TaskGraph, name: str) -> None:
    rows = pl.DataFrame({name: [1, 1, 2, None], "v": [4, 5, 6, 7], "at": [1, 2, 3, 9]})
    made = [c("v").sum(), c("v").mean().alias("mean"), c("at").n_unique(), c(name).max().alias("most")]
    found = graph.from_frames([rows.head(2), rows.tail(2)]).group_by(name).agg(*made).sort(name).collect()
    assert_frame_equal(found, rows.group_by(name).agg(*made).sort(name), check_dtypes=False)

    windows = rows.drop_nulls().rename({name: "at", "at": name})
    by_two = graph.from_frames([windows]).group_by_dynamic(name, every=2).agg(made[0]).sort(name).collect()
    assert by_two.rows() == [(0, 4), (2, 11)]


@pytest.mark.parametrize("period", ["6h", "9h", "14h", "2h"])
@pytest.mark.parametrize("begin", [datetime(2020, 3, 28, 12), datetime(2020, 10, 24, 12)])
def test_each_row_is_in_its_windows_when_clocks_are_changed(tmp_path: Path, begin: datetime, period: str) -> None:
    utc = pl.Series("t", [begin + timedelta(minutes=20 * n) for n in range(-100, 150)]).dt.replace_time_zone("UTC")
    grid = utc.dt.convert_time_zone("Europe/Berlin")
    rows = grid.slice(100, 100).to_frame()
    frame = TaskGraph(tmp_path).from_frames([rows.head(30), rows.slice(30)])
    found = frame.group_by_dynamic("t", every="6h", period=period).agg(n=pl.len()).sort("t").collect()

    starts = grid.dt.truncate("6h").unique().sort().rename("start").to_frame()
    ends = c("start").shift(-1) if period == "6h" else c("start").dt.offset_by(period)
    pairs = rows.join(starts.with_columns(end=ends), how="cross").filter(c("t").is_between("start", "end", "left"))
    assert_frame_equal(found, pairs.group_by(t="start").agg(n=pl.len()).sort("t"))


def test_windows_of_dates_have_the_hours_of_their_period(tmp_path: Path) -> None:
    rows = pl.DataFrame({"t": [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)]})
    windows = TaskGraph(tmp_path).from_frames([rows]).group_by_dynamic("t", every="1d", period="36h")
    assert windows.agg(n=pl.len()).sort("t").collect()["n"].to_list() == [1, 2, 2, 1]


def test_a_sum_is_null_when_its_column_has_nulls_of_no_type(tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": [1, 1, 2], "v": [None] * 3})
    frame = TaskGraph(tmp_path).from_frames([rows])
    assert frame.agg(c("v").sum()).collect().equals(rows.select(c("v").sum()))
    assert frame.group_by("k").agg(c("v").sum()).sort("k").collect().rows() == [(1, None), (2, None)]
