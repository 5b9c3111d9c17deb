"""What an `@operation` emits to streams of a name, and how rows of several streams travel as one.

An operation whose named streams are bound runs as `Streamed`: each emit is (name of its stream, list of its values),
None naming the default stream. Rows are then told apart by the name, and `values_of` takes the list apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamEmit:
    """One emit to the stream of a name."""

    stream: str
    values: tuple[Any, ...]


def emit_stream(stream: str, *values: Any) -> StreamEmit:
    """What an `@operation` yields to emit to a named stream: `yield emit_stream("odd", 3)`.

    `.out_stream("odd", "anchor", "*v")` binds it; where nothing binds a stream, what is emitted to it is dropped.
    """
    return StreamEmit(stream, values)


class Streamed:
    """An operation that emits (name of the stream or None, list of values)."""

    def __init__(self, operation: Callable[..., Any]) -> None:
        self.operation = operation

    def __call__(self, *args: Any) -> Iterator[tuple[str | None, list[Any]]]:
        for item in self.operation(*args) or ():
            if type(item) is StreamEmit:
                yield item.stream, list(item.values)
            else:
                yield None, list(item) if isinstance(item, tuple) else [item]


def values_of(values: list[Any]) -> Iterator[tuple[Any, ...]]:
    """An operation that emits the values of one emit."""
    yield tuple(values)
