"""A task graph as SVG: a box for each node, an arrow for each stream with the way its rows are dealt."""

from __future__ import annotations

from tidemill.drawing.layout import Arrow, Box, layout
from tidemill.drawing.svg import to_svg
from tidemill.graphs.explaining import channels_text, key_text, sink_text, title
from tidemill.graphs.nodes import GraphDefinition, InputNode, TaskNode


def drawn(graph: GraphDefinition) -> str:
    """The text of the SVG file."""
    arrows = [
        Arrow(str(source), str(node.id), label=key_text(node.partitions.get(stream)))
        for node in graph.tasks
        for stream, source in node.sources.items()
    ]
    return to_svg(layout([_box(node) for node in graph.nodes], arrows), "A task graph")


def _box(node: InputNode | TaskNode) -> Box:
    sink = sink_text(node.sink) if isinstance(node, TaskNode) and node.sink is not None else ""
    text = ", ".join(filter(None, (channels_text(node), sink)))
    return Box(str(node.id), f"{node.id}: {title(node)}", text, kind="store" if isinstance(node, InputNode) else "step")
