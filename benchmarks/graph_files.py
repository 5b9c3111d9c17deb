"""The files of the benchmark of task graphs, and what its contestants have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from examples.taskgraph.data import TABLES, generate

WIDE = [f"value{number}" for number in range(20)]
JOINED_ROWS = {"a": 4_000_000, "b": 1_000_000}
SKEWED_ROWS, SKEWED_KEYS, HEAVY_KEY, HEAVY_PART = 4_000_000, 1_000_000, 7, 0.8
PAGES, LINKS, RANK_ROUNDS, DAMPING = 200_000, 2_000_000, 10, 0.85
Result = list[Any]
Runs = dict[str, Callable[[], Result]]


def write(folder: Path, scale: float) -> None:
    """The TPC-H tables and two wide ones as CSV and as Parquet, and the links of PageRank."""
    generate(folder, scale)
    for table in ("orders", "lineitem"):
        scan(folder, table, "csv").sink_parquet(folder / f"{table}.parquet")
    chosen = np.random.default_rng(1)
    for name, rows in JOINED_ROWS.items():
        keys = pl.Series("key", chosen.integers(0, 2_000_000, int(rows * scale)))
        wide = keys.to_frame().with_columns(pl.lit(number).alias(value) for number, value in enumerate(WIDE))
        wide.write_csv(folder / f"{name}.csv")
        wide.write_parquet(folder / f"{name}.parquet")
    write_skewed(folder, int(SKEWED_ROWS * scale), int(SKEWED_KEYS * scale))
    links = {"source": chosen.integers(0, PAGES, LINKS), "target": chosen.zipf(1.5, LINKS) % PAGES}
    pl.DataFrame(links).unique().write_parquet(folder / "links.parquet")


def write_skewed(folder: Path, rows: int, keys: int) -> None:
    """Rows with even keys, the same rows with one key in most of them, and a row for each key."""
    chosen = np.random.default_rng(2)
    even = pl.DataFrame({"key": chosen.integers(0, keys, rows), "value": chosen.integers(0, 1_000, rows)})
    is_heavy = pl.Series(chosen.random(rows) < HEAVY_PART)
    skewed = even.with_columns(key=pl.when(is_heavy).then(HEAVY_KEY).otherwise("key"))
    weights = {f"weight{number}": chosen.integers(0, 1_000, keys) for number in range(4)}
    for name, frame in (("even", even), ("skewed", skewed), ("keys", pl.DataFrame({"key": range(keys), **weights}))):
        frame.write_parquet(folder / f"{name}.parquet", row_group_size=max(1, frame.height // 16))


def scan(folder: Path, table: str, kind: str) -> pl.LazyFrame:
    """A table in Polars."""
    if kind == "parquet":
        return pl.scan_parquet(folder / f"{table}.parquet")
    if table not in TABLES:
        return pl.scan_csv(folder / f"{table}.csv", quote_char=None)
    types = {**TABLES[table], "null": pl.String}
    file = folder / f"{table}.tbl"
    lazy = pl.scan_csv(file, has_header=False, separator="|", quote_char=None, schema=types)
    return lazy.select(*TABLES[table])


def shown(values: pl.Series) -> Result:
    """A few ranks, to compare contestants by."""
    return [round(float(value), 12) for value in (values.sum(), values.to_numpy().max(), values[7])]
