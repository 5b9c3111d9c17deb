"""Channels on Spark: a wave is one job, and any Python worker may do any channel's work.

What a step makes is in the store when it ends: the batches that it sends in one object, its state as `checkpoints`
writes it, so that only what was added is written. A worker, an executor or a JVM that is lost costs what it was doing
in this wave: Spark, or the driver, does the same work again, and nobody saw what it made before. A worker that had a
channel in the wave before finds it in its memory.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import polars as pl
from py4j.protocol import Py4JError

from tidemill.graphs.channel import LiveChannel
from tidemill.graphs.checkpoints import FrameStore
from tidemill.graphs.failures import saving
from tidemill.graphs.messages import ChannelId, SentBatch, StepResult, StepWork
from tidemill.graphs.nodes import GraphDefinition
from tidemill.graphs.run_log import graph_folder, read_program
from tidemill.graphs.waves import Waves
from tidemill.spark import wire
from tidemill.spark.session import shared_session
from tidemill.spark.worker import drain
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import AttemptLost
from tidemill.values.ids import nonce

TRIES = 4
"""How often a wave is begun whose workers or whose JVM are lost."""


@dataclass(frozen=True)
class StoredBatch:
    """Rows as a part of an object: `length` bytes of Arrow from `start` on."""

    key: str
    start: int
    length: int

    def read(self, store: ObjectStore) -> pl.DataFrame:
        """The rows."""
        return pl.read_ipc(io.BytesIO(store.get_range(self.key, self.start, self.length)))


@dataclass(frozen=True)
class StoredState:
    """A channel's state: the key of its pickle, and the frames that this names."""

    key: str
    frames: tuple[str, ...]


class SparkPlacement:
    """Works on the process's shared Spark session; `graph` is the ID under which the store has the program."""

    def __init__(self, graph: str, store: str) -> None:
        self._graph = graph
        self._url = store
        self._store = open_store(store)
        self._made: set[str] = set()
        shared_session()

    def run(self, works: Sequence[StepWork]) -> list[StepResult]:
        """The results of a wave, in the order of its works.

        Raises:
            AttemptLost: workers were lost in each of TRIES tries.
        """
        for left in reversed(range(TRIES)):
            try:
                results = self._tried(works)
            except (Py4JError, OSError, EOFError) as error:
                if not left:
                    raise AttemptLost(f"Spark lost this wave {TRIES} times: {str(error).splitlines()[0]}") from error
            else:
                self._made.update(key for result in results for key in result.stored)
                return results
        raise AssertionError("unreachable: the last try returns or raises")

    def _tried(self, works: Sequence[StepWork]) -> list[StepResult]:
        session = shared_session()
        slots = min(session.slots, len(works))
        dealt = tuple(tuple(works[slot::slots]) for slot in range(slots))
        paths = tuple(sys.path) if session.settings.is_local else ()
        task = WaveTask(self._url, self._graph, dealt, paths)
        records = session.stages.collect(session.stages.python_stage(session.stages.base(slots), task))
        found: dict[ChannelId, StepResult] = {}
        for control in map(wire.unpack_control, records):
            if isinstance(control, wire.TaskFailure):
                wire.raise_failure(control)
            found |= {result.channel: result for result in control}
        return [found[work.channel] for work in works]

    def states(self) -> dict[ChannelId, Any]:
        """Nothing: `ChannelProgress.state` names them."""
        return {}

    def go_on(self, states: dict[ChannelId, Any]) -> None:
        """Nothing to do."""

    def named(self, waves: Waves) -> list[str]:
        """The objects that the channels need from now on."""
        found: set[str] = set()
        for progress in waves.channels.values():
            if progress.state is not None:
                found |= {progress.state.key, *progress.state.frames}
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
        found: pl.DataFrame = payload.read(self._store)
        return found

    def close(self) -> None:
        """Spark stays for others."""


