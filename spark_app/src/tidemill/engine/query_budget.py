"""What one query may take, with all queries that it calls: time, rows, bytes, depth.

Compiled paths of queries hold `RUNNING`, which is another budget in each thread: that of the query which runs there.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tidemill.language.dataflow import Function
from tidemill.language.options import find_option
from tidemill.paths.budget import Bound, Budget
from tidemill.paths.containers import SCALARS
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.errors import BudgetExceeded

DEPTH_MAX: Final = 32
"""Queries that call each other, one in the other; each takes about 15 calls of Python, which has 1,000."""

_MEGABYTE: Final = 2**20
_ROWS_PER_LOOK: Final = 64
_GROWING: Final = frozenset({"TIMES", "TIMES_LONG"})
_ADVICE: Final = "Ask for less at once, or raise the option"


@dataclass(frozen=True)
class QueryBounds:
    """The bounds of one query: seconds, rows that its steps make, bytes of the values that they make."""

    seconds: float
    rows: int
    bytes: int

    @staticmethod
    def of(options: Mapping[str, Any], seconds_max: float = float("inf")) -> QueryBounds:
        """The bounds that the dynamic options of its topology say, and its caller."""

        def value(name: str) -> int:
            return int(options.get(name, find_option(name).default))

        seconds = min(seconds_max, value("topology.query.timeout.millis") / 1000)
        return QueryBounds(seconds, value("topology.query.max.rows"), value("topology.query.max.mb") * _MEGABYTE)


class RunningBudget(threading.local, Budget):
    """What is left to the query that this thread runs."""

    bounds: QueryBounds = QueryBounds(0, 0, 0)
    query: str = ""
    depth: int = 0

    @contextmanager
    def of_query(self, query: str, bounds: QueryBounds) -> Iterator[None]:
        """The budget of a query, until it ends; then that of whoever called it through a function of its own."""
        before = dict(vars(self))
        deadline = time.monotonic() + bounds.seconds
        self.bounds, self.query, self.depth = bounds, query, 0
        self.steps, self.results, self.bytes = sys.maxsize, bounds.rows, bounds.bytes
        self.is_late = lambda: time.monotonic() > deadline
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One query inside another. Raises BudgetExceeded: too deep."""
        if self.depth >= DEPTH_MAX:
            text = f"calls queries inside queries to a depth of more than {DEPTH_MAX}. Does it end for every input?"
            raise BudgetExceeded(f"The query '{self.query}' {text}")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def look(self) -> None:
        """Raises BudgetExceeded: its time is over."""
        if self.is_late():
            raise self._exceeded("time")

    def rows(self, count: int) -> None:
        """Count rows, before they are made. Raises BudgetExceeded: too many, or too late."""
        self.results -= count
        if self.results < 0:
            raise self._exceeded("results")
        self.look()

    def emitted(self, items: Iterable[Any] | None) -> Iterable[Any] | None:
        """What an operation emits, each of them counted as a row, with its bytes, when it is taken."""
        return items if items is None else self._counted(items)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        rows = size = 0
        for item in items:
            rows += 1
            if type(item) in SCALARS:
                size += sys.getsizeof(item)
            else:
                self.charge(item)
            if rows == _ROWS_PER_LOOK or size > self.bytes:
                self.rows(rows)
                self._take(size)
                rows = size = 0
            yield item
        self.rows(rows)
        self._take(size)

    def counting(self, function: Function, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose results are counted; of a built-in one that makes much of little, before it makes them."""
        is_growing = function.kind == "builtin" and function.name in _GROWING

        def counted(*args: Any) -> Any:
            if is_growing and _repeated(args) > self.bytes:
                raise self._exceeded("bytes")
            made = call(*args)
            self.charge(made)
            return made

        return counted

    def held(self, size: int) -> None:
        """Refuse what the query's own PState holds on all tasks. Raises BudgetExceeded: too many bytes."""
        if size > self.bounds.bytes:
            raise self._exceeded("bytes")

    def column(self, column: Column) -> None:
        """Count the bytes of values that a step made. Raises BudgetExceeded: too many."""
        if isinstance(column, pl.Series):
            self._take(int(column.estimated_size()))
        elif isinstance(column, RecordColumn):
            for field in column.fields:
                self.column(field)
        else:
            for value in column:
                self.charge(value)

    def _met_strange(self, kind: type) -> None:
        """Within a query, functions may hand on what is no data."""

    def _exceeded(self, bound: Bound) -> BudgetExceeded:
        bounds = self.bounds
        texts = {
            "time": (f"takes longer than {bounds.seconds * 1000:,.0f} ms", "timeout.millis"),
            "results": (f"makes more than {bounds.rows:,} rows", "max.rows"),
            "bytes": (f"makes more than {bounds.bytes // _MEGABYTE:,} MB of values", "max.mb"),
        }
        text, option = texts["time" if bound == "steps" else bound]
        return BudgetExceeded(f"The query '{self.query}' {text}. {_ADVICE} topology.query.{option}.")


def _repeated(args: Sequence[Any]) -> int:
    """About how many bytes a text, or a list of references, has that is repeated so often; 0 for numbers alone."""
    repeated = [arg for arg in args if isinstance(arg, (str, bytes, list, tuple))]
    sizes = [len(arg) * (1 if isinstance(arg, (str, bytes)) else 8) for arg in repeated]
    return math.prod(max(0, arg) for arg in args if isinstance(arg, int)) * sum(sizes)


RUNNING: Final = RunningBudget()
