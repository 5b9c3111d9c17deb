"""Subindexed maps as one map a leading key: rows of equal `task` and `k0` become one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Final

import polars as pl

from tidemill.language.schema import MapSchema, Schema
from tidemill.scans.bounds import Bounds
from tidemill.scans.columns import column_type
from tidemill.scans.pstates import TASK, PStateScan
from tidemill.tables.sorted_table import nan_token
from tidemill.values.errors import BadInput

MAP_ROWS_MAX: Final = 1_000_000
"""A key with more elements than these is no map of a row."""

HELD_MAX: Final = 1_000_000
"""So many elements of maps are held before the rows that they make are given out."""


@dataclass(frozen=True)
class FoldedMaps:
    """The scan of a PState of maps in maps, with columns task, k0 and `value`, which is a map."""

    scan: PStateScan

    @property
    def kinds(self) -> dict[str, Schema]:
        """The schemas of the key and of the map."""
        found = self.scan.info.schema
        assert isinstance(found, MapSchema)
        return {"k0": self.scan.kinds["k0"], "value": found.value}

    @property
    def schema(self) -> dict[str, Any]:
        """The columns with their Polars types."""
        return {TASK: pl.Int32, **{name: column_type(schema) for name, schema in self.kinds.items()}}

    def read(self, bounds: Bounds, columns: Sequence[str], batch_rows: int) -> Iterator[pl.DataFrame]:
        """The maps whose leading keys are within the bounds. Raises BadInput: one of them has too many elements."""
        leading = {name: allowed for name, allowed in bounds.items() if name in (TASK, "k0")}
        rows = self._rows(leading, batch_rows)
        made, elements = [], 0
        for _, group in groupby(rows, key=lambda row: (row[0], nan_token(row[1]))):
            row, count = self._folded(group)
            made.append(row)
            elements += count
            if len(made) == batch_rows or elements >= HELD_MAX:
                yield self._frame(made, columns)
                made, elements = [], 0
        if made:
            yield self._frame(made, columns)

    def _rows(self, bounds: Bounds, batch_rows: int) -> Iterator[tuple[Any, ...]]:
        for frame in self.scan.read(bounds, list(self.scan.schema), batch_rows):
            yield from frame.iter_rows()

    def _folded(self, group: Iterator[tuple[Any, ...]]) -> tuple[tuple[Any, ...], int]:
        """The rows of one leading key as task, key and map, and how many they are."""
        depth = len(self.scan.table.keys) - 1
        first = next(group)
        task, key = first[:2]
        found: list[dict[str, Any]] = []
        count = 0
        for count, row in enumerate(chain([first], group), 1):
            if count > MAP_ROWS_MAX:
                text = f"{self.scan.info.name} has more than {MAP_ROWS_MAX:,} elements at {key!r}"
                raise BadInput(f"{text}: leave the option maps out, so that each is a row.")
            _put(found, row[2 : 2 + depth], row[-1])
        return (task, key, found), count

    def _frame(self, made: list[tuple[Any, ...]], columns: Sequence[str]) -> pl.DataFrame:
        return pl.DataFrame(made, schema=self.schema, orient="row").select(columns)


def _put(found: list[dict[str, Any]], keys: Sequence[Any], value: Any) -> None:
    """Rows come in the order of their keys, so the map that a row belongs to is the last one."""
    for key in keys[:-1]:
        if not found or nan_token(found[-1]["key"]) != nan_token(key):
            found.append({"key": key, "value": []})
        found = found[-1]["value"]
    found.append({"key": keys[-1], "value": value})


def folded(scan: PStateScan) -> FoldedMaps:
    """The scan with a map a leading key. Raises BadInput where it is not of maps in maps."""
    schema: Schema = scan.info.schema
    depth = 0
    while isinstance(schema, MapSchema) and depth < len(scan.table.keys):
        schema, depth = schema.value, depth + 1
    if depth < 2 or depth != len(scan.table.keys) or scan.table.fields is not None:
        raise BadInput(f"The option maps is for maps with subindexed maps in them, which {scan.info.name} has not.")
    return FoldedMaps(scan)
