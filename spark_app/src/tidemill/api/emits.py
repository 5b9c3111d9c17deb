"""What an operation emits, collected in a test of the operation alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.language.emits import StreamEmit


@dataclass(frozen=True)
class CapturedEmit:
    """One emit: its values, in the order of the variables after `.out`. `name` is its stream; None is the default."""

    name: str | None
    values: list[Any]


class MockOutputCollector:
    """Runs an `@operation` or a plain function as `each` would, and keeps what it emits.

    collector = MockOutputCollector(); collector.run(words, "a b"); collector.get_emits() gives [["a"], ["b"]]
    """

    def __init__(self) -> None:
        self._emits: list[CapturedEmit] = []

    def run(self, operation: Callable[..., Any], *args: Any) -> MockOutputCollector:
        """Call the operation and capture what it emits; a tuple is several values, as for several variables."""
        found = operation(*args)
        for value in found if hasattr(found, "__next__") else [found]:
            if isinstance(value, StreamEmit):
                self.emit_stream(value.stream, *value.values)
            else:
                self.emit(*value) if isinstance(value, tuple) else self.emit(value)
        return self

    def emit(self, *values: Any) -> None:
        """Capture one emit."""
        self._emits.append(CapturedEmit(None, list(values)))

    def emit_stream(self, name: str, *values: Any) -> None:
        """Capture one emit to a named stream."""
        self._emits.append(CapturedEmit(name, list(values)))

    def get_emits(self) -> list[list[Any]]:
        """The values of each emit to whatever stream, in order."""
        return [emit.values for emit in self._emits]

    def get_emits_by_stream(self) -> dict[str | None, list[CapturedEmit]]:
        """The emits of each stream, in order; the default stream is None."""
        found: dict[str | None, list[CapturedEmit]] = {}
        for emit in self._emits:
            found.setdefault(emit.name, []).append(emit)
        return found
