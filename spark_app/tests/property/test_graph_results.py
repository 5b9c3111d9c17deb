"""Whole graphs against plain Polars: equal results for any stride, number of channels and batches."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Join, Pass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill import TaskGraph

KEYS = st.none() | st.integers(-4, 4)
CHANNELS = st.integers(1, 4)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    left=st.lists(KEYS, max_size=30), right=st.lists(KEYS, max_size=30), stride=st.integers(1, 60),
    channels=st.tuples(CHANNELS, CHANNELS, CHANNELS, CHANNELS), key=st.sampled_from(["k", ["k"], ["k", "k"]]),
)  # fmt: skip
def test_a_join_and_its_counts_are_those_of_polars_when_a_graph_is_cut_anyhow(
    tmp_path_factory: pytest.TempPathFactory, left: list[Any], right: list[Any], stride: int,
    channels: tuple[int, int, int, int], key: Any,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("graph")
    sides = []
    for name, values in (("a", left), ("b", right)):
        side = pl.DataFrame({"k": values, name: range(len(values))}, schema={"k": pl.Int64, name: pl.Int64})
        side.write_csv(folder / f"{name}.csv", include_header=False)
        sides.append(side)
    graph = TaskGraph(folder / "store", checkpoint_waves=3)
    types = {"k": pl.Int64}
    a = graph.new_input_csv(folder, "a.csv", ["k", "a"], channels[0], stride=stride, schema=types | {"a": pl.Int64})
    b = graph.new_input_csv(folder, "b.csv", ["k", "b"], channels[1], stride=stride, schema=types | {"b": pl.Int64})
    passed = graph.new_non_blocking_node({0: a}, Pass(), channels[3], {0: "a"})
    joined = graph.new_non_blocking_node({0: passed, 1: b}, Join("k"), channels[2], {0: key, 1: key})
    counted = graph.new_blocking_node({0: joined}, Count("k"), channels[3], {0: "k"})
    rows = graph.new_blocking_node({0: joined}, Pass(), channels[0], {0: "a"})
    graph.run()

    expected = sides[0].join(sides[1], on="k")
    found = rows.to_polars()
    assert sorted(found.rows()) == sorted(expected.rows())
    counts = dict(expected.group_by("k").agg(pl.len()).rows())
    assert dict(counted.to_polars().rows()) == counts
