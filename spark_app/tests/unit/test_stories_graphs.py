"""The programs that the document of task graphs prints, with names of files in place of a bucket's, and TPC-H 12 and
PageRank, which it draws. Results are compared with plain Polars and NumPy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tidemill import (
    AggExecutor,
    CountExecutor,
    JoinExecutor,
    MergedStorageExecutor,
    OOCJoinExecutor,
    RangePartition,
    SpMVExecutor,
    TaskGraph,
)

LINEITEM = [
    "l_orderkey", "l_quantity", "l_extendedprice", "l_discount", "l_shipdate", "l_commitdate", "l_receiptdate",
    "l_shipmode", "null",
]  # fmt: skip
ENGINES = ["local", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small tables; Datasets go to the default store of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMILL_STORE", raising=False)
    random = np.random.default_rng(7)
    rows = 3000
    days = np.datetime64("1993-10-01") + random.integers(0, 600, rows)
    lineitem = pl.DataFrame(
        {
            "l_orderkey": random.integers(0, 700, rows), "l_quantity": random.integers(1, 50, rows).astype(float),
            "l_extendedprice": random.integers(100, 9999, rows) / 100, "l_discount": random.integers(0, 11, rows) / 100,
            "l_shipdate": days, "l_commitdate": days + random.integers(-9, 30, rows),
            "l_receiptdate": days + random.integers(1, 60, rows),
            "l_shipmode": random.choice(["MAIL", "SHIP", "AIR"], rows), "null": [None] * rows,
        }
    )  # fmt: skip
    lineitem.write_csv(tmp_path / "lineitem.tbl", separator="|", include_header=False)
    orders = {"o_orderkey": range(700), "o_orderpriority": random.choice(["1-URGENT", "2-HIGH", "5-LOW"], 700)}
    pl.DataFrame(orders | {"null": [None] * 700}).write_csv(
        tmp_path / "orders.tbl", separator="|", include_header=False
    )
    for name in ("a", "b"):
        keys = random.integers(-50, 50, 400)
        pl.DataFrame({"key": keys} | {f"{name}value{i}": range(400) for i in range(3)}).write_csv(
            tmp_path / f"{name}-big.csv", include_header=False
        )
    return tmp_path


def table(bucket: Path) -> pl.DataFrame:
    return pl.read_csv(bucket / "lineitem.tbl", separator="|", has_header=False, new_columns=LINEITEM)


def lineitem_filter(df: Any) -> Any:
    chosen = df.filter(
        (pl.col("l_shipdate") >= "1994-01-01") & (pl.col("l_shipdate") < "1995-01-01")
        & pl.col("l_discount").is_between(0.05, 0.07) & (pl.col("l_quantity") < 24)
    )  # fmt: skip
    return chosen.select((pl.col("l_extendedprice") * pl.col("l_discount")).sum().alias("revenue"))


def test_tpch_query_6_gives_its_sum_when_written_as_printed(bucket: Path) -> None:
    key, lineitem_scheme = "lineitem.tbl", LINEITEM

    task_graph = TaskGraph()
    lineitem = task_graph.new_input_csv(bucket, key, lineitem_scheme, 8, batch_func=lineitem_filter, sep="|")
    agg_executor = AggExecutor()
    agged = task_graph.new_blocking_node({0: lineitem}, agg_executor, 1, {0: None})
    task_graph.initialize()
    task_graph.run()

    assert agged.to_polars().item() == pytest.approx(lineitem_filter(table(bucket)).item())
    assert agged.num_rows == 1
    assert os.path.isdir("tidemill-data")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_join_is_counted_in_two_stages_when_written_as_printed(
    bucket: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    task_graph = TaskGraph(engine=engine)
    a = task_graph.new_input_csv(bucket, "a-big.csv", ["key"] + ["avalue" + str(i) for i in range(3)], {"localhost": 2})
    b = task_graph.new_input_csv(bucket, "b-big.csv", ["key"] + ["bvalue" + str(i) for i in range(3)], {"localhost": 2})
    join_executor = OOCJoinExecutor(on="key")
    output = task_graph.new_blocking_node({0: a, 1: b}, None, join_executor, {"localhost": 4}, {0: "key", 1: "key"})
    task_graph.initialize()
    task_graph.run()
    del task_graph

    task_graph2 = TaskGraph(engine=engine)
    count_executor = CountExecutor()
    joined_stream = task_graph2.new_input_from_dataset(output, {"localhost": 4})
    final = task_graph2.new_blocking_node({0: joined_stream}, None, count_executor, {"localhost": 4}, {0: "key"})
    task_graph2.initialize()
    task_graph2.run()

    sides = [
        pl.read_csv(
            bucket / f"{name}-big.csv", has_header=False, new_columns=["key", f"{name}0", f"{name}1", f"{name}2"]
        )
        for name in ("a", "b")
    ]
    expected = sides[0].join(sides[1], on="key").height
    assert output.num_rows == expected
    assert final.to_polars().sum_horizontal().sum() == expected  # a number for each channel


@pytest.mark.parametrize("engine", ENGINES)
def test_tpch_query_12_gives_its_rows_when_orders_meet_their_lines(
    bucket: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")

    def lines(df: Any) -> Any:
        chosen = df.filter(
            pl.col("l_shipmode").is_in(["MAIL", "SHIP"]) & (pl.col("l_commitdate") < pl.col("l_receiptdate"))
            & (pl.col("l_shipdate") < pl.col("l_commitdate")) & (pl.col("l_receiptdate") >= "1994-01-01")
            & (pl.col("l_receiptdate") < "1995-01-01")
        )  # fmt: skip
        return chosen.select("l_orderkey", "l_shipmode")

    def counted(df: pl.DataFrame) -> pl.DataFrame:
        is_high = pl.col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
        return df.group_by("l_shipmode").agg(
            is_high.cast(pl.Int64).sum().alias("high"), (~is_high).cast(pl.Int64).sum().alias("low")
        )

    graph = TaskGraph(engine=engine)
    orders = graph.new_input_csv(
        bucket, "orders.tbl", ["o_orderkey", "o_orderpriority", "null"], {"localhost": 8}, sep="|",
        batch_func=lambda df: df.select("o_orderkey", "o_orderpriority"), stride=2000,
    )  # fmt: skip
    lineitem = graph.new_input_csv(
        bucket, "lineitem.tbl", LINEITEM, {"localhost": 8}, batch_func=lines, sep="|", stride=20_000
    )
    join_executor = JoinExecutor(left_on="o_orderkey", right_on="l_orderkey", batch_func=counted)
    joined = graph.new_non_blocking_node(
        {0: orders, 1: lineitem}, None, join_executor, {"localhost": 2}, {0: "o_orderkey", 1: "l_orderkey"}
    )
    agged = graph.new_blocking_node({0: joined}, None, AggExecutor("l_shipmode"), {"localhost": 1}, {0: None})
    graph.initialize()
    graph.run()

    priorities = pl.read_csv(
        bucket / "orders.tbl", separator="|", has_header=False, new_columns=["o_orderkey", "o_orderpriority", "null"]
    )
    expected = counted(lines(table(bucket)).join(priorities, left_on="l_orderkey", right_on="o_orderkey"))
    assert sorted(agged.to_polars().select("l_shipmode", "high", "low").rows()) == sorted(expected.rows())
    assert expected["high"].sum() > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_pagerank_is_that_of_dense_matrices_when_the_matrix_is_cached_by_channel(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    nodes, blocks, damping, rounds = 40, 4, 0.85, 3
    random = np.random.default_rng(3)
    edges = np.unique(random.integers(0, nodes, (150, 2)), axis=0)
    weights = 1.0 / np.bincount(edges[:, 1], minlength=nodes)[edges[:, 1]]
    pl.DataFrame({"x": edges[:, 0], "y": edges[:, 1], "w": weights}).write_csv(
        tmp_path / "matrix.txt", separator=" ", include_header=False
    )
    bounds = RangePartition("x", [nodes * block // blocks for block in range(1, blocks)])

    cache = TaskGraph(tmp_path / "store", engine=engine)
    matrix = cache.new_input_csv(tmp_path, "matrix.txt", ["x", "y", "w"], {"localhost": 8}, sep=" ", stride=300)
    cached = cache.new_blocking_node({0: matrix}, None, MergedStorageExecutor(), {"localhost": blocks}, {0: bounds})
    cache.run()

    dangling = np.setdiff1d(np.arange(nodes), edges[:, 1])
    rank = pl.DataFrame({"y": range(nodes), "val": np.full(nodes, 1 / nodes)})
    dense, expected = np.zeros((nodes, nodes)), np.full(nodes, 1 / nodes)
    dense[edges[:, 0], edges[:, 1]] = weights
    for _ in range(rounds):
        graph = TaskGraph(tmp_path / "store", engine=engine)
        vector = graph.new_input_frames(rank, 2)
        spmv = graph.new_blocking_node(
            {0: vector}, [cached], SpMVExecutor("x", "y", "val", weight="w"), {"localhost": blocks}, {0: None}
        )
        graph.run()
        lost = rank.filter(pl.col("y").is_in(dangling.tolist()))["val"].sum()
        rest = (1 - damping + damping * lost) / nodes
        rank = (
            pl.DataFrame({"y": range(nodes)}, schema={"y": pl.Int64})
            .join(spmv.to_polars(), on="y", how="left")
            .select("y", (rest + damping * pl.col("val").fill_null(0.0)).alias("val"))
        )
        expected = damping * (dense @ expected) + (1 - damping + damping * expected[dangling].sum()) / nodes

    assert len(cached) == blocks
    assert np.allclose(rank.sort("y")["val"].to_numpy(), expected)
    assert rank["val"].sum() == pytest.approx(1)
