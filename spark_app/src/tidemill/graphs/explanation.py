"""A task graph as text, for people and to know it again."""

from __future__ import annotations

from tidemill.graphs.nodes import DatasetSink, DepotSink, GraphDefinition, InputNode, TaskNode
from tidemill.graphs.partitions import PartitionKey, RangePartition, SplitPartition, key_columns


def explained(graph: GraphDefinition) -> str:
    """A paragraph for each node."""
    return "\n".join(line for node in graph.nodes for line in _lines(graph, node))


def _lines(graph: GraphDefinition, node: InputNode | TaskNode) -> list[str]:
    head = f"{node.id}: {title(node)}, {channels_text(node)}"
    if isinstance(node, InputNode):
        lines = [head, f"   reads {node.reader.describe()}"]
        if node.batch_function is not None:
            lines.append(f"   calls {getattr(node.batch_function, '__name__', 'a function')} with each batch")
        if node.dependents:
            lines.append(f"   begins when {', '.join(map(str, node.dependents))} is done")
        return lines
    lines = [head]
    for stream, source in sorted(node.sources.items()):
        lines.append(f"   stream {stream} from {source}, {key_text(node.partitions.get(stream))}")
    lines += [f"   with {dataset!r}" for dataset in node.datasets]
    if node.sink is not None:
        lines.append(f"   {sink_text(node.sink)}")
    return lines


def title(node: InputNode | TaskNode) -> str:
    """What a node is called: its kind, or its executor's class."""
    return node.call.removeprefix("new_") if isinstance(node, InputNode) else type(node.executor).__name__


def node_text(node: InputNode | TaskNode) -> str:
    """How many channels it has, and where its output stays."""
    sink = sink_text(node.sink) if isinstance(node, TaskNode) and node.sink is not None else ""
    return ", ".join(filter(None, (channels_text(node), sink)))


def channels_text(node: InputNode | TaskNode) -> str:
    """How many channels it has."""
    return "1 channel" if node.channels == 1 else f"{node.channels} channels"


def sink_text(sink: DatasetSink | DepotSink) -> str:
    """Where a node's output stays."""
    if isinstance(sink, DepotSink):
        return f"appends to {sink.depot} of {sink.module}"
    by = f" by {', '.join(sink.key)}" if sink.key else ""
    return f"makes the Dataset {sink.dataset}{by}"


def key_text(key: PartitionKey) -> str:
    """How rows are dealt."""
    if key is None:
        return "a copy to each channel"
    if isinstance(key, SplitPartition):
        how = "copied to each channel" if key.copied else "dealt in turn"
        return f"by {', '.join(key.columns)}, with {len(key.heavy)} heavy key(s) {how}"
    if isinstance(key, RangePartition):
        return f"by ranges of {key.column}"
    if callable(key):
        return f"by the function {getattr(key, '__name__', type(key).__name__)}"
    return f"by {', '.join(key_columns(key))}"
