"""Channels on Spark: any Python worker may do any channel's work, and what it did is in the store when a step ends.

The channels of a wave are dealt to as many jobs as tasks can run at once, each of one task; jobs that wait bring the
executors that may come. So a worker, an executor or a JVM that is lost takes one share of a wave with it, or some,
while the others go on; their share is begun again by others, who find what was done in it (`spark_channels`). That
costs the steps that were under way, and no others.

A channel's next step goes to the worker that has its state (`ChannelHomes`, `Seats`). That is a wish: where it is not
met, or that worker is gone, the state is read from the store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import polars as pl
from py4j.protocol import Py4JError

from tidemill.graphs.channel_homes import ChannelHomes
from tidemill.graphs.messages import ChannelId, StepResult, StepWork
from tidemill.graphs.spark_channels import ShareTask
from tidemill.graphs.waves import Waves
from tidemill.spark import wire
from tidemill.spark.jvm import Stages
from tidemill.spark.seats import Seat, Seats
from tidemill.spark.session import Session, shared_session
from tidemill.store.urls import open_store
from tidemill.values.errors import AttemptLost
from tidemill.values.ids import nonce

TRIES = 4
"""How often a share of a wave is begun whose workers or whose JVM are lost."""
JOBS_MAX = 256
"""Jobs of one wave; more channels than these share them."""


class SparkPlacement:
    """Works on the process's shared Spark session; `graph` is the ID under which the store has the program."""

    def __init__(self, graph: str, store: str) -> None:
        self._graph = graph
        self._url = store
        self._store = open_store(store)
        self._program = ""
        self._made: set[str] = set()
        self._name = nonce()
        self._waves = 0
        self._homes, self._seats = ChannelHomes(), Seats()
        self._jobs = ThreadPoolExecutor(JOBS_MAX, thread_name_prefix="tidemill-graph-job")
        shared_session(is_numbered=True)

    def run(self, works: Sequence[StepWork]) -> list[StepResult]:
        """The results of a wave, in the order of its works.

        Raises:
            AttemptLost: workers were lost in each of TRIES tries.
        """
        self._waves += 1
        session = shared_session(is_numbered=True)
        shares = enumerate(self._homes.deal(works, min(session.slots_max, JOBS_MAX)))
        tasks = {number: self._task(session, number, dealt) for number, dealt in shares if dealt}
        locations, slots = session.locations(), session.slots_of_executor
        seats = {number: self._seats.seat(number, locations, slots) for number in tasks}
        jobs = [self._jobs.submit(self._done, session, tasks[number], seats[number]) for number in tasks]
        wait(jobs)
        found: dict[ChannelId, StepResult] = {}
        for job in jobs:
            found |= {result.channel: result for result in job.result()}
        self._homes.learn(found.values())
        self._made.update(key for result in found.values() for key in result.stored)
        return [found[work.channel] for work in works]

    def _task(self, session: Session, share: int, works: tuple[StepWork, ...]) -> ShareTask:
        paths = tuple(sys.path) if session.settings.is_local else ()
        name, left = f"{self._name}-{self._waves}", self._homes.left(share)
        return ShareTask(self._url, self._graph, self._program, name, works, paths, left)

    def _done(self, session: Session, task: ShareTask, seat: Seat) -> list[StepResult]:
        """The results of one job's works, which are done one after the other."""
        for number in range(TRIES):
            try:
                if number:
                    session, task = shared_session(is_numbered=True), replace(task, is_again=True)
                return self._tried(session.stages, task, seat)
            except (Py4JError, OSError, EOFError) as error:
                lost = error
        raise AttemptLost(f"Spark lost this wave {TRIES} times: {str(lost).splitlines()[0]}") from lost

    def _tried(self, stages: Stages, task: ShareTask, seat: Seat) -> list[StepResult]:
        stage = stages.python_stage(stages.base_at(seat.location), task, worker=seat.worker)
        (record,) = stages.collect(stage)
        control = wire.unpack_control(record)
        if isinstance(control, wire.TaskFailure):
            wire.raise_failure(control)
        results: list[StepResult] = control
        return results

    def states(self) -> dict[ChannelId, Any]:
        """Nothing: `ChannelProgress.state` names them."""
        return {}

    def go_on(self, states: dict[ChannelId, Any]) -> None:
        """Nothing to do."""

    def use(self, program: str) -> None:
        """Workers take the graph from this object."""
        self._program = program

    def named(self, waves: Waves) -> list[str]:
        """The objects that the channels need from now on."""
        found: set[str] = set()
        for progress in waves.channels.values():
            if progress.state is not None:
                found |= {progress.state.part.key, *progress.state.frames}
            found.update(batch.key for batch in progress.staged)
            found.update(sent.payload.key for queue in progress.inbox.values() for sent in queue)
        return list(found)

    def collect(self, kept: Iterable[str]) -> None:
        """Delete what steps made but for this."""
        gone = self._made - set(kept)
        for key in gone:
            self._store.delete(key)
        self._made -= gone

    def frame(self, payload: Any) -> pl.DataFrame:
        """The rows of a staged batch."""
        found: pl.DataFrame = payload.frame(self._store)
        return found

    def close(self) -> None:
        """Lets go of the threads; Spark stays for others."""
        self._jobs.shutdown()