@dataclass(frozen=True)
class WaveTask:
    """What one Spark task of a wave does: the works of its partition, one after the other."""

    store: str
    graph: str
    works: tuple[tuple[StepWork, ...], ...]
    paths: tuple[str, ...]

    def __call__(self, partition: int, records: Iterable[bytes]) -> list[bytes]:
        drain(records)
        try:
            sys.path.extend(path for path in self.paths if path not in sys.path)
            bench = _bench(self.store, self.graph)
            return [wire.pack_control([bench.step(work) for work in self.works[partition]])]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what a user function raises is data
            return [wire.pack_control(wire.pack_failure(error))]


class _Bench:
    """A graph in a worker, and the channels that were here last."""

    def __init__(self, url: str, graph: str) -> None:
        self.store = open_store(url, probe=False)
        self.folder = f"{graph_folder(graph)}/scratch"
        self.graph: GraphDefinition = cloudpickle.loads(read_program(self.store, graph)).definition
        self._live: dict[ChannelId, tuple[str, LiveChannel, FrameStore]] = {}

    def step(self, work: StepWork) -> StepResult:
        """Do one channel's work; state and batches are in the store when this returns."""
        live, frames = self._channel(work)
        inbox = tuple((stream, tuple(each.read(self.store) for each in batches)) for stream, batches in work.inbox)
        result = live.step(replace(work, inbox=inbox))
        outgoing, carrier = self._stored([*(sent.payload for sent in result.messages), *result.staged])
        messages = tuple(_carried(sent, payload) for sent, payload in zip(result.messages, outgoing, strict=False))
        state, made = self._kept(work.channel, live, frames, result.has_ended)
        return replace(
            result, messages=messages, staged=tuple(outgoing[len(messages) :]), state=state, stored=(*carrier, *made)
        )

    def _channel(self, work: StepWork) -> tuple[LiveChannel, FrameStore]:
        kept = self._live.pop(work.channel, None)
        if kept is not None and work.state is not None and kept[0] == work.state.key:
            return kept[1], kept[2]
        frames = FrameStore(self.store, self.folder)
        live = LiveChannel(self.graph, *work.channel, self.store)
        if work.state is not None:
            live.restore(frames.load(self.store.get(work.state.key))[0])
        return live, frames

    def _stored(self, batches: list[pl.DataFrame]) -> tuple[list[StoredBatch], tuple[str, ...]]:
        """Batches as parts of one object; one that several channels get is there once."""
        if not batches:
            return [], ()
        buffer, key = io.BytesIO(), f"{self.folder}/{nonce()}"
        places: dict[int, StoredBatch] = {}
        for batch in batches:
            if id(batch) not in places:
                start = buffer.tell()
                part = io.BytesIO()
                batch.write_ipc(part, compression="lz4")
                buffer.write(part.getbuffer())
                places[id(batch)] = StoredBatch(key, start, part.tell())
        self.store.create(key, buffer.getbuffer())
        return [places[id(batch)] for batch in batches], (key,)

    def _kept(
        self, channel: ChannelId, live: LiveChannel, frames: FrameStore, has_ended: bool
    ) -> tuple[StoredState | None, tuple[str, ...]]:
        state = None if has_ended else live.state()
        if state is None:
            return None, ()
        with saving(live.node.name, live.number):
            content, named = frames.dump(state)
        key = f"{self.folder}/{nonce()}"
        self.store.create(key, content)
        self._live[channel] = (key, live, frames)
        return StoredState(key, named), (key, *named)


def _carried(sent: SentBatch, payload: StoredBatch) -> SentBatch:
    return replace(sent, payload=payload)


_benches: dict[tuple[str, str], _Bench] = {}


def _bench(store: str, graph: str) -> _Bench:
    """The graph that this worker works on; one at a time, so that memory goes with the graph."""
    found = _benches.get((store, graph))
    if found is None:
        _benches.clear()
        found = _benches[store, graph] = _Bench(store, graph)
    return found
