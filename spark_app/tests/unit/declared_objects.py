"""Objects that tests declare, and what became of them: each process writes a line a call into a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    Expr,
    MicrobatchSourceOptions,
    Module,
    PState,
    TaskGlobalObject,
    vectorized,
)
from tidemill import TaskGlobalContext as Context

START = MicrobatchSourceOptions.start_from_beginning()


class Book(TaskGlobalObject):
    """A book of prices that notes in `log` who opens and closes it; `failures` is a file that makes opening fail."""

    def __init__(self, log: Path, prices: dict[str, int], failures: Path | None = None) -> None:
        self.log, self.prices, self.failures = log, prices, failures
        self.is_open = False

    def prepare_for_task(self, context: Context) -> None:
        self._note(f"open {context.module} {context.name}")
        if self.failures is not None and self.failures.exists():
            raise ConnectionError("no answer")
        self.is_open = True

    def close(self) -> None:
        self._note("close")
        self.is_open = False

    def price(self, item: str) -> int:
        assert self.is_open
        return self.prices.get(item, 0)

    def _note(self, text: str) -> None:
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()} {text}\n")


def price_of(book: Book, item: str) -> int:
    return book.price(item)


@vectorized
def dearer(book: Book, prices: pl.Series) -> pl.Series:
    assert book.is_open and isinstance(prices, pl.Series)
    return prices + len(book.prices)


class Prices(Module):
    """Sums of prices by item, and a query of a price; a factory and plain values beside the book."""

    def __init__(self, book: Any, name: str = "Prices") -> None:
        self.book, self.name = book, name

    def module_name(self) -> str:
        return self.name

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*items", Depot.random())
        setup.declare_object("*book", self.book)
        setup.declare_object("*rate", 10)
        setup.declare_object("*names", lambda: {"a": "apple"})
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(str, int))
        mb.pstate("$$names", PState.map_schema(str, str))
        rows = mb.source("*items", START).out("*mb").explode_microbatch("*mb").out("*item")
        rows = rows.hash_partition("*item").each(price_of, "*book", "*item").out("*price")
        rows = rows.each(dearer, "*book", "*price").out("*dear")
        rows = rows.each(lambda price, rate: price * rate, "*dear", "*rate").out("*cents")
        rows = rows.each(dict.get, "*names", "*item", "none").out("*name")
        rows = rows.compound_agg("$$sums", CompoundAgg.map("*item", Agg.sum("*cents")))
        rows.compound_agg("$$names", CompoundAgg.map("*item", Agg.last("*name")))
        query = topologies.query("price", "*item").out("*price")
        query.each(lambda item, price: [item, price], "*item", Expr(price_of, "*book", "*item")).out(
            "*price"
        ).origin_partition()


def notes(log: Path) -> list[list[str]]:
    """What was noted: [process, what, …]."""
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []
