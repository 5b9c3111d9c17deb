"""What an operation emits, collected in a test of the operation alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidemill.language.emits import StreamEmit


class CapturedEmit(list[Any]):
    """One emit: the list of its values, in the order of the variables after `.out`, and equal to any such list.

    `name` is its stream; None is the default.
    """

    def __init__(self, name: str | None, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.name = name

    def __repr__(self) -> str:
        return f"CapturedEmit({self.name!r}, {self.values!r})"

    @property
    def values(self) -> list[Any]:
        """The values alone."""
        return list(self)


class MockOutputCollector:
    """Runs an `@operation` or a plain function as `each` would, and keeps what it emits.

    collector = MockOutputCollector(); collector.run(words, "a b"); collector.get_emits() gives [["a"], ["b"]]
    """

    def __init__(self) -> None:
        self._emits: list[CapturedEmit] = []

    def __repr__(self) -> str:
        return f"<MockOutputCollector: {self._emits}>"

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
        self._emits.append(CapturedEmit(None, values))

    def emit_stream(self, name: str, *values: Any) -> None:
        """Capture one emit to a named stream."""
        self._emits.append(CapturedEmit(name, values))

    def get_emits(self) -> list[CapturedEmit]:
        """Each emit to whatever stream, in order."""
        return list(self._emits)

    def get_emits_by_stream(self) -> dict[str | None, list[CapturedEmit]]:
        """The emits of each stream, in order; the default stream is None."""
        found: dict[str | None, list[CapturedEmit]] = {}
        for emit in self._emits:
            found.setdefault(emit.name, []).append(emit)
        return found
