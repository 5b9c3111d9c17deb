"""A layout as SVG: one file that needs nothing else, or a part of a page, whose text colour it takes.

Boxes and arrows say in `data-` attributes which they are, so that a page can add what it knows of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape

from tidemill.drawing.layout import BOX_HEIGHT, BoxKind, Drawing, Placed, Route, Way

_QUOTES: Final = {'"': "&quot;"}
_CHARS: Final = 44
"""Of a text in a box; the hint has all of it."""

_FILLS: Final[dict[BoxKind, tuple[str, str]]] = {
    "step": ("#8899a2", "0.12"), "store": ("#b98a2e", "0.22"), "moved": ("#0b6f86", "0.22"), "end": ("#8899a2", "0.04"),
}  # fmt: skip
_LINES: Final[dict[Way, str]] = {
    "rows": 'stroke-width="1.4"',
    "moved": 'stroke-width="2.6"',
    "state": 'stroke-width="1.4" stroke-dasharray="5 4"',
}


def to_svg(layout: Drawing, title: str, plan: str = "") -> str:
    """The picture; `title` is read to those who do not see it, `plan` tells a page of which plan it is."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" '
        f'width="{layout.width:.0f}" height="{layout.height:.0f}" role="img" font-family="system-ui, sans-serif" '
        f'font-size="12" fill="currentColor" data-plan="{_text(plan)}">',
        f"<title>{_text(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse" markerUnits="userSpaceOnUse"><path d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    parts.extend(_arrow(route) for route in layout.routes)
    for placed in layout.boxes:
        parts.extend(_box(placed))
    return "\n".join([*parts, "</svg>\n"])


def _arrow(route: Route) -> str:
    points = route.points
    if route.is_back:
        path = f"M{_point(points[0])} L" + " L".join(_point(point) for point in points[1:])
    else:
        path = f"M{_point(points[0])}"
        for (x, y), (to_x, to_y) in zip(points, points[1:], strict=False):
            middle = (y + to_y) / 2
            path += f" C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
    line = _LINES[route.arrow.way]
    counts = f'data-counts="{_text(route.arrow.counts)}"'
    look = 'fill="none" stroke="currentColor" stroke-opacity="0.65"'
    drawn = f'<path {counts} d="{path}" {look} {line} marker-end="url(#tip)"/>'
    if not route.arrow.label:
        return drawn
    (x, y), (to_x, to_y) = points[:2]
    place = f'x="{(x + to_x) / 2 + 4:.1f}" y="{(y + to_y) / 2 + 3:.1f}"'
    return f'{drawn}<text {place} font-size="10" opacity="0.8">{_short(route.arrow.label)}</text>'


def _box(placed: Placed) -> Iterator[str]:
    box, left, top = placed.box, placed.x - placed.width / 2, placed.y - BOX_HEIGHT / 2
    fill, opacity = _FILLS[box.kind]
    yield f'<g data-box="{_text(box.id)}"><title>{_text(box.hint or box.title)}</title>'
    round_ = 14 if box.kind == "store" else 5
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{placed.width:.1f}" height="{BOX_HEIGHT}" rx="{round_}" '
        f'fill="{fill}" fill-opacity="{opacity}" stroke="currentColor" stroke-opacity="0.45"/>'
    )
    base = placed.y + (4 if not box.text else -3) + (4 if box.mark else 0)
    yield f'<text x="{placed.x:.1f}" y="{base:.1f}" text-anchor="middle" font-weight="600">{_short(box.title)}</text>'
    if box.text:
        yield (
            f'<text x="{placed.x:.1f}" y="{base + 15:.1f}" text-anchor="middle" font-size="11" '
            f'opacity="0.8">{_short(box.text)}</text>'
        )
    if box.mark:
        yield (
            f'<text x="{placed.x:.1f}" y="{top + 11:.1f}" text-anchor="middle" font-size="9" '
            f'opacity="0.75">{_text(box.mark)}</text>'
        )
    yield "</g>"


def _point(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def _short(text: str) -> str:
    return _text(text if len(text) <= _CHARS else text[: _CHARS - 1] + "…")


def _text(text: str) -> str:
    """Escaped, without characters that XML has no place for."""
    return escape("".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text), _QUOTES)
