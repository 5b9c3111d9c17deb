"""Joins of frames with heavy keys: found in a sample, dealt to all channels, and joined as Polars joins them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill import GraphFrame, SplitPartition, TaskGraph
from tidemill.graphs.frames import compiler, heavy_keys
from tidemill.graphs.multisets import difference
from tidemill.graphs.nodes import TaskNode

CHANNELS = 4
HOWS = ["inner", "left", "semi", "anti"]


@pytest.fixture(autouse=True)
def small_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """No side is so small that it is copied whole, and a few rows of a sample count."""
    monkeypatch.setattr(compiler, "BROADCAST_BYTES", 10_000)
    monkeypatch.setattr(heavy_keys, "SAMPLED_ROWS_MIN", 2)


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.fixture
def all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side is as large as one that is copied may be."""
    monkeypatch.setattr(compiler, "BROADCAST_BYTES", 1.0)
    monkeypatch.setattr(compiler, "size", lambda plan: 1.0)


def heavy_in(frame: GraphFrame) -> list[tuple[Any, ...]]:
    """The streams of a frame's joins that have heavy keys: whether these are copied, and the keys."""
    found = []
    for node in frame.graph._definition.nodes:
        keys = node.partitions if isinstance(node, TaskNode) else {}
        found += [(stream, key.copied, key.heavy) for stream, key in keys.items() if isinstance(key, SplitPartition)]
    return found


def skewed(rows: int = 4_000) -> pl.DataFrame:
    """Four of five rows have the key 7."""
    return pl.DataFrame({"k": [7 if n % 5 else n for n in range(rows)], "v": range(rows)})


def named(rows: int = 4_000) -> pl.DataFrame:
    return pl.DataFrame({"k": range(rows), "name": [f"name {n}" for n in range(rows)]})


@pytest.mark.parametrize("how", HOWS)
def test_a_join_is_that_of_polars_when_a_key_is_heavy(store: str, how: Any) -> None:
    graph = TaskGraph(store, parallelism=CHANNELS)
    left, right = skewed(), named()
    made = graph.from_frames(left).join(graph.from_frames(right), "k", how=how)

    assert heavy_in(made) == [(0, False, ((7,),)), (1, True, ((7,),))]
    assert difference(made.collect(), left.join(right, on="k", how=how)) == ""


def test_no_channel_has_a_third_more_than_its_part_when_a_key_is_heavy(store: str) -> None:
    graph = TaskGraph(store, parallelism=CHANNELS)
    made = graph.from_frames(skewed()).join(graph.from_frames(named()), "k").graph
    made.run()
    (dataset,) = made.datasets().values()
    rows = [sum(each.rows for each in dataset.record.objects if each.channel == number) for number in range(CHANNELS)]

    assert sum(rows) == 4_000
    assert max(rows) <= 1.3 * 4_000 / CHANNELS


@pytest.mark.parametrize("form", ["csv", "parquet", "frames", "dataset"])
def test_heavy_keys_are_found_wherever_they_stand_in_an_input(store: str, tmp_path: Path, form: str) -> None:
    rows = pl.concat([named(20_000).select("k", v="k"), pl.DataFrame({"k": [7] * 20_000, "v": range(20_000)})])
    graph = TaskGraph(store, parallelism=CHANNELS)
    if form == "csv":
        rows.write_csv(tmp_path / "rows.csv")
        frame = graph.read_csv(str(tmp_path / "rows.csv"))
    elif form == "parquet":
        rows.write_parquet(tmp_path / "rows.parquet", row_group_size=3_000)
        frame = graph.read_parquet(str(tmp_path / "rows.parquet"))
    elif form == "frames":
        frame = graph.from_frames([rows.head(9_000), rows.slice(9_000)])
    else:
        frame = graph.read_dataset(graph.from_frames([rows.head(9_000), rows.slice(9_000)]).materialize())
    others = graph.from_frames(named())

    assert heavy_in(frame.join(others, "k")) == [(0, False, ((7,),)), (1, True, ((7,),))]
    shown = frame.filter(pl.col("v") >= 0).with_columns(k=pl.col("k") + 1)
    assert heavy_in(shown.join(others, "k"))[0] == (0, False, ((8,),))
    assert heavy_in(frame.filter(pl.col("k") != 7).join(others, "k")) == []
    joined_before = frame.join(graph.from_frames(named().rename({"name": "other"})), "k")
    assert len(heavy_in(joined_before.join(others, "k"))) == 4


def test_the_side_that_is_held_is_split_when_it_has_the_heavy_keys(store: str) -> None:
    graph = TaskGraph(store, parallelism=CHANNELS)
    left, right = named(6_000), skewed(2_000)
    frames = graph.from_frames(left), graph.from_frames(right)

    inner = frames[0].join(frames[1], "k")
    assert heavy_in(inner) == [(1, False, ((7,),)), (0, True, ((7,),))]
    assert difference(inner.collect(), left.join(right, on="k")) == ""
    assert heavy_in(frames[0].join(frames[1], "k", how="left")) == []


