"""One run of a graph: waves until all channels have ended, checkpoints between them, and the end that publishes.

Durable steps, each created if absent: the program, `begin` that names it, objects of Datasets and frames (under names
that nobody else has), a checkpoint and the entry that names it, appends to depots that the entry names (idempotent),
`finish`, and the records of the Datasets. A process that is killed at any of them leaves a graph that goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import cloudpickle
import polars as pl

from tidemill.graphs.checkpoints import FrameStore, delete_but
from tidemill.graphs.dataset import FOLDER as DATASETS
from tidemill.graphs.dataset import RECORD, Dataset, DatasetObject, DatasetRecord, record_key
from tidemill.graphs.dataset_readers import publish
from tidemill.graphs.depot_output import DepotOutput
from tidemill.graphs.failures import appending, saving
from tidemill.graphs.idleness import Idleness
from tidemill.graphs.messages import ChannelId, Payload, StepResult, StepWork
from tidemill.graphs.nodes import DatasetSink, DepotSink, GraphDefinition, TaskNode
from tidemill.graphs.run_log import Kind, RunEntry, RunLog, graph_folder
from tidemill.graphs.sealed import sealed, unsealed
from tidemill.graphs.waves import NodeRecord, Waves, node_records
from tidemill.graphs.windowed_dataset import window_id
from tidemill.journal.clock import Clock
from tidemill.store.log import wait_for
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.columns import Column
from tidemill.values.errors import BadInput, CorruptState, Fenced, StoreRestored, TidemillError, invariant
from tidemill.values.ids import nonce

CHECKPOINT_SHARE = 0.1
"""Checkpoints take at most this share of the time, but for those that a depot waits for."""
STAGED_ROWS_MAX = 100_000
"""Rows that wait to be appended to depots; then a checkpoint is taken, so that they can be."""
WINDOWS_MAX = 1_000
"""Windows that have ended and wait to be published; then a checkpoint is taken, so that they can be."""
OPEN_WINDOWS_MAX = 10_000
"""Windows that some channels of a node have ended, while others have not."""
IDLE_SECONDS = (0.01, 0.25)
"""How long a graph waits that found nothing to do: more each time, from the first to the second."""
COLLECT_WAVES = 8
"""How often what channels made and need no more is deleted, where no checkpoint does it."""
Waiting: TypeAlias = dict[ChannelId, list[Column]]
"""The rows of each channel that wait for a depot, as it takes them."""
_NOT_KEPT = "Mend what makes it, and start the program again: it goes on from its last checkpoint, which has it not."
_KEPT = "Its checkpoint has this row: update the depot's module so that it takes it, or give the graph another id."


class GraphPlacement(Protocol):
    """Where channels work."""

    def run(self, works: list[StepWork]) -> list[StepResult]:
        """Do the work of a wave; all results, in the order of the works, or an error."""

    def states(self) -> dict[ChannelId, Any]:
        """What channels hold beside what the driver knows."""

    def go_on(self, states: dict[ChannelId, Any]) -> None:
        """Begin where `states` was asked."""

    def use(self, program: str) -> None:
        """Work with this program of the store from now on."""

    def named(self, waves: Waves) -> list[str]:
        """The keys of objects that the channels need from now on."""

    def collect(self, kept: Iterable[str]) -> None:
        """Delete the objects that channels made but for these."""

    def frame(self, payload: Payload) -> pl.DataFrame:
        """The rows of a batch on its way."""

    def close(self) -> None:
        """Let go of threads and processes."""


@dataclass(frozen=True)
class RunOptions:
    """`checkpoint_waves`: waves from one checkpoint to the next at least; None is never. `retention_ms`: how long
    Datasets are kept; 0 is for ever. `program`: the pickled graph, to be stored; empty where it cannot be resumed.
    """

    graph: str
    engine: str
    shape: str
    memory_bytes: int
    checkpoint_waves: int | None
    retention_ms: int = 0
    program: bytes = b""


class GraphRun:
    """A graph on its way; `after_wave` is told of each, and says if the run must stop there."""

    def __init__(
        self,
        definition: GraphDefinition,
        options: RunOptions,
        store: ObjectStore,
        placement: GraphPlacement,
        clock: Clock,
        after_wave: Callable[[Waves], bool],
    ) -> None:
        self._definition = definition
        self._options = options
        self._store = store
        self._placement = placement
        self._clock = clock
        self._after_wave = after_wave
        self._folder = graph_folder(options.graph)
        self._frames = FrameStore(store, f"{self._folder}/frames")
        self._log = RunLog(store, options.graph)
        self._output = DepotOutput(store, options.graph)
        self._kept: list[str] = []
        self._program = ""
        self._checkpoint = ""
        self._checkpoint_wave = 0
        self._checkpoint_seconds = 0.0
        self._begin = time.perf_counter()
        self._idle_seconds = IDLE_SECONDS[0]
        self._idleness = Idleness(definition)
        self._last: RunEntry | None = None
        self.waves: Waves | None = None

    # --- the way -----------------------------------------------------------------------------------------------------

    def run(self) -> RunEntry:
        """From the beginning, or from where the graph was left; the entry with which it ended. Where `after_wave` said
        so it is one of kind "stop", a checkpoint from which the run goes on when it is resumed.

        Raises:
            UserCodeError: a function of the graph raised; the run can be resumed from its last checkpoint.
            Fenced: another process resumed it.
        """
        with closing(self._output):  # also where what a checkpoint has for a depot is refused, before the first wave
            return self._run()

    def _run(self) -> RunEntry:
        newest = self._last = self._log.newest()
        if newest is not None and newest.kind == "finish":
            if newest.program and self._store.exists(newest.program):  # deleted last: where it is gone all is published
                self._publish(newest)
            return newest
        self._checkpoint = newest.checkpoint if newest is not None else ""
        left = self._written() if newest is not None else []
        self._store_program()
        self._append("begin", nodes=self._known(newest))
        self._forget_programs()
        self._placement.use(self._program)
        self.waves = self._restored(left) if self._checkpoint else self._fresh(left)
        try:
            if not self._checkpoint and any(node.is_endless for node in self._definition.inputs):
                self._take_checkpoint(self.waves)  # where it begins to read is decided once
            while not self.waves.is_finished:
                if self._wave(self.waves):
                    return self._take_checkpoint(self.waves, "stop")
            if self.waves.staged_rows or self._ended_windows(self.waves):
                self._take_checkpoint(self.waves)
        except (Fenced, StoreRestored):
            raise
        except TidemillError as error:
            left = self._written()
            self._append("fail", text=str(error)[:2000])
            self._clean(left)
            raise
        return self._finish(self.waves)

    def _known(self, newest: RunEntry | None) -> list[NodeRecord]:
        """The nodes as they stand where the run begins."""
        return newest.nodes if newest is not None and self._checkpoint else node_records(self._definition)

    def _store_program(self) -> None:
        """Under the number of the entry that this process will begin with."""
        if self._options.program:
            self._program = f"{self._folder}/program-{self._log.next_number:08d}-{nonce()}"
            self._store.create(self._program, sealed(self._program, self._options.program))

    def _forget_programs(self) -> None:
        """Delete those of others who began before, or who can begin no more: their number is taken."""
        first, last = (f"{self._folder}/program-{number:08d}" for number in (0, self._log.next_number))
        for key in list(self._store.list(self._folder, first)):
            if key != self._program and key < last:
                self._store.delete(key)

    def _fresh(self, left: list[str]) -> Waves:
        self._clean(left)
        cursors = {node.id: node.reader.plan(node.channels) for node in self._definition.inputs}
        return Waves(self._definition, cursors, self._options.memory_bytes)

    def _restored(self, left: list[str]) -> Waves:
        try:
            content = unsealed(self._checkpoint, self._store.get(self._checkpoint))
        except NotFound as error:
            text = f"{self._checkpoint} is gone: another process resumed this graph, or somebody deleted it."
            raise CorruptState(text, key=self._checkpoint) from error
        (waves, states), frames = self._frames.load(content)
        waves.go_on(self._definition)
        self._kept = [self._checkpoint, *frames, *self._placement.named(waves)]
        self._checkpoint_wave = waves.wave
        self._clean(left)
        self._placement.go_on(states)
        self._publish_staged(waves, self._waiting(waves, _KEPT))
        found: Waves = waves
        return found

    def _wave(self, waves: Waves) -> bool:
        """Whether the run must stop here."""
        works = waves.plan(self._idleness.due(waves), self._idleness.quiet(waves))
        invariant(bool(works) or waves.is_finished, "a graph that has not ended has work", wave=waves.wave)
        if works:
            results = self._placement.run(works)
            self._idleness.look(results)
            waves.accept(results)
        must_stop = self._after_wave(waves)
        if waves.is_finished or must_stop:
            return must_stop and not waves.is_finished
        if self._is_due(waves):
            self._take_checkpoint(waves)
        elif self._options.checkpoint_waves is None and waves.wave % COLLECT_WAVES == 0:
            self._placement.collect({*self._kept, *self._placement.named(waves)})
        self._wait(waves.is_idle)
        return False

    def _wait(self, is_idle: bool) -> None:
        if is_idle:
            wait_for(self._idle_seconds)
        self._idle_seconds = min(2 * self._idle_seconds, IDLE_SECONDS[1]) if is_idle else IDLE_SECONDS[0]

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def _is_due(self, waves: Waves) -> bool:
        if waves.staged_rows >= STAGED_ROWS_MAX or self._ended_windows(waves) >= WINDOWS_MAX:
            return True
        every, new = self._options.checkpoint_waves, waves.wave - self._checkpoint_wave
        if every is None or not new or (new < every and not waves.is_idle):
            return False
        spent = time.perf_counter() - self._begin
        return self._checkpoint_seconds <= CHECKPOINT_SHARE * spent

    def _take_checkpoint(self, waves: Waves, kind: Kind = "checkpoint") -> RunEntry:
        """Write the state, then the entry that makes it count; then what the one before alone named may go."""
        begin = time.perf_counter()
        waiting = self._waiting(waves, _NOT_KEPT)  # a row that a depot refuses would come again with the checkpoint
        content, frames = self._dumped(waves)
        key = f"{self._folder}/checkpoints/{waves.wave:08d}-{nonce()}"
        self._store.create(key, sealed(key, content))
        entry = self._append(kind, checkpoint=key)
        # Not before: where the entry was not written, the one that tells the failure names the checkpoint that counts.
        self._checkpoint, self._checkpoint_wave = key, waves.wave
        before, self._kept = self._kept, [key, *frames, *self._placement.named(waves)]
        for each in set(before) - set(self._kept):
            self._store.delete(each)
        self._placement.collect(self._kept)
        self._publish_staged(waves, waiting)
        self._checkpoint_seconds += time.perf_counter() - begin
        return entry

    def _dumped(self, waves: Waves) -> tuple[bytes, tuple[str, ...]]:
        states = self._placement.states()
        try:
            return self._frames.dump((waves, states), self._placement.named(waves))
        except TidemillError:
            raise
        except Exception:
            for (node, channel), state in states.items():
                with saving(self._definition.nodes[node].name, channel):
                    cloudpickle.dumps(state)
            raise

    def _waiting(self, waves: Waves, advice: str) -> Waiting:
        """What waits for depots. Raises RecordRefused, with the advice, where one of them does not take a row of it, or
        of what is on its way to it.
        """
        found: Waiting = {}
        for node, sink in [(node, node.sink) for node in self._definition.tasks if isinstance(node.sink, DepotSink)]:
            for number in range(node.channels):
                progress = waves.channels[node.id, number]
                coming = (sent.payload for queue in progress.inbox.values() for sent in queue)
                with appending(node.name, number, advice):
                    found[node.id, number] = self._output.columns(sink, map(self._placement.frame, progress.staged))
                    self._output.columns(sink, map(self._placement.frame, coming))
        return found

    def _publish_staged(self, waves: Waves, waiting: Waiting) -> None:
        """Publish what the checkpoint holds for depots and windows, and forget it: the next checkpoint counts it."""
        for node in self._definition.tasks:
            if isinstance(node.sink, DepotSink):
                self._append_staged(waves, node, node.sink, waiting)
            elif node.keeps_windows:
                self._publish_windows(waves, node)

    def _append_staged(self, waves: Waves, node: TaskNode, sink: DepotSink, waiting: Waiting) -> None:
        for number in range(node.channels):
            progress, columns = waves.channels[node.id, number], waiting.pop((node.id, number))
            progress.published = self._output.append_all(sink, node.id, number, progress.published, columns)
            progress.staged, progress.staged_rows = [], 0

    def _ended_windows(self, waves: Waves) -> int:
        return sum(len(waves.ended_windows(node.id)) for node in self._definition.tasks if node.keeps_windows)

    def _publish_windows(self, waves: Waves, node: TaskNode) -> None:
        """Let windows be seen."""
        assert isinstance(node.sink, DatasetSink)
        ended = waves.ended_windows(node.id)
        records = [self._record(node, objects, value) for value, objects in ended.items()]
        if records:
            publish(self._store, node.sink.dataset, records, self._clock.now_ms())
        for record in records:
            self._clean_dataset(record)
        if (waiting := waves.forget_windows(node.id, ended)) > OPEN_WINDOWS_MAX:
            text = f"{node.name} has channels that ended none of {waiting:,} windows, which others ended."
            raise BadInput(f"{text} Give it one channel, or a partition key by which each channel gets rows.")

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self, waves: Waves) -> RunEntry:
        entry = self._append("finish", datasets=self._records(waves))
        self._publish(entry)
        return entry

    def _publish(self, entry: RunEntry) -> None:
        for record in entry.datasets:
            publish(self._store, record.id, [record], self._clock.now_ms())
            self._clean_dataset(record)
        self._kept = [entry.program]  # it goes last: while it is there, not all is done
        self._clean(key for key in self._store.list(self._folder) if not key.startswith(f"{self._folder}/log/"))
        if entry.program:
            self._store.delete(entry.program)

    def _records(self, waves: Waves) -> list[DatasetRecord]:
        return [
            self._record(node, [o for n in range(node.channels) for o in waves.channels[node.id, n].objects])
            for node in self._definition.tasks
            if isinstance(node.sink, DatasetSink) and not node.keeps_windows
        ]

    def _record(self, node: TaskNode, objects: list[DatasetObject], window: Any = None) -> DatasetRecord:
        """What a node's Dataset is, or one of its windows."""
        assert isinstance(node.sink, DatasetSink)
        sink = node.sink
        name, kind = (sink.dataset, sink.kind) if window is None else (window_id(sink.dataset, window), Dataset.KIND)
        now, kept = self._clock.now_ms(), self._options.retention_ms
        return DatasetRecord(
            name, kind, self._options.graph, node.id, node.channels, now, objects, list(sink.key), node.channels,
            now + kept if kept else 0, self._checkpoint_wave,
        )  # fmt: skip

    def _written(self) -> list[str]:
        """What a run wrote up to now and nobody may need but for its checkpoint. Ask it before an entry behind which
        others go on, so that nothing of theirs is among it.
        """
        folders = [f"{self._folder}/{name}" for name in ("frames", "checkpoints", "scratch")]
        if not self._checkpoint:
            sinks = (node.sink for node in self._definition.tasks)
            folders += [f"{DATASETS}/{sink.dataset}" for sink in sinks if isinstance(sink, DatasetSink)]
        listed = (key for folder in folders for key in self._store.list(folder))
        return [key for key in listed if not key.endswith(RECORD)]

    def _clean(self, left: Iterable[str]) -> None:
        """Delete what was left, but for what the checkpoint needs."""
        kept = set(self._kept)
        for key in list(left):
            if key not in kept:
                self._store.delete(key)

    def _clean_dataset(self, record: DatasetRecord) -> None:
        """Delete objects that a killed process left."""
        named = [each.key for each in record.objects]
        delete_but(self._store, f"{DATASETS}/{record.id}", [*named, record_key(record.id)])

    def _append(self, kind: Kind, **more: Any) -> RunEntry:
        waves, last, now = self.waves, self._last, self._clock.now_ms()
        nodes = [] if waves is None else waves.node_records()
        entry = RunEntry(
            kind, nonce(), now, last.began_ms if last else now, (last.starts if last else 0) + (kind == "begin"),
            (last.checkpoints if last else 0) + (kind in ("checkpoint", "stop")),
            waves.wave if waves else 0, self._checkpoint, self._options.shape, self._options.engine,
            round(time.perf_counter() - self._begin, 6), round(self._checkpoint_seconds, 6), nodes=nodes,
            program=self._program,
        )  # fmt: skip
        entry = replace(entry, **more)
        self._log.append(entry)
        self._last = entry
        return entry
