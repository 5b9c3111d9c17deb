"""Running queries: one after the other or one in the other, all tasks of each as one thread, on committed state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from tidemill.engine.query_budget import RUNNING, QueryBounds
from tidemill.engine.resources import empty_state, open_committed, open_mirrored, open_others, open_state
from tidemill.engine.schedule import run_supersteps
from tidemill.engine.step import PStateReads
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import AttemptWork
from tidemill.journal.snapshot import Snapshot
from tidemill.plan.program import MirroredQuery, Program
from tidemill.values.errors import NotOneValue
from tidemill.values.numbers import MicrobatchId, Version


@dataclass(frozen=True)
class QueryPlace:
    """Where queries run: the module with its number of tasks, all its queries, and the options that hold now.

    `mirrored` are those of other modules that they call.
    """

    module: str
    tasks: int
    programs: Mapping[str, Program]
    options: Mapping[str, Any] = field(default_factory=dict)
    mirrored: Mapping[str, MirroredQuery] = field(default_factory=dict)


class Queries:
    """The queries of one caller, all on the same committed states; used by one thread."""

    def __init__(
        self,
        place: QueryPlace,
        open_states: Callable[[], Mapping[str, PStateReads]],
        cancel: threading.Event | None = None,
        seconds_max: float = float("inf"),
        open_mirrored: Callable[[MirroredQuery], Mapping[str, PStateReads]] | None = None,
    ) -> None:
        """`open_states` gives the PStates by name; it is called when they are first read. `open_mirrored` gives those
        of another module's query. `seconds_max` bounds each query beside its options.
        """
        self._place, self._open_states, self._cancel = place, open_states, cancel
        self._seconds_max, self._open_mirrored = seconds_max, open_mirrored
        self._is_running = False
        self._others: dict[str, Queries] = {}

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
        mirrored = self._place.mirrored.get(query)
        if mirrored is not None:
            other = self._other(query, mirrored)
            return other._within(mirrored.query, args, seed, now_millis, self._is_running)
        return self._within(query, args, seed, now_millis, self._is_running)

    def _other(self, name: str, mirrored: MirroredQuery) -> Queries:
        """The queries of another module, on its own tasks and PStates."""
        if name not in self._others:
            assert self._open_mirrored is not None, "who calls queries of other modules has their PStates"
            place = QueryPlace(mirrored.module, mirrored.tasks, mirrored.programs, self._place.options)
            opened = partial(self._open_mirrored, mirrored)
            self._others[name] = Queries(place, opened, self._cancel, self._seconds_max)
        return self._others[name]

    def _within(self, query: str, args: Sequence[Any], seed: int, now_millis: int, is_inside: bool) -> Any:
        """As `call`; `is_inside` another query, whose bounds it shares."""
        before, self._is_running = self._is_running, True
        try:
            if is_inside:
                with RUNNING.deeper():
                    return self._run(query, args, seed, now_millis)
            bounds = QueryBounds.of(self._place.options, self._seconds_max)
            with RUNNING.of_query(query, bounds):
                return self._run(query, args, seed, now_millis)
        finally:
            self._is_running = before

    def _run(self, query: str, args: Sequence[Any], seed: int, now_millis: int) -> Any:
        place, program = self._place, self._place.programs[query]
        work = AttemptWork(
            store_url="", module=place.module, prefix=f"{place.module}/queries/{query}", program=program,
            tasks=place.tasks, threads=1, microbatch_id=MicrobatchId(seed), version=Version(RUNNING.depth),
            snapshot=Snapshot(), sources={}, options=place.options, now_millis=now_millis, arguments=tuple(args),
        )  # fmt: skip
        run = ThreadRun(work, 0, empty_state(program), self._states, self._cancel, self)
        for _ in run_supersteps(work, [run]):
            pass
        return only_answer(query, run.answers)

    def close(self) -> None:
        """Let go of what was opened."""
        for state in self.__dict__.pop("_states", {}).values():
            state.close()
        for other in self._others.values():
            other.close()


def only_answer(query: str, answers: Sequence[Any]) -> Any:
    """The one result of a query. Raises NotOneValue: it gave none, or several."""
    if len(answers) != 1:
        gave = f"{len(answers)} results" if answers else "no result"
        text = f"The query '{query}' gave {gave}, and must give one."
        raise NotOneValue(f"{text} Aggregate behind origin_partition(), as with Agg.list or Agg.first.")
    return answers[0]


@contextmanager
def bounded(work: AttemptWork) -> Iterator[None]:
    """The bounds of a query that runs as an attempt, anew for each step of a thread; others have none."""
    if work.program.inputs is None:
        yield
        return
    with RUNNING.of_query(work.program.topology, QueryBounds.of(work.options)):
        yield


def opened(work: AttemptWork, thread: int, overlay: bytes = b"", cancel: threading.Event | None = None) -> ThreadRun:
    """One thread of an attempt at its beginning, or with what it changed before."""
    queries = None
    if work.program.queries or work.program.mirrored:
        place = QueryPlace(work.module, work.tasks, work.program.queries, work.options, work.program.mirrored)
        queries = Queries(place, lambda: open_committed(work), cancel, open_mirrored=partial(open_mirrored, work))
    return ThreadRun(work, thread, open_state(work, thread, overlay), open_others(work, thread), cancel, queries)
