"""How a graph that runs is shown: a line for each node in a terminal or a notebook, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any

from tidemill.graphs.explanation import title
from tidemill.graphs.nodes import GraphDefinition
from tidemill.graphs.waves import Waves
from tidemill.values.notebook import table

LINE_SECONDS = 10.0
NOTEBOOK_SECONDS = 0.5
COLUMNS = ("node", "rows in", "rows out", "MB read", "steps", "MB waiting", "lag", "dropped", "")


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this, so that what is shown goes below the cell."""
    asked = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(asked, "kernel", None) is not None


class GraphProgress:
    """Shows rows, bytes, steps and what waits, of each node; `update` after each wave."""

    def __init__(self, graph: GraphDefinition, stream: IO[str] | None = None) -> None:
        self._graph = graph
        self._stream = stream or sys.stderr
        self._live: Any = None
        self._cell: Any = None
        self._newest: Waves | None = None
        self._said = time.monotonic()

    def __enter__(self) -> GraphProgress:
        if in_notebook():
            from IPython.display import HTML, display

            self._cell = display(HTML(table("", COLUMNS, ())), display_id=True)
        elif self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), refresh_per_second=5, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
        if self._newest is not None:
            self._show_in_cell(self._newest)

    def update(self, waves: Waves) -> None:
        """Show how far the graph is."""
        if self._cell is not None:
            self._newest = waves
            if time.monotonic() - self._said >= NOTEBOOK_SECONDS:
                self._said = time.monotonic()
                self._show_in_cell(waves)
        elif self._live is not None:
            self._live.update(self._table(waves))
        elif time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            rows = sum(record.rows_in for record in waves.node_records() if not waves.takes(record.node))
            lag = sum(record.lag for record in waves.node_records())
            dropped = sum(record.dropped_rows for record in waves.node_records())
            more = (f", {lag:,} records behind" if lag else "") + (f", {dropped:,} rows dropped" if dropped else "")
            self._stream.write(f"wave {waves.wave}: {rows:,} rows read, {waves.backlog / 1e6:,.1f} MB wait{more}\n")
            self._stream.flush()

    def _show_in_cell(self, waves: Waves) -> None:
        from IPython.display import HTML

        self._cell.update(HTML(table("", COLUMNS, self._rows(waves))))

    def _table(self, waves: Waves) -> Any:
        from rich.table import Table

        shown = Table(*COLUMNS, box=None)
        for row in self._rows(waves):
            shown.add_row(*row)
        return shown

    def _rows(self, waves: Waves) -> Iterator[tuple[str, ...]]:
        for record in waves.node_records():
            ended = "done" if waves.has_ended(record.node) else ""
            name = f"{record.node}: {title(self._graph.nodes[record.node])}"
            yield (
                name, f"{record.rows_in:,}", f"{record.rows_out:,}",
                f"{record.bytes_read / 1e6:,.1f}", f"{record.steps:,}", f"{waves.node_backlog(record.node) / 1e6:,.1f}",
                *(f"{count:,}" if count else "" for count in (record.lag, record.dropped_rows)), ended,
            )  # fmt: skip
