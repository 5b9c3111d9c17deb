"""Channels in threads of this process: Polars and PyArrow give up the interpreter's lock while they work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import polars as pl

from tidemill.graphs.channel import LiveChannel
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
        self._pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="tidemill-graph")

    def run(self, works: Sequence[StepWork]) -> list[StepResult]:
        """The results of a wave, in the order of its works. The first error is raised when all steps have ended."""
        futures = [self._pool.submit(self._step, work) for work in works]
        wait(futures)
        return [future.result() for future in futures]

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
        """Ends the threads."""
        self._pool.shutdown()
