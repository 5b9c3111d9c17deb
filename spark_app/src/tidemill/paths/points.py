"""Closures of their own for the paths that row-at-a-time code runs most: keys down to one indexed element, a terminal.

They neither build hits nor look at what kind a value is, because the schema says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemill.language.operations import Op
from tidemill.language.schema import Leaf, ListSchema, MapSchema, Schema, SetSchema, has_indexed
from tidemill.paths.binding import BoundNav, callable_of
from tidemill.paths.containers import SCALARS, plain
from tidemill.paths.navigator import private
from tidemill.values.absent import ABSENT

SelectCall = Callable[[Any, Sequence[Any]], list[Any]]
TransformCall = Callable[[Any, Sequence[Any]], None]


def point_levels(schema: Schema | None) -> int:
    """How many keys lead through indexed maps to a plain value; 0 if none do."""
    levels = 0
    while isinstance(schema, MapSchema) and (levels == 0 or schema.subindexed):
        schema = schema.value
        levels += 1
    return levels if schema is not None and levels and not has_indexed(schema) else 0


def fast_select(bound: Sequence[BoundNav], schema: Schema | None, where: str) -> SelectCall | None:
    """The closure of a select of one indexed element, or of a whole plain PState; None for all other paths."""
    names = [nav.name for nav in bound if nav.name != "stay"]
    if not names and _is_root_value(schema):
        return _root_select(where)
    if names != ["key"] * point_levels(schema) or not names:
        return None
    slots = tuple(nav.slots[0] for nav in bound if nav.name == "key")
    if len(slots) == 1:
        return _select_one_key(slots[0], where)
    return _select_keys(slots[:-1], slots[-1], where)


def fast_transform(bound: Sequence[BoundNav], schema: Schema | None, where: str) -> TransformCall | None:
    """The closure of a transform of one indexed element; None for all other paths."""
    *keys, terminal = bound
    default = keys.pop().slots[0] if keys and terminal.name == "term" and keys[-1].name == "null_to_val" else None
    if any(nav.name != "key" for nav in keys):
        return _fast_set_transform(bound, schema)
    if not keys or len(keys) != point_levels(schema):
        return None
    slots = tuple(nav.slots[0] for nav in keys)
    if terminal.name == "term_val":
        return _put(slots[:-1], slots[-1], terminal.slots[0])
    if terminal.name == "term_void":
        return _delete(slots[:-1], slots[-1])
    if terminal.name == "term":
        return _update(slots[:-1], slots[-1], default, terminal, where)
    return None


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


def _put(through: tuple[int, ...], last: int, new: int) -> TransformCall:
    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.put(values[last], values[new])

    return transform


def _delete(through: tuple[int, ...], last: int) -> TransformCall:
    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.delete(values[last])

    return transform


def _update(through: tuple[int, ...], last: int, default: int | None, terminal: BoundNav, where: str) -> TransformCall:
    """`key(…).term(fn, args…)`, perhaps with `null_to_val` before the terminal."""
    call = callable_of(terminal.functions[0], where)
    call = call.call if isinstance(call, Op) else call  # spares the frame of its `__call__`
    extra = terminal.slots

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


def _fast_set_transform(bound: Sequence[BoundNav], schema: Schema | None) -> TransformCall | None:
    """`key(…).set_elem(e).term_void()` and `key(…).void_set_elem().term_val(e)` on a subindexed set: written unread."""
    *keys, place, terminal = bound
    for nav in keys:
        if nav.name != "key" or not isinstance(schema, MapSchema):
            return None
        schema = schema.value
    if not (keys and isinstance(schema, SetSchema) and schema.subindexed):
        return None
    shape = (place.name, terminal.name)
    if shape not in (("set_elem", "term_void"), ("void_set_elem", "term_val")):
        return None
    through = tuple(nav.slots[0] for nav in keys)
    return _discard(through, place.slots[0]) if terminal.name == "term_void" else _add(through, terminal.slots[0])


def _discard(through: tuple[int, ...], element: int) -> TransformCall:
    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.discard(values[element])

    return transform


def _add(through: tuple[int, ...], element: int) -> TransformCall:
    def transform(node: Any, values: Sequence[Any]) -> None:
        for slot in through:
            node = node.get(values[slot])
        node.add(values[element])

    return transform
