"""What callers of handles and clients may give; a wrong argument is refused at once, by its name."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

from tidemill.values.data import has_utf8
from tidemill.values.errors import BadInput, BadPath, UnknownName


def checked_name(kind: str, name: Any) -> str:
    """The name of a `kind` ("module", "depot", …). Raises UnknownName: nothing can have such a name."""
    if not isinstance(name, str):
        raise UnknownName(f"The name of a {kind} is a text, not {name!r}.", name=name)
    if not has_utf8(name):
        raise UnknownName(f"There is no {kind} {name!r}: a name has no lone surrogate.", name=name)
    return name


def checked_time(argument: str, value: Any) -> float:
    """How many seconds or milliseconds `argument` gives. Raises BadInput."""
    if (type(value) not in (int, float) and not _is_number(value)) or value != value:
        raise BadInput(f"{argument}= is a number, not {value!r}.")
    return value  # type: ignore[no-any-return]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def checked_whole(what: str, value: Any) -> int:
    """A whole number that fits 64 bits; `what` begins the sentence: "An offset". Raises BadInput."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise BadInput(f"{what} is a whole number of 64 bits, not {value!r}.")
    return value


def listed_paths(paths: Any) -> list[Any]:
    """The paths of a select of many; one path is no list of them. Raises BadPath."""
    if isinstance(paths, (str, bytes, dict)) or not isinstance(paths, Iterable):
        raise BadPath(f"select_many takes a list of paths, such as [Path.key('a'), Path.key('b')], not {paths!r}.")
    return list(paths)


def listed_numbers(given: Any) -> list[int]:
    """The numbers of records in quarantine that a call names. Raises BadInput."""
    if isinstance(given, (str, bytes, dict)) or not isinstance(given, Iterable):
        raise BadInput(f"The numbers of records are a list, such as [0, 1], or None for all; not {given!r}.")
    return [checked_whole("The number of a record", number) for number in given]
