"""What `tidemill run` shows of its topologies: lines for pipes and log files, JSON, or a table on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidemill.cli.output import log, messages, say, show_json
from tidemill.clients.status import TopologyStatus
from tidemill.journal.clock import SystemClock
from tidemill.journal.entries import Failure


class Screen:
    """Shows lines when they changed: one text line each, for pipes and log files."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] = {}
        self._failed: dict[str, Failure | None] = {}
        self._background: dict[str, str] = {}
        self._told: dict[str, tuple[str, str, str]] = {}

    def show(self, lines: list[TopologyStatus]) -> None:
        """Show each topology's line if its state changed, and its failure if that is a new one."""
        for line in lines:
            troubles = bool(line.trouble), line.background_trouble
            key = (line.role, line.microbatch, line.processed, line.rests_paused, *troubles)
            if self._shown.get(line.topology) != key:
                self._shown[line.topology] = key
                self.write(line)
            if line.background_trouble and self._background.get(line.topology) != line.background_trouble:
                self.write_background(line.topology, line.background_trouble)
            self._background[line.topology] = line.background_trouble
            if line.failure is not None and self._failed.get(line.topology) != line.failure:
                self.write_failure(line.topology, line.failure)
            self._failed[line.topology] = line.failure

    def write(self, line: TopologyStatus) -> None:
        """Write one topology's line."""
        if line.trouble:
            log(f"{line.topology}: the store does not answer; it is asked again and again: {line.trouble}")
            return
        done = f"microbatch {line.microbatch}, {line.processed:,} processed, {line.waiting:,} waiting"
        log(f"{line.topology}: {line.role}, {done}, {line.rows_per_second:,.0f} rows/s")

    def write_background(self, topology: str, trouble: str) -> None:
        """Write why a compaction or a collection failed."""
        log(f"{topology}: compaction or collection failed, it will be tried again: {trouble}")

    def write_failure(self, topology: str, failure: Failure) -> None:
        """Write a failed attempt, with its record and the stack of the module's code where they are known."""
        attempt = f"{failure.microbatch_id}/{failure.version}"
        told = failure.code, failure.message, failure.sample
        if self._told.get(topology) == told:
            log(f"{topology}: attempt {attempt} failed in the same way, it will be tried again.")
            return
        self._told[topology] = told
        log(f"{topology}: attempt {attempt} failed, it will be tried again: {failure.code}: {failure.message}")
        if failure.sample and failure.sample not in failure.message:
            say(f"record: {failure.sample}")
        if failure.trace:
            say(failure.trace.rstrip())


class _JsonScreen(Screen):
    """One JSON object a change."""

    def write(self, line: TopologyStatus) -> None:
        show_json({"at_ms": SystemClock().now_ms(), **line.to_json()})
        sys.stdout.flush()

    def write_background(self, topology: str, trouble: str) -> None:
        """The line of the topology has it."""

    def write_failure(self, topology: str, failure: Failure) -> None:
        show_json({"at_ms": SystemClock().now_ms(), "topology": topology, "failure": vars(failure)})
        sys.stdout.flush()


class _LiveScreen(Screen):
    """A table that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    def show(self, lines: list[TopologyStatus]) -> None:
        super().show(lines)
        table = Table()
        for column in ("topology", "role", "records in", "processed", "microbatch", "under way", "rows/s", "phase"):
            table.add_column(column)
        for line in lines:
            under_way = "-" if line.under_way is None else "{}/{}".format(*line.under_way)
            phase: str = "waits for the store" if line.trouble else line.phase or line.state
            phase = f"{phase}, failing" if line.failure else phase
            cells = (
                line.topology, str(line.role), f"{line.processed + line.waiting:,}", f"{line.processed:,}",
                line.microbatch, under_way, f"{line.rows_per_second:,.0f}", phase,
            )  # fmt: skip
            table.add_row(*map(Text, cells))
        self._live.update(table)

    def write(self, line: TopologyStatus) -> None:
        """The table shows it."""


@contextlib.contextmanager
def screen(is_json: bool) -> Iterator[Screen]:
    """The screen that fits stderr: JSON lines, plain lines for pipes, or a table that is drawn anew on a terminal."""
    if is_json:
        yield _JsonScreen()
    elif not sys.stderr.isatty():
        yield Screen()
    else:
        with Live(console=messages(), refresh_per_second=5) as live:
            yield _LiveScreen(live)
