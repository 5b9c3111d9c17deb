"""`TaskGraph`: nodes are defined, checked, then run to their end; what blocking nodes make are Datasets."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, overload

import polars as pl
import pyarrow as pa

from tidemill.api.locations import caller_location
from tidemill.api.topology import MicrobatchSourceOptions
from tidemill.cluster.stores import absolute_url
from tidemill.depot.producer_names import check_own_name
from tidemill.graphs import explanation
from tidemill.graphs.checks import faults_of
from tidemill.graphs.dataset import Dataset, KVDataset, RangeDataset
from tidemill.graphs.dataset_readers import DatasetReader
from tidemill.graphs.depot_output import check_takes_rows
from tidemill.graphs.drawing import drawn
from tidemill.graphs.executor import Relay
from tidemill.graphs.executors.windows import WindowExecutor
from tidemill.graphs.frames.readers import ReadsFrames
from tidemill.graphs.inputs.arguments import column_names, stride_bytes
from tidemill.graphs.inputs.csv_input import STRIDE, CsvFormat, CsvInput, sniffed
from tidemill.graphs.inputs.dataset_input import DatasetInput
from tidemill.graphs.inputs.depot_input import BEGINNING, depot_input
from tidemill.graphs.inputs.files import find_files
from tidemill.graphs.inputs.frame_input import FrameInput, IteratorInput, frame_from
from tidemill.graphs.inputs.parquet_input import STRIDE as PARQUET_STRIDE
from tidemill.graphs.inputs.parquet_input import parquet_input
from tidemill.graphs.live_confluence import LiveConfluence
from tidemill.graphs.local_placement import LocalPlacement
from tidemill.graphs.nodes import (
    OUTPUT_DEPOT,
    BatchFunction,
    DatasetSink,
    DepotSink,
    GraphDefinition,
    InputNode,
    Reader,
    StoredGraph,
    TaskNode,
)
from tidemill.graphs.pickled_code import dump_code
from tidemill.graphs.progress import GraphProgress, in_notebook
from tidemill.graphs.run import GraphPlacement, GraphRun, RunOptions
from tidemill.graphs.run_log import RunEntry, RunLog, read_program
from tidemill.graphs.waves import MEMORY_BYTES, NodeRecord, Waves, node_records
from tidemill.graphs.windowed_dataset import WindowedDataset
from tidemill.journal.clock import SystemClock
from tidemill.language.dataflow import Location, StartFrom
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, DefinitionError, Fault
from tidemill.values.ids import new_id
from tidemill.values.notebook import picture, table

ENGINES = ("local", "spark")
KINDS = {kind.KIND: kind for kind in (Dataset, KVDataset, RangeDataset, WindowedDataset)}
Channels = int | Mapping[str, int] | None
"""A number, or hosts and how many channels each has, as the document of the interface writes it: `{"localhost": 2}`."""
_D = TypeVar("_D", bound=Dataset)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def default_store() -> str:
    """The store where none is named: TIDEMILL_STORE, else `tidemill-data` in the working folder."""
    return os.environ.get("TIDEMILL_STORE") or "tidemill-data"


class TaskGraph(ReadsFrames):
    """A graph of nodes, each with channels that work at the same time. Define nodes, then `initialize()`, then `run()`.

    `new_input_...` and `new_non_blocking_node` return the node's number, by which other nodes name it as a source;
    `new_blocking_node` returns a `Dataset`, which can be read when the graph has run.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        parallelism: int | None = None,
        engine: str = "local",
        *,
        id: str | None = None,
        memory_bytes: int = MEMORY_BYTES,
        checkpoint_waves: int | None = 8,
        retention: timedelta | None = None,
    ) -> None:
        """`store`: URL or folder for Datasets and checkpoints. `parallelism`: channels of nodes that say nothing else.

        `engine`: "local" (threads) or "spark". With an `id` the same program, started again, goes on where it was
        killed. `memory_bytes`: inputs wait while as many bytes are under way. A checkpoint is taken after
        `checkpoint_waves` waves, but as seldom as keeps it below a tenth of the time; None: never.
        `retention`: for how long its Datasets are kept; `tidemill datasets collect` deletes them then. None: for ever.

        Raises:
            BadInput: there is no such engine, the ID has other letters than those of file names, or the retention is
            no time above 0.
        """
        if engine not in ENGINES:
            raise BadInput(f"There is no engine {engine!r}; use one of {', '.join(ENGINES)}.")
        if id is not None and not _ID.fullmatch(id):
            raise BadInput(f"{id!r} is no id of a graph: use letters, digits, dots, dashes and underscores.")
        if id is not None:
            check_own_name(f"{id}/")  # what it appends to depots is numbered under names that begin so
        if retention is not None and retention < timedelta(milliseconds=1):
            raise BadInput(f"retention is a time above 0, not {retention}.")
        self.store = absolute_url(os.fspath(store) if store is not None else default_store())
        self.id = id or f"graph-{new_id()}{new_id()}"
        self.engine = engine
        self.parallelism = parallelism or os.cpu_count() or 1
        self._memory_bytes = memory_bytes
        self._checkpoint_waves = checkpoint_waves
        self._retention = retention
        self._definition = GraphDefinition()
        self._faults: list[Fault] = []
        self._is_ready = False
        self._run: GraphRun | None = None
        self._ended: RunEntry | None = None
        self._stopping = threading.Event()
        self._observers: list[Callable[[Waves], None]] = []

    # --- inputs ------------------------------------------------------------------------------------------------------

    def new_input_csv(
        self,
        bucket: str | os.PathLike[str],
        key: str | Sequence[str],
        names: Sequence[str] | None = None,
        parallelism: Channels = None,
        ip: str = "localhost",
        batch_func: BatchFunction | None = None,
        sep: str = ",",
        dependents: Sequence[int] = (),
        stride: int = STRIDE,
        header: bool = False,
        *,
        schema: Mapping[str, Any] | None = None,
        quote_char: str | None = '"',
        columns: Sequence[str] | None = None,
        predicate: pl.Expr | None = None,
    ) -> int:
        """CSV files of a folder or of a bucket (`s3://bucket?endpoint=URL`): `key` is a file, several, or a folder.

        `names` are the columns, in order; a row that ends with the separator has one more, without a name of its own.
        Without names the first row has them (`header=True`). `stride`: bytes of a wave. `schema`: types of columns,
        instead of those found in the first rows. `columns` and `predicate`: what of it is needed; nothing else is made
        a value. `batch_func` is called with each batch before it is dealt to channels.
        """

        def read() -> Reader:
            given, wanted, size = column_names("names", names), column_names("columns", columns), stride_bytes(stride)
            form = CsvFormat(sep, header, quote_char)
            form.check()
            files = find_files(os.fspath(bucket), key)
            types = sniffed(files, given, form, schema)
            if unknown := [column for column in wanted or () if column not in types]:
                raise BadInput(f"columns name {', '.join(unknown)}, and there are {', '.join(types)}.")
            return CsvInput(files, types, form, size, None if wanted is None else tuple(wanted), predicate)

        return self._new_input("new_input_csv", read, parallelism, ip, batch_func, dependents)

    def new_input_parquet(
        self,
        bucket: str | os.PathLike[str],
        key: str | Sequence[str],
        names: Sequence[str] | None = None,
        parallelism: Channels = None,
        columns: Sequence[str] | None = None,
        skip_conditions: Any = None,
        ip: str = "localhost",
        batch_func: BatchFunction | None = None,
        sep: str = ",",
        dependents: Sequence[int] = (),
        stride: int = PARQUET_STRIDE,
        predicate: pl.Expr | None = None,
    ) -> int:
        """Parquet files of a folder or of a bucket, as `new_input_csv` names them; `names` and `sep` are not needed.

        `columns`: those that are read. `skip_conditions`: a list of (column, operator, value) that rows must fulfil,
        or a Polars expression; with the former, row groups whose statistics say that no row does are never read.
        `predicate`: what rows must fulfil besides.
        """

        def read() -> Reader:
            given, wanted, size = column_names("names", names), column_names("columns", columns), stride_bytes(stride)
            files = find_files(os.fspath(bucket), key)
            return parquet_input(files, given if wanted is None else wanted, skip_conditions, size, predicate)

        return self._new_input("new_input_parquet", read, parallelism, ip, batch_func, dependents)

    def new_input_from_dataset(
        self,
        dataset: Dataset,
        parallelism: Channels = None,
        ip: str = "localhost",
        batch_func: BatchFunction | None = None,
        dependents: Sequence[int] = (),
    ) -> int:
        """The batches of a Dataset that another graph made; each of its objects is one batch."""

        def read() -> Reader:
            if not isinstance(dataset, Dataset):
                raise BadInput(f"{dataset!r} is no Dataset.")
            if not dataset.is_complete:
                raise BadInput(f"{dataset!r} is not complete: run its graph first.")
            return DatasetInput(dataset)

        return self._new_input("new_input_from_dataset", read, parallelism, ip, batch_func, dependents)

    def new_input_frames(
        self,
        frames: pl.DataFrame | pa.Table | Iterable[Any],
        parallelism: Channels = None,
        ip: str = "localhost",
        batch_func: BatchFunction | None = None,
        dependents: Sequence[int] = (),
    ) -> int:
        """Frames (Polars or Arrow) of this program: one, a list, or an iterator, which may have no end.

        A program that goes on needs equal frames in the same order, where there are several; of a single one it has
        the rows that it had. An iterator is read by one channel, on the engine "local" only, and its graph cannot be
        resumed: where it failed or was killed, make it anew, and under another id if it had appended to a depot.
        """

        def read() -> Reader:
            if isinstance(frames, Iterator):
                return IteratorInput(frames)
            alone = isinstance(frames, (pl.DataFrame, pa.Table, pa.RecordBatch))
            return FrameInput(tuple(frame_from(each) for each in ([frames] if alone else frames)))

        return self._new_input("new_input_frames", read, parallelism, ip, batch_func, dependents)

    def new_input_depot(
        self,
        module: str,
        depot: str,
        parallelism: Channels = None,
        ip: str = "localhost",
        batch_func: BatchFunction | None = None,
        dependents: Sequence[int] = (),
        *,
        schema: Mapping[str, Any] | None = None,
        endless: bool = False,
        options: MicrobatchSourceOptions | None = None,
    ) -> int:
        """The records of a module's depot in the graph's store, as many as there are now; `endless`: and all that are
        appended while the graph runs, which it does until somebody stops it. Dicts are rows; other records are the one
        column `value`. `schema`: the columns and their types, where batches would not show them all. A channel reads
        its partitions in the order of appends; records of one append, and of appends that one process made at the same
        time, stand by partition. `options`: where reading begins, as of a source of microbatches
        (`MicrobatchSourceOptions.start_from_offset_ago(10, OffsetAgo.MINUTES)`), instead of the first record that there
        is; it counts when the graph begins, not when it goes on.
        """

        def read() -> Reader:
            if options is not None and options.given_id is not None:
                raise BadInput(f"an input has no ID as sources of microbatches have, as {options.given_id!r}")
            start = BEGINNING if options is None else options.start or StartFrom()
            return depot_input(self.store, module, depot, schema, endless, start)

        self._faults += options.faults if options is not None else ()

        return self._new_input("new_input_depot", read, parallelism, ip, batch_func, dependents)

    def _new_input(
        self,
        call: str,
        read: Callable[[], Reader],
        parallelism: Channels,
        ip: str,
        batch_func: BatchFunction | None,
        dependents: Sequence[int],
    ) -> int:
        at = caller_location()
        try:
            reader = read()
        except (BadInput, OSError, pl.exceptions.PolarsError) as error:
            self._faults.append(Fault(str(at), f"{call}: {error}"))
            reader = FrameInput(())
        channels = self._channels(parallelism, ip, at, call)
        node = InputNode(len(self._definition.nodes), channels, at, call, reader, batch_func, tuple(dependents))
        return self._added(node)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def new_non_blocking_node(self, sources: Mapping[int, int], *arguments: Any, **named: Any) -> int:
        """A node whose output is a stream. Both orders of arguments work, as in `(sources, executor, parallelism,
        partition_key)` and `(sources, datasets, executor, parallelism, partition_key)`, and so do their names.

        `sources`: the node's names for its streams (whole numbers), and the nodes that send them. `partition_key`: for
        each stream None (a copy to all channels), a column or several (equal keys to one channel), a `RangePartition`
        or a function. `datasets` are given to the executor's `initialize`.
        """
        return self._new_task("new_non_blocking_node", sources, None, arguments, named)

    def new_task_node(self, sources: Mapping[int, int], *arguments: Any, **named: Any) -> int:
        """The same as `new_non_blocking_node`."""
        return self._new_task("new_task_node", sources, None, arguments, named)

    @overload
    def new_blocking_node(
        self, sources: Mapping[int, int], *arguments: Any, kind: type[_D], key: str | Sequence[str] = (), **named: Any
    ) -> _D: ...

    @overload
    def new_blocking_node(self, sources: Mapping[int, int], *arguments: Any, **named: Any) -> Dataset: ...

    def new_blocking_node(
        self,
        sources: Mapping[int, int],
        *arguments: Any,
        kind: type[Dataset] = Dataset,
        key: str | Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Dataset:
        """A node whose output becomes a Dataset; arguments as those of `new_non_blocking_node`. `schema`: its columns
        and their types, which it has also where no row comes.

        `kind`: `Dataset`, `KVDataset` or `RangeDataset` (or a class derived from one), the latter two with the `key`,
        columns by which they are looked up; or `WindowedDataset`, a Dataset for each value of `key` as soon as the
        executor has given its rows.
        """
        at = caller_location()
        columns = (key,) if isinstance(key, str) else tuple(key)
        if bool(columns) == (kind.KIND == Dataset.KIND) or (kind.KIND == WindowedDataset.KIND and len(columns) != 1):
            advice = "Give key= for a KVDataset or a RangeDataset, one column for a WindowedDataset, and only there."
            self._faults.append(Fault(str(at), f"new_blocking_node: a {kind.__name__} with the key {columns}.", advice))
        if schema is not None and kind.KIND == WindowedDataset.KIND:
            self._faults.append(Fault(str(at), "new_blocking_node: windows have rows, so there is no schema=."))
        dataset = kind(self.store, f"{self.id}-{len(self._definition.nodes)}")
        shown = None if schema is None else pl.Schema(schema)
        self._new_task(
            "new_blocking_node", sources, DatasetSink(dataset.id, kind.KIND, columns, shown), arguments, named
        )
        return dataset

    def new_output_depot(
        self,
        sources: Mapping[int, int],
        module: str,
        depot: str,
        parallelism: Channels = 1,
        partition_key: Mapping[int, Any] | None = None,
        ip: str = "localhost",
    ) -> int:
        """Append rows to a module's depot in the graph's store, each exactly once, whatever dies: dicts, or the values
        of the one column `value`. They are appended after each checkpoint.
        """
        at, sink = caller_location(), DepotSink(module, depot)
        try:
            check_takes_rows(open_store(self.store), sink)
        except BadInput as error:
            self._faults.append(Fault(str(at), f"{OUTPUT_DEPOT}: {error}"))
        arguments = (Relay(), parallelism, partition_key or {}, ip)
        return self._new_task(OUTPUT_DEPOT, sources, sink, arguments, {})

    def _new_task(
        self,
        call: str,
        sources: Mapping[int, int],
        sink: DatasetSink | DepotSink | None,
        arguments: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> int:
        at = caller_location()
        given = self._arguments(call, at, arguments, dict(named))
        keys = given.get("partition_key")
        if not isinstance(sources, Mapping) or not isinstance(keys or {}, Mapping):
            self._faults.append(Fault(str(at), f"{call}: sources and partition_key are dicts, as {{0: node}}."))
            sources, keys = {}, {}
        channels = self._channels(given.get("parallelism"), given.get("ip", "localhost"), at, call)
        executor = given.get("executor")
        if isinstance(executor, WindowExecutor):
            executor = executor.of_streams(len(sources))
        node = TaskNode(
            len(self._definition.nodes), channels, at, call, dict(sources), executor, dict(keys or {}),
            self._complete(given.get("datasets") or (), at, call), sink,
        )  # fmt: skip
        return self._added(node)

    def _arguments(self, call: str, at: Location, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name; the one before the executor may be left out."""
        named = {"executor" if name == "functionObject" else name: value for name, value in named.items()}
        order = ["datasets", "executor", "parallelism", "partition_key", "ip"]
        if given and not (given[0] is None or isinstance(given[0], (list, tuple, Dataset))):
            order.remove("datasets")
        found = dict(zip(order, given, strict=False))
        wrong = [*(name for name in named if name not in order and name != "datasets"), *(found.keys() & named.keys())]
        if wrong or len(given) > len(order):
            advice = f"It takes sources, {', '.join(order)}."
            self._faults.append(Fault(str(at), f"{call} has arguments that it does not know or knows twice.", advice))
        return found | named

    def _complete(self, datasets: Any, at: Location, call: str) -> tuple[Dataset, ...]:
        listed = (datasets,) if isinstance(datasets, Dataset) else tuple(datasets)
        for each in listed:
            if not isinstance(each, Dataset):
                self._faults.append(Fault(str(at), f"{call}: {each!r} is no Dataset."))
            elif not each.is_complete:
                self._faults.append(Fault(str(at), f"{call}: {each!r} is not complete.", "Run its graph first."))
        return listed

    def _channels(self, parallelism: Channels, ip: str, at: Location, call: str) -> Any:
        """How many channels; hosts are names only, since channels go where there is room."""
        hosts = parallelism if isinstance(parallelism, Mapping) else {ip: parallelism}
        if not all(isinstance(host, str) and host for host in hosts):
            self._faults.append(Fault(str(at), f"{call}: {list(hosts)!r} are no names of hosts.", "Use 'localhost'."))
        if not isinstance(parallelism, Mapping):
            return self.parallelism if parallelism is None else parallelism
        numbers = list(parallelism.values())
        whole = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in numbers)
        return sum(numbers) if whole and numbers else dict(parallelism)

    def _added(self, node: InputNode | TaskNode) -> int:
        if self._is_ready:
            raise BadInput("The graph is initialized: nodes can be added to it no more. Make another graph.")
        self._definition.nodes.append(node)
        return node.id

    # --- running -----------------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Check the graph; nothing runs yet.

        Raises:
            DefinitionError: all that is wrong, each with its place in the program.
        """
        faults = [*self._faults, *faults_of(self._definition), *self._faults_of_endless()]
        if self.engine != "local":
            readers = [node for node in self._definition.inputs if isinstance(node.reader, IteratorInput)]
            faults += [
                Fault(str(node.location), f"{node.call}: an iterator is read on engine 'local' only.")
                for node in readers
            ]
        if faults:
            raise DefinitionError(faults)
        self._is_ready = True

    def _faults_of_endless(self) -> list[Fault]:
        """A graph that somebody will stop, or a kill, has to be one that can be resumed."""
        if self._checkpoint_waves is not None and self._can_resume():
            return []
        text, advice = "an endless input needs checkpoints.", "Leave checkpoint_waves as it is, and read no iterator."
        endless = [node for node in self._definition.inputs if node.is_endless]
        return [Fault(str(node.location), f"{node.call}: {text}", advice) for node in endless]

    def run(self, progress: bool | None = None, check_confluence: bool = False) -> None:
        """Run to the end, or until `stop` is called; then the Datasets can be read. `progress` shows it on stderr;
        None: where that is a terminal, or in a notebook, below the cell. `check_confluence`: try the executors, beside
        the run, on samples of the rows that their channels get, in other orders and batches.

        Raises:
            DefinitionError: as `initialize`, which is called if it was not.
            UserCodeError: a function of the graph raised; the text has node, channel and a sample of the batch.
            BadInput: a batch has no such partition key, or a file other rows than its first ones.
            RecordRefused: a depot does not take a row; nothing since the last checkpoint was appended.
            UnknownName: a Dataset that the graph reads was deleted, or is to be.
            Fenced: another process resumed this graph. StoreUnavailable: the store does not answer.
            NotConfluent: with `check_confluence`, an executor gives different results for the same rows; the text has
                few of them.
            KeyboardInterrupt: by Ctrl-C, at the end of a wave and after a checkpoint.
        """
        try:
            stopping = self._stopping
            with _interrupts() as is_interrupted, self._shown(progress):
                self._ended = self._run_to_end(lambda: is_interrupted() or stopping.is_set(), check_confluence)
            if self._ended.kind == "stop" and is_interrupted():
                raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            error.add_note(
                f"The graph stopped between two waves; TaskGraph.resume({self.id!r}, {self.store!r}) goes on."
            )
            raise
        finally:
            self._stopping.clear()

    def _run_to_end(self, must_stop: Callable[[], bool], check_confluence: bool) -> RunEntry:
        if not self._is_ready:
            self.initialize()
        store = open_store(self.store)
        shape = hashlib.sha256("\n".join([self.explain(), *self._definition.marks]).encode()).hexdigest()[:16]
        newest = RunLog(store, self.id).newest()
        if newest is not None and newest.shape != shape:
            text = f"The graph {self.id} in {self.store} is another one than this, or its files were others, or its"
            raise BadInput(f"{text} frames; give this one another id.")
        published = (
            newest is not None and bool(newest.checkpoints) and any(n.publishes_early for n in self._definition.tasks)
        )
        if newest is not None and newest.kind == "abandon" and published:
            text = f"The graph {self.id} in {self.store} was collected, and depots or windows have what it published"
            raise BadInput(f"{text}: it would come twice or be lost. Give this graph another id.")
        self._check_iterators(newest)
        goes_on = newest is None or newest.kind != "finish"
        program = self._pickled() if goes_on and self._can_resume() else b""
        every = self._checkpoint_waves if self._can_resume() else None
        kept_ms = 0 if self._retention is None else self._retention // timedelta(milliseconds=1)
        options = RunOptions(self.id, self.engine, shape, self._memory_bytes, every, kept_ms, program)
        reader = DatasetReader(self._definition.datasets() if goes_on else (), self.id, SystemClock())
        placement = self._placement()
        try:
            reader.begin()
            watchers: list[Callable[[Waves], None]] = [lambda waves: reader.go_on()]
            watchers += [LiveConfluence(self._definition, placement.frame)] if check_confluence else []
            after_wave = _after_wave(must_stop, watchers, self._observers)
            self._run = GraphRun(self._definition, options, store, placement, SystemClock(), after_wave)
            return self._run.run()
        finally:
            placement.close()
            reader.end()

    def _check_iterators(self, newest: RunEntry | None) -> None:
        """Raises BadInput where the run would go on with an iterator that is not where the run is: rows that it gave
        would be lost, and those of another one, begun anew, come twice. Where it was stopped here it may go on.
        """
        if self._can_resume() or newest is None or newest.kind == "finish":
            return
        is_stopped = self._ended is not None and self._ended.nonce == newest.nonce
        has_begun = self._run is not None and self._run.waves is not None
        if not is_stopped and (has_begun or newest.checkpoint):
            text = f"The graph {self.id} in {self.store} has begun, and reads an iterator, which gives no row again"
            raise BadInput(f"{text}. Make the graph anew, under another id; what depots and windows have of it stays.")

    def stop(self) -> None:
        """Let the run that is under way in another thread, or the next one, end after a wave, with a checkpoint from
        which `run()` or `TaskGraph.resume` goes on.
        """
        self._stopping.set()

    @property
    def is_finished(self) -> bool:
        """Whether it ran to its end here: false before, and where it was stopped."""
        return self._ended is not None and self._ended.kind == "finish"

    def fresh(self) -> TaskGraph:
        """Another graph of the same settings, without nodes."""
        return TaskGraph(
            self.store, self.parallelism, self.engine, memory_bytes=self._memory_bytes,
            checkpoint_waves=self._checkpoint_waves, retention=self._retention,
        )  # fmt: skip

    def observe(self, after_wave: Callable[[Waves], None]) -> None:
        """Call a function after each wave, with how far the graph is."""
        self._observers.append(after_wave)

    @contextmanager
    def _shown(self, progress: bool | None) -> Iterator[None]:
        if not (sys.stderr.isatty() or in_notebook() if progress is None else progress):
            yield
            return
        with GraphProgress(self._definition) as shown:
            self._observers.append(shown.update)
            try:
                yield
            finally:
                self._observers.remove(shown.update)

    def _placement(self) -> GraphPlacement:
        if self.engine == "spark":
            from tidemill.graphs.spark_placement import SparkPlacement  # only who runs on Spark has it

            return SparkPlacement(self.id, self.store)
        return LocalPlacement(self._definition, open_store(self.store))

    def _can_resume(self) -> bool:
        return not any(isinstance(node.reader, IteratorInput) for node in self._definition.inputs)

    def _pickled(self) -> bytes:
        program = StoredGraph(
            self._definition, self.engine, self._memory_bytes, self._checkpoint_waves, self._retention
        )
        return dump_code(program)

    @classmethod
    def resume(cls, id: str, store: str | os.PathLike[str] | None = None) -> TaskGraph:
        """A graph that was killed, failed or stopped; its `run()` goes on from the last checkpoint.

        The store keeps the program as a pickle, which runs code when it is read.

        Raises:
            UnknownName: there is no such graph, or it has run to its end.
            BadInput: another version of Python stored it, and it has code that this one cannot run.
        """
        url = os.fspath(store) if store is not None else default_store()
        program: StoredGraph = pickle.loads(read_program(open_store(url), id))
        graph = cls(
            url, engine=program.engine, id=id, memory_bytes=program.memory_bytes,
            checkpoint_waves=program.checkpoint_waves, retention=program.retention,
        )  # fmt: skip
        graph._definition = program.definition
        return graph

    def datasets(self) -> dict[int, Dataset]:
        """The Datasets of this graph, by node; where the graph was resumed they are not in anybody's hands."""
        return {
            node.id: KINDS.get(node.sink.kind, Dataset)(self.store, node.sink.dataset)
            for node in self._definition.tasks
            if isinstance(node.sink, DatasetSink)
        }

    def plot(self, file: str | os.PathLike[str]) -> None:
        """Draw the nodes and streams as an SVG file."""
        Path(file).write_text(drawn(node_records(self._definition)), encoding="utf-8")

    # --- seeing ------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"TaskGraph({self.store!r}, id={self.id!r})"

    def _repr_html_(self) -> str:
        """The nodes as a picture, and what each has done so far."""
        drawing = picture(drawn(node_records(self._definition)))
        rows = [(each.node, each.title, each.rows_in, each.rows_out, each.steps) for each in self.metrics()]
        return drawing + (table("", ("node", "kind", "rows in", "rows out", "steps"), rows) if rows else "")

    def explain(self) -> str:
        """The nodes as text: what each reads or takes, how rows are dealt, and where they go."""
        return explanation.explained(self._definition)

    def metrics(self) -> list[NodeRecord]:
        """What each node has done so far, also while the graph runs in another thread; empty before it began."""
        if self._run is not None and self._run.waves is not None:
            return self._run.waves.node_records()
        return list(self._ended.nodes) if self._ended is not None else []


def _after_wave(
    must_stop: Callable[[], bool],
    watchers: Sequence[Callable[[Waves], None]],
    observers: Sequence[Callable[[Waves], None]],
) -> Callable[[Waves], bool]:
    """What a run calls after each wave. It does not have the graph, which has the run."""

    def tell(waves: Waves) -> bool:
        for observer in (*watchers, *observers):
            observer(waves)
        return must_stop()

    return tell


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is remembered until a wave has ended; a second one ends the program at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def remember(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    kept = signal.signal(signal.SIGINT, remember)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, kept)
