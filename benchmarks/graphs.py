"""Queries over files as frames of a task graph and in Polars' streaming engine, and PageRank in both.

usage: python -m benchmarks.graphs FOLDER tidemill|polars tables|pagerank ROUNDS   (prints one JSON object)
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from examples.taskgraph import pagerank, queries
from examples.taskgraph.data import TABLES, generate
from polars import col

from tidemill import GraphFrame, TaskGraph

WIDE = [f"value{number}" for number in range(20)]
PAGES, LINKS, RANK_ROUNDS, DAMPING = 200_000, 2_000_000, 10, 0.85
Result = list[Any]


def write(folder: Path, scale: float) -> None:
    """The TPC-H tables and two wide ones as CSV and as Parquet, and the links of PageRank."""
    generate(folder, scale)
    for table in ("orders", "lineitem"):
        scan(folder, table, "csv").sink_parquet(folder / f"{table}.parquet")
    chosen = np.random.default_rng(1)
    for name, rows in (("a", 4_000_000), ("b", 1_000_000)):
        keys = pl.Series("key", chosen.integers(0, 2_000_000, int(rows * scale)))
        wide = keys.to_frame().with_columns(pl.lit(number).alias(value) for number, value in enumerate(WIDE))
        wide.write_csv(folder / f"{name}.csv")
        wide.write_parquet(folder / f"{name}.parquet")
    links = {"source": chosen.integers(0, PAGES, LINKS), "target": chosen.zipf(1.5, LINKS) % PAGES}
    pl.DataFrame(links).unique().write_parquet(folder / "links.parquet")


def scan(folder: Path, table: str, kind: str) -> pl.LazyFrame:
    """A table in Polars."""
    if kind == "parquet":
        return pl.scan_parquet(folder / f"{table}.parquet")
    if table not in TABLES:
        return pl.scan_csv(folder / f"{table}.csv")
    types = {**TABLES[table], "null": pl.String}
    file = folder / f"{table}.tbl"
    lazy = pl.scan_csv(file, has_header=False, separator="|", quote_char=None, schema=types)
    return lazy.select(*TABLES[table])


class GraphTables(queries.Tables):
    """The tables as frames of a graph, with the names that the queries use."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(TaskGraph(folder / "store", checkpoint_waves=None), str(folder))
        self._kind = kind

    def __getattr__(self, table: str) -> GraphFrame:
        if self._kind == "parquet":
            return self._graph.read_parquet(f"{self._folder}/{table}.parquet")
        if table not in TABLES:
            return self._graph.read_csv(f"{self._folder}/{table}.csv", quote_char=None)
        return super().__getattr__(table)


def in_graphs(folder: Path, kind: str) -> dict[str, Callable[[], Result]]:
    """The queries as task graphs."""
    tables = GraphTables(folder, kind)
    return {
        "tpch_q6": lambda: queries.q6(tables).collect().rows(),
        "tpch_q12": lambda: queries.q12(tables).collect().rows(),
        "join_count": lambda: tables.a.join(tables.b, "key").agg(pl.len()).collect().rows(),
    }


def in_polars(folder: Path, kind: str) -> dict[str, Callable[[], Result]]:
    """The same in Polars, streaming."""
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
    return {name: partial(streamed, plan) for name, plan in plans.items()}


def streamed(plan: pl.LazyFrame) -> Result:
    """The rows of a plan, which Polars' streaming engine runs."""
    return plan.collect(engine="streaming").rows()


def ranks_in_graphs(folder: Path) -> Callable[[], Result]:
    """Rounds of PageRank as one graph; the matrix is stored before."""
    store = str(folder / "store")
    datasets = pagerank.matrix_of(pl.read_parquet(folder / "links.parquet"), PAGES, store)
    vector = pl.DataFrame({"y": pl.int_range(PAGES, eager=True)}).with_columns(val=pl.lit(1.0 / PAGES))
    return lambda: shown(pagerank.rounds(vector, datasets, RANK_ROUNDS, DAMPING, store)["val"])


def ranks_in_polars(folder: Path) -> Callable[[], Result]:
    """The same rounds as a loop over frames in memory."""
    links = pl.read_parquet(folder / "links.parquet")
    degrees = links.group_by("source").agg(pl.len().alias("degree"))
    weighted = links.join(degrees, on="source").with_columns(weight=1.0 / col("degree"))
    pages = pl.DataFrame({"y": pl.int_range(PAGES, eager=True)})
    dangling = pages.join(degrees, left_on="y", right_on="source", how="anti")

    def run() -> Result:
        vector = pages.with_columns(val=pl.lit(1.0 / PAGES))
        for _ in range(RANK_ROUNDS):
            lost = dangling.join(vector, on="y")["val"].sum()
            products = weighted.join(vector, left_on="source", right_on="y").with_columns(col("val") * col("weight"))
            sums = products.group_by("target").agg(col("val").sum())
            base = (1 - DAMPING + DAMPING * lost) / PAGES
            vector = pages.join(sums, left_on="y", right_on="target", how="left").with_columns(
                val=DAMPING * col("val").fill_null(0.0) + base
            )
        return shown(vector.sort("y")["val"])

    return run


def shown(values: pl.Series) -> Result:
    """A few ranks, to compare contestants by."""
    return [round(value, 12) for value in (values.sum(), values.max(), values[7])]


def main() -> None:
    folder, contestant, what, rounds = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    runs: dict[str, Callable[[], Result]] = {}
    if what == "pagerank":
        runs["pagerank"] = ranks_in_graphs(folder) if contestant == "tidemill" else ranks_in_polars(folder)
    else:
        made = in_graphs if contestant == "tidemill" else in_polars
        runs = {f"{name}_{kind}": run for kind in ("csv", "parquet") for name, run in made(folder, kind).items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    results: dict[str, Result] = {}
    for _ in range(1 + rounds):
        for name, run in runs.items():
            begin = time.perf_counter()
            results[name] = run()
            seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}
    sys.stdout.write(json.dumps({**medians, "seconds": seconds, "results": results}) + "\n")


if __name__ == "__main__":
    main()
