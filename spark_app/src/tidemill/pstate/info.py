"""What reading and writing of a PState need to know of its declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.language.dataflow import MigrationStep
from tidemill.language.schema import Schema
from tidemill.tables.tables import Layout, layout_of


@dataclass(frozen=True)
class PStateInfo:
    """A PState of the topology; `id` is its declaration's id in the module's definition, which stored rows carry.

    What is written to one that `is_temporary` ends with the attempt.
    """

    name: str
    id: str
    schema: Schema
    initial_value: Any = None
    is_temporary: bool = False
    steps: tuple[MigrationStep, ...] = ()

    @property
    def layout(self) -> Layout:
        """Where its rows are stored; `steps` are the migrations that they may still need."""
        return layout_of(self.schema, self.steps)
