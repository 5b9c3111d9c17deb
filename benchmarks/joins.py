"""A batch block that joins two sources of one microbatch, 800k sales with 100k items, and sums up by category.

Run as a process of its own; prints one JSON object: seconds of each microbatch, and a digest of its result.
FOLDER holds the rows that `write` makes.
usage: python -m benchmarks.joins FOLDER --rounds N [--placement P]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    PState,
)
from tidemill import Path as StatePath
from tidemill.journal.options_log import OptionsLog
from tidemill.store.urls import open_store

SALES, ITEMS, CATEGORIES = 800_000, 100_000, 1_000
TASKS, THREADS = 4, 2
SECONDS_MAX = 600


def write(folder: Path) -> None:
    """The rows that every contestant joins: sales (item, amount) and items (item, category)."""
    generator = np.random.default_rng(1)
    items = pl.DataFrame({"item": generator.permutation(ITEMS), "category": generator.integers(0, CATEGORIES, ITEMS)})
    sales = {"item": generator.integers(0, ITEMS, SALES), "amount": generator.integers(0, 1_000, SALES)}
    items.write_parquet(folder / "items.parquet")
    pl.DataFrame(sales).write_parquet(folder / "sales.parquet")


def part(is_item: bool, second: str) -> Block:
    """One of the two kinds of records in the depot."""
    rows = Block.explode_microbatch("*microbatch").out(f"*record of {second}")
    wanted = Expr(Ops.GET, f"*record of {second}", "is_item")
    rows = rows.keep_true(wanted if is_item else Expr(Ops.NOT, wanted))
    rows = rows.each(Ops.GET, f"*record of {second}", "item").out("*item")
    return rows.each(Ops.GET, f"*record of {second}", "value").out(second)


class SalesByCategory(Module):
    """The sum of sales in each category."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*records", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(int, int))
        rows = part(False, "*amount").macro(part(True, "*category"))
        rows = rows.hash_partition("*category").compound_agg("$$sums", CompoundAgg.map("*category", Agg.sum("*amount")))
        mb.source("*records", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch").batch_block(rows)


def run(folder: Path, rounds: int, placement: str) -> dict[str, Any]:
    """Microbatches of all rows, one after the other; each waits with its rows appended before it begins."""
    sales, items = pl.read_parquet(folder / "sales.parquet"), pl.read_parquet(folder / "items.parquet")
    records = pl.concat([
        items.select("item", pl.col("category").alias("value"), is_item=True),
        sales.select("item", pl.col("amount").alias("value"), is_item=False),
    ])  # fmt: skip
    with InProcessCluster.create(engine="spark") as cluster:
        cluster.launch_module(SalesByCategory(), LaunchConfig(TASKS, THREADS))
        options = OptionsLog(open_store(cluster.store_url), "SalesByCategory")
        options.set("topology", "mb", "topology.microbatch.placement", placement)
        options.set("depot", "*records", "depot.microbatch.max.records", records.height)
        depot = cluster.cluster_depot("SalesByCategory", "*records")
        seconds = []
        for turn in range(1 + rounds):
            cluster.pause_microbatch_topology("SalesByCategory", "mb")
            depot.append_many(records)
            start = time.perf_counter()
            cluster.resume_microbatch_topology("SalesByCategory", "mb")
            count = (turn + 1) * records.height
            cluster.wait_for_microbatch_processed_count("SalesByCategory", "mb", count, SECONDS_MAX * 1000)
            seconds.append(time.perf_counter() - start)
            microbatch, _ = cluster.microbatch_state("SalesByCategory", "mb")
        sums = cluster.cluster_pstate("SalesByCategory", "$$sums")
        found = {k: sums.select_one(StatePath.key(k)) for k in range(0, CATEGORIES, 50)}
    return {"seconds": seconds[1:], "median": statistics.median(seconds[1:]), "sums": digest(found, 1 + rounds)}


def digest(sums: dict[int, int], times: int) -> list[int]:
    """The sums of some categories, for one round."""
    return [sums[category] // times for category in sorted(sums)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--placement", default="auto")
    arguments = parser.parse_args()
    sys.stdout.write(json.dumps(run(arguments.folder, arguments.rounds, arguments.placement)) + "\n")
