"""A scan as a Polars LazyFrame and as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from tidemill.scans.bounds import Bounds, bounds_of, joined, terms_of
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, StoreRefused, UnknownName

BATCH_ROWS: Final = 100_000


class Scan(Protocol):
    """Rows that are read in batches."""

    @property
    def schema(self) -> dict[str, Any]:
        """The columns with their Polars types."""

    def read(self, bounds: Bounds, columns: Sequence[str], batch_rows: int) -> Iterator[pl.DataFrame]:
        """All rows within the bounds and perhaps others, with these columns, in batches of at most so many rows."""


def batches(
    scan: Scan, columns: Sequence[str] | None, predicate: pl.Expr | None, limit: int | None, batch_rows: int | None
) -> Iterator[pl.DataFrame]:
    """The rows that the predicate lets pass, at most `limit` of them, with these columns (None: all)."""
    shown = list(scan.schema) if columns is None else list(columns)
    asked = [] if predicate is None else predicate.meta.root_names()
    needed = [name for name in scan.schema if name in {*shown, *asked}]
    rows = BATCH_ROWS if batch_rows is None else max(1, batch_rows)
    if limit is not None and predicate is None:
        rows = max(1, min(rows, limit))
    left = limit
    if left == 0:
        return
    for frame in scan.read(bounds_of(terms_of(predicate)), needed, rows):
        found = frame if predicate is None else frame.filter(predicate)
        found = found.select(shown) if left is None else found.select(shown).head(left)
        if found.height:
            yield found
        if left is not None:
            left -= found.height
            if left <= 0:
                return


def lazy_frame(scan: Scan, name: str) -> pl.LazyFrame:
    """The scan as a LazyFrame; Polars says which columns, rows and how many of them it needs."""

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        return batches(scan, columns, predicate, limit, batch_rows)

    return register_io_source(source, schema=scan.schema, is_pure=True, explain_name=name)


def arrow_reader(
    scan: Scan, columns: Sequence[str] | None, predicate: pl.Expr | None, limit: int | None, batch_rows: int | None
) -> pa.RecordBatchReader:
    """The scan as Arrow batches, each read when it is asked for.

    Raises:
        BadInput: there is no such column, the predicate is not of single rows, or a number is none.
    """
    for name, value, least in (("limit", limit, 0), ("batch_rows", batch_rows, 1)):
        if value is not None and (type(value) is not int or value < least):
            raise BadInput(f"{name}= is a whole number from {least} on, not {value!r}.")
    if unknown := [name for name in columns or () if name not in scan.schema]:
        raise BadInput(f"There is no column {unknown[0]!r}; there are {', '.join(scan.schema)}.")
    if predicate is not None:
        _check_of_rows(scan, predicate)
    types = scan.schema if columns is None else {name: scan.schema[name] for name in columns}
    schema = arrow_table(pl.DataFrame(schema=types)).schema
    found = (
        batch
        for frame in batches(scan, columns, predicate, limit, batch_rows)
        for batch in arrow_table(frame).cast(schema).to_batches()
    )
    return pa.RecordBatchReader.from_batches(schema, found)


def _check_of_rows(scan: Scan, predicate: pl.Expr) -> None:
    """Raises BadInput where a predicate looks at several rows at once, and so cannot be asked batch by batch.

    Polars knows which are of single rows: it takes only these to the scan. Of several that are joined by `&` it leaves
    some behind that might fail, so each is asked for alone.
    """
    if not isinstance(predicate, pl.Expr):
        raise BadInput(f"where= is an expression of Polars such as col('value') > 0, not {predicate!r}.")
    frame = lazy_frame(scan, "")
    if any(frame.filter(part).explain().lstrip().startswith("FILTER") for part in joined(predicate)):
        raise BadInput(
            f"where= {predicate} does not look at one row at a time; filter the frame of tidemill.scan by it."
        )


def arrow_table(frame: pl.DataFrame) -> pa.Table:
    """A frame in the Arrow types that all programs know."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def opened(store: str | Path | ObjectStore) -> ObjectStore:
    """A store by its URL or folder; a folder that is not there is not made.

    Raises:
        UnknownName: there is no such folder.
        StoreRefused: it is no store and no name of one.
    """
    if not store or not (isinstance(store, (str, Path)) or hasattr(store, "local_path")):
        raise StoreRefused(f"store= is a folder or a URL such as s3://bucket/prefix, not {store!r}.")
    if not isinstance(store, (str, Path)):
        return store
    if "://" in str(store):
        return open_store(str(store))
    if not Path(store).is_dir():
        raise UnknownName(f"There is no store at {store}.")
    return open_store(str(Path(store).absolute()))
