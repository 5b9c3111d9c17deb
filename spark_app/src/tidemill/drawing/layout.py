"""Where the boxes of a directed graph stand: in layers from top to bottom, ordered so that few arrows cross.

This is the method of Sugiyama in its plain form: a box stands below all that lead to it, an arrow that passes layers
has a place of its own in each of them, and a few sweeps move everything near the middle of its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

SWEEPS: Final = 8
BOX_HEIGHT: Final = 50
LAYER_GAP: Final = 34
SIDE_GAP: Final = 26
PASS_WIDTH: Final = 14
"""Of the place that a passing arrow takes in a layer."""

BoxKind = Literal["step", "store", "moved", "end"]
Way = Literal["rows", "moved", "state"]


@dataclass(frozen=True)
class Box:
    """One box: `title` stands in it, `text` below the title, `hint` is shown when somebody points at it."""

    id: str
    title: str
    text: str = ""
    hint: str = ""
    kind: BoxKind = "step"
    mark: str = ""


@dataclass(frozen=True)
class Arrow:
    """Something goes from one box to another: rows on a task, rows that move between tasks, or state.

    `counts` names what a page counts along it, several by spaces.
    """

    source: str
    target: str
    way: Way = "rows"
    label: str = ""
    counts: str = ""


@dataclass(frozen=True)
class Placed:
    """A box and the middle of its place; `width` fits its texts."""

    box: Box
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Route:
    """An arrow and the points that it passes, from the lower edge of its source; `is_back` goes up again."""

    arrow: Arrow
    points: tuple[tuple[float, float], ...]
    is_back: bool = False


@dataclass(frozen=True)
class Drawing:
    """A whole picture."""

    boxes: tuple[Placed, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


_Key = tuple[str, int]
"""A box (its ID and 0), or the place of arrow number i in a layer ("", i) with that layer's number in the ID."""


def width_of(box: Box) -> float:
    """Wide enough for the texts of a box, in a font of 12 pixels."""
    return min(340.0, max(90.0, 7.4 * max(len(box.title), 0.9 * len(box.text)) + 24.0))


