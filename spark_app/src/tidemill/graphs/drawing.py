"""A task graph as SVG: a box for each node, an arrow for each stream with the way its rows are dealt."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.drawing.layout import Arrow, Box, BoxKind, layout
from tidemill.drawing.svg import to_svg
from tidemill.graphs.waves import NodeRecord


def drawn(nodes: Sequence[NodeRecord]) -> str:
    """The text of the SVG file."""
    arrows = [
        Arrow(str(stream.source), str(node.node), label=stream.dealt, counts=str(stream.source))
        for node in nodes
        for stream in node.streams
    ]
    return to_svg(layout([_box(node) for node in nodes], arrows), "A task graph")


def _box(node: NodeRecord) -> Box:
    kind: BoxKind = "step" if node.streams else "store"
    return Box(str(node.node), f"{node.node}: {node.title}", node.text, kind=kind)
