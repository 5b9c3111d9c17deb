"""Bodies in and out: JSON, JSON lines, Arrow streams and MessagePack, chosen by Content-Type and Accept.

Bodies of records become columns without a Python statement a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgpack
import msgspec
import pyarrow as pa

from tidemill.depot.rows import frame_of
from tidemill.gateway.faults import HttpRefusal, malformed, unfitting
from tidemill.gateway.weights import (
    ARROW_COLUMNS_MAX,
    RECORDS_MAX,
    Reserve,
    arrow_weight,
    check_count,
    check_weight,
    json_weight,
    table_weight,
    unpacked,
)
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.errors import RecordRefused
from tidemill.values.json import jsonable
from tidemill.values.message_pack import pack

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
MSGPACK = "application/msgpack"

ANSWERS = (JSON, MSGPACK)
ANSWER_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of the records that one answer holds, as they are sent."""

_FIRST_VALUES = 16
_SAME: Mapping[str, str] = {"application/x-msgpack": MSGPACK, "application/jsonl": NDJSON, "application/ndjson": NDJSON}
_lines = msgspec.json.Decoder()
S = TypeVar("S")
_LIST_HEADS: Mapping[int, int] = {0xDC: 3, 0xDD: 5}
"""Bytes before the elements of a packed list, by its first; 1 for all others."""


