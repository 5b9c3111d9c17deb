"""Arguments that inputs have in common, checked before anything is read."""

from __future__ import annotations

from typing import Any

from tidemill.values.errors import BadInput


def column_names(argument: str, given: Any) -> list[str] | None:
    """Names of columns; None where none were given.

    Raises:
        BadInput: it is one text, whose letters nobody means, no list, or has other values than texts.
    """
    if given is None:
        return None
    try:
        found = None if isinstance(given, (str, bytes)) else list(given)
    except TypeError:
        found = None
    if found is None or not all(isinstance(name, str) for name in found):
        raise BadInput(f"{argument} is a list of names of columns, as ['a', 'b'], not {given!r}.")
    return found


def stride_bytes(given: Any) -> int:
    """The bytes of a wave. Raises BadInput where they are no whole number above 0."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadInput(f"stride is a number of bytes, not {given!r}.")
    return given
