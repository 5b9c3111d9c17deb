"""Tables of other libraries, as the types of signatures name them without loading one."""

from __future__ import annotations

from typing import Protocol


class ArrowStream(Protocol):
    """A table that gives its rows as an Arrow stream: a frame of Polars, a table of PyArrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, as the Arrow PyCapsule interface hands them on."""