def layout(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Drawing:
    """Place every box. Arrows that close a circle go back up, beside all boxes; those of unknown boxes are an error.

    Raises:
        KeyError: an arrow names no box.
    """
    known = {box.id: box for box in boxes}
    forward, back = _directed(list(known), arrows)
    layer = _layers(list(known), forward)
    rows, chains = _rows(known, forward, layer)
    widths = {key: width_of(known[key[0]]) if key[0] in known else PASS_WIDTH for row in rows for key in row}
    neighbours = _neighbours(chains)
    for sweep in range(SWEEPS):
        _sweep(rows, neighbours, is_down=sweep % 2 == 0)
    x = _positions(rows, widths, neighbours)
    y = {number: number * (BOX_HEIGHT + LAYER_GAP) + BOX_HEIGHT / 2 + 8 for number in range(len(rows))}
    placed = tuple(Placed(box, x[box.id, 0], y[layer[box.id]], width_of(box)) for box in boxes)
    at = {one.box.id: one for one in placed}
    right = max((one.x + one.width / 2 for one in placed), default=0.0)
    routes = [_route(arrow, chain, at, x, y, layer) for arrow, chain in zip(forward, chains, strict=True)]
    routes += [_way_back(arrow, at, right + 18.0 * (number + 1)) for number, arrow in enumerate(back)]
    height = len(rows) * (BOX_HEIGHT + LAYER_GAP) - LAYER_GAP + 16 if rows else 16.0
    return Drawing(placed, tuple(routes), right + 18.0 * (len(back) + 1), height)


def _directed(ids: Sequence[str], arrows: Sequence[Arrow]) -> tuple[list[Arrow], list[Arrow]]:
    """The arrows without circles, and those that close one: which lead back to a box that is still being visited."""
    following: dict[str, list[Arrow]] = {one: [] for one in ids}
    for arrow in dict.fromkeys(arrows):
        following[arrow.source].append(arrow)
        following[arrow.target]  # must be there, too
    state: dict[str, int] = {}
    forward: list[Arrow] = []
    back: list[Arrow] = []
    for first in ids:
        stack = [(first, iter(following[first]))] if first not in state else []
        state.setdefault(first, 1)
        while stack:
            one, rest = stack[-1]
            try:
                arrow = next(rest)
            except StopIteration:
                state[one] = 2
                stack.pop()
                continue
            if state.get(arrow.target) == 1:
                back.append(arrow)
                continue
            forward.append(arrow)
            if arrow.target not in state:
                state[arrow.target] = 1
                stack.append((arrow.target, iter(following[arrow.target])))
    return forward, back


def _layers(ids: Sequence[str], forward: Sequence[Arrow]) -> dict[str, int]:
    """The longest way to each box; what leads only to one box stands right above it."""
    before: dict[str, list[str]] = {one: [] for one in ids}
    waiting = dict.fromkeys(ids, 0)
    for arrow in forward:
        before[arrow.target].append(arrow.source)
        waiting[arrow.target] += 1
    found: dict[str, int] = {}
    ready = [one for one in ids if not waiting[one]]
    order = []
    while ready:
        one = ready.pop()
        order.append(one)
        found[one] = max((found[other] + 1 for other in before[one]), default=0)
        for arrow in forward:
            if arrow.source == one:
                waiting[arrow.target] -= 1
                if not waiting[arrow.target]:
                    ready.append(arrow.target)
    for one in order[::-1]:
        after = [found[arrow.target] for arrow in forward if arrow.source == one]
        if not before[one] and after:
            found[one] = min(after) - 1
    return found


def _rows(
    known: Mapping[str, Box], forward: Sequence[Arrow], layer: Mapping[str, int]
) -> tuple[list[list[_Key]], list[list[_Key]]]:
    """The keys of each layer, and for each arrow the keys that it passes from its source to its target."""
    rows: list[list[_Key]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for one in known:
        rows[layer[one]].append((one, 0))
    chains = []
    for number, arrow in enumerate(forward, start=1):
        between = range(layer[arrow.source] + 1, layer[arrow.target])
        passed: list[_Key] = [(f"\0{at}", number) for at in between]
        for at, key in zip(between, passed, strict=True):
            rows[at].append(key)
        chains.append([(arrow.source, 0), *passed, (arrow.target, 0)])
    return rows, chains


def _neighbours(chains: Sequence[Sequence[_Key]]) -> dict[_Key, tuple[list[_Key], list[_Key]]]:
    """Of each key those above it and those below it."""
    found: dict[_Key, tuple[list[_Key], list[_Key]]] = {}
    for chain in chains:
        for upper, lower in zip(chain, chain[1:], strict=False):
            found.setdefault(upper, ([], []))[1].append(lower)
            found.setdefault(lower, ([], []))[0].append(upper)
    return found


def _sweep(rows: list[list[_Key]], neighbours: Mapping[_Key, tuple[list[_Key], list[_Key]]], is_down: bool) -> None:
    """Order each layer by the mean place of its neighbours in the layer before it."""
    side = 0 if is_down else 1
    for number in range(len(rows)) if is_down else reversed(range(len(rows))):
        other = number - 1 if is_down else number + 1
        if not 0 <= other < len(rows):
            continue
        place = {key: index for index, key in enumerate(rows[other])}

        def mean(entry: tuple[int, _Key], place: Mapping[_Key, int] = place) -> float:
            near = [place[key] for key in neighbours.get(entry[1], ([], []))[side] if key in place]
            return sum(near) / len(near) if near else float(entry[0])

        rows[number] = [key for _, key in sorted(enumerate(rows[number]), key=mean)]


def _positions(
    rows: Sequence[Sequence[_Key]],
    widths: Mapping[_Key, float],
    neighbours: Mapping[_Key, tuple[list[_Key], list[_Key]]],
) -> dict[_Key, float]:
    """The middle of each key: near its neighbours, as far as those beside it leave room."""
    x: dict[_Key, float] = {}
    for row in rows:
        at = 0.0
        for key in row:
            x[key] = at + widths[key] / 2
            at += widths[key] + SIDE_GAP
    for _ in range(SWEEPS):
        for row in (*rows, *reversed(rows)):
            wished = {}
            for key in row:
                near = [x[other] for side in neighbours.get(key, ([], [])) for other in side]
                wished[key] = sum(near) / len(near) if near else x[key]
            _spread(row, wished, widths, x)
    left = min((x[key] - widths[key] / 2 for row in rows for key in row), default=0.0)
    return {key: value - left + 8 for key, value in x.items()}


def _spread(
    row: Sequence[_Key], wished: Mapping[_Key, float], widths: Mapping[_Key, float], x: dict[_Key, float]
) -> None:
    """Give each its wish in order, pushed to the right by those before it, then moved back by the mean of the push."""
    at = float("-inf")
    for key in row:
        x[key] = max(wished[key], at + widths[key] / 2)
        at = x[key] + widths[key] / 2 + SIDE_GAP
    push = sum(x[key] - wished[key] for key in row) / len(row) if row else 0.0
    for key in row:
        x[key] -= push


def _route(
    arrow: Arrow,
    chain: Sequence[_Key],
    at: Mapping[str, Placed],
    x: Mapping[_Key, float],
    y: Mapping[int, float],
    layer: Mapping[str, int],
) -> Route:
    source, target = at[arrow.source], at[arrow.target]
    first = layer[arrow.source] + 1
    passed = [(x[key], y[first + number]) for number, key in enumerate(chain[1:-1])]
    begin, end = (source.x, source.y + BOX_HEIGHT / 2), (target.x, target.y - BOX_HEIGHT / 2)
    return Route(arrow, (begin, *passed, end))


def _way_back(arrow: Arrow, at: Mapping[str, Placed], x: float) -> Route:
    source, target = at[arrow.source], at[arrow.target]
    begin, end = (source.x + source.width / 2, source.y), (target.x + target.width / 2, target.y)
    return Route(arrow, (begin, (x, source.y), (x, target.y), end), is_back=True)
