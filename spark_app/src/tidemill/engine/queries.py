"""Running queries: one after the other or one in the other, all tasks of each as one thread, on committed state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tidemill.engine.query_budget import RUNNING, QueryBounds
from tidemill.engine.resources import empty_state, open_committed, open_others, open_state
from tidemill.engine.schedule import run_supersteps
from tidemill.engine.step import PStateReads
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import AttemptWork
from tidemill.journal.snapshot import Snapshot
from tidemill.plan.program import Program
from tidemill.values import columns as cols
from tidemill.values.errors import NotOneValue


@dataclass(frozen=True)
class QueryPlace:
    """Where queries run: the module with its number of tasks, all its queries, and the options that hold now."""

    module: str
    tasks: int
    programs: Mapping[str, Program]
    options: Mapping[str, Any] = field(default_factory=dict)


class Queries:
    """The queries of one caller, all on the same committed states; used by one thread."""

    def __init__(
        self,
        place: QueryPlace,
        open_states: Callable[[], Mapping[str, PStateReads]],
        cancel: threading.Event | None = None,
        seconds_max: float = float("inf"),
    ) -> None:
        """`open_states` gives the PStates by name; it is called when they are first read. `seconds_max` bounds each
        query beside its options.
        """
        self._place, self._open_states, self._cancel = place, open_states, cancel
        self._seconds_max = seconds_max
        self._is_running = False

    @cached_property
    def _states(self) -> Mapping[str, PStateReads]:
        return self._open_states()

    def call(self, query: str, args: Sequence[Any], seed: int, now_millis: int) -> Any:
        """The result of a query; `seed` decides what it draws at random. A query that it calls shares its bounds.

        Raises:
            UserCodeError: a function of the module raised.
            BudgetExceeded: it takes more time, rows, bytes or depth than it may.
            NotOneValue: it gave no result, or several.
        """
        if self._is_running:
            with RUNNING.deeper():
                return self._run(query, args, seed, now_millis)
        self._is_running = True
        try:
            bounds = QueryBounds.of(self._place.options, self._seconds_max)
            with RUNNING.of_query(query, bounds):
                return self._run(query, args, seed, now_millis)
        finally:
            self._is_running = False

    def _run(self, query: str, args: Sequence[Any], seed: int, now_millis: int) -> Any:
        place, program = self._place, self._place.programs[query]
        work = AttemptWork(
            store_url="", module=place.module, prefix=f"{place.module}/queries/{query}", program=program,
            tasks=place.tasks, threads=1, microbatch_id=seed, version=RUNNING.depth, snapshot=Snapshot(), sources={},
            options=place.options, now_millis=now_millis,
        )  # fmt: skip
        run = ThreadRun(work, 0, empty_state(program), self._states, self._cancel, self)
        run.inputs = {name: cols.from_values([arg]) for name, arg in zip(program.inputs or (), args, strict=True)}
        for _ in run_supersteps(work, [run]):
            pass
        if len(run.answers) != 1:
            gave = f"{len(run.answers)} results" if run.answers else "no result"
            text = f"The query '{query}' gave {gave}, and must give one."
            raise NotOneValue(f"{text} Aggregate behind origin_partition(), as with Agg.list or Agg.first.")
        return run.answers[0]

    def close(self) -> None:
        """Let go of what was opened."""
        for state in self.__dict__.pop("_states", {}).values():
            state.close()


def opened(work: AttemptWork, thread: int, overlay: bytes = b"", cancel: threading.Event | None = None) -> ThreadRun:
    """One thread of an attempt at its beginning, or with what it changed before."""
    queries = None
    if work.program.queries:
        place = QueryPlace(work.module, work.tasks, work.program.queries, work.options)
        queries = Queries(place, lambda: open_committed(work), cancel)
    return ThreadRun(work, thread, open_state(work, thread, overlay), open_others(work, thread), cancel, queries)
