"""How a task graph reads frames: the part of `TaskGraph` with `read_csv` and its like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tidemill.graphs.dataset import Dataset
from tidemill.graphs.frames.expressions import all_of, comparisons
from tidemill.graphs.frames.frame import FrameGraph, GraphFrame
from tidemill.graphs.frames.plans import ScanPlan
from tidemill.graphs.inputs.csv_input import STRIDE, CsvFormat, sniffed
from tidemill.graphs.inputs.files import find_files
from tidemill.graphs.inputs.parquet_input import parquet_input
from tidemill.values.errors import BadInput


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
        stride: int = STRIDE,
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

        return GraphFrame(self, ScanPlan(add, pl.Schema(types), sum(file.size for file in files)))

    def read_parquet(
        self: FrameGraph, key: str | Sequence[str], *, bucket: str = "", stride: int = STRIDE
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

        return GraphFrame(self, ScanPlan(add, pl.Schema(found.types), sum(group.bytes for group in found.groups)))

    def read_dataset(self: FrameGraph, dataset: Dataset) -> GraphFrame:
        """A Dataset that another graph made. Raises BadInput where it is not complete."""
        if not dataset.is_complete:
            raise BadInput(f"{dataset!r} is not complete: run its graph first.")

        def add(graph: Any, columns: Any, predicates: Any, batch_func: Any, dependents: Any) -> int:
            chosen = Chosen(columns, all_of(predicates), batch_func)
            return int(graph.new_input_from_dataset(dataset, batch_func=chosen, dependents=dependents))

        return GraphFrame(self, ScanPlan(add, dataset.schema, sum(each.bytes for each in dataset.record.objects)))

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

        return GraphFrame(self, ScanPlan(add, listed[0].schema, int(sum(frame.estimated_size() for frame in listed))))


class Chosen:
    """The rows and columns of a batch that are needed, where the input itself cannot leave the others out."""

    def __init__(self, columns: Sequence[str], predicate: pl.Expr | None, then: Any) -> None:
        self._columns, self._predicate, self._then = list(columns), predicate, then
        what = ["KeepRows" if predicate is not None else "", "PickColumns", "" if then is None else then.__name__]
        self.__name__ = ", ".join(filter(None, what))

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows = (rows if self._predicate is None else rows.filter(self._predicate)).select(self._columns)
        return rows if self._then is None else self._then(rows)
