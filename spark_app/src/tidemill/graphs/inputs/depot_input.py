"""The records of a depot as a stream: those that were there when the graph was defined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from tidemill.clients.module import ModuleClient
from tidemill.depot.log import DepotLog
from tidemill.graphs.nodes import Cursor
from tidemill.store.urls import open_store
from tidemill.values.columns import to_values
from tidemill.values.errors import BadInput

BATCH_RECORDS = 10_000
VALUE = "value"
"""The column of records that are no dicts."""


@dataclass(frozen=True)
class DepotInput:
    """`spans`: first offset and end of each partition. Records that are dicts are rows; others are one column, VALUE.

    `types` are the columns and their types; None takes those of each batch.
    """

    url: str
    module: str
    depot: str
    prefix: str
    spans: tuple[tuple[int, int], ...]
    types: Mapping[str, Any] | None = None

    @property
    def schema(self) -> dict[str, pl.DataType] | None:
        return None if self.types is None else dict(pl.Schema(self.types))

    @property
    def batch_bytes(self) -> int:
        return BATCH_RECORDS * 100

    def describe(self) -> str:
        return f"the depot {self.depot} of {self.module}"

    def plan(self, channels: int) -> list[Cursor]:
        """Partitions are dealt in turn; a cursor is the (partition, next offset, end) that are left."""
        filled = [(number, start, end) for number, (start, end) in enumerate(self.spans) if start < end]
        return [tuple(filled[channel::channels]) or None for channel in range(channels)]

    def read(self, cursor: Cursor) -> tuple[pl.DataFrame | None, Cursor]:
        """Some records of the first partition that is left, in their order."""
        (partition, start, end), *rest = cursor
        stop = min(end, start + BATCH_RECORDS)
        log = DepotLog(open_store(self.url, probe=False), self.prefix, len(self.spans))
        log.follow()
        values = to_values(log.read_columns(partition, start, stop))
        left = rest if stop == end else [(partition, stop, end), *rest]
        return self._frame(values), tuple(left) or None

    def _frame(self, values: list[Any]) -> pl.DataFrame:
        try:
            if all(isinstance(value, dict) for value in values):
                return pl.DataFrame(values, schema=self.types, infer_schema_length=None)
            return pl.DataFrame({VALUE: values}, schema=self.types, strict=False)
        except (TypeError, pl.exceptions.PolarsError) as error:
            text = f"Records of {self.depot} of {self.module} make no columns: {error}"
            raise BadInput(f"{text}. Name the types of columns with schema=.") from error


def depot_input(url: str, module: str, depot: str, types: Mapping[str, Any] | None) -> DepotInput:
    """A depot as it is now. Raises UnknownName where there is no such module or depot."""
    store = open_store(url)
    definition = ModuleClient(store, module).definition()
    name = definition.depot(depot).name
    prefix = definition.depot_prefix(name)
    log = DepotLog(store, prefix, definition.partitions(name))
    log.follow()
    return DepotInput(url, module, name, prefix, tuple(zip(log.starts(), log.ends(), strict=True)), types)