class Records(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an append as JSON or MessagePack: exactly one of the two."""

    record: Any = msgspec.UNSET
    records: list[Any] | msgspec.UnsetType = msgspec.UNSET


# --- what comes in ---------------------------------------------------------------------------------------------------


def media_type(header: str | None, known: tuple[str, ...]) -> str:
    """The type of a body, without its parameters; JSON where nobody says.

    Raises:
        HttpRefusal: 415, none of those known.
    """
    given = (header or JSON).partition(";")[0].strip().lower()
    found = _SAME.get(given, given)
    if found not in known:
        text = f"A body of the type {given!r} is not read here; send {' or '.join(known)}."
        raise HttpRefusal(415, "UnsupportedMediaType", text, {"accept": ", ".join(known)})
    return found


def decoded(body: bytes, kind: str, reserve: Reserve) -> Any:
    """A body of JSON or MessagePack as a value; `reserve` gets the bytes in memory before they are taken.

    Raises:
        HttpRefusal: 400, it is neither; 413, it is too large in memory.
    """
    try:
        if kind == MSGPACK:
            return unpacked(body, reserve)
        check_weight(json_weight(body), reserve)
        return msgspec.json.decode(body)
    except HttpRefusal:
        raise
    except (ValueError, RecursionError) as error:
        name = "MessagePack" if kind == MSGPACK else "JSON"
        raise malformed(f"The body is not {name}: {_first_line(error)}.") from error


def converted(value: Any, form: type[S], advice: str = "") -> S:
    """A decoded body in the documented form; `advice` says how it is written.

    Raises:
        HttpRefusal: 400, says where it differs.
    """
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        text = f"The body is not of the documented form: {error}. {advice}"
        raise malformed(text.rstrip()) from error


def records_of(body: bytes, kind: str, reserve: Reserve) -> Column:
    """The records of an append as a column; `reserve` gets the bytes in memory before they are taken.

    Raises:
        HttpRefusal: 400, the body is not what its type says; 413, it is more than an append may be.
        RecordRefused: a line of it is not JSON, or a column of it is no data.
    """
    if kind == ARROW:
        return _from_arrow(body, reserve)
    if kind == NDJSON:
        check_weight(json_weight(body), reserve)
        return _from_lines(body)
    form = 'Write {"record": …} for one record, or {"records": […]} for several.'
    asked = converted(decoded(body, kind, reserve), Records, form)
    if (asked.record is msgspec.UNSET) == (asked.records is msgspec.UNSET):
        raise malformed(form)
    if asked.record is not msgspec.UNSET:
        return [asked.record]
    values = asked.records or []
    check_count(len(values))
    return columns.from_values(values, tuples_as_lists=True)


def _from_lines(body: bytes) -> Column:
    if body.count(b"\n") > RECORDS_MAX:
        check_count(sum(1 for line in body.split(b"\n") if line.strip()))
    try:
        values = _lines.decode_lines(body)
    except (ValueError, RecursionError):
        values = None
    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    if values is None or len(values) != lines:
        values = [_line(line, number) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    check_count(len(values))
    return columns.from_values(values, tuples_as_lists=True)


def _line(line: bytes, number: int) -> Any:
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise RecordRefused(f"Line {number} is not JSON: {_first_line(error)}.") from error


def _from_arrow(body: bytes, reserve: Reserve) -> Column:
    try:
        check_weight(len(body) + arrow_weight(body), reserve)
        stream = pa.ipc.open_stream(pa.py_buffer(body))
        if not 0 < len(stream.schema) <= ARROW_COLUMNS_MAX:
            raise malformed(f"The rows of a table become dict records: it has 1 to {ARROW_COLUMNS_MAX:,} columns.")
        table = stream.read_all()
        table.validate(full=True)
        check_weight(len(body) + table_weight(table), reserve)
        return columns.from_frame(frame_of(table))
    except HttpRefusal:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, RecordRefused):
            raise
        raise malformed(f"The body is not an Arrow stream: {_first_line(error)}.") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


# --- what goes out ---------------------------------------------------------------------------------------------------


def answer_type(accept: str | None) -> str:
    """JSON or MessagePack, what the client likes best; JSON where it does not mind.

    Raises:
        HttpRefusal: 406, it takes neither.
    """
    if not accept:
        return JSON
    best, chosen = 0.0, ""
    for kind in ANSWERS:
        weight = max((w for pattern, w in _accepted(accept) if _matches(pattern, kind)), default=0.0)
        if weight > best:
            best, chosen = weight, kind
    if not chosen:
        raise HttpRefusal(406, "NotAcceptable", f"Answers are {' or '.join(ANSWERS)}, not {accept!r}.")
    return chosen


def _accepted(accept: str) -> list[tuple[str, float]]:
    found = []
    for item in accept.split(","):
        pattern, *parameters = [part.strip().lower() for part in item.split(";")]
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        found.append((_SAME.get(pattern, pattern), weight))
    return found


def _matches(pattern: str, kind: str) -> bool:
    return pattern in (kind, "*/*", f"{kind.partition('/')[0]}/*")


def whole(number: int | float, name: str, least: int = 0) -> int:
    """A JSON integer, which may be written as 1.0. Raises HttpRefusal: 400, it is none, or beyond its bounds."""
    if not least <= number < 2**53 or number != int(number):
        raise malformed(f"{name} is a whole number from {least} to 2^53 - 1.")
    return int(number)


def encoded(value: Any, kind: str) -> bytes:
    """A value as JSON or MessagePack."""
    return pack(value) if kind == MSGPACK else msgspec.json.encode(jsonable(value))


def joined_lists(parts: Sequence[bytes], count: int, kind: str) -> bytes:
    """Encoded lists as one, of `count` elements in all."""
    if len(parts) == 1:
        return parts[0]
    if kind == JSON:
        return b"[" + b",".join(part[1:-1] for part in parts if len(part) > 2) + b"]"
    header: bytes = msgpack.Packer().pack_array_header(count)
    return header + b"".join(part[_LIST_HEADS.get(part[0], 1) :] for part in parts)


def encoded_in_parts(following: Callable[[int], list[Any]], most: int, kind: str) -> bytes:
    """A list of at most `most` values as a body; `following` gives the next ones, no more than it is told, none at the
    end. A few at first, so that large ones are noticed before many are read.

    Raises:
        HttpRefusal: 422, they are more than one answer holds.
    """
    parts: list[bytes] = []
    size, count, held = 0, _FIRST_VALUES, 0
    while True:
        values = following(min(count, max(0, most - held)))
        held += len(values)
        parts.append(encoded(values, kind))
        size += len(parts[-1])
        if size > ANSWER_BYTES_MAX:
            raise unfitting(f"These records take more than {ANSWER_BYTES_MAX:,} bytes; read fewer at once.")
        if held >= most or not values:
            return joined_lists(parts, held, kind)
        count = max(1, (ANSWER_BYTES_MAX - size) * held // (2 * size))
