"""How a graph that runs is shown: a bar for each node in a terminal, a line now and then where there is none."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import IO, Any

from tidemill.graphs.explaining import title
from tidemill.graphs.nodes import GraphDefinition
from tidemill.graphs.waves import Waves

LINE_SECONDS = 10.0


class GraphProgress:
    """Shows rows, bytes, steps and what waits, of each node; `update` after each wave."""

    def __init__(self, graph: GraphDefinition, stream: IO[str] | None = None) -> None:
        self._graph = graph
        self._stream = stream or sys.stderr
        self._live: Any = None
        self._said = time.monotonic()

    def __enter__(self) -> GraphProgress:
        if self._stream.isatty():
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

    def update(self, waves: Waves) -> None:
        """Show how far the graph is."""
        if self._live is not None:
            self._live.update(self._table(waves))
        elif time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            rows = sum(record.rows_in for record in waves.node_records() if not waves.takes(record.node))
            lag = sum(record.lag for record in waves.node_records())
            behind = f", {lag:,} records behind" if lag else ""
            self._stream.write(f"wave {waves.wave}: {rows:,} rows read, {waves.backlog / 1e6:,.1f} MB wait{behind}\n")
            self._stream.flush()

    def _table(self, waves: Waves) -> Any:
        from rich.table import Table

        table = Table("node", "rows in", "rows out", "MB read", "steps", "MB waiting", "lag", "", box=None)
        for record in waves.node_records():
            ended = "done" if waves.has_ended(record.node) else ""
            name = f"{record.node}: {title(self._graph.nodes[record.node])}"
            table.add_row(
                name, f"{record.rows_in:,}", f"{record.rows_out:,}",
                f"{record.bytes_read / 1e6:,.1f}", f"{record.steps:,}", f"{waves.node_backlog(record.node) / 1e6:,.1f}",
                f"{record.lag:,}" if record.lag else "", ended,
            )  # fmt: skip
        return table
