"""`SubBatch`: a batch block as a source of another one."""

from __future__ import annotations

from typing import Any

from tidemill.api.arguments import to_vars
from tidemill.api.locations import caller_location
from tidemill.values.errors import Fault


class SubBatch:
    """A batch block as a source of another one: `SubBatch(block, "*k", "*n")` gives these variables of its rows.

    It has its own rows, aggregators and post-agg, and may hold sub-batches itself. Its rows are on the tasks where its
    last step emitted them.
    """

    def __init__(self, block: Any, *variables: str) -> None:
        found: list[Fault] = []
        self.at = caller_location()
        self.block = block
        self.vars = to_vars(variables, self.at, found)
        self.faults = tuple(found)

    def __repr__(self) -> str:
        return f"SubBatch({', '.join(map(repr, (self.block, *self.vars)))})"
