"""The programs of the Quokka document: TPC-H 6, TPC-H 12, and a join and a count in two graphs."""

from __future__ import annotations

from datetime import date

import polars as pl

from examples.taskgraph.data import TABLES, scheme
from tidemill import AggExecutor, CountExecutor, Dataset, JoinExecutor, OOCJoinExecutor, TaskGraph


def lineitem_filter(df: pl.DataFrame) -> pl.DataFrame:
    """The revenue of a batch, as one row."""
    df = df.filter(
        pl.col("l_shipdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
        & pl.col("l_discount").is_between(0.05 - 1e-9, 0.07 + 1e-9)
        & (pl.col("l_quantity") < 24)
    )
    return df.select(revenue=(pl.col("l_extendedprice") * pl.col("l_discount")).sum())


def tpch_6(bucket: str, key: str = "lineitem.tbl") -> Dataset:
    """One row: `revenue`."""
    lineitem_scheme = scheme("lineitem")

    task_graph = TaskGraph()
    lineitem = task_graph.new_input_csv(
        bucket, key, lineitem_scheme, 8, batch_func=lineitem_filter, sep="|", schema=TABLES["lineitem"]
    )
    agg_executor = AggExecutor()
    agged = task_graph.new_blocking_node({0: lineitem}, agg_executor, 1, {0: None})
    task_graph.initialize()
    task_graph.run()
    return agged


def orders_filter(df: pl.DataFrame) -> pl.DataFrame:
    """The columns that the join needs."""
    return df.select("o_orderkey", "o_orderpriority")


def late_lineitems(df: pl.DataFrame) -> pl.DataFrame:
    """Orders and modes of the items that were received late in 1994 by mail or ship."""
    df = df.filter(
        pl.col("l_shipmode").is_in(["MAIL", "SHIP"])
        & (pl.col("l_commitdate") < pl.col("l_receiptdate"))
        & (pl.col("l_shipdate") < pl.col("l_commitdate"))
        & pl.col("l_receiptdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
    )
    return df.select("l_orderkey", "l_shipmode")


def lines_by_priority(df: pl.DataFrame) -> pl.DataFrame:
    """Of a joined batch the lines of high and of low priority, by mode."""
    high = pl.col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return df.group_by("l_shipmode").agg(high_line_count=high.sum(), low_line_count=(~high).sum())


def tpch_12(bucket: str) -> Dataset:
    """A row per mode: `l_shipmode`, `high_line_count`, `low_line_count`."""
    task_graph = TaskGraph()
    orders = task_graph.new_input_csv(
        bucket,
        "orders.tbl",
        scheme("orders"),
        {"localhost": 8},
        batch_func=orders_filter,
        sep="|",
        schema=TABLES["orders"],
    )
    lineitem = task_graph.new_input_csv(
        bucket, "lineitem.tbl", scheme("lineitem"), {"localhost": 8}, batch_func=late_lineitems, sep="|",
        schema=TABLES["lineitem"],
    )  # fmt: skip
    join_executor = JoinExecutor(left_on="o_orderkey", right_on="l_orderkey", batch_func=lines_by_priority)
    joined = task_graph.new_non_blocking_node(
        {0: orders, 1: lineitem}, None, join_executor, {"localhost": 2}, {0: "o_orderkey", 1: "l_orderkey"}
    )
    agg_executor = AggExecutor("l_shipmode")
    agged = task_graph.new_blocking_node({0: joined}, None, agg_executor, {"localhost": 1}, {0: None})
    task_graph.initialize()
    task_graph.run()
    return agged


def join_and_count(bucket: str) -> Dataset:
    """A row per channel: `count`, whose sum is the number of rows of a-big.csv joined to b-big.csv."""
    task_graph = TaskGraph()
    a = task_graph.new_input_csv(
        bucket, "a-big.csv", ["key"] + ["avalue" + str(i) for i in range(100)], {"localhost": 2}
    )
    b = task_graph.new_input_csv(
        bucket, "b-big.csv", ["key"] + ["bvalue" + str(i) for i in range(100)], {"localhost": 2}
    )
    join_executor = OOCJoinExecutor(on="key")
    output = task_graph.new_blocking_node({0: a, 1: b}, None, join_executor, {"localhost": 4}, {0: "key", 1: "key"})
    task_graph.initialize()
    task_graph.run()
    del task_graph

    task_graph2 = TaskGraph()
    count_executor = CountExecutor()
    joined_stream = task_graph2.new_input_from_dataset(output, {"localhost": 4})
    final = task_graph2.new_blocking_node({0: joined_stream}, None, count_executor, {"localhost": 4}, {0: "key"})
    task_graph2.initialize()
    task_graph2.run()
    return final
