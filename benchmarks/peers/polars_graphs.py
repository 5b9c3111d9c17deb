"""The comparison: Polars' streaming engine runs the queries of the graphs, and PageRank is a loop over its frames."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

import polars as pl
from polars import col

from benchmarks.graph_files import DAMPING, PAGES, RANK_ROUNDS, Result, Runs, scan, shown


def queries(folder: Path, kind: str) -> Runs:
    """TPC-H 6 and 12, and a join with a count."""
    year = (date(1994, 1, 1), date(1995, 1, 1))
    items = scan(folder, "lineitem", kind)
    high = col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    six = items.filter(
        col("l_shipdate").is_between(*year, closed="left"),
        col("l_discount").is_between(0.05 - 1e-9, 0.07 + 1e-9),
        col("l_quantity") < 24,
    ).select((col("l_extendedprice") * col("l_discount")).sum())
    late = items.filter(
        col("l_shipmode").is_in(["MAIL", "SHIP"]),
        col("l_commitdate") < col("l_receiptdate"),
        col("l_shipdate") < col("l_commitdate"),
        col("l_receiptdate").is_between(*year, closed="left"),
    )
    joined = late.join(scan(folder, "orders", kind), left_on="l_orderkey", right_on="o_orderkey")
    twelve = joined.group_by("l_shipmode").agg(high.sum(), low=(~high).sum()).sort("l_shipmode")
    count = scan(folder, "a", kind).join(scan(folder, "b", kind), on="key").select(pl.len())
    plans = {"tpch_q6": six, "tpch_q12": twelve, "join_count": count}
    return {name: partial(_streamed, plan) for name, plan in plans.items()}


def _streamed(plan: pl.LazyFrame) -> Result:
    return plan.collect(engine="streaming").rows()


def ranks(folder: Path) -> Callable[[], Result]:
    """Rounds of PageRank as a loop over frames in memory."""
    links = pl.read_parquet(folder / "links.parquet")
    degrees = links.group_by("source").agg(pl.len().alias("degree"))
    weighted = links.join(degrees, on="source").with_columns(weight=1.0 / col("degree"))
    pages = pl.DataFrame({"y": pl.int_range(PAGES, eager=True)})
    dangling = pages.join(degrees, left_on="y", right_on="source", how="anti")

    def run() -> Result:
        vector = pages.with_columns(val=pl.lit(1.0 / PAGES))
        for _ in range(RANK_ROUNDS):
            lost = float(dangling.join(vector, on="y")["val"].sum())
            products = weighted.join(vector, left_on="source", right_on="y").with_columns(col("val") * col("weight"))
            sums = products.group_by("target").agg(col("val").sum())
            base = (1 - DAMPING + DAMPING * lost) / PAGES
            vector = pages.join(sums, left_on="y", right_on="target", how="left").with_columns(
                val=DAMPING * col("val").fill_null(0.0) + base
            )
        return shown(vector.sort("y")["val"])

    return run
