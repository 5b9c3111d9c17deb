"""Channels in threads of this process: Polars and PyArrow give up the interpreter's lock while they work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import polars as pl

from tidemill.graphs.channel import LiveChannel
from tidemill.graphs.freed_memory import give_back_memory
from tidemill.graphs.messages import ChannelId, StepResult, StepWork
from tidemill.graphs.nodes import GraphDefinition
from tidemill.graphs.waves import Waves
from tidemill.store.objects import ObjectStore


class LocalPlacement:
    """All channels of a graph live here from their first step on; messages are frames, which channels share."""

    def __init__(self, graph: GraphDefinition, store: ObjectStore, threads: int | None = None) -> None:
        self._graph = graph
        self._store = store
        self._live: dict[ChannelId, LiveChannel] = {}
        self._states: dict[ChannelId, Any] = {}
        self._size = threads or os.cpu_count() or 1
        self._pool = _taken_pool(self._size)
        self._steps: list[Future[StepResult]] = []

    def run(self, works: Sequence[StepWork]) -> list[StepResult]:
        """The results of a wave, in the order of its works. The first error is raised when all steps have ended."""
        self._steps = [self._pool.submit(self._step, work) for work in works]
        wait(self._steps)
        results = [step.result() for step in self._steps]
        self._steps = []
        give_back_memory(behind=sum(result.bytes_read for result in results))
        return results

    def _step(self, work: StepWork) -> StepResult:
        live = self._live.get(work.channel)
        if live is None:
            live = LiveChannel(self._graph, *work.channel, self._store)
            live.restore(self._states.pop(work.channel, None))
            self._live[work.channel] = live
        result = live.step(work)
        if result.has_ended:
            del self._live[work.channel]  # and with it all that its executor holds
        return result

    def states(self) -> dict[ChannelId, Any]:
        """What channels hold beside what the driver knows, with frames as they are."""
        return self._states | {channel: live.state() for channel, live in self._live.items()}

    def go_on(self, states: dict[ChannelId, Any]) -> None:
        """Begin where `states` was asked."""
        self._states = dict(states)

    def use(self, program: str) -> None:
        """Nothing: the graph is here."""

    def named(self, waves: Waves) -> list[str]:
        """No objects: all is in memory."""
        return []

    def collect(self, kept: Iterable[str]) -> None:
        """Nothing to delete."""

    def frame(self, payload: Any) -> pl.DataFrame:
        """The rows of a staged batch."""
        found: pl.DataFrame = payload
        return found

    def close(self) -> None:
        """Leaves the threads to the next graph of this process, when they have ended what they do."""
        wait(self._steps)
        self._steps = []
        _leave_pool(self._size, self._pool)


_PoolKey = tuple[int, int]
_left: dict[_PoolKey, ThreadPoolExecutor] = {}
"""By process and number of threads: what a graph left. The allocator of Polars has memory for each thread, and keeps
what is free of it for seconds: with threads of its own each graph of a program would take new memory.
"""


def _taken_pool(size: int) -> ThreadPoolExecutor:
    """Threads that no other graph has now: a step may itself run a graph, and wait for it."""
    found = _left.pop((os.getpid(), size), None)
    return found or ThreadPoolExecutor(size, thread_name_prefix="tidemill-graph")


def _leave_pool(size: int, pool: ThreadPoolExecutor) -> None:
    kept = _left.setdefault((os.getpid(), size), pool)
    if kept is not pool:
        pool.shutdown()
