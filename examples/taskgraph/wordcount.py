"""Words of text files and how often they come."""

from __future__ import annotations

import polars as pl

from tidemill import AggExecutor, Dataset, TaskGraph


def words_of(lines: pl.DataFrame) -> pl.DataFrame:
    """The words of a batch of lines, counted."""
    words = lines.select(word=pl.col("line").str.to_lowercase().str.extract_all(r"\w+").list.explode())
    return words.drop_nulls().group_by("word").agg(count=pl.len())


def wordcount(folder: str, key: str, store: str) -> Dataset:
    """A row per word: `word`, `count`."""
    graph = TaskGraph(store)
    lines = graph.new_input_csv(
        folder, key, ["line"], batch_func=words_of, sep="\x01", quote_char=None, schema={"line": pl.String}
    )
    counted = graph.new_blocking_node({0: lines}, AggExecutor("word"), 2, {0: "word"})
    graph.run()
    return counted
