"""How a task graph reads frames: the part of `TaskGraph` with `read_csv` and its like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from tidemill.graphs.dataset import Dataset
from tidemill.graphs.frames.expressions import all_of, comparisons
from tidemill.graphs.frames.frame import FrameGraph, GraphFrame
from tidemill.graphs.frames.plans import ScanPlan, empty
from tidemill.graphs.inputs.csv_input import CsvFormat, CsvInput, sniffed
from tidemill.graphs.inputs.files import find_files
from tidemill.graphs.inputs.parquet_input import PLACE_ROWS, PLACES, parquet_input
from tidemill.graphs.inputs.parquet_input import STRIDE as PARQUET_STRIDE
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput

CSV_STRIDE = 32 * 1024 * 1024
"""Frames read less in a wave than task graphs do by themselves: joins and groups hold their batches in memory."""


class ReadsFrames:
    """Inputs as frames, which can be filtered, joined and aggregated with Polars expressions."""

    def read_csv(
        self: FrameGraph,
        key: str | Sequence[str],
        names: Sequence[str] | None = None,
        *,
        bucket: str = "",
        sep: str = ",",
        header: bool | None = None,
        schema: Mapping[str, Any] | None = None,
        quote_char: str | None = '"',
        stride: int = CSV_STRIDE,
    ) -> GraphFrame:
        """CSV files: a file, several, or all below a folder; of a bucket if `bucket` is `s3://…`.

        Names of columns are in the first row of each file, or in `names` (then `header` says if such a row is there).
        Types are found in the first rows; `schema` names other ones. A row that ends with the separator has one more
        column.

        Raises:
            BadInput: there is no such file, or no names.
        """
        has_header = names is None if header is None else header
        form = CsvFormat(sep, has_header, quote_char)
        form.check()
        files = find_files(bucket, key)
        types = sniffed(files, names, form, schema)

        def add(graph: Any, columns: Any, predicates: Any, batch_func: Any, dependents: Any) -> int:
            return int(
                graph.new_input_csv(
                    bucket, key, names, None, batch_func=batch_func, sep=sep, dependents=dependents, stride=stride,
                    header=has_header, schema=types, quote_char=quote_char, columns=columns,
                    predicate=all_of(predicates),
                )
            )  # fmt: skip

        def sample(columns: Sequence[str], predicates: Sequence[pl.Expr]) -> pl.DataFrame:
            return CsvInput(files, types, form, stride, tuple(columns), all_of(predicates)).sample()

        scan = ScanPlan(add, pl.Schema(types), sum(file.size for file in files), sample=sample)
        return GraphFrame(self, scan)

    def read_parquet(
        self: FrameGraph, key: str | Sequence[str], *, bucket: str = "", stride: int = PARQUET_STRIDE
    ) -> GraphFrame:
        """Parquet files, named as in `read_csv`. Row groups that a comparison with a constant rules out are not read.

        Raises:
            BadInput: there is no such file, or it has other columns than the first one.
        """
        found = parquet_input(find_files(bucket, key), None, None, stride)

        def add(graph: Any, columns: Any, predicates: Any, batch_func: Any, dependents: Any) -> int:
            conditions = [condition for each in predicates for condition in comparisons(each)]
            others = all_of([each for each in predicates if not comparisons(each)])
            return int(
                graph.new_input_parquet(
                    bucket, key, columns=list(columns), skip_conditions=conditions or None, batch_func=batch_func,
                    dependents=dependents, stride=stride, predicate=others,
                )
            )  # fmt: skip

        def sample(columns: Sequence[str], predicates: Sequence[pl.Expr]) -> pl.DataFrame:
            return replace(found, columns=tuple(columns), predicate=all_of(predicates)).sample()

        scan = ScanPlan(add, pl.Schema(found.types), sum(group.bytes for group in found.groups), sample=sample)
        return GraphFrame(self, scan)

    def read_dataset(self: FrameGraph, dataset: Dataset) -> GraphFrame:
        """A Dataset that another graph made. Raises BadInput where it is not complete."""
        if not dataset.is_complete:
            raise BadInput(f"{dataset!r} is not complete: run its graph first.")

        def add(graph: Any, columns: Any, predicates: Any, batch_func: Any, dependents: Any) -> int:
            chosen = Chosen(columns, all_of(predicates), batch_func)
            return int(graph.new_input_from_dataset(dataset, batch_func=chosen, dependents=dependents))

        def sample(columns: Sequence[str], predicates: Sequence[pl.Expr]) -> pl.DataFrame:
            store = open_store(dataset.store, probe=False)
            step = max(PLACE_ROWS, dataset.num_rows // PLACES)
            places = [(store.local_path(each.key), at) for each in objects for at in range(0, each.rows, step)]
            chosen = places[:: max(1, len(places) // PLACES)]
            scans = [pl.scan_parquet(path).slice(at, PLACE_ROWS) for path, at in chosen if path is not None]
            found = pl.collect_all([scan.select(columns) for scan in scans])
            return pl.concat([empty(dataset.schema).select(columns), *found]).filter(*predicates)

        objects = dataset.record.objects
        return GraphFrame(self, ScanPlan(add, dataset.schema, sum(each.bytes for each in objects), sample=sample))

    def from_frames(self: FrameGraph, frames: pl.DataFrame | Sequence[pl.DataFrame]) -> GraphFrame:
        """Polars frames of this program. Raises BadInput where there is none, or where columns or types differ."""
        listed = [frames] if isinstance(frames, pl.DataFrame) else list(frames)
        if not listed:
            raise BadInput("from_frames needs at least one frame")
        others = [frame.schema for frame in listed if frame.schema != listed[0].schema]
        if others:
            raise BadInput(
                f"from_frames takes frames of equal columns, and these differ: {dict(listed[0].schema)} and "
                f"{dict(others[0])}. Cast them to the same types first."
            )

        def add(graph: Any, columns: Any, predicates: Any, batch_func: Any, dependents: Any) -> int:
            chosen = Chosen(columns, all_of(predicates), batch_func)
            return int(graph.new_input_frames(listed, batch_func=chosen, dependents=dependents))

        def sample(columns: Sequence[str], predicates: Sequence[pl.Expr]) -> pl.DataFrame:
            step = max(PLACE_ROWS, sum(frame.height for frame in listed) // PLACES)
            places = ((frame.select(columns), at) for frame in listed for at in range(0, frame.height, step))
            found = pl.concat(
                [listed[0].select(columns).clear(), *(frame.slice(at, PLACE_ROWS) for frame, at in places)]
            )
            return found.filter(*predicates)

        size = int(sum(frame.estimated_size() for frame in listed))
        return GraphFrame(self, ScanPlan(add, listed[0].schema, size, sample=sample))


class Chosen:
    """The rows and columns of a batch that are needed, where the input itself cannot leave the others out."""

    def __init__(self, columns: Sequence[str], predicate: pl.Expr | None, then: Any) -> None:
        self._columns, self._predicate, self._then = list(columns), predicate, then
        what = ["KeepRows" if predicate is not None else "", "PickColumns", "" if then is None else then.__name__]
        self.__name__ = ", ".join(filter(None, what))

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows = (rows if self._predicate is None else rows.filter(self._predicate)).select(self._columns)
        return rows if self._then is None else self._then(rows)
