"""All that is wrong with a task graph, found before anything runs. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import cloudpickle
import polars as pl

from tidemill.graphs.executor import Executor, StatelessExecutor
from tidemill.graphs.executors.windows import SessionWindowExecutor, WindowExecutor
from tidemill.graphs.nodes import GraphDefinition, InputNode, TaskNode
from tidemill.graphs.partitions import RangePartition, SplitPartition, key_columns, split
from tidemill.values.errors import BadInput, Fault

CHANNELS_MAX = 10_000


def faults_of(graph: GraphDefinition) -> list[Fault]:
    """The faults of a graph, in the order of its nodes."""
    if not graph.nodes:
        return [Fault("graph", "has no node.", "Begin with an input, as new_input_csv.")]
    found = [fault for node in graph.nodes for fault in _faults_of_node(graph, node)]
    return [*found, *_open_ends(graph)]


def _faults_of_node(graph: GraphDefinition, node: InputNode | TaskNode) -> Iterator[Fault]:
    at = str(node.location)
    if isinstance(node.channels, bool) or not isinstance(node.channels, int) or not 1 <= node.channels <= CHANNELS_MAX:
        yield Fault(at, f"{node.call} has {node.channels!r} channels.", f"Use 1 to {CHANNELS_MAX:,}.")
    if isinstance(node, InputNode):
        yield from _faults_of_input(graph, node)
    else:
        yield from _faults_of_sources(graph, node)
        yield from _faults_of_executor(node)
        if isinstance(node.executor, WindowExecutor):
            yield from _faults_of_windows(node, node.executor)


def _faults_of_input(graph: GraphDefinition, node: InputNode) -> Iterator[Fault]:
    for other in node.dependents:
        if not isinstance(other, int) or not 0 <= other < len(graph.nodes):
            yield Fault(
                str(node.location), f"dependents name {other!r}, which is no node.", "Name inputs of this graph."
            )
        elif not isinstance(graph.nodes[other], InputNode):
            yield Fault(str(node.location), f"dependents name {graph.nodes[other].name}, which is no input.")
        elif getattr(graph.nodes[other], "is_endless", False):
            yield Fault(str(node.location), f"dependents name {graph.nodes[other].name}, which is endless.")
        elif other >= node.id:
            yield Fault(str(node.location), f"dependents name {graph.nodes[other].name}: they wait for each other.")
    if node.batch_function is not None and not callable(node.batch_function):
        yield Fault(str(node.location), f"batch_func is {node.batch_function!r}, which is no function.")


def _faults_of_sources(graph: GraphDefinition, node: TaskNode) -> Iterator[Fault]:
    at = str(node.location)
    if not node.sources:
        yield Fault(at, f"{node.call} has no sources.", "Give {0: a node} as sources.")
    for stream, source in node.sources.items():
        if isinstance(source, bool) or not isinstance(source, int) or not 0 <= source < len(graph.nodes):
            yield Fault(at, f"stream {stream!r} comes from {source!r}, which is no node of this graph.")
        elif source >= node.id:
            yield Fault(at, f"stream {stream!r} comes from {graph.nodes[source].name}: a cycle.", "Graphs have none.")
        elif getattr(graph.nodes[source], "sink", None) is not None:
            advice = "Read its Dataset in a second graph with new_input_from_dataset."
            yield Fault(at, f"stream {stream!r} comes from {graph.nodes[source].name}, which is blocking.", advice)
        else:
            yield from _faults_of_partition(graph, node, stream, source)
    yield from _faults_of_heavy_keys(node)
    for stream in node.partitions.keys() - node.sources.keys():
        yield Fault(at, f"partition_key names stream {stream!r}, which is none of the sources.")


def _faults_of_partition(graph: GraphDefinition, node: TaskNode, stream: int, source: int) -> Iterator[Fault]:
    at = str(node.location)
    if stream not in node.partitions:
        if node.channels != 1:
            yield Fault(at, f"partition_key says nothing of stream {stream!r}.", "None copies rows to all channels.")
        return
    key = node.partitions[stream]
    if isinstance(key, RangePartition) and len(key.bounds) != node.channels - 1:
        text = f"the range of stream {stream!r} has {len(key.bounds)} bounds for {node.channels} channels."
        yield Fault(at, text, "Give one bound less than channels.")
    bounds = key.bounds if isinstance(key, RangePartition) else ()
    if not _rise(bounds):
        yield Fault(at, f"the bounds of stream {stream!r} do not rise: {bounds!r}.", "Give the lowest one first.")
    if not (key is None or callable(key) or isinstance(key, (str, RangePartition, SplitPartition)) or _is_columns(key)):
        yield Fault(at, f"the partition key of stream {stream!r} is {key!r}.", "Use a column, several, or a function.")
        return
    rows = _empty_batch(graph.nodes[source])
    if rows is None:
        return
    missing = [column for column in key_columns(key) if column not in rows.columns]
    for column in missing:
        text = f"the partition key {column!r} of stream {stream!r} is no column of {graph.nodes[source].name}."
        yield Fault(at, text, f"It has {', '.join(rows.columns)}.")
    if isinstance(key, (RangePartition, SplitPartition)) and _rise(bounds) and not missing:
        try:
            split(rows, key, 0, 2)
        except BadInput as error:
            yield Fault(at, f"of stream {stream!r} {error}.", "Give values as the column has them.")


def _faults_of_heavy_keys(node: TaskNode) -> Iterator[Fault]:
    """Rows of a heavy key meet those of the other streams only where one stream is split and the others are copied."""
    keys = [node.partitions.get(stream) for stream in sorted(node.sources)]
    split_keys = [key for key in keys if isinstance(key, SplitPartition)]
    if not split_keys:
        return
    if getattr(node.executor, "NEEDS_WHOLE_KEYS", False):
        text = f"{type(node.executor).__name__} would give a part of the result in each channel that gets a heavy key."
        advice = "Use SplitPartition for joins. Spread an aggregation by a function, and aggregate again by the key."
        yield Fault(str(node.location), text, advice)
        return
    if any(key.copied for key in split_keys) and (len(keys) == 1 or isinstance(node.executor, StatelessExecutor)):
        text = f"{type(node.executor).__name__} would give the copied rows of heavy keys once for each channel."
        yield Fault(str(node.location), text, "Copy the rows of one side of a join only.")
        return
    if len(keys) == 1:
        return
    if (
        len(split_keys) < len(keys)
        or len({key.heavy for key in split_keys}) > 1
        or [key.copied for key in split_keys].count(False) != 1
    ):
        text = (
            "a stream with a SplitPartition needs one of the same heavy keys, copied=True, on each other stream only."
        )
        yield Fault(str(node.location), text)
    elif split_keys[0].copied and not getattr(node.executor, "may_copy_left", True):
        text = "the left rows of heavy keys are copied, and a join that is not inner would give them several times."
        yield Fault(str(node.location), text, "Split stream 0, and copy stream 1.")


def _rise(bounds: tuple[Any, ...]) -> bool:
    try:
        return all(low <= high for low, high in zip(bounds, bounds[1:], strict=False))
    except TypeError:  # they cannot be compared, as None cannot
        return False


def _is_columns(key: Any) -> bool:
    return isinstance(key, (list, tuple)) and bool(key) and all(isinstance(column, str) for column in key)


def _empty_batch(node: InputNode | TaskNode) -> pl.DataFrame | None:
    """The columns that an input sends: its batch function is called once, without rows, to learn them."""
    if not isinstance(node, InputNode) or node.reader.schema is None:
        return None
    empty = pl.DataFrame(schema=node.reader.schema)
    if node.batch_function is None:
        return empty
    try:
        found = node.batch_function(empty)
    except Exception:  # noqa: BLE001 - a user's function that wants rows: the batches themselves will tell
        return None
    return found if isinstance(found, pl.DataFrame) else None


def _faults_of_executor(node: TaskNode) -> Iterator[Fault]:
    at, executor = str(node.location), node.executor
    if isinstance(executor, type):
        yield Fault(at, f"the executor is the class {executor.__name__}.", "Give an object of it.")
        return
    if not isinstance(executor, Executor):
        yield Fault(at, f"{type(executor).__name__} is no executor.", "Derive it from Executor or StatelessExecutor.")
        return
    kind = type(executor)
    try:
        cloudpickle.dumps(executor)
    except Exception as error:  # noqa: BLE001 - a user's object, which may raise anything
        advice = "Make in `initialize` what belongs to one process, as connections."
        yield Fault(at, f"{kind.__name__} cannot be copied for each channel: {error}.", advice)
    if kind.NEEDS_ONE_CHANNEL and node.channels != 1:
        yield Fault(at, f"{kind.__name__} has {node.channels!r} channels, and brings only the rows of one.", "Use 1.")
    if kind.execute in (Executor.execute, StatelessExecutor.execute):
        yield Fault(at, f"{kind.__name__} has no execute.", "Write execute(self, batches, stream_id, channel).")
    shapes = {"execute": "batches, stream_id, channel", "done": "channel", "initialize": "datasets, channel"}
    for method, arguments in shapes.items():
        function = getattr(executor, method)
        if not callable(function) or not _takes(function, len(arguments.split(","))):
            yield Fault(at, f"{kind.__name__}.{method} has other arguments.", f"Write {method}(self, {arguments}).")


def _faults_of_windows(node: TaskNode, executor: WindowExecutor) -> Iterator[Fault]:
    at, kind = str(node.location), type(executor).__name__
    if executor.awaited not in (None, len(node.sources)):
        text = f"{kind} waits for {executor.awaited} streams, and the node has {len(node.sources)} sources."
        yield Fault(at, text, "Leave streams= out: it is the number of sources.")
    if isinstance(executor, SessionWindowExecutor) and node.keeps_windows:
        text = f"a WindowedDataset of {kind}: a session ends before others that began earlier."
        yield Fault(at, text, "Use a non-blocking node and new_output_depot, or tumbling or hopping windows.")


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _open_ends(graph: GraphDefinition) -> Iterator[Fault]:
    """Nodes whose output goes nowhere."""
    taken = {source for node in graph.tasks for source in node.sources.values()}
    for node in graph.nodes:
        if node.id not in taken and getattr(node, "sink", None) is None:
            advice = "End the graph with new_blocking_node, which gives a Dataset, or with new_output_depot."
            yield Fault(str(node.location), f"nothing takes what {node.call} sends.", advice)
