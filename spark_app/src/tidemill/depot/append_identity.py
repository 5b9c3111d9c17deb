"""What makes an append the same append: the name of its producer, its number, and a digest of its content.

A name and a number alone do not do: two processes that share a name, or a key that is used for something else, would be
led to believe that records are stored which never were.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
import xxhash

from tidemill.values import columns, message_pack
from tidemill.values.columns import Column, RecordColumn

Numbered = tuple[str, int]
"""(name, sequence) of an idempotent append; sequences of a producer rise."""


class Producer(NamedTuple):
    """A numbered append and the digest of what it appends."""

    name: str
    sequence: int
    digest: str


def identified(producer: Numbered | Producer, column: Column) -> Producer:
    """The append with its digest; where the caller gave none it is made of the records."""
    return producer if isinstance(producer, Producer) else Producer(*producer, digest_of(column))


def digest_of(column: Column) -> str:
    """A digest of records in their order: equal for equal records that came in the same form, on any machine."""
    total = xxhash.xxh64()
    _feed(total, column)
    return total.hexdigest()


def digest_of_bytes(kind: str, body: bytes) -> str:
    """A digest of the body of a request, and of its type."""
    total = xxhash.xxh64(f"{kind}\n".encode())
    total.update(body)
    return total.hexdigest()


def _feed(total: xxhash.xxh64, column: Column) -> None:
    total.update(f"{type(column).__name__} {columns.length(column)}\n".encode())
    if isinstance(column, RecordColumn):
        total.update(message_pack.pack([column.kind, list(column.names)]))
        for field in column.fields:
            _feed(total, field)
    elif isinstance(column, pl.Series):
        _feed_series(total, column)
    else:
        total.update(message_pack.pack(column))


def _feed_series(total: xxhash.xxh64, series: pl.Series) -> None:
    """Which values are there, and these; never what stands in memory in the place of others."""
    total.update(str(series.dtype).encode())
    total.update(np.packbits(series.is_null().to_numpy()).tobytes())
    there = series.drop_nulls()
    if series.dtype in (pl.String, pl.Binary):
        texts = there.cast(pl.Binary)
        total.update(texts.bin.size().to_numpy().tobytes())
        total.update(b"".join(texts.to_list()))
    else:
        total.update(there.to_physical().to_numpy().tobytes())
