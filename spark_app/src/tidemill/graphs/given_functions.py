"""The functions that an executor was made with: they are code and no state, so that checkpoints leave them out.

A graph whose code was mended goes on with the functions of the mended code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from functools import partial
from types import FunctionType
from typing import Any

import polars as pl

from tidemill.graphs.executor import Executor

_PLAIN = (bool, int, float, str, bytes, type(None), date, time, timedelta, type, pl.Expr, pl.DataType)
_DEPTH = 8


class _MayKeepState(Exception):
    """A function has something beside it that it may change."""


class GivenFunctions:
    """The attributes of an executor that are functions, as its constructor gave them."""

    def __init__(self, executor: Any) -> None:
        self._known: dict[str, tuple[Any, ...]] = {}
        if type(executor).serialize is Executor.serialize:  # who says what the state is has said it
            found = {name: _parts_of(value) for name, value in vars(executor).items() if callable(value)}
            self._known = {name: parts for name, parts in found.items() if parts is not None}

    def without(self, state: Any, executor: Any) -> tuple[Any, tuple[str, ...]]:
        """What `serialize` gave with nothing in the place of these functions, and their names; those that are others
        now, or have counted something, are state.
        """
        names = tuple(name for name, parts in self._known.items() if _is_same(parts, vars(executor).get(name)))
        return ({**state, **dict.fromkeys(names)} if names else state), names


def with_functions(state: Any, names: Iterable[str], executor: Any) -> Any:
    """What `deserialize` takes: the functions of these names are those of this executor."""
    gone = set(names)
    if not gone:
        return state
    held = {name: value for name, value in state.items() if name not in gone}
    return held | {name: value for name, value in vars(executor).items() if name in gone}


def _is_same(parts: tuple[Any, ...], value: Any) -> bool:
    now = _parts_of(value)
    return now is not None and len(now) == len(parts) and all(a is b for a, b in zip(now, parts, strict=True))


def _parts_of(function: Any) -> tuple[Any, ...] | None:
    """A function and all that it holds, if none of that can be changed in place; else None."""
    try:
        return tuple(_parts(function, _DEPTH))
    except _MayKeepState:
        return None


def _parts(value: Any, depth: int) -> Iterator[Any]:
    yield value
    if isinstance(value, _PLAIN):
        return
    inner = _held_by(value)
    if inner is None or not depth:
        raise _MayKeepState
    for each in inner:
        yield from _parts(each, depth - 1)


def _held_by(value: Any) -> list[Any] | None:
    """What a value holds; None where nobody knows."""
    if isinstance(value, FunctionType):
        try:
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
        except ValueError:  # a cell that is filled later
            return None
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *vars(value).values()]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, tuple):
        return list(value)
    if is_dataclass(value) and getattr(value, "__dataclass_params__").frozen:  # noqa: B009 - mypy knows no such name
        return [getattr(value, each.name) for each in fields(value)]
    return None
