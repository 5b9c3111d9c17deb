"""Data values in JSON, as the command line and the gateway show them; `values.message_pack` keeps them exactly.

Integers are written with all their digits, also beyond 2^53, where readers that take numbers for floats round them.
"""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

from tidemill.values.data import to_text


def jsonable(value: Any) -> Any:
    """A data value as JSON has it: sets are sorted lists, bytes hex digits, datetimes ISO texts, other keys their text,
    and floats that JSON lacks (NaN, infinities) null.
    """
    if isinstance(value, dict):
        return {json_key(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [jsonable(item) for item in sorted(value, key=to_text)]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_key(key: Any) -> str:
    """The name of a map's key in JSON: a text itself, others as people write them."""
    return key if isinstance(key, str) else to_text(key)


def strict_json(value: Any) -> str:
    """A value as JSON that gives it back, but that keys become texts.

    Raises:
        TypeError, ValueError: JSON does not hold it, as bytes, NaN, or a dict two of whose keys are the same text.
    """
    _check_keys(value)
    return json.dumps(value, allow_nan=False)


def _check_keys(value: Any) -> None:
    """Raises ValueError: two keys are one text."""
    if isinstance(value, dict):
        if len({json.dumps(key).strip('"') if not isinstance(key, str) else key for key in value}) < len(value):
            raise ValueError(f"two of the keys {', '.join(map(repr, value))} are the same text")
        for inner in value.values():
            _check_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_keys(inner)
