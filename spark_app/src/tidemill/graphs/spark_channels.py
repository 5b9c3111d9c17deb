"""Channels in Spark's Python workers. A step ends with one object of the store, created if absent: the batches that it
sends, its state (larger frames are objects of their own, written once, as `checkpoints` has it), and its result.

Who begins a share of a wave again finds these objects, and does only what is not done. A worker that had a channel in
the wave before finds it in its memory.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

import cloudpickle
import polars as pl

from tidemill.graphs.channel import LiveChannel
from tidemill.graphs.checkpoints import FrameStore
from tidemill.graphs.failures import saving
from tidemill.graphs.freed_memory import give_back_memory
from tidemill.graphs.messages import ChannelId, StepResult, StepWork
from tidemill.graphs.nodes import GraphDefinition
from tidemill.graphs.run_log import graph_folder
from tidemill.graphs.sealed import not_written, unsealed
from tidemill.journal.snapshot import checksum_of
from tidemill.spark.worker import answered, drain
from tidemill.store.objects import AlreadyExists, NotFound, ObjectStore
from tidemill.store.urls import open_store

_LENGTH, _CHECKSUM = 8, 16
"""Bytes at the end of a step's object that say how long its result is, which stands before them, and its checksum."""


@dataclass(frozen=True)
class StoredPart:
    """A part of an object: `length` bytes from `start` on, and their checksum."""

    key: str
    start: int
    length: int
    checksum: str

    def read(self, store: ObjectStore) -> bytes:
        """These bytes. Raises CorruptState: they are not what was written."""
        content = store.get_range(self.key, self.start, self.length)
        if checksum_of(content) != self.checksum:
            raise not_written(self.key)
        return content

    def frame(self, store: ObjectStore) -> pl.DataFrame:
        """The rows of a batch."""
        return pl.read_ipc(io.BytesIO(self.read(store)))


@dataclass(frozen=True)
class StoredState:
    """A channel's state: where its pickle is, and the frames that this names."""

    part: StoredPart
    frames: tuple[str, ...]


@dataclass(frozen=True)
class ShareTask:
    """What one Spark task does: some of the works of a wave, one after the other. `name` tells the wave from others,
    `program` is the key of the graph. `left` are channels of which other workers have newer states. `is_again`: a task
    that had the same works was lost.
    """

    store: str
    graph: str
    program: str
    name: str
    works: tuple[StepWork, ...]
    paths: tuple[str, ...]
    left: tuple[ChannelId, ...]
    is_again: bool = False

    def __call__(self, partition: int, records: Iterable[bytes]) -> list[bytes]:
        drain(records)
        return answered(self._run)

    def _run(self) -> list[StepResult]:
        sys.path.extend(path for path in self.paths if path not in sys.path)
        bench = _bench(self)
        bench.forget(self.left)
        return bench.steps(self.name, self.works, self.is_again)