def test_nothing_is_split_when_both_sides_have_many_rows_of_a_key(store: str) -> None:
    graph = TaskGraph(store, parallelism=CHANNELS)
    made = graph.from_frames(skewed()).join(graph.from_frames(skewed()), "k", how="semi")
    assert heavy_in(made) == []
    assert made.collect().height == 4_000


@pytest.mark.usefixtures("all_count")
def test_aggregates_are_copied_though_nobody_can_sample_them(store: str) -> None:
    graph = TaskGraph(store, parallelism=CHANNELS)
    rows = graph.from_frames(skewed())
    counted = rows.group_by("k").agg(n=pl.len())
    assert heavy_in(rows.join(counted, "k"))[0] == (0, False, ((7,),))
    assert rows.join(counted, "k").filter(pl.col("k") == 7).agg(pl.col("n").max()).collect().item() == 3_200


@pytest.mark.parametrize(
    "value",
    ["seven", True, date(2026, 1, 7), datetime(2026, 1, 7, 12, 30, 0, 1), -7, None],
)
@pytest.mark.usefixtures("all_count")
def test_keys_of_other_types_are_split_when_they_are_heavy(store: str, value: Any) -> None:
    others = {str: "a", bool: False, date: date(2026, 1, 1), datetime: datetime(2026, 1, 1)}.get(type(value), 1)
    left = pl.DataFrame({"k": [value] * 90 + [others] * 10, "v": range(100)})
    right = pl.DataFrame({"k": [value, others], "w": [1, 2]}, schema_overrides={"k": left.schema["k"]})
    graph = TaskGraph(store, parallelism=CHANNELS)
    made = graph.from_frames(left).join(graph.from_frames([right] * 3), "k", how="left")

    assert (value,) in heavy_in(made)[0][2]
    assert difference(made.collect(), left.join(pl.concat([right] * 3), on="k", how="left")) == ""


def test_keys_that_python_has_not_as_they_are_stay_together(store: str) -> None:
    for kind in (pl.Float64, pl.Datetime("ns"), pl.Datetime("us", "Europe/Zurich"), pl.Categorical):
        values = pl.Series("k", ["1"] * 50 if kind == pl.Categorical else [1] * 50).cast(kind)
        graph = TaskGraph(store, parallelism=CHANNELS)
        frame = graph.from_frames(values.to_frame())
        assert heavy_in(frame.join(graph.from_frames(values.to_frame().unique()), "k")) == []


def test_a_sample_that_cannot_be_made_leaves_the_join_as_it_was(store: str) -> None:
    def fails(value: int) -> int:
        raise RuntimeError("not in a sample")

    graph = TaskGraph(store, parallelism=CHANNELS)
    frame = graph.from_frames(skewed()).with_columns(k=pl.col("k").map_elements(fails, return_dtype=pl.Int64))
    assert heavy_in(frame.join(graph.from_frames(named()), "k")) == []


def test_a_resumed_graph_deals_rows_as_it_began_when_its_files_are_others_now(store: str, tmp_path: Path) -> None:
    """The choice is stored with the graph: nobody looks at a sample again."""
    graph = TaskGraph(store, parallelism=CHANNELS)
    made = graph.from_frames(skewed()).join(graph.from_frames(named()), "k").graph
    made.stop()
    made.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heavy_keys, "sample", lambda *given: pytest.fail("a sample was taken again"))
        again = TaskGraph.resume(made.id, store)
        again.run()
    assert again.explain() == made.explain()
    assert "with 1 heavy key(s) dealt in turn" in made.explain()
    (dataset,) = again.datasets().values()
    assert dataset.num_rows == 4_000


ROWS = st.lists(st.tuples(st.none() | st.integers(-1, 3), st.sampled_from("xy")), min_size=1, max_size=40)


@settings(max_examples=60)
@given(ROWS, ROWS, st.sampled_from(HOWS), st.sampled_from([["k"], ["k", "t"]]), st.integers(2, 4))
def test_any_join_is_that_of_polars_whatever_keys_are_taken_for_heavy(
    store: str, left_rows: Any, right_rows: Any, how: Any, on: list[str], channels: int
) -> None:
    schema = {"k": pl.Int64, "t": pl.String}
    left = pl.DataFrame(left_rows, schema=schema, orient="row").with_row_index("a")
    right = pl.DataFrame(right_rows, schema=schema, orient="row").with_row_index("b")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "BROADCAST_BYTES", 1.0)
        patch.setattr(compiler, "size", lambda plan: 1.0)
        patch.setattr(heavy_keys, "SAMPLED_ROWS_MIN", 2)
        graph = TaskGraph(store, parallelism=channels, checkpoint_waves=None)
        frames = graph.from_frames([left.head(20), left.slice(20)]), graph.from_frames(right)
        found = frames[0].join(frames[1], on, how=how).collect()
    assert difference(found, left.join(right, on=on, how=how)) == ""
