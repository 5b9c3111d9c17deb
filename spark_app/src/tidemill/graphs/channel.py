"""A channel of a node at work: it reads, or calls its executor, and deals what comes of it to the next channels."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import cloudpickle
import polars as pl

from tidemill.graphs.dataset import DatasetObject
from tidemill.graphs.dataset_writer import DatasetWriter
from tidemill.graphs.executor import StatelessExecutor, changed, class_marks_of, has_ended_early, marks_of
from tidemill.graphs.executors.windows import WindowExecutor
from tidemill.graphs.failures import calling, placing
from tidemill.graphs.given_functions import GivenFunctions, with_functions
from tidemill.graphs.inputs.frame_input import frame_from
from tidemill.graphs.messages import SentBatch, StepResult, StepWork
from tidemill.graphs.nodes import Cursor, DatasetSink, Edge, Follower, GraphDefinition, InputNode, LazyBatch, TaskNode
from tidemill.graphs.partitions import Pieces, split
from tidemill.graphs.windowed_dataset import WindowWriter
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, UserCodeError


class LiveChannel:
    """One channel with its executor, which is a copy of the node's. Steps of one channel never run side by side."""

    def __init__(self, graph: GraphDefinition, node: int, number: int, store: ObjectStore) -> None:
        self.node: InputNode | TaskNode = graph.nodes[node]
        self.number = number
        self._edges: list[Edge] = graph.edges(node)
        self._works_lazily = True
        self._executor: Any = None
        self._writer: DatasetWriter | WindowWriter | None = None
        self._ended: tuple[int, ...] = ()
        if isinstance(self.node, TaskNode):
            self._executor = cloudpickle.loads(cloudpickle.dumps(self.node.executor))
            self._functions = GivenFunctions(self._executor)
            if isinstance(self.node.sink, DatasetSink):
                self._writer = _writer(store, self.node, self.node.sink, number)
            with calling(self.node.name, "initialize", number):
                self._executor.initialize(list(self.node.datasets), number)

    # --- state -------------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """What `restore` needs, with frames in it as they are; None for an input."""
        if self._executor is None:
            return None
        with calling(self.node.name, "serialize", self.number):
            kept, functions = self._functions.without(self._executor.serialize(), self._executor)
        return kept, self._writer.pending if self._writer is not None else None, self._ended, functions

    def restore(self, state: Any) -> None:
        """Go on from what `state` gave."""
        if state is None or self._executor is None:
            return
        kept, pending, self._ended = state[:3]
        functions = state[3] if len(state) > 3 else ()  # older states have them among all attributes
        with calling(self.node.name, "deserialize", self.number):
            self._executor.deserialize(with_functions(kept, functions, self._executor))
        if isinstance(self._executor, WindowExecutor) and not self._executor.keeps_ends(kept):
            self._ended = ()
        if self._writer is not None:
            self._writer.pending = pending

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, work: StepWork) -> StepResult:
        """Do one wave's work.

        Raises:
            UserCodeError: a function of the user raised. BadInput: a batch has no such partition key, or no rows of the
            types of its file.
        """
        begin = time.perf_counter()
        run = self._read if isinstance(self.node, InputNode) else self._execute
        found = run(work)
        return StepResult(**found, channel=work.channel, seconds=time.perf_counter() - begin)

    def _read(self, work: StepWork) -> dict[str, Any]:
        assert isinstance(self.node, InputNode)
        cursor, is_part, size, rows, frames = work.cursor, True, 0, 0, list[pl.DataFrame]()
        while is_part:
            cursor, is_part, read_bytes, read_rows, made = self._piece(self.node, cursor)
            size, rows, frames = size + read_bytes, rows + read_rows, frames + made
        reader = self.node.reader
        return {
            "cursor": cursor, "has_ended": cursor is None, "messages": tuple(self._sent(frames)), "bytes_read": size,
            "rows_in": rows, "rows_out": sum(frame.height for frame in frames),
            "behind": reader.behind(cursor) if isinstance(reader, Follower) else 0,
        }  # fmt: skip

    def _piece(self, node: InputNode, cursor: Cursor) -> tuple[Cursor, bool, int, int, list[pl.DataFrame]]:
        """Where to go on and whether in this wave, the bytes and rows that were read, and what is made of them.

        What was read itself is gone when the next piece is, which takes its memory.
        """
        read, cursor = node.reader.read(cursor)
        size = 0 if read is None else read.bytes if isinstance(read, LazyBatch) else int(read.estimated_size())
        is_part = isinstance(read, LazyBatch) and read.is_part
        return cursor, is_part, size, *self._made(node, read)

    def _made(self, node: InputNode, read: pl.DataFrame | LazyBatch | None) -> tuple[int, list[pl.DataFrame]]:
        """How many rows were read, and what the batch function makes of them."""
        function = node.batch_function
        if isinstance(read, LazyBatch) and function is not None and self._works_lazily:
            found = self._made_lazily(function, read)
            if found is not None:
                read.check()
                return found.height, [found]
        batch = read.collect() if isinstance(read, LazyBatch) else read
        if batch is None or function is None:
            return (0, []) if batch is None else (batch.height, [batch])
        with calling(node.name, "batch_func", self.number, [batch]):
            return batch.height, list(self._frames(function(batch)))

    def _made_lazily(self, function: Any, read: LazyBatch) -> pl.DataFrame | None:
        """What a batch function makes of a batch that is not read yet, so that only what it wants is read; None where
        it asks for something that only a frame has, as its height: then it gets frames from now on.
        """
        with suppress(Exception, pl.exceptions.PanicException):  # the frame itself shows if it is a mistake
            found = function(read.frame)
            if isinstance(found, pl.LazyFrame):
                return found.collect()
        self._works_lazily = False
        return None

    def _execute(self, work: StepWork) -> dict[str, Any]:
        before = class_marks_of(self._executor)
        found = self._executed(work)
        names = changed(before, class_marks_of(self._executor))
        if names:
            text = (
                f"{self.node.name} set {', '.join(names)}, and all channels share a class: its state would be counted "
                "several times, and be lost when the graph is resumed. Set it on self, in __init__."
            )
            raise UserCodeError(text, step=f"execute of {self.node.name}")
        return found

    def _executed(self, work: StepWork) -> dict[str, Any]:
        frames, objects, rows_out = list[pl.DataFrame](), list[DatasetObject](), 0
        for frame in self._given(work):
            rows_out += frame.height
            if isinstance(self._writer, DatasetWriter):
                objects += self._writer.write(frame)  # as it comes: of what goes into the store nothing is gathered
            else:
                frames.append(frame)
        is_done = work.is_last or has_ended_early(self._executor)
        rows_in = sum(batch.height for _, batches in work.inbox for batch in batches)
        found: dict[str, Any] = {"cursor": None, "has_ended": is_done, "rows_in": rows_in, "rows_out": rows_out}
        found |= {"was_told": work.is_idle, "reached": self._executor.time_reached()}
        assert isinstance(self.node, TaskNode)
        if isinstance(self._writer, WindowWriter):
            found |= {"windows": self._writer.write(frames, work.closed)}
            self._executor.dropped_rows += self._writer.late_rows
        found |= {"dropped_rows": self._executor.dropped_rows}
        if isinstance(self._writer, WindowWriter):
            return found
        if self._writer is not None:
            return found | {"objects": (*objects, *(self._writer.end() if is_done else ()))}
        if self.node.sink is not None:
            return found | {"staged": tuple(frame for frame in frames if frame.height)}
        return found | {"messages": tuple(self._sent(frames))}

    def _given(self, work: StepWork) -> Iterator[pl.DataFrame]:
        """What the executor gives for a wave's work, while it gives it."""
        if work.closed is not None:
            self._skip(work.closed)
        inbox = dict(work.inbox)
        # Of streams that have ended first: what their end lets go on need not wait with the others.
        for stream in sorted({*inbox, *work.ended}, key=lambda stream: (stream not in work.ended, stream)):
            yield from self._taken(list(inbox.get(stream, ())), stream)
            if has_ended_early(self._executor):
                break
            if stream in work.ended:
                yield from self._told(stream)
        if work.is_idle and not work.is_last and not has_ended_early(self._executor):
            with calling(self.node.name, "idle", self.number):
                yield from self._frames(self._executor.idle(self.number))
        if work.follow is not None and not work.is_last and not has_ended_early(self._executor):
            with calling(self.node.name, "follow", self.number):
                yield from self._frames(self._executor.follow(work.follow, self.number))
        if work.is_last or has_ended_early(self._executor):
            with calling(self.node.name, "done", self.number):
                yield from self._frames(self._executor.done(self.number))

    def _skip(self, last: Any) -> None:
        """Tell the executor which windows come no more, so that it counts rows that are late for them."""
        assert isinstance(self.node, TaskNode) and isinstance(self.node.sink, DatasetSink)
        with calling(self.node.name, "skip_windows", self.number):
            self._executor.skip_windows(*self.node.sink.key, last, self.number)

    def _told(self, stream: int) -> Iterator[pl.DataFrame]:
        """What the executor gives when it hears that a stream has ended; it hears it once."""
        if stream in self._ended:
            return
        self._ended = (*self._ended, stream)
        with calling(self.node.name, "ended", self.number):
            yield from self._frames(self._executor.ended(stream, self.number))

    def _taken(self, batches: list[pl.DataFrame], stream: int) -> Iterator[pl.DataFrame]:
        if not batches:
            return
        if not isinstance(self._executor, StatelessExecutor):
            with calling(self.node.name, "execute", self.number, batches):
                yield from self._frames(self._executor.execute(batches, stream, self.number))
            return
        for batch in batches:
            before = marks_of(self._executor)
            with calling(self.node.name, "execute", self.number, [batch]):
                yield from self._frames(self._executor.execute(batch, stream, self.number))
            self._check_stateless(before)
            if has_ended_early(self._executor):
                return

    def _check_stateless(self, before: dict[str, Any]) -> None:
        names = changed(before, marks_of(self._executor))
        if names:
            text = (
                f"execute of {self.node.name} set {', '.join(names)}, and a StatelessExecutor keeps no state: "
                "it would be lost when the graph is resumed. Derive the class from Executor."
            )
            raise UserCodeError(text, step=f"execute of {self.node.name}")

    def _frames(self, output: Any) -> Iterator[pl.DataFrame]:
        """What a function of the user gave, as frames."""
        if output is None:
            return
        if isinstance(output, pl.DataFrame):
            yield output
            return
        if not isinstance(output, Iterable) or isinstance(output, (str, bytes, dict, pl.Series)):
            raise BadInput(f"it gave {type(output).__name__}; give None, a frame, or several in a list or a generator")
        yield from (frame_from(frame) for frame in output if frame is not None)

    def _split(self, frame: pl.DataFrame, edge: Edge) -> Pieces:
        if not callable(edge.key):
            return split(frame, edge.key, self.number, edge.channels)
        with calling(self.node.name, "partition_key", self.number, [frame]):
            return split(frame, edge.key, self.number, edge.channels)

    def _sent(self, frames: list[pl.DataFrame]) -> list[SentBatch]:
        """The rows for each channel of each node that takes them; batches without rows are not sent."""
        sent = []
        with placing(self.node.name):
            for frame in frames:
                for edge in self._edges if frame.height else ():
                    for channel, piece in self._split(frame, edge):
                        size = int(piece.estimated_size())
                        target = (edge.target, channel)
                        sent.append(SentBatch(target, edge.stream, self.number, piece.height, size, piece))
        return sent


def _writer(store: ObjectStore, node: TaskNode, sink: DatasetSink, channel: int) -> DatasetWriter | WindowWriter:
    if node.keeps_windows:
        return WindowWriter(store, sink, channel)
    return DatasetWriter(store, sink, channel, node.channels)
