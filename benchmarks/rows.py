"""The rows that every contestant gets: keys drawn uniformly from a range, small values, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import gcd
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
    """Each key once, in random order: preloads a state of `keys` keys."""
    numbers = np.arange(keys, dtype=np.int64)
    return pl.DataFrame({"k": np.random.default_rng(0).permutation(numbers), "v": numbers % 1000})


def preload(keys: int) -> Iterator[pl.DataFrame]:
    """All keys, once each, in batches of the usual size, each spread over the whole range."""
    stride = next(stride for stride in count(int(keys * 0.618) | 1, 2) if gcd(stride, keys) == 1)
    for start in range(0, keys, BATCH_ROWS):
        numbers = np.arange(start, min(start + BATCH_ROWS, keys), dtype=np.int64)
        yield pl.DataFrame({"k": numbers * stride % keys, "v": numbers % 1000})


def write_batches(folder: Path, batches: list[pl.DataFrame], files_per_batch: int = 1) -> None:
    """Batch i as `files_per_batch` Parquet files whose names sort by batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(batches):
        size = -(-frame.height // files_per_batch)
        for piece in range(files_per_batch):
            frame.slice(piece * size, size).write_parquet(folder / f"{number:05d}-{piece}.parquet")


class Truth:
    """(distinct keys, sum of counts, sum of sums) over all batches so far: what a full read of the state must give.

    It holds a byte a key and no rows, so that the memory measured is not its own.
    """

    def __init__(self, keys: int) -> None:
        self._is_there = np.zeros(keys, dtype=bool)
        self._rows, self._sum = 0, 0

    def add(self, frame: pl.DataFrame) -> None:
        self._is_there[frame["k"].to_numpy()] = True
        self._rows += frame.height
        self._sum += int(frame["v"].sum())

    def totals(self) -> tuple[int, int, int]:
        return int(self._is_there.sum()), self._rows, self._sum


def truth(batches: list[pl.DataFrame], keys: int = KEYS) -> tuple[int, int, int]:
    """The truth about a list of batches."""
    found = Truth(keys)
    for frame in batches:
        found.add(frame)
    return found.totals()
