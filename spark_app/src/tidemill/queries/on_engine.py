"""A query as an attempt of an engine: its steps are spread over threads, as those of a microbatch are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemill.engine.queries import QueryPlace, only_answer
from tidemill.engine.query_budget import QueryBounds
from tidemill.engine.work import AttemptRunner, AttemptWork, Pinned
from tidemill.journal.snapshot import Snapshot
from tidemill.plan.program import Program
from tidemill.values.errors import AttemptTimeout, BudgetExceeded
from tidemill.values.numbers import MicrobatchId, Version

_SPREAD: Final = {"topology.microbatch.placement": "spread"}

OpenRunner = Callable[[], AttemptRunner]
"""Gives the engine of a process; it is opened when a query first needs it."""


@dataclass(frozen=True)
class EngineCall:
    """One call of a query: its program with all that it calls, where its module is, and the committed state of each
    topology that it reads, by name or by place.
    """

    program: Program
    place: QueryPlace
    store_url: str
    threads: int
    reads: Mapping[str, Pinned]

    def answer(self, runner: AttemptRunner, args: Sequence[Any], seconds: float, seed: int, now_millis: int) -> Any:
        """The result of the query; equal to what it gives in this process.

        Raises:
            UserCodeError: a function of the module raised.
            BudgetExceeded: it takes more time, or one step of a thread more rows or bytes, than its options allow.
            NotOneValue: it gave no result, or several.
            AttemptLost: a worker is gone.
        """
        place, query, bounds = self.place, self.program.topology, QueryBounds.of(self.place.options, seconds)
        work = AttemptWork(
            store_url=self.store_url, module=place.module, prefix=f"{place.module}/queries/{query}",
            program=self.program, tasks=place.tasks, threads=self.threads,
            microbatch_id=MicrobatchId(seed), version=Version(0), snapshot=Snapshot(), sources={}, reads=self.reads,
            options={**place.options, **_SPREAD}, now_millis=now_millis, arguments=tuple(args),
        )  # fmt: skip
        cancel = threading.Event()
        timer = threading.Timer(min(bounds.seconds, threading.TIMEOUT_MAX), cancel.set)
        timer.start()
        try:
            return only_answer(query, runner.run(work, cancel).answers)
        except AttemptTimeout as error:
            text = f"The query '{query}' takes longer than {bounds.seconds * 1000:,.0f} ms."
            raise BudgetExceeded(f"{text} Ask for less at once, or raise topology.query.timeout.millis.") from error
        finally:
            timer.cancel()
