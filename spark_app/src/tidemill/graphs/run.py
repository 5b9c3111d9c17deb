"""One run of a graph: waves until all channels have ended, checkpoints between them, and the end that publishes.

Durable steps, each created if absent: the program, `begin`, objects of Datasets and frames (under names that nobody
else has), a checkpoint and the entry that names it, appends to depots that the entry names (idempotent), `finish`, and
the records of the Datasets. A process that is killed at any of them leaves a graph that `resume` goes on with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import cloudpickle
import polars as pl

from tidemill.graphs.checkpoints import FrameStore, delete_but
from tidemill.graphs.dataset import FOLDER as DATASETS
from tidemill.graphs.dataset import DatasetRecord, publish
from tidemill.graphs.depot_output import DepotOutput
from tidemill.graphs.failures import saving
from tidemill.graphs.messages import ChannelId, Payload, StepResult, StepWork
from tidemill.graphs.nodes import DatasetSink, DepotSink, GraphDefinition
from tidemill.graphs.run_log import RunEntry, RunLog, graph_folder
from tidemill.graphs.waves import Waves
from tidemill.journal.clock import Clock
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import Fenced, TidemillError, invariant
from tidemill.values.ids import nonce

CHECKPOINT_SHARE = 0.1
"""Checkpoints take at most this share of the time, but for those that a depot waits for."""
STAGED_ROWS_MAX = 100_000
"""Rows that wait to be appended to depots; then a checkpoint is taken, so that they can be."""
COLLECT_WAVES = 8
"""How often what channels made and need no more is deleted, where no checkpoint does it."""


class GraphPlacement(Protocol):
    """Where channels work."""

    def run(self, works: list[StepWork]) -> list[StepResult]:
        """Do the work of a wave; all results, in the order of the works, or an error."""

    def states(self) -> dict[ChannelId, Any]:
        """What channels hold beside what the driver knows."""

    def go_on(self, states: dict[ChannelId, Any]) -> None:
        """Begin where `states` was asked."""

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
    """`checkpoint_waves`: waves from one checkpoint to the next at least; None is never."""

    graph: str
    engine: str
    shape: str
    memory_bytes: int
    checkpoint_waves: int | None


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
        self._checkpoint = ""
        self._checkpoint_wave = 0
        self._checkpoint_seconds = 0.0
        self._begin = time.perf_counter()
        self.waves: Waves | None = None

    # --- the way -----------------------------------------------------------------------------------------------------

    def run(self) -> RunEntry:
        """From the beginning, or from where the graph was left; the entry with which it ended.

        Raises:
            UserCodeError: a function of the graph raised; the run can be resumed from its last checkpoint.
            KeyboardInterrupt: `after_wave` said so; a checkpoint was taken before. Fenced: another process resumed it.
        """
        newest = self._log.newest()
        if newest is not None and newest.kind == "finish":
            if self._store.exists(f"{self._folder}/program"):  # deleted last: all is published where it is gone
                self._publish(newest)
            return newest
        self._checkpoint = newest.checkpoint if newest is not None else ""
        self._append("begin")
        self.waves = self._restored() if self._checkpoint else self._fresh()
        try:
            while not self.waves.is_finished:
                self._wave(self.waves)
            if self.waves.staged_rows:
                self._take_checkpoint(self.waves)
        except Fenced:
            raise
        except TidemillError as error:
            self._append("fail", text=str(error)[:2000])
            self._clean()
            raise
        finally:
            self._output.close()
        return self._finish(self.waves)

    def _fresh(self) -> Waves:
        cursors = {node.id: node.reader.plan(node.channels) for node in self._definition.inputs}
        return Waves(self._definition, cursors, self._options.memory_bytes)

    def _restored(self) -> Waves:
        content = self._store.get(self._checkpoint)
        (waves, states), frames = self._frames.load(content)
        waves.go_on(self._definition)
        self._kept = [self._checkpoint, *frames, *self._placement.named(waves)]
        self._checkpoint_wave = waves.wave
        self._placement.go_on(states)
        self._publish_staged(waves)
        found: Waves = waves
        return found

    def _wave(self, waves: Waves) -> None:
        works = waves.plan()
        invariant(bool(works) or waves.is_finished, "a graph that has not ended has work", wave=waves.wave)
        if works:
            waves.accept(self._placement.run(works))
        must_stop = self._after_wave(waves)
        if waves.is_finished:
            return
        if must_stop or self._is_due(waves):
            self._take_checkpoint(waves)
        elif self._options.checkpoint_waves is None and waves.wave % COLLECT_WAVES == 0:
            self._placement.collect({*self._kept, *self._placement.named(waves)})
        if must_stop:
            raise KeyboardInterrupt

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def _is_due(self, waves: Waves) -> bool:
        if waves.staged_rows >= STAGED_ROWS_MAX:
            return True
        every = self._options.checkpoint_waves
        if every is None or waves.wave - self._checkpoint_wave < every:
            return False
        spent = time.perf_counter() - self._begin
        return self._checkpoint_seconds <= CHECKPOINT_SHARE * spent

    def _take_checkpoint(self, waves: Waves) -> None:
        """Write the state, then the entry that makes it count; then what the one before alone named may go."""
        begin = time.perf_counter()
        content, frames = self._dumped(waves)
        key = f"{self._folder}/checkpoints/{waves.wave:08d}-{nonce()}"
        self._store.create(key, content)
        self._checkpoint, self._checkpoint_wave = key, waves.wave
        self._append("checkpoint")
        before, self._kept = self._kept, [key, *frames, *self._placement.named(waves)]
        for each in set(before) - set(self._kept):
            self._store.delete(each)
        self._placement.collect(self._kept)
        self._publish_staged(waves)
        self._checkpoint_seconds += time.perf_counter() - begin

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

    def _publish_staged(self, waves: Waves) -> None:
        """Append to depots what the checkpoint holds for them, and forget it: the next checkpoint counts it."""
        for node in self._definition.tasks:
            if not isinstance(node.sink, DepotSink):
                continue
            for number in range(node.channels):
                progress = waves.channels[node.id, number]
                for payload in progress.staged:
                    frame = self._placement.frame(payload)
                    progress.published = self._output.append(node.sink, node.id, number, progress.published, frame)
                progress.staged, progress.staged_rows = [], 0

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self, waves: Waves) -> RunEntry:
        entry = self._append("finish", datasets=self._records(waves))
        self._publish(entry)
        return entry

    def _publish(self, entry: RunEntry) -> None:
        for record in entry.datasets:
            publish(self._store, record)
        self._clean(entry)

    def _records(self, waves: Waves) -> list[DatasetRecord]:
        found = []
        for node in self._definition.tasks:
            if isinstance(node.sink, DatasetSink):
                objects = [o for n in range(node.channels) for o in waves.channels[node.id, n].objects]
                sink = node.sink
                found.append(
                    DatasetRecord(
                        sink.dataset, sink.kind, self._options.graph, node.id, node.channels, self._clock.now_ms(),
                        objects, list(sink.key), node.channels,
                    )
                )  # fmt: skip
        return found

    def _clean(self, ended: RunEntry | None = None) -> None:
        """Delete what a run leaves that nothing names: all but the log when it has ended, else all but a checkpoint."""
        kept = [] if ended else self._kept
        for folder in ("frames", "checkpoints", "scratch"):
            delete_but(self._store, f"{self._folder}/{folder}", kept)
        if ended is not None or not self._checkpoint:
            for node in self._definition.tasks:
                if isinstance(node.sink, DatasetSink):
                    records = [record for record in ended.datasets if record.id == node.sink.dataset] if ended else []
                    named = [each.key for record in records for each in record.objects]
                    folder = f"{DATASETS}/{node.sink.dataset}"
                    delete_but(self._store, folder, [*named, f"{folder}/dataset.json"])
        if ended is not None:
            self._store.delete(f"{self._folder}/program")

    def _append(self, kind: Literal["begin", "checkpoint", "finish", "fail"], **more: Any) -> RunEntry:
        waves = self.waves
        nodes = [] if waves is None else waves.node_records()
        entry = RunEntry(
            kind, nonce(), self._clock.now_ms(), waves.wave if waves else 0, self._checkpoint, nodes=nodes,
            engine=self._options.engine, shape=self._options.shape, seconds=round(time.perf_counter() - self._begin, 6),
            checkpoint_seconds=round(self._checkpoint_seconds, 6),
        )  # fmt: skip
        entry = replace(entry, **more)
        self._log.append(entry)
        return entry
