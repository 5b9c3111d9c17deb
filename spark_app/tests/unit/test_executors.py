"""What executors say and do beside their results: bounds, spilling, output files, early ends, wrong arguments."""

from __future__ import annotations

import json
import math
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from executor_runs import check, frames_of, run

from tidemill.graphs.executor import has_ended_early
from tidemill.graphs.executors import spilled_frames
from tidemill.graphs.executors.aggregation import AggExecutor, Aggregation, Groups
from tidemill.graphs.executors.asof import AsOfJoinExecutor
from tidemill.graphs.executors.joins import JoinExecutor
from tidemill.graphs.executors.levels import SEALED_ROWS, Levels
from tidemill.graphs.executors.outputs import (
    MANIFEST,
    OutputCSVExecutor,
    OutputParquetExecutor,
    PublishExecutor,
    staging_of,
)
from tidemill.graphs.executors.rows import DistinctExecutor, LimitExecutor, MergedStorageExecutor
from tidemill.graphs.executors.sort import SortExecutor, TopKExecutor
from tidemill.graphs.executors.spilling_join import OOCJoinExecutor
from tidemill.graphs.executors.spmv import SpMVExecutor
from tidemill.graphs.executors.windows import HoppingWindowExecutor, SessionWindowExecutor, TumblingWindowExecutor
from tidemill.testing import check_confluence
from tidemill.values.errors import BadInput

ROWS = pl.DataFrame({"k": [1, 2, 3], "v": ["a", "b", None]})


