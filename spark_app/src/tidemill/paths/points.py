"""Closures of their own for the paths that row-at-a-time code runs most: keys down to one indexed element, a terminal.

They neither build hits nor look at what kind a value is, because the schema says so. A navigator says by `is_point_key`
that it is such a key, and by `point` which of these closures it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from tidemill.language.operations import Op
from tidemill.language.schema import Leaf, ListSchema, MapSchema, Schema, SetSchema, has_indexed
from tidemill.paths.containers import SCALARS, plain
from tidemill.paths.navigator import BoundNav, PointPlace, TransformCall, callable_of, private
from tidemill.values.absent import ABSENT

SelectCall = Callable[[Any, Sequence[Any]], list[Any]]


def point_levels(schema: Schema | None) -> int:
    """How many keys lead through indexed maps to a plain value; 0 if none do."""
    levels = 0
    while isinstance(schema, MapSchema) and (levels == 0 or schema.subindexed):
        schema = schema.value
        levels += 1
    return levels if schema is not None and levels and not has_indexed(schema) else 0


def is_point(bound: Sequence[BoundNav], schema: Schema | None) -> bool:
    """Whether a path is nothing but keys down to one indexed element whose value is plain."""
    return all(nav.navigator.is_point_key for nav in bound) and len(bound) == point_levels(schema)


def fast_select(bound: Sequence[BoundNav], schema: Schema | None, where: str) -> SelectCall | None:
    """The closure of a select of one indexed element, or of a whole plain PState; None for all other paths."""
    moving = [nav for nav in bound if not nav.navigator.is_identity]
    if not moving and _is_root_value(schema):
        return _root_select(where)
    if not moving or not is_point(moving, schema):
        return None
    slots = tuple(nav.slots[0] for nav in moving)
    if len(slots) == 1:
        return _select_one_key(slots[0], where)
    return _select_keys(slots[:-1], slots[-1], where)


def fast_transform(bound: Sequence[BoundNav], schema: Schema | None, where: str) -> TransformCall | None:
    """The closure of a transform of one indexed element; None for all other paths."""
    keys = list(takewhile(lambda nav: nav.navigator.is_point_key, bound))
    rest = tuple(bound[len(keys) :])
    form = rest[0].navigator.point if keys and rest else None
    if form is None:
        return None
    is_element = len(keys) == point_levels(schema)
    return form(PointPlace(tuple(nav.slots[0] for nav in keys), rest, is_element, _is_set(len(keys), schema), where))


def _is_set(keys: int, schema: Schema | None) -> bool:
    """Whether so many keys lead to a subindexed set."""
    for _ in range(keys):
        if not isinstance(schema, MapSchema):
            return False
        schema = schema.value
    return isinstance(schema, SetSchema) and schema.subindexed


def _is_root_value(schema: Schema | None) -> bool:
    if isinstance(schema, (SetSchema, ListSchema)):
        return not schema.subindexed and not has_indexed(schema)
    return isinstance(schema, Leaf)


def _root_select(where: str) -> SelectCall:
    def select(node: Any, values: Sequence[Any]) -> list[Any]:
        return [plain(node.get_value(), where)]

    return select


def _select_one_key(slot: int, where: str) -> SelectCall:
    def select(node: Any, values: Sequence[Any]) -> list[Any]:
        found = node.get(values[slot])
        if type(found) in SCALARS:
            return [found]
        return [None if found is ABSENT else plain(found, where)]

    return select


def _select_keys(through: tuple[int, ...], last: int, where: str) -> SelectCall:
    def select(node: Any, values: Sequence[Any]) -> list[Any]:
        for slot in through:
            node = node.get(values[slot])
        found = node.get(values[last])
        if type(found) in SCALARS:
            return [found]
        return [None if found is ABSENT else plain(found, where)]

    return select


# --- forms of transforms: `Navigator.point` --------------------------------------------------------------------------


def put_value(place: PointPlace) -> TransformCall | None:
    """`key(…).term_val(v)`: written unread."""
    if not place.is_element:
        return None
    *through, last = place.slots
    new = place.rest[0].slots[0]

    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.put(values[last], values[new])

    return transform


def delete(place: PointPlace) -> TransformCall | None:
    """`key(…).term_void()`: removed unread."""
    if not place.is_element:
        return None
    *through, last = place.slots

    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.delete(values[last])

    return transform


def update(place: PointPlace) -> TransformCall | None:
    """`key(…).term(fn, args…)`."""
    return _update(place, place.rest[0], None) if place.is_element else None


def update_or_begin(place: PointPlace) -> TransformCall | None:
    """`key(…).null_to_val(v).term(fn, args…)`."""
    first, terminal = place.rest[0], place.rest[1]
    if not place.is_element or terminal.navigator.terminal != "function":
        return None
    return _update(place, terminal, first.slots[0])


def _update(place: PointPlace, terminal: BoundNav, default: int | None) -> TransformCall:
    where = place.where
    call = callable_of(terminal.functions[0], where)
    call = call.call if isinstance(call, Op) else call  # spares the frame of its `__call__`
    extra = terminal.slots
    *through, last = place.slots

    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        key = values[last]
        found = node.get(key)
        if type(found) not in SCALARS:
            found = None if found is ABSENT else plain(found, where)
        if found is None and default is not None:
            found = private(values[default], where)
        node.put(key, call(found, *[values[slot] for slot in extra]) if extra else call(found))

    return transform


def discard_element(place: PointPlace) -> TransformCall | None:
    """`key(…).set_elem(e).term_void()` on a subindexed set: removed unread."""
    if not place.is_set or place.rest[1].navigator.terminal != "void":
        return None
    through, element = place.slots, place.rest[0].slots[0]

    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.discard(values[element])

    return transform


def add_element(place: PointPlace) -> TransformCall | None:
    """`key(…).void_set_elem().term_val(e)` on a subindexed set: added unread."""
    if not place.is_set or place.rest[1].navigator.terminal != "value":
        return None
    through, element = place.slots, place.rest[1].slots[0]

    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.add(values[element])

    return transform
