"""Which case of `sub_source` takes a value: the first of its class, equal to its constant, or that its function takes.

A class takes values of exactly that class, as records are stored: `int` takes no bool. A tuple counts as a list, a
frozenset as a set and a bytearray as bytes, since they are read back as those; `object` takes every value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.language.operations import equal, is_true
from tidemill.values.errors import BadInput

_READ_BACK_AS: dict[type, type] = {tuple: list, frozenset: set, bytearray: bytes}
_SHOWN_CHARS = 200


@dataclass(frozen=True)
class OfClass:
    """Takes values of one class; `object` takes all."""

    kind: type

    def takes(self, value: Any) -> bool:
        """Whether this case takes the value."""
        return self.kind is object or class_of(type(value)) is self.kind

    def __str__(self) -> str:
        return "None" if self.kind is type(None) else self.kind.__name__


@dataclass(frozen=True)
class OfValue:
    """Takes what equals a constant."""

    value: Any

    def takes(self, value: Any) -> bool:
        """Whether this case takes the value."""
        return equal(value, self.value)

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class OfFunction:
    """Takes those for which a function is true, as in conditions: neither None nor False."""

    name: str
    function: Callable[[Any], Any]

    def takes(self, value: Any) -> bool:
        """Whether this case takes the value."""
        return is_true(self.function(value))

    def __str__(self) -> str:
        return f"{self.name}(…)"


Taker = OfClass | OfValue | OfFunction
EVERY = OfClass(object)


def class_of(kind: type) -> type:
    """The class that stands for this one when values are told apart."""
    return _READ_BACK_AS.get(kind, kind)


class Dispatch:
    """A function of a value that gives the number of the case that takes it."""

    def __init__(self, cases: Sequence[Taker]) -> None:
        self.cases = tuple(cases)

    def __call__(self, value: Any) -> int:
        """The number of the first case that takes the value.

        Raises:
            BadInput: none does.
        """
        for number, case in enumerate(self.cases):
            if case.takes(value):
                return number
        shown = repr(value)[:_SHOWN_CHARS]
        known = ", ".join(map(str, self.cases))
        raise BadInput(
            f"no case takes {shown} ({type(value).__name__}); there are cases for {known}. "
            "SubSource.create(object) as the last case takes all others."
        )
