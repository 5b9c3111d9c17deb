"""What a record must be, whoever appends it: data, and not too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidemill.values.data import check_data
from tidemill.values.errors import RecordRefused
from tidemill.values.message_pack import pack

RECORD_BYTES_MAX: Final = 16 * 1024 * 1024


def check_records(values: Sequence[Any], first: int | None) -> None:
    """Refuse records that are not data or too large.

    `first` is the number of the first of them in what the caller appends, None where it is the only one.

    Raises:
        RecordRefused: says which record; the context holds its `index`.
    """
    check_each(values, first)
    for index, value in enumerate(values, first or 0):
        check_size(value, index, is_only=first is None)


def check_each(values: Sequence[Any], first: int | None) -> None:
    """Refuse records that are not data. Raises as `check_records`."""
    for index, value in enumerate(values):
        try:
            check_data(value)
        except RecordRefused as error:
            if first is None:
                raise
            text = f"Record {first + index}: {error}"
            raise RecordRefused(text, **{**error.context, "index": first + index}) from None


def check_size(value: Any, index: int, is_only: bool = False) -> None:
    """Refuse a record of more than `RECORD_BYTES_MAX` packed bytes; `index` is its number, for the error.

    Raises:
        RecordRefused: the context holds `index` and `bytes`.
    """
    size = len(pack(value))
    if size > RECORD_BYTES_MAX:
        limit = f"a depot takes {RECORD_BYTES_MAX:,}; store it elsewhere and append its name."
        name = "The record" if is_only else f"Record {index}"
        raise RecordRefused(f"{name} has {size:,} bytes, {limit}", index=index, bytes=size)
