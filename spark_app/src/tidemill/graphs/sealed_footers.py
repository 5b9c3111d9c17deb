"""Footers of Parquet objects that can be believed without reading the rows before them.

The checksum of an object is one of all its bytes. Whoever skips an object by the least and greatest values in its
footer reads no other byte of it, so a checksum of the footer alone stands between the rows and the footer: Parquet
finds both by offsets, and looks at nothing between them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.journal.snapshot import checksum_of

_MAGIC = b"PAR1"
_SEAL = b"tidemill-footer:"
_SEAL_BYTES = len(_SEAL) + len(checksum_of(b""))
_TAIL_BYTES = 8
"""The length of the footer, and the magic word."""


def with_sealed_footer(content: bytes) -> bytes:
    """The bytes of a Parquet file with the checksum of its footer before that."""
    at = len(content) - _TAIL_BYTES - _footer_bytes(content[-_TAIL_BYTES:])
    return b"".join((content[:at], _seal(content[at:]), content[at:]))


def sealed_footer(path: Path) -> Any:
    """What the footer of a file says, as PyArrow has it; None where its checksum is none or another one."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        begin = size - _TAIL_BYTES - _footer_bytes(file.read())
        if begin < _SEAL_BYTES:
            return None
        file.seek(begin - _SEAL_BYTES)
        seal, footer = file.read(_SEAL_BYTES), file.read()
    if seal != _seal(footer):
        return None
    with pq.ParquetFile(pa.BufferReader(_MAGIC + footer)) as opened:
        return opened.metadata


def _footer_bytes(tail: bytes) -> int:
    return int.from_bytes(tail[: -len(_MAGIC)], "little")


def _seal(footer: bytes) -> bytes:
    return _SEAL + checksum_of(footer).encode()