def anonymous_bytes() -> int:
    """Memory of this process that is not mapped from files."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def test_sources_may_stop_when_a_limit_is_reached() -> None:
    executor = LimitExecutor(2)
    rows = frames_of(executor.execute([ROWS, ROWS], 0, 0))

    assert sum(frame.height for frame in rows) == 2
    assert has_ended_early(executor)


def test_a_match_goes_on_when_its_second_row_comes() -> None:
    executor = JoinExecutor("k")

    assert frames_of(executor.execute([ROWS], 0, 0)) == []
    assert sum(frame.height for frame in frames_of(executor.execute([ROWS], 1, 0))) == 3


@pytest.mark.parametrize("make", [JoinExecutor, OOCJoinExecutor])
def test_rows_that_met_their_only_partner_are_not_held_when_its_side_is_primary(make: Any) -> None:
    executor = make("k", left_primary=True)
    executor.execute([ROWS], 0, 0)
    executor.execute([pl.DataFrame({"k": [1, 1, 2, 9], "b": [1, 2, 3, 4]})], 1, 0)

    assert [rows["k"].to_list() for rows in executor._right] == [[9]]
    assert executor._left.rows == 3


@pytest.mark.parametrize("batches", [[ROWS, ROWS], [pl.concat([ROWS, ROWS])]])
def test_a_key_is_refused_when_it_comes_twice_on_a_primary_side(batches: list[pl.DataFrame]) -> None:
    executor = JoinExecutor(left_on="v", right_on="k", right_primary=True)

    with pytest.raises(BadInput, match="comes twice"):
        for batch in batches:
            executor.execute([batch], 1, 0)


@pytest.mark.parametrize("given", [{"how": "left"}, {"build": 1}])
def test_a_primary_side_is_refused_when_the_join_needs_all_rows(given: Any) -> None:
    with pytest.raises(BadInput, match="inner joins that hold both sides"):
        JoinExecutor("k", left_primary=True, **given)


NAN = pl.DataFrame({"k": [float("nan")], "i": [1]})


@pytest.mark.parametrize("rows", [1, 3])
def test_values_are_counted_where_the_key_is_nan(rows: int) -> None:
    check(AggExecutor("k", {"n": ("i", "count_distinct")}), {0: pl.concat([NAN] * rows)}, NAN.select("k", n="i"))


@pytest.mark.parametrize(("values", "n"), [([1, 1, 2], 2), ([None], 0)])
def test_distinct_values_are_counted_when_nothing_else_is_aggregated(values: list[Any], n: int) -> None:
    batches = [pl.DataFrame({"v": values}), pl.DataFrame({"v": values})]

    made = run(AggExecutor(None, {"n": ("v", "count_distinct")}), {0: batches})

    assert made.rows() == [(n,)]
    assert made.schema == {"n": pl.Int64}


def test_a_left_row_goes_on_once_when_its_key_comes_before_and_behind_the_spilling() -> None:
    rows = pl.DataFrame({"k": list(range(20))})
    executor = OOCJoinExecutor("k", how="semi", memory_limit=200)

    assert run(executor, {0: [rows.slice(start, 1) for start in range(20)], 1: [rows.slice(0, 1)] * 30}).height == 1
    for limit in (1, 100, 170, 250):
        twice = pl.concat([rows, rows])
        check(OOCJoinExecutor("k", how="semi", memory_limit=limit), {0: rows, 1: twice}, rows)


def test_probing_rows_wait_only_while_the_other_side_is_built() -> None:
    executor = JoinExecutor("k", build=1)
    assert frames_of(executor.execute([ROWS], 1, 0)) + frames_of(executor.execute([ROWS], 0, 0)) == []
    assert frames_of(executor.ended(0, 0)) == []

    assert pl.concat(frames_of(executor.ended(1, 0))).height == 3
    assert pl.concat(frames_of(executor.execute([ROWS], 0, 0))).height == 3
    assert frames_of(executor.done(0)) == []


def test_rows_that_wait_meet_one_frame_when_a_side_is_built() -> None:
    executor = JoinExecutor("k", build=1)
    for keys in ([1, 2, 3, 4, 5, 6], [7, 8], [9]):
        executor.execute([pl.DataFrame({"k": keys})], 1, 0)
    executor.execute([pl.DataFrame({"k": range(20)})], 0, 0)

    made = frames_of(executor.ended(1, 0))
    assert [sorted(frame["k"]) for frame in made] == [list(range(1, 10))]


def test_a_left_join_has_the_columns_of_both_sides_when_no_right_row_came() -> None:
    found = run(JoinExecutor("k", how="left", right_schema={"k": pl.Int64, "b": pl.String}), {0: [ROWS]})

    assert found.columns == ["k", "v", "b"]


def test_keys_of_nulls_only_meet_nothing_when_their_type_is_unknown() -> None:
    nulls = pl.DataFrame({"k": [None], "b": [1]})

    check(JoinExecutor("k", how="left"), {0: ROWS, 1: nulls}, ROWS.with_columns(b=pl.lit(None, pl.Int64)))
    assert run(JoinExecutor("k"), {0: [nulls], 1: [ROWS]}).is_empty()


def test_a_function_makes_the_result_when_it_is_given() -> None:
    executor = JoinExecutor("k", batch_func=lambda rows: rows.select(pl.len().alias("n")))

    assert run(executor, {0: [ROWS], 1: [ROWS]})["n"].to_list() == [3]


def test_frames_stay_few_and_large_ones_stay_as_they_are_when_a_state_grows() -> None:
    levels = Levels()
    large = pl.DataFrame({"k": pl.Series(range(SEALED_ROWS), dtype=pl.Int32)})
    levels.add(large)
    for number in range(1000):
        levels.add(pl.DataFrame({"k": pl.Series([number], dtype=pl.Int32)}))

    frames = list(levels)
    assert frames[0] is large
    assert len(frames) <= 12
    assert levels.rows == SEALED_ROWS + 1000
    levels.settle()
    assert [frame.height for frame in levels] == [SEALED_ROWS, 1000]
    assert next(iter(levels)) is large


@pytest.mark.parametrize("how", ["inner", "left"])
def test_memory_stays_within_its_bound_when_the_sides_of_a_join_are_larger(tmp_path: Path, how: Any) -> None:
    limit, batches, height = 8 << 20, 48, 25_000
    executor = OOCJoinExecutor("k", how=how, memory_limit=limit, spill_folder=str(tmp_path))
    warm = OOCJoinExecutor("k", how=how, memory_limit=1, spill_folder=str(tmp_path))
    run(warm, {0: [ROWS], 1: [ROWS]})
    before, peak, rows = anonymous_bytes(), 0, 0
    for number in range(batches):
        keys = pl.Series("k", range(number * height, (number + 1) * height))
        for stream in (0, 1):
            batch = pl.DataFrame([keys, *((keys + add).alias(f"c{stream}{add}") for add in range(7))])
            rows += sum(frame.height for frame in frames_of(executor.execute([batch], stream, 0)))
        peak = max(peak, anonymous_bytes() - before)
    for frame in frames_of_each(executor.done(0)):
        rows += frame.height
        peak = max(peak, anonymous_bytes() - before) if rows % 10 == 0 else peak

    assert rows == batches * height
    assert 2 * batches * height * 64 > 15 * limit
    assert peak < 6 * limit
    assert list(tmp_path.iterdir()) == []


def frames_of_each(output: Any) -> Any:
    """The frames of an output one by one, not all at once."""
    return iter(output or ())


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("keys", [[[2], [1], None, [1, 0], []], [{"a": 2}, {"a": 1}, None, {"a": None}, {"a": 0}]])
def test_rows_are_sorted_by_lists_and_structures_when_they_exceed_the_memory_limit(keys: Any, falling: bool) -> None:
    executor = SortExecutor("k", falling, memory_limit=1)
    rows = pl.DataFrame({"k": keys})
    for batch in (rows.head(2), rows.slice(2)):
        executor.execute([batch], 0, 0)
    assert pl.concat(frames_of(executor.done(0))).equals(rows.sort("k", descending=falling))


def test_memory_stays_within_its_bound_when_more_is_sorted(tmp_path: Path) -> None:
    limit, batches, height = 8 << 20, 40, 50_000
    executor = SortExecutor("k", memory_limit=limit, spill_folder=str(tmp_path))
    before, peak, last, rows = anonymous_bytes(), 0, -1, 0
    for number in range(batches):
        keys = (pl.Series("k", range(height)) * batches + number).shuffle(number)
        executor.execute([pl.DataFrame([keys, *((keys + add).alias(f"c{add}") for add in range(7))])], 0, 0)
        peak = max(peak, anonymous_bytes() - before)
    for frame in frames_of_each(executor.done(0)):
        assert frame["k"].is_sorted()
        assert frame["k"][0] > last
        last, rows = frame["k"][-1], rows + frame.height
        peak = max(peak, anonymous_bytes() - before)

    assert rows == batches * height
    assert batches * height * 64 > 15 * limit
    assert peak < 8 * limit
    assert list(tmp_path.iterdir()) == []


def test_spilled_rows_are_spilled_again_when_a_checkpoint_comes_back(tmp_path: Path, monkeypatch: Any) -> None:
    executor = OOCJoinExecutor("k", memory_limit=10, spill_folder=str(tmp_path))
    executor.execute([ROWS], 0, 0)
    executor.execute([ROWS], 1, 0)
    state = pickle.loads(pickle.dumps(executor.serialize()))
    count: list[int] = []
    kept = spilled_frames.spilled
    monkeypatch.setattr(spilled_frames, "spilled", lambda rows, folder: count.append(rows.height) or kept(rows, folder))
    again = OOCJoinExecutor("k", memory_limit=10, spill_folder=str(tmp_path))
    again.deserialize(state)
    again.execute([ROWS], 1, 0)

    assert sum(count) >= 6
    assert sum(frame.height for frame in frames_of(again.done(0))) == 6


def written(folder: Path, executor: Any, channel: int = 0) -> list[pl.DataFrame]:
    """The names of the files that a channel wrote."""
    made = frames_of(executor.execute([ROWS], 0, channel)) + frames_of(executor.execute([ROWS], 0, channel))
    return made + frames_of(executor.done(channel))


@pytest.mark.parametrize("kind", [OutputCSVExecutor, OutputParquetExecutor])
def test_files_are_seen_all_at_once_when_all_channels_are_done(tmp_path: Path, kind: Any) -> None:
    folder = tmp_path / "out"
    lost = written(folder, kind(folder, file_bytes=1))
    names = written(folder, kind(folder, file_bytes=1), 0) + written(folder, kind(folder), 1)
    assert not folder.exists()

    publish = PublishExecutor(folder)
    publish.execute(names, 0, 0)
    (files,) = frames_of(publish.done(0))

    assert sorted(files["file"]) == sorted(str(path) for path in folder.glob("part-*"))
    assert files["rows"].sum() == 12
    read = pl.read_csv if kind is OutputCSVExecutor else pl.read_parquet
    assert sum(read(path).height for path in folder.glob("part-*")) == 12
    assert len(json.loads((folder / MANIFEST).read_text())["files"]) == 3
    assert sorted(path.name for path in staging_of(folder).iterdir()) == sorted(
        Path(path).name for frame in lost for path in frame["file"]
    )


@pytest.mark.parametrize("crash", ["link", "rename", "after"])
def test_nothing_or_all_is_seen_when_publishing_is_cut_and_done_again(
    tmp_path: Path, crash: str, monkeypatch: Any
) -> None:
    folder = tmp_path / "out"
    names = written(folder, OutputParquetExecutor(folder, file_bytes=1))
    publish = PublishExecutor(folder)
    publish.execute(names, 0, 0)
    again = pickle.loads(pickle.dumps(publish))
    with monkeypatch.context() as patch:
        target = {
            "link": "os.link",
            "rename": "pathlib.Path.rename",
            "after": "tidemill.graphs.executors.outputs._remove",
        }

        def cut(*arguments: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(target[crash], cut)
        with pytest.raises(KeyboardInterrupt):
            publish.done(0)
    assert folder.exists() == (crash == "after")

    again.done(0)

    assert pl.read_parquet(folder / "part-*.parquet").height == 6


def test_a_resumed_run_publishes_once_when_its_files_were_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    publish = PublishExecutor(folder)
    again = pickle.loads(pickle.dumps(publish))
    publish.execute(written(folder, OutputParquetExecutor(folder)), 0, 0)
    publish.done(0)
    before = sorted(folder.iterdir())
    again.execute(written(folder, OutputParquetExecutor(folder)), 0, 0)

    (files,) = frames_of(again.done(0))

    assert sorted(folder.iterdir()) == before
    assert files["file"].to_list() == [str(path) for path in before if path.suffix == ".parquet"]
    assert not staging_of(folder).exists()


def test_a_folder_that_is_there_is_left_alone_when_an_output_would_replace_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    publish = PublishExecutor(tmp_path / "out")
    publish.execute(written(tmp_path / "out", OutputCSVExecutor(tmp_path / "out")), 0, 0)

    with pytest.raises(BadInput, match="is there already"):
        publish.done(0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_the_folder_holds_a_manifest_only_when_no_row_came(tmp_path: Path) -> None:
    PublishExecutor(tmp_path / "out").done(0)

    assert [path.name for path in (tmp_path / "out").iterdir()] == [MANIFEST]


@pytest.mark.parametrize("kind", [OutputCSVExecutor, OutputParquetExecutor])
def test_outputs_are_confluent_when_rows_are_counted(tmp_path: Path, kind: Any) -> None:
    executor = kind(tmp_path / "out", file_bytes=40)

    check_confluence(executor, {0: ROWS, 1: ROWS}, view=lambda files: files.select(pl.col("rows").sum()), trials=10)


def test_windows_go_on_when_no_stream_can_add_to_them_any_more() -> None:
    executor = TumblingWindowExecutor("t", 10, aggregations={"n": "len"}, allowed_lateness=2, streams=2)
    times = pl.DataFrame({"t": [1, 5, 12]})

    assert frames_of(executor.execute([times], 0, 0)) == []
    (window,) = frames_of(executor.execute([times], 1, 0))
    assert window.row(0) == (0, 10, 4)
    executor.execute([pl.DataFrame({"t": [9, None]})], 1, 0)
    assert executor.dropped_rows == 2
    assert [frame.row(0) for frame in frames_of(executor.done(0))] == [(10, 20, 2)]


@pytest.mark.parametrize("has_rows", [False, True])
def test_windows_wait_for_a_stream_no_more_when_it_has_ended(has_rows: bool) -> None:
    made = TumblingWindowExecutor("t", 10, aggregations={"n": "len"}, allowed_lateness=2, streams=2)
    made.execute([pl.DataFrame({"t": [1, 5, 14]})], 0, 0)
    if has_rows:
        made.execute([pl.DataFrame({"t": [3]})], 1, 0)
    assert [frame.rows() for frame in frames_of(made.ended(1, 0))] == [[(0, 10, 2 + has_rows)]]

    executor = TumblingWindowExecutor("t", 10, aggregations={"n": "len"}, allowed_lateness=2, streams=2)
    executor.deserialize(made.serialize())
    assert [frame.rows() for frame in frames_of(executor.execute([pl.DataFrame({"t": [22]})], 0, 0))] == [[(10, 20, 1)]]
    assert frames_of(executor.ended(0, 0)) == []
    assert [frame.rows() for frame in frames_of(executor.done(0))] == [[(20, 30, 1)]]


def test_windows_wait_for_the_streams_of_their_node_when_an_older_state_says_one() -> None:
    made = TumblingWindowExecutor("t", 10, aggregations={"n": "len"}, allowed_lateness=0)
    executor = made.of_streams(2)
    executor.deserialize(made.serialize() | {"_streams": 1})
    times = pl.DataFrame({"t": [1, 12]})

    assert frames_of(executor.execute([times], 0, 0)) == []
    assert [frame.rows() for frame in frames_of(executor.execute([times], 1, 0))] == [[(0, 10, 2)]]
    assert made.awaited is None and executor.awaited == 2


def test_old_quotes_are_forgotten_when_both_streams_are_sorted() -> None:
    executor = AsOfJoinExecutor("t", by="k", is_sorted=True)
    for start in range(0, 10_000, 100):
        rows = pl.DataFrame({"t": range(start, start + 100), "k": 0})
        executor.execute([rows.with_columns(p=1)], 1, 0)
        executor.execute([rows], 0, 0)

    assert executor._right.rows <= 400


def test_rows_out_of_order_are_refused_when_streams_are_said_to_be_sorted() -> None:
    executor = AsOfJoinExecutor("t", is_sorted=True)
    executor.execute([pl.DataFrame({"t": [5]})], 0, 0)

    with pytest.raises(BadInput, match="not in order"):
        executor.execute([pl.DataFrame({"t": [4]})], 0, 0)


def test_text_cannot_be_summed() -> None:
    with pytest.raises(BadInput, match="'v' is not possible.*keys"):
        AggExecutor().execute([ROWS], 0, 0)


WRONG: list[tuple[Any, str]] = [
    (lambda: AggExecutor("k", {"n": ("v", "median")}), "use one of"),
    (lambda: JoinExecutor(), "as many columns"),
    (lambda: JoinExecutor("k", left_on="k"), "not both"),
    (lambda: JoinExecutor(left_on="k", right_on=["a", "b"]), "as many columns"),
    (lambda: JoinExecutor("k", how="outer"), "not 'outer'"),  # type: ignore[arg-type]  # what is tested
    (lambda: JoinExecutor("k", how="left", build=0), "does not fit"),
    (lambda: AsOfJoinExecutor("t", strategy="forward", is_sorted=True), "leave it out"),
    (lambda: AsOfJoinExecutor("t", strategy="next"), "not 'next'"),  # type: ignore[arg-type]  # what is tested
    (lambda: LimitExecutor(-1), "0 or more"),
    (lambda: TopKExecutor(-1, "k"), "0 or more"),
    (lambda: SortExecutor([]), "needs columns"),
    (lambda: SortExecutor(["a", "b"], [True]), "for each of them"),
    (lambda: OOCJoinExecutor("k", memory_limit=0), "above 0"),
    (lambda: OutputCSVExecutor("x", file_bytes=0), "above 0"),
    (lambda: HoppingWindowExecutor("t", 0, 1, aggregations={}), "above 0"),
    (lambda: SessionWindowExecutor("t", timedelta(0), aggregations={}), "above 0"),
    (lambda: SpMVExecutor().initialize([], 0), "needs the matrix"),
]


@pytest.mark.parametrize(("make", "text"), WRONG)
def test_wrong_arguments_are_refused_where_they_are_given(make: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        make()


def test_columns_of_any_name_pass_through() -> None:
    rows = pl.DataFrame({"k": [1, 2], "_part": [3, 4], "_value": ["a", "b"], "_tick": [5, 6]})

    check(OOCJoinExecutor("k", memory_limit=1), {0: rows, 1: rows.select("k")}, rows)
    wanted = pl.DataFrame({"_value": ["a", "b"], "n": [1, 1]})
    check(AggExecutor("_value", {"n": ("_tick", "count_distinct")}), {0: rows}, wanted)
    windows = TumblingWindowExecutor("k", 10, "_tick", aggregations={"n": "len"})
    assert run(windows, {0: [rows]})["_tick"].sort().to_list() == [5, 6]


@pytest.mark.parametrize(("times", "size"), [([1, 2], timedelta(days=1)), (["a"], 1), ([1.5], 1)])
def test_spans_that_do_not_fit_the_time_are_refused(times: Any, size: Any) -> None:
    executor = TumblingWindowExecutor("t", size, aggregations={"n": "len"})

    with pytest.raises(BadInput):
        executor.execute([pl.DataFrame({"t": times})], 0, 0)


@pytest.mark.parametrize(("batches", "passes"), [(1, 1), (2, 3)])
def test_rows_are_grouped_once_when_they_come_in_one_batch(
    monkeypatch: pytest.MonkeyPatch, batches: int, passes: int
) -> None:
    groups, grouped, rows = Groups(["k"], [Aggregation("s", "v", "sum")]), list[int](), pl.DataFrame({"k": [1, 2, 1]})
    kept = Groups._grouped

    def counted(self: Groups, frame: pl.DataFrame, made: Any) -> pl.DataFrame:
        grouped.append(frame.height)
        return kept(self, frame, made)

    monkeypatch.setattr(Groups, "_grouped", counted)
    for _ in range(batches):
        groups.add(rows.with_columns(v=2))
    result = groups.result()

    assert result is not None
    assert sorted(result.rows()) == [(1, 4 * batches), (2, 2 * batches)]
    assert len(grouped) == passes  # each batch, and one of both


def test_partial_results_are_merged_when_they_come_in_one_batch() -> None:
    groups = Groups(["k"], [Aggregation("s", "v", "sum")])
    groups.add_partial(pl.DataFrame({"k": [1, 1, 2], "_0_sum": [3, 4, 5]}))
    result = groups.result()

    assert result is not None
    assert sorted(result.rows()) == [(1, 7), (2, 5)]


def test_rows_go_only_into_hopping_windows_that_an_idle_input_did_not_end() -> None:
    windows = HoppingWindowExecutor(
        "at", 10, 5, aggregations={"n": ("at", "count")}, allowed_lateness=0, idle_after=timedelta(seconds=1)
    )
    windows.execute([pl.DataFrame({"at": [12]})], 0, 0)
    ended = windows.idle(0)
    windows.execute([pl.DataFrame({"at": [13, 17]})], 0, 0)  # 13 is in none but those, 17 in the next one as well
    left = windows.done(0)

    assert isinstance(ended, pl.DataFrame) and isinstance(left, pl.DataFrame)
    assert ended.rows() == [(5, 15, 1), (10, 20, 1)]
    assert left.rows() == [(15, 25, 1)]
    assert windows.dropped_rows == 1


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("column", ["window_start", "window_end"])
def test_rows_are_late_when_their_windows_are_skipped(unit: Any, zone: str | None, column: str) -> None:
    hour, noon = timedelta(hours=1), datetime(2026, 6, 1, 12, tzinfo=None if zone is None else UTC)
    windows = HoppingWindowExecutor("at", 2 * hour, hour, aggregations={"n": "len"}, allowed_lateness=hour)
    windows.skip_windows(column, noon + (column == "window_end") * 2 * hour, 0)
    times = pl.Series([noon - hour, noon + hour / 2, noon + hour, noon + 2 * hour], dtype=pl.Datetime(unit, zone))
    windows.execute([pl.DataFrame({"at": times})], 0, 0)
    left = windows.done(0)

    assert windows.dropped_rows == 2
    assert isinstance(left, pl.DataFrame)
    assert left["n"].to_list() == [2, 1]  # of 13:00 and 14:00


def test_rows_begin_another_session_when_an_idle_input_ended_the_one_before() -> None:
    sessions = SessionWindowExecutor(
        "at", 10, aggregations={"n": ("at", "count")}, allowed_lateness=5, idle_after=timedelta(seconds=1)
    )
    sessions.execute([pl.DataFrame({"at": [12, 15]})], 0, 0)
    ended = sessions.idle(0)
    sessions.execute([pl.DataFrame({"at": [14, 16]})], 0, 0)
    left = sessions.done(0)

    assert isinstance(ended, pl.DataFrame) and isinstance(left, pl.DataFrame)
    assert ended.rows() == [(12, 25, 2)]
    assert left.rows() == [(16, 26, 1)]


def test_windows_end_and_rows_are_late_when_a_channel_follows_others() -> None:
    windows = TumblingWindowExecutor("at", 10, aggregations={"n": "len"}, allowed_lateness=3)
    sessions = SessionWindowExecutor("at", 10, aggregations={"n": "len"}, allowed_lateness=3)
    for executor in (windows, sessions):
        executor.execute([pl.DataFrame({"at": [3, 18]})], 0, 0)
        assert executor.time_reached() == 15

    assert [frame.rows() for frame in frames_of(windows.follow(20, 0))] == [[(10, 20, 1)]]
    assert frames_of(sessions.follow(20, 0)) == []  # it lasts until 28
    for executor in (windows, sessions):
        assert executor.time_reached() == 20
        executor.execute([pl.DataFrame({"at": [19, 20]})], 0, 0)
        assert executor.dropped_rows == 1
    assert [frame.rows() for frame in frames_of(windows.done(0))] == [[(20, 30, 1)]]
    assert [frame.rows() for frame in frames_of(sessions.done(0))] == [[(18, 30, 2)]]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_channel_without_rows_follows_others_when_the_unit_of_their_times_differs(unit: Any) -> None:
    hour, zero = timedelta(hours=1), timedelta(0)
    first, other = (
        TumblingWindowExecutor("at", hour, aggregations={"n": "len"}, allowed_lateness=zero) for _ in range(2)
    )
    first.execute([at(NOON)], 0, 0)
    reached = first.time_reached()
    assert reached is not None and other.time_reached() is None
    assert frames_of(other.follow(reached, 1)) == []
    other.execute([at(NOON - hour, NOON, NOON + hour, unit=unit)], 0, 1)

    assert other.dropped_rows == 1
    assert other.time_reached() == reached + 3_600_000_000_000


def test_an_idle_time_is_refused_when_it_is_not_above_zero() -> None:
    with pytest.raises(BadInput, match="idle_after is above 0"):
        TumblingWindowExecutor("at", 10, aggregations={"n": ("at", "count")}, idle_after=timedelta(0))


# --- types that differ between batches -------------------------------------------------------------------------------

NULLS = pl.DataFrame({"k": [None]})
TEXTS = pl.DataFrame({"k": ["a"]})
NOON = datetime(2026, 6, 1, 12)


def at(*times: Any, unit: Any = "us") -> pl.DataFrame:
    return pl.DataFrame({"at": times}, schema={"at": pl.Datetime(unit)})


@pytest.mark.parametrize("kind", [TumblingWindowExecutor, SessionWindowExecutor])
def test_windows_go_on_when_the_first_times_are_all_null(kind: Any) -> None:
    executor = kind("at", timedelta(hours=1), aggregations={"n": "len"}, allowed_lateness=timedelta(0))
    made = run(executor, {0: [pl.DataFrame({"at": [None]}), at(NOON), at(NOON)]})

    assert made.rows() == [(NOON, NOON + timedelta(hours=1), 2)]
    assert executor.dropped_rows == 1


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("units", [("us", "ms"), ("ms", "us"), ("ns", "us")])
def test_times_of_several_units_are_refused_when_windows_would_mix_them(units: Any, together: bool) -> None:
    executor = TumblingWindowExecutor("at", timedelta(hours=1), aggregations={"n": "len"})
    one, other = (at(NOON, unit=unit) for unit in units)

    with pytest.raises(BadInput, match="before: cast it to one type"):
        for batches in [[one, other]] if together else [[one], [other]]:
            executor.execute(batches, 0, 0)


def test_windows_of_whole_numbers_are_whole_when_their_type_is_narrow() -> None:
    executor = TumblingWindowExecutor("at", 100, aggregations={"n": "len"})
    narrow = [pl.DataFrame({"at": [value]}, schema={"at": kind}) for value, kind in ((-128, pl.Int8), (255, pl.UInt8))]

    assert run(executor, {0: narrow}).sort("n", "window_start").rows() == [(-200, -100, 1), (200, 300, 1)]


def test_rows_are_distinct_when_their_types_differ_between_batches() -> None:
    batches = [NULLS, NULLS, *(pl.DataFrame({"k": values}) for values in ([1.0, math.nan], [1, 2], [None], [math.nan]))]

    executor = DistinctExecutor()
    found = [row for batch in batches for frame in frames_of(executor.execute([batch], 0, 0)) for row in frame.rows()]
    assert sorted(str(value) for (value,) in found) == ["1.0", "2.0", "None", "nan"]


@pytest.mark.parametrize("other", [["1"], [NOON], [b"1"], [[1]]])
@pytest.mark.parametrize("make", [lambda: AggExecutor("k", {"n": "len"}), lambda: DistinctExecutor("k")])
def test_batches_are_refused_when_their_values_would_become_those_of_another_kind(make: Any, other: Any) -> None:
    executor = make()
    executor.execute([pl.DataFrame({"k": [1]})], 0, 0)

    with pytest.raises(pl.exceptions.SchemaError, match="in several batches"):
        executor.execute([pl.DataFrame({"k": other})], 0, 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pl.Series([[1]]), pl.Series([["1"]])), (pl.Series([{"a": 1}]), pl.Series([{"a": "1"}])),
        (pl.Series([[NOON]]), pl.Series([[1]])), (pl.Series([[{"a": [1]}]]), pl.Series([[{"b": 2, "a": ["1"]}]])),
        (pl.Series([NOON], dtype=pl.Datetime("ms")), pl.Series([NOON], dtype=pl.Datetime("us"))),
        (pl.Series([[]], dtype=pl.List(pl.Duration("ms"))), pl.Series([[]], dtype=pl.List(pl.Duration("us")))),
    ],
)  # fmt: skip
def test_batches_are_refused_when_parts_of_their_values_would_change(one: pl.Series, other: pl.Series) -> None:
    executor = DistinctExecutor("k")
    executor.execute([pl.DataFrame({"k": one})], 0, 0)

    with pytest.raises(pl.exceptions.SchemaError, match="in several batches"):
        executor.execute([pl.DataFrame({"k": other})], 0, 0)


@pytest.mark.parametrize(
    ("one", "other"), [([[1]], [[]]), ([[]], [[1.5]]), ([{"a": 1}], [{"b": "x"}]), ([[{"a": None}]], [[{"a": 1}]])]
)
def test_batches_are_merged_when_parts_of_their_values_are_widened(one: list[Any], other: list[Any]) -> None:
    executor = MergedStorageExecutor()
    made = run(executor, {0: [pl.DataFrame({"k": one}), pl.DataFrame({"k": other})]})

    assert made.height == 2
    assert made["k"].null_count() == 0


@pytest.mark.parametrize("other", [[1.5], [True], [None]])
def test_batches_go_together_when_their_types_are_widened(other: Any) -> None:
    made = run(AggExecutor(None, {"n": ("k", "count")}), {0: [pl.DataFrame({"k": values}) for values in ([1], other)]})

    assert made["n"].to_list() == [1 + (other != [None])]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_keys_of_nulls_only_meet_nothing_when_keys_came_before(how: Any) -> None:
    made = run(JoinExecutor("k", how=how), {1: [TEXTS, NULLS], 0: [NULLS, TEXTS]})

    assert made["k"].to_list() == (["a"] if how == "semi" else [None])


def test_rows_without_a_partner_go_on_when_a_side_of_an_as_of_join_has_nulls_only() -> None:
    lefts = pl.DataFrame({"time": [2], "k": [None]})
    rights = pl.DataFrame({"time": [1], "k": ["a"], "b": [7]})

    assert run(AsOfJoinExecutor(by="k"), {1: [rights], 0: [lefts]}).rows() == [(2, None, None)]
    assert run(AsOfJoinExecutor(by="k"), {1: [lefts], 0: [rights]}).rows() == [(1, "a", 7)]
