"""PageRank: the matrix is cached by channel as a Dataset, and each round is a node that multiplies it with the vector.

A round is `rank = damping * (matrix * rank + lost / n) + (1 - damping) / n`, where `lost` is the rank of the pages
without links. Graphs of several rounds run until the vector changes by less than a tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tidemill import Dataset, MergedStorageExecutor, RangePartition, SpMVExecutor, StorageExecutor, TaskGraph

BLOCKS = 4
"""Channels: blocks of rows of the matrix."""


class PageRankExecutor(SpMVExecutor):
    """One round: the vector streams in as (`y`, `val`), and its next value goes out in `done`.

    Datasets of the node: the matrix (`x`, `y`, `weight`; it has an element for each page `x`), and the pages without
    links.
    """

    def __init__(self, pages: int, damping: float) -> None:
        super().__init__(weight="weight", final_func=self._damped)
        self._pages, self._damping = pages, damping
        self._lost = 0.0

    def initialize(self, datasets: Sequence[Any], channel: int) -> None:
        super().initialize(datasets, channel)
        self._dangling = datasets[1].to_polars()

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        for batch in batches if self._dangling.height else ():
            self._lost += float(batch.join(self._dangling, on="y", how="semi").get_column("val").sum())
        return super().execute(batches, stream_id, channel)

    def serialize(self) -> Any:
        return super().serialize(), self._lost

    def deserialize(self, state: Any) -> None:
        sums, self._lost = state
        super().deserialize(sums)

    def _damped(self, rows: pl.DataFrame) -> pl.DataFrame:
        base = (1 - self._damping + self._damping * self._lost) / self._pages
        return rows.with_columns(val=self._damping * pl.col("val") + base)


def matrix_of(links: pl.DataFrame, pages: int, store: str) -> tuple[Dataset, Dataset]:
    """The matrix of links (`source`, `target`, numbers below `pages`) in blocks, and the pages without links."""
    degrees = links.group_by("source").agg(pl.len().alias("degree"))
    elements = links.join(degrees, on="source").select(
        x="target", y="source", weight=1.0 / pl.col("degree").cast(pl.Float64)
    )
    numbers = pl.int_range(pages, eager=True)
    zeros = pl.DataFrame({"x": numbers, "y": numbers, "weight": pl.zeros(pages, eager=True)})
    graph = TaskGraph(store)
    stream = graph.new_input_frames([elements, zeros])
    bounds = RangePartition("x", [pages * block // BLOCKS for block in range(1, BLOCKS)])
    matrix = graph.new_blocking_node({0: stream}, MergedStorageExecutor(), BLOCKS, {0: bounds})
    dangling = pl.DataFrame({"y": numbers}).join(degrees, left_on="y", right_on="source", how="anti")
    kept = graph.new_blocking_node({0: graph.new_input_frames([dangling])}, StorageExecutor(), 1, {0: None})
    graph.run()
    return matrix, kept


def add_rounds(
    graph: TaskGraph, vector: pl.DataFrame, datasets: Sequence[Dataset], count: int, damping: float
) -> Dataset:
    """So many rounds as nodes of a graph, one behind the other; the vector that the last one leaves."""
    stream = graph.new_input_frames([vector], BLOCKS)
    for _ in range(count - 1):
        stream = graph.new_non_blocking_node(
            {0: stream}, list(datasets), PageRankExecutor(vector.height, damping), BLOCKS, {0: None}
        )
    last = PageRankExecutor(vector.height, damping)
    return graph.new_blocking_node({0: stream}, list(datasets), last, BLOCKS, {0: None})


def rounds(vector: pl.DataFrame, datasets: Sequence[Dataset], count: int, damping: float, store: str) -> pl.DataFrame:
    """The vector after so many rounds, in a graph of their own."""
    graph = TaskGraph(store)
    made = add_rounds(graph, vector, datasets, count, damping)
    graph.run()
    return made.to_polars().sort("y")


def pagerank(
    links: pl.DataFrame, pages: int, store: str, damping: float = 0.85, tolerance: float = 1e-9, together: int = 5
) -> tuple[pl.DataFrame, int]:
    """The ranks (`y`, `val`, which add up to 1) and the rounds that they took; `together` rounds make one graph."""
    datasets = matrix_of(links, pages, store)
    vector = pl.DataFrame({"y": pl.int_range(pages, eager=True)}).with_columns(val=pl.lit(1.0 / pages))
    done = 0
    while True:
        following = rounds(vector, datasets, together, damping, store)
        done += together
        change = (following.get_column("val") - vector.get_column("val")).abs().sum()
        vector = following
        if change < tolerance:
            return vector, done
