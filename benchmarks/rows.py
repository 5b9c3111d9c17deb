"""The rows that every contestant gets: keys drawn uniformly from a range, small values, the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

KEYS = 1_000_000
BATCH_ROWS = 800_000


def batch(seed: int, rows: int = BATCH_ROWS, keys: int = KEYS) -> pl.DataFrame:
    """`rows` rows (k: Int64 in [0, keys), v: Int64 in [0, 1000))."""
    generator = np.random.default_rng(seed)
    return pl.DataFrame({"k": generator.integers(0, keys, rows), "v": generator.integers(0, 1000, rows)})


def all_keys(keys: int = KEYS) -> pl.DataFrame:
    """Each key once: preloads a state of `keys` keys."""
    numbers = np.arange(keys, dtype=np.int64)
    return pl.DataFrame({"k": np.random.default_rng(0).permutation(numbers), "v": numbers % 1000})


def preload(keys: int) -> list[pl.DataFrame]:
    """All keys, once each, in batches of the usual size."""
    frame = all_keys(keys)
    return [frame.slice(start, BATCH_ROWS) for start in range(0, keys, BATCH_ROWS)]


def write_batches(folder: Path, batches: list[pl.DataFrame], files_per_batch: int = 1) -> None:
    """Batch i as `files_per_batch` Parquet files whose names sort by batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(batches):
        size = -(-frame.height // files_per_batch)
        for piece in range(files_per_batch):
            frame.slice(piece * size, size).write_parquet(folder / f"{number:05d}-{piece}.parquet")


def truth(batches: list[pl.DataFrame]) -> tuple[int, int, int]:
    """(distinct keys, sum of counts, sum of sums) over all batches: what a full read of the state must give."""
    rows = pl.concat(batches)
    return rows["k"].n_unique(), rows.height, int(rows["v"].sum())
