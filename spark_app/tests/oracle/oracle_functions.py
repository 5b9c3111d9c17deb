"""The user's functions in random programs: plain ones, operations, vectorized ones and custom aggregators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from tidemill import VOID, AccumulatorAgg, CombinerAgg, emit_stream, operation, vectorized

LOGGED_MAX = 60
TEXT_MAX = 80


def text_of(value: Any) -> str:
    """A short text that differs for values of different types, equal for equal values."""
    return _text(value)[:TEXT_MAX]


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, (set, frozenset)):
        return "{" + ",".join(sorted(map(_text, value))) + "}"
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{_text(key)}:{_text(item)}" for key, item in value.items())) + "}"
    if isinstance(value, float) and value == 0.0:
        return "float:0.0"
    return f"{type(value).__name__}:{value!r}"


def small(value: Any) -> int:
    """A number from 0 to 3 that any value has."""
    return sum(text_of(value).encode()) % 4


def big(value: Any) -> int:
    """An int beyond 64 bits that any value has."""
    return (small(value) - 1) * 2**65 + small(value)


def half(number: int) -> float:
    return (number % 1000) / 2


def pair(a: Any, b: Any) -> list[Any]:
    return [a, b]


def record(key: str, value: Any) -> dict[str, Any]:
    return {key: value, "other": [value]}


def appended(held: Any, item: Any) -> list[Any]:
    """A log with one item more, as long as it is short."""
    held = held or []
    return [*held, item] if len(held) < LOGGED_MAX else held


def next_name(name: str) -> str:
    return f"{name}'"[-6:]


def as_text(held: Any) -> str:
    return text_of(held)


def task_of(tasks: int, value: Any) -> int:
    return small(value) % tasks


def total(collected: Any, value: Any) -> Any:
    return text_of([collected, value])


def has_two(collected: list[Any]) -> bool:
    return len(collected) >= 2


@operation
def up_to(number: int) -> Iterator[int]:
    yield from range(abs(number) % 3)


@operation
def twice(value: Any) -> Iterator[tuple[Any, int]]:
    yield value, 0
    yield value, 1


@operation
def sorted_out(value: Any) -> Iterator[Any]:
    """Some values go to a stream of their own, and to one that nobody binds; some to both or to none."""
    number = small(value)
    if number != 1:
        yield value
    if number % 2:
        yield emit_stream("odd", value, number)
        yield emit_stream("nobody", number)


async def waited(value: Any) -> Any:
    """What a service says; small ones take longer."""
    for _ in range(4 - small(value)):
        await asyncio.sleep(0)
    return value


@vectorized
def doubled(numbers: pl.Series) -> pl.Series:
    return numbers * 2


class BitsOr(CombinerAgg):
    """All bits of small numbers together."""

    def combine(self, current: Any, value: Any) -> Any:
        return current | value

    def zero_val(self) -> Any:
        return 0


class Digest(AccumulatorAgg):
    """A number that shows in which order values came."""

    def accumulate(self, current: Any, value: Any) -> Any:
        return (current * 31 + small(value)) % 1009

    def init_val(self) -> Any:
        return 1


class Longest(AccumulatorAgg):
    """The length of the longest text."""

    def accumulate(self, current: Any, value: Any) -> Any:
        return max(current, len(text_of(value)))

    def init_val(self) -> Any:
        return 0


def joined(held: str, item: Any) -> str:
    return (held + text_of(item))[-TEXT_MAX:]


def name_of(value: Any) -> str:
    """One of a few names that any value has."""
    return "abcé"[small(value)]


def is_odd_one(value: Any) -> bool:
    return small(value) % 2 == 1


def one(items: list[Any]) -> int:
    return min(1, len(items))


def middle(items: list[Any], start: int) -> int:
    return max(start, len(items) // 2)


def turned(items: list[Any]) -> list[Any]:
    return items[::-1]


def turned_index(pair_of_index: list[Any]) -> Any:
    """Every element goes to the front, and those at the front of all are left out."""
    index, item = pair_of_index
    return [0, item] if index else []


class Alternate:
    """A navigator to each `step`-th element of a list, the last one first; of all else to nothing."""

    def __init__(self, step: int = 1) -> None:
        self.step = max(1, step)

    def select(self, value: Any, following: Callable[[Any], Any]) -> Any:
        for item in value[:: self.step][::-1] if isinstance(value, list) else ():
            following(item)

    def transform(self, value: Any, following: Callable[[Any], Any]) -> Any:
        if not isinstance(value, list):
            return value
        made = [item if index % self.step else following(item) for index, item in enumerate(value)]
        return [item for item in made if item is not VOID]
