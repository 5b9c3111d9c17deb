"""Records of a sink: dicts of its columns. What is no plain value becomes JSON."""

from __future__ import annotations

import datetime
import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from tidemill.values.errors import BadInput
from tidemill.values.json import strict_json

PLAIN: Final = frozenset({str, int, float, bool, bytes, datetime.datetime})
"""The types of columns whose values go as they are."""


def checked_library(module: str, system: str, extra: str) -> None:
    """Raises BadInput: the library of a system is not installed."""
    if importlib.util.find_spec(module) is None:
        raise BadInput(f"{system} needs its client library: pip install 'tidemill[{extra}]'.")


def checked_columns(columns: Any) -> dict[str, Any]:
    """The columns of a sink, name -> type. Raises BadInput: they are none."""
    if not isinstance(columns, Mapping) or not columns:
        raise BadInput(f"columns is a dict such as {{'user': str, 'total': int}}, not {columns!r}.")
    for name in columns:
        if not isinstance(name, str) or not name:
            raise BadInput(f"The name of a column is a text that is not empty, not {name!r}.")
    return dict(columns)


def checked_seconds(name: str, seconds: Any) -> float:
    """A time in seconds. Raises BadInput: it is none above 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise BadInput(f"{name} is a number of seconds above 0, not {seconds!r}.")
    return float(seconds)


def as_json(column: str, value: Any) -> str:
    """A value as JSON, whose objects have texts as keys. Raises BadInput: JSON has no such values."""
    try:
        return strict_json(value)
    except (TypeError, ValueError) as error:
        text = f"The column {column!r} goes as JSON, which does not hold this: {error}."
        raise BadInput(f"{text} Make texts or numbers of it first.") from None


def cell(column: str, value: Any, is_plain: bool) -> Any:
    """A value as the other system gets it: as it is, or as JSON."""
    return value if is_plain or value is None else as_json(column, value)
