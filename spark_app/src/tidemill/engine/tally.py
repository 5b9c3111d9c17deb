"""Where a thread's time goes in a superstep, and how many rows pass: two numbers for each operator of its program.

The clock is read when the thread turns from one operator to another and at no other time, so each moment belongs to one
of them, and it costs nothing by row.
"""

from __future__ import annotations

import time

from tidemill.journal.step_metrics import step_metrics

NOBODY = -1


class Tally:
    """`rows` counts by operator those that went on behind it, `branches` those that took a branch of a split."""

    __slots__ = ("_doing", "_seconds", "_since", "branches", "rows")

    def __init__(self, operators: int) -> None:
        self.rows = [0] * operators
        self.branches: dict[tuple[int, int], int] = {}
        self._seconds = [0.0] * operators
        self._doing, self._since = NOBODY, 0.0

    def turn_to(self, operator: int) -> None:
        """What follows is done for this operator, or for NOBODY."""
        now = time.perf_counter()
        if self._doing >= 0:
            self._seconds[self._doing] += now - self._since
        self._doing, self._since = operator, now

    def branch(self, split: int, to: int, rows: int) -> None:
        """So many rows took the branch of a split that begins at `to`."""
        self.branches[split, to] = self.branches.get((split, to), 0) + rows

    def metrics(self) -> dict[str, float]:
        """All of it, as metrics of the superstep."""
        return step_metrics(self._seconds, self.rows, self.branches)