class _Bench:
    """A graph in a worker, and the channels that were here last."""

    def __init__(self, url: str, graph: str, program: str) -> None:
        self.store = open_store(url, probe=False)
        self.folder = f"{graph_folder(graph)}/scratch"
        self.graph: GraphDefinition = cloudpickle.loads(unsealed(program, self.store.get(program))).definition
        self._live: dict[ChannelId, tuple[str, LiveChannel, FrameStore]] = {}

    def steps(self, name: str, works: Iterable[StepWork], is_again: bool) -> list[StepResult]:
        """The results of these works; those that were done already are not done again."""
        found = []
        for work in works:
            key = f"{self.folder}/{name}-{work.channel[0]}-{work.channel[1]}"
            result = self._done_before(key) if is_again else None
            if result is None:
                # The task that was lost did its works in this order: this one was under way, those behind it were not.
                result, is_again = replace(self._step(work, key), is_repeated=is_again), False
            found.append(result)
        give_back_memory(behind=sum(result.bytes_read for result in found))
        return found

    def forget(self, channels: Iterable[ChannelId]) -> None:
        """Let go of the states of these channels."""
        for channel in channels:
            self._live.pop(channel, None)

    def _step(self, work: StepWork, key: str) -> StepResult:
        """Do one channel's work; all that comes of it is in the store when this returns."""
        live, frames = self._channel(work)
        inbox = tuple((stream, tuple(each.frame(self.store) for each in batches)) for stream, batches in work.inbox)
        result = live.step(replace(work, inbox=inbox))
        made = _StepObject(key)
        messages = tuple(replace(sent, payload=made.add_batch(sent.payload)) for sent in result.messages)
        staged = tuple(made.add_batch(frame) for frame in result.staged)
        state = None if result.has_ended else self._state(made, live, frames)
        stored = (key, *(state.frames if state is not None else ()))
        result = replace(result, messages=messages, staged=staged, state=state, stored=stored)
        if not (messages or staged or state or result.rows_in or result.has_ended):
            return replace(result, stored=())  # an input that found nothing
        try:
            self.store.create(key, made.ended(result))
        except AlreadyExists:  # a task that was taken for lost did it meanwhile: what it made counts
            return _result_in(key, self.store.get(key))
        if state is not None:
            self._live[work.channel] = (key, live, frames)
        return result

    def _done_before(self, key: str) -> StepResult | None:
        try:
            return _result_in(key, self.store.get(key))
        except NotFound:
            return None

    def _channel(self, work: StepWork) -> tuple[LiveChannel, FrameStore]:
        kept = self._live.pop(work.channel, None)
        if kept is not None and work.state is not None and kept[0] == work.state.part.key:
            return kept[1], kept[2]
        frames = FrameStore(self.store, self.folder)
        live = LiveChannel(self.graph, *work.channel, self.store)
        if work.state is not None:
            live.restore(frames.load(work.state.part.read(self.store))[0])
        return live, frames

    @staticmethod
    def _state(made: _StepObject, live: LiveChannel, frames: FrameStore) -> StoredState | None:
        state = live.state()
        if state is None:
            return None
        with saving(live.node.name, live.number):
            content, named = frames.dump(state)
        return StoredState(made.add(content), named)


class _StepObject:
    """What a step leaves, in one object; a batch that several channels get is there once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._buffer = io.BytesIO()
        self._places: dict[int, StoredPart] = {}

    def add_batch(self, batch: pl.DataFrame) -> StoredPart:
        """Put rows in; where they are."""
        if id(batch) not in self._places:
            part = io.BytesIO()
            batch.write_ipc(part, compression="lz4")
            self._places[id(batch)] = self.add(part.getvalue())
        return self._places[id(batch)]

    def add(self, content: bytes) -> StoredPart:
        """Put bytes in; where they are."""
        start = self._buffer.tell()
        self._buffer.write(content)
        return StoredPart(self._key, start, len(content), checksum_of(content))

    def ended(self, result: StepResult) -> bytes:
        """The whole object, which says at its end what came of the step."""
        place = self.add(pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL))
        self._buffer.write(place.length.to_bytes(_LENGTH) + place.checksum.encode())
        return self._buffer.getvalue()


def _result_in(key: str, content: bytes) -> StepResult:
    """What came of the step that left this object. Raises CorruptState: it is not what was written."""
    end = len(content) - _LENGTH - _CHECKSUM
    pickled = content[max(0, end - int.from_bytes(content[end:][:_LENGTH])) : max(0, end)]
    if checksum_of(pickled).encode() != content[-_CHECKSUM:]:
        raise not_written(key)
    found: StepResult = pickle.loads(pickled)
    return found


_benches: dict[tuple[str, str], _Bench] = {}


def _bench(task: ShareTask) -> _Bench:
    """The graph that this worker works on; one at a time, so that memory goes with the graph."""
    found = _benches.get((task.store, task.program))
    if found is None:
        _benches.clear()
        found = _benches[task.store, task.program] = _Bench(task.store, task.graph, task.program)
    return found
