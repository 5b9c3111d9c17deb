"""What `tidemill run` shows of its topologies: lines for pipes and log files, JSON, or a table on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidemill.cli.output import messages, say, show_json
from tidemill.journal.entries import Failure


@dataclass(frozen=True)
class Line:
    """What the live progress shows of one topology."""

    topology: str
    role: str
    phase: str
    records_in: int
    processed: int
    waiting: int
    microbatch_id: int
    version: int
    under_way: tuple[int, int] | None
    rows_per_second: float
    failure: Failure | None
    trouble: str = ""
    """Why the store could not be asked; the other numbers are then the last that were seen."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing will happen without new records."""
        is_at_rest = self.waiting == 0 and self.under_way is None and self.phase in ("idle", "standby")
        return not self.trouble and (self.phase == "paused" or is_at_rest)


class Screen:
    """Shows lines when they changed: one text line each, for pipes and log files."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] = {}
        self._failed: dict[str, Failure | None] = {}

    def show(self, lines: list[Line]) -> None:
        for line in lines:
            is_paused, is_in_trouble = line.phase == "paused", bool(line.trouble)
            key = (line.role, line.microbatch_id, line.version, line.processed, is_paused, is_in_trouble)
            if self._shown.get(line.topology) != key:
                self._shown[line.topology] = key
                self.write(line)
            if line.failure is not None and self._failed.get(line.topology) != line.failure:
                self.write_failure(line.topology, line.failure)
            self._failed[line.topology] = line.failure

    def write(self, line: Line) -> None:
        if line.trouble:
            say(f"{line.topology}: the store does not answer; it is asked again and again: {line.trouble}")
            return
        done = f"microbatch {line.microbatch_id}/{line.version}, {line.processed:,} processed, {line.waiting:,} waiting"
        say(f"{line.topology}: {line.role}, {done}, {line.rows_per_second:,.0f} rows/s")

    def write_failure(self, topology: str, failure: Failure) -> None:
        attempt = f"{failure.microbatch_id}/{failure.version}"
        say(f"{topology}: attempt {attempt} failed, it will be tried again: {failure.code}: {failure.message}")
        if failure.sample:
            say(f"record: {failure.sample}")
        if failure.trace:
            say(failure.trace.rstrip())


class _JsonScreen(Screen):
    """One JSON object a change."""

    def write(self, line: Line) -> None:
        show_json({**vars(line), "failure": vars(line.failure) if line.failure else None})
        sys.stdout.flush()

    def write_failure(self, topology: str, failure: Failure) -> None:
        show_json({"topology": topology, "failure": vars(failure)})
        sys.stdout.flush()


class _LiveScreen(Screen):
    """A table that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    def show(self, lines: list[Line]) -> None:
        super().show(lines)
        table = Table()
        for column in ("topology", "role", "records in", "processed", "microbatch", "under way", "rows/s", "phase"):
            table.add_column(column)
        for line in lines:
            under_way = "-" if line.under_way is None else "{}/{}".format(*line.under_way)
            phase = "waits for the store" if line.trouble else line.phase
            phase = f"{phase}, failing" if line.failure else phase
            cells = (
                line.topology, line.role, f"{line.records_in:,}", f"{line.processed:,}",
                f"{line.microbatch_id}/{line.version}", under_way, f"{line.rows_per_second:,.0f}", phase,
            )  # fmt: skip
            table.add_row(*map(Text, cells))
        self._live.update(table)

    def write(self, line: Line) -> None:
        """The table shows it."""


@contextlib.contextmanager
def screen(is_json: bool) -> Iterator[Screen]:
    if is_json:
        yield _JsonScreen()
    elif not sys.stderr.isatty():
        yield Screen()
    else:
        with Live(console=messages(), refresh_per_second=5) as live:
            yield _LiveScreen(live)
