"""Aggregation by keys: each batch becomes partial results at once, and partial results are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import polars as pl

from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.levels import Levels, concatenated
from tidemill.graphs.executors.polars_engine import collected
from tidemill.graphs.executors.rows import columns_of
from tidemill.values.errors import BadInput

Aggregations = Mapping[str, str | tuple[str, str]]
"""For each column of the result source and kind, `("price", "sum")`; a kind alone takes the column of its name."""

KINDS = ("count", "count_distinct", "len", "max", "mean", "min", "sum")
"""`count`, `mean`, `sum`, `min`, `max` leave nulls out, `count_distinct` too; `len` counts rows."""


@dataclass(frozen=True)
class Aggregation:
    """One column of the result: the name, its source and the kind."""

    name: str
    column: str
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"aggregation {self.name!r} has the kind {self.kind!r}: use one of {', '.join(KINDS)}")

    def partial(self, number: int, schema: pl.Schema) -> list[pl.Expr]:
        """What one batch comes to, in columns of its own (`_0_sum`, `_0_count`)."""
        source = self._source(schema)
        made = {
            "count": {"sum": source.count().cast(pl.Int64)},
            "len": {"sum": pl.len().cast(pl.Int64)},
            "max": {"max": source.max()},
            "mean": {"sum": source.sum(), "count": source.count().cast(pl.Int64)},
            "min": {"min": source.min()},
            "sum": {"sum": source.sum()},
        }
        return [value.alias(f"_{number}_{name}") for name, value in made.get(self.kind, {}).items()]

    def single(self, number: int, schema: pl.Schema) -> list[pl.Expr]:
        """The same of each row by itself."""
        source = self._source(schema)
        is_there = source.is_not_null().cast(pl.Int64)
        made = {
            "count": {"sum": is_there},
            "len": {"sum": pl.lit(1, pl.Int64)},
            "max": {"max": source},
            "mean": {"sum": source, "count": is_there},
            "min": {"min": source},
            "sum": {"sum": source},
        }
        return [value.alias(f"_{number}_{name}") for name, value in made.get(self.kind, {}).items()]

    def merged(self, number: int) -> list[pl.Expr]:
        """The same columns, of several partial results."""
        parts = {"mean": ("sum", "count"), "max": ("max",), "min": ("min",), "count_distinct": ()}.get(
            self.kind, ("sum",)
        )
        fold = {"max": pl.Expr.max, "min": pl.Expr.min}
        return [fold.get(part, pl.Expr.sum)(pl.col(f"_{number}_{part}")) for part in parts]

    def final(self, number: int) -> pl.Expr:
        """The column of the result."""
        if self.kind == "mean":
            rows = pl.col(f"_{number}_count")
            made: pl.Expr = pl.when(rows > 0).then(pl.col(f"_{number}_sum") / rows)
        elif self.kind == "count_distinct":
            made = pl.col(f"_{number}_distinct").fill_null(0)
        else:
            made = pl.col(f"_{number}_{'sum' if self.kind in ('count', 'len') else self.kind}")
        return made.alias(self.name)

    def _source(self, schema: pl.Schema) -> pl.Expr:
        source = pl.col(self.column) if self.kind != "len" else pl.lit(1)
        return source.cast(self._wide(schema)) if self.kind in ("sum", "mean") else source

    def _wide(self, schema: pl.Schema) -> pl.DataType | type[pl.DataType]:
        """The type that sums are made in, so that small types neither overflow nor lose digits."""
        kind = schema[self.column]
        fits = kind.is_numeric() or kind in (pl.Boolean, pl.Null) or (kind == pl.Duration and self.kind == "sum")
        if not fits:
            raise BadInput(
                f"{self.kind} of column {self.column!r} is not possible: it is {kind}, not a number. "
                f"If it is a key, name it in `keys`."
            )
        if self.kind == "mean" or kind.is_float():
            wide: pl.DataType | type[pl.DataType] = pl.Float64
        elif kind in (pl.UInt64, pl.Int128, pl.UInt128):
            wide = kind
        elif kind.is_integer() or kind in (pl.Boolean, pl.Null):
            wide = pl.Int64
        else:
            wide = kind
        return wide


class Groups:
    """Partial results by group, and for `count_distinct` the values seen in each group."""

    def __init__(self, keys: Sequence[str], aggregations: Sequence[Aggregation]) -> None:
        self.keys = list(keys)
        self._aggregations = list(aggregations)
        self._partials = Levels()
        self._has_partials = False
        self._values = {n: Levels() for n, made in enumerate(aggregations) if made.kind == "count_distinct"}

    def add_partial(self, partials: pl.DataFrame) -> None:
        """Take in what `Aggregation.partial` gave elsewhere."""
        self._has_partials = True
        self._partials.add(partials, self._merge)

    def add(self, rows: pl.DataFrame) -> None:
        """Take rows in."""
        each = enumerate(self._aggregations)
        partials = [expression for number, made in each for expression in made.partial(number, rows.schema)]
        self._partials.add(self._grouped(rows, partials), self._merge)
        for number, values in self._values.items():
            column = pl.col(self._aggregations[number].column).alias("__tidemill_value")
            # Keys get names of their own: a value may be the column of a key.
            seen = rows.select(*self.keys, column).filter(pl.col("__tidemill_value").is_not_null()).unique()
            values.add(seen, partial(self._distinct, number))

    def add_groups(self, rows: pl.DataFrame) -> None:
        """Take in rows of which no two are of one group, without `count_distinct`."""
        each = enumerate(self._aggregations)
        single = [expression for number, made in each for expression in made.single(number, rows.schema)]
        self._partials.add(rows.select(*self.keys, *single), self._merge)

    def result(self) -> pl.DataFrame | None:
        """The groups' results; None if there was no row."""
        frames = list(self._partials)
        if not frames:
            return None
        # A frame alone has each group once, unless it is partial results as they came.
        merged = frames[0] if len(frames) == 1 and not self._has_partials else self._merge(frames)
        return self.of_partials(merged, {number: list(values) for number, values in self._values.items()})

    def take(self, over: pl.Expr) -> pl.DataFrame | None:
        """The results of the groups of which `over`, an expression of keys, is true; these groups are forgotten."""
        if not any(frame.select(over.any()).item() for frame in self._partials):
            return None
        merged = self._merge(self._partials.take_where(over, self._merge))
        # Values of the groups that stay would come as groups of their own.
        return self.of_partials(merged, {number: values.take_where(over) for number, values in self._values.items()})

    def of_partials(self, merged: pl.DataFrame, values: Mapping[int, Sequence[pl.DataFrame]]) -> pl.DataFrame:
        """The results of merged partial results, and of the distinct values of these groups, by aggregation."""
        for number, seen in values.items():
            merged = self._with_distinct(merged, number, seen)
        each = enumerate(self._aggregations)
        return merged.select(*self.keys, *(made.final(number) for number, made in each))

    def _merge(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        each = enumerate(self._aggregations)
        made = [expression for number, aggregation in each for expression in aggregation.merged(number)]
        return self._grouped(concatenated(frames, self._called()), made)

    def _called(self) -> dict[str, str]:
        """What errors call the columns of partial results."""
        return {
            f"_{number}_{part}": f"the {part} of column {made.column!r}"
            for number, made in enumerate(self._aggregations)
            for part in ("max", "min", "sum")
        }

    def _distinct(self, number: int, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The values of an aggregation by group, each once."""
        called = {"__tidemill_value": f"column {self._aggregations[number].column!r}"}
        return concatenated(frames, called).unique()

    def _grouped(self, rows: pl.DataFrame, made: Sequence[pl.Expr]) -> pl.DataFrame:
        if self.keys:
            return collected(rows.lazy().group_by(self.keys).agg(made), rows.height)
        # Distinct values alone have no partial result, and a group is a row all the same.
        return rows.select(made or pl.lit(True).alias("__tidemill_group"))

    def _with_distinct(self, merged: pl.DataFrame, number: int, values: Sequence[pl.DataFrame]) -> pl.DataFrame:
        name = f"_{number}_distinct"
        if not values:
            return merged.with_columns(pl.lit(0, pl.Int64).alias(name))
        seen = self._distinct(number, values)
        if not self.keys:
            return merged.with_columns(pl.lit(seen.height, pl.Int64).alias(name))
        counts = seen.group_by(self.keys).agg(pl.len().cast(pl.Int64).alias(name))
        # Not a join: Polars has keys of NaN meet in a grouping always, in a join of single rows not.
        # Relaxed: a batch of other types may have had no values, and its keys are in the partial results alone.
        both = pl.concat([merged, counts], how="diagonal_relaxed")
        return both.group_by(self.keys).agg(pl.all().drop_nulls().first())


class AggExecutor(Executor):
    """One row per group, from `done`.

    `keys` are columns (none: one group of all rows) and `aggregations` the columns of the result. Without them each
    column that is no key is summed, so frames that were summed by batch before (by a `batch_func`) add up.
    Sums of integers have 64 bits and wrap around beyond; sums and means of floats are made in 64 bits.
    `final_func` takes and gives the frame of the result. Each channel gives the groups of its own rows: partition the
    stream by the keys, or use one channel. A channel without rows gives nothing, unless there are no keys and
    `input_schema` tells the columns: then it gives the row of no rows. Holds one row per group, and for
    `count_distinct` one per distinct value.
    """

    NEEDS_WHOLE_KEYS: ClassVar[bool] = True

    def __init__(
        self,
        keys: str | Sequence[str] | None = None,
        aggregations: Aggregations | None = None,
        *,
        final_func: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
        input_schema: Mapping[str, pl.DataType | type[pl.DataType]] | None = None,
    ) -> None:
        self._keys = columns_of(keys)
        self._aggregations = None if aggregations is None else aggregations_of(aggregations)
        self._final_func = final_func
        self._input = None if input_schema is None else pl.DataFrame(schema=dict(input_schema))
        self._groups: Groups | None = None

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._add(concatenated(batches))
        return None

    def _add(self, rows: pl.DataFrame) -> None:
        if self._groups is None:
            sums = [Aggregation(name, name, "sum") for name in rows.columns if name not in self._keys]
            self._groups = Groups(self._keys, sums if self._aggregations is None else self._aggregations)
        self._groups.add(rows)

    def done(self, channel: int) -> Output:
        if self._groups is None and self._input is not None:
            self._add(self._input)
        result = None if self._groups is None else self._groups.result()
        return result if result is None or self._final_func is None else self._final_func(result)


class CountExecutor(Executor):
    """The number of rows, as a frame of one row with the column `count`, per channel: add them up."""

    def __init__(self) -> None:
        self._count = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._count += sum(batch.height for batch in batches)
        return None

    def done(self, channel: int) -> Output:
        return pl.DataFrame({"count": [self._count]})


def aggregations_of(given: Aggregations) -> list[Aggregation]:
    """The aggregations as records. Raises BadInput where a kind is unknown."""
    made = ((name, (name, of) if isinstance(of, str) else of) for name, of in given.items())
    return [Aggregation(name, column, kind) for name, (column, kind) in made]


class MergingAggExecutor(Executor):
    """One row per group, of partial results that `Aggregation.partial` made of batches elsewhere.

    `columns` are those of the partial results. Without keys a row comes also where there was no partial result.
    """

    NEEDS_WHOLE_KEYS: ClassVar[bool] = True

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        columns: pl.DataFrame,
        final_func: Callable[[pl.DataFrame], pl.DataFrame],
    ) -> None:
        self._groups = Groups(keys, aggregations)
        self._columns = columns
        self._final_func = final_func

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._groups.add_partial(concatenated(batches))
        return None

    def done(self, channel: int) -> Output:
        result = self._groups.result()
        if result is None and not self._groups.keys:
            result = self._groups.of_partials(self._columns, {})
        return None if result is None else self._final_func(result)
