"""A task graph as SVG: a column for each step from the inputs, an arrow for each stream. Needs no other program."""

from __future__ import annotations

from html import escape

from tidemill.graphs.explaining import key_text, sink_text, title
from tidemill.graphs.nodes import GraphDefinition, TaskNode

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 210, 54, 110, 26, 20


def drawn(graph: GraphDefinition) -> str:
    """The text of the SVG file."""
    places = _places(graph)
    width = max(x for x, _ in places.values()) + _WIDTH + _EDGE
    height = max(y for _, y in places.values()) + _HEIGHT + _EDGE
    parts = [_arrow(places[source], places[node.id], key_text(node.partitions.get(stream)))
             for node in graph.tasks for stream, source in node.sources.items()]  # fmt: skip
    for node in graph.nodes:
        below = sink_text(node.sink) if isinstance(node, TaskNode) and node.sink is not None else ""
        parts.append(_box(places[node.id], f"{node.id}: {title(node)}", f"{node.channels} channel(s)", below))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="#567"/></marker></defs>{"".join(parts)}</svg>\n'
    )


def _places(graph: GraphDefinition) -> dict[int, tuple[int, int]]:
    """The left upper corner of each node: as far right as its longest way from an input."""
    columns: dict[int, int] = {}
    used: dict[int, int] = {}
    places = {}
    for node in graph.nodes:
        sources = node.sources.values() if isinstance(node, TaskNode) else ()
        column = columns[node.id] = 1 + max((columns[source] for source in sources), default=-1)
        row = used[column] = used.get(column, -1) + 1
        places[node.id] = (_EDGE + column * (_WIDTH + _GAP_X), _EDGE + row * (_HEIGHT + _GAP_Y))
    return places


def _arrow(start: tuple[int, int], end: tuple[int, int], text: str) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH, start[1] + _HEIGHT // 2, end[0], end[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return (
        f'<path d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}" fill="none" stroke="#567" '
        'marker-end="url(#end)"/>'
        f'<text x="{middle}" y="{(y1 + y2) // 2 - 4}" text-anchor="middle" fill="#567">{escape(text)}</text>'
    )


def _box(place: tuple[int, int], *lines: str) -> str:
    x, y = place
    texts = "".join(
        f'<text x="{x + 8}" y="{y + 17 + 15 * number}">{escape(line if len(line) < 36 else line[:34] + "…")}</text>'
        for number, line in enumerate(filter(None, lines))
    )
    box = f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#eef4f8" stroke="#567"/>'
    return box + texts
