"""Where rows of CSV begin and end in bytes. A line's end inside quotes is part of a value. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NEWLINE = 10
_RETURN = 13
_BLOCK = 128 * 1024


def last_row_end(chunk: bytes, quote: bytes | None) -> int:
    """How many bytes of a chunk, which begins with a row, are whole rows; 0 if it ends within its first row."""
    if quote is None or quote not in chunk:
        return chunk.rfind(b"\n") + 1
    if chunk.endswith(b"\n") and chunk.count(quote) % 2 == 0:
        return len(chunk)
    ends = _row_ends(chunk, quote, 0)
    return int(ends[-1]) + 1 if len(ends) else 0


def first_row_end(chunk: bytes, quote: bytes | None, parity: int) -> int:
    """How many bytes go to the end of the first row that ends in a chunk, 0 if none does; `parity` is 1 where it
    begins within quotes.
    """
    if quote is None or (parity == 0 and quote not in chunk):
        return chunk.find(b"\n") + 1
    ends = _row_ends(chunk, quote, parity)
    return int(ends[0]) + 1 if len(ends) else 0


def quotes_in(chunk: bytes, quote: bytes) -> int:
    """How many quotes a chunk has; a doubled one inside a value counts as two, and changes nothing."""
    if quote not in chunk:
        return 0
    return int(np.count_nonzero(np.frombuffer(chunk, dtype=np.uint8) == quote[0]))


def without_empty_lines(chunk: bytes, quote: bytes | None) -> bytes:
    """The rows of a chunk, which begins with a row, without the lines that have nothing in them.

    Polars makes a row of nulls of an empty line, but not of one at the beginning, so rows would depend on where a file
    is cut.
    """
    if not (chunk.startswith((b"\n", b"\r\n")) or _has_pair(chunk, b"\n\n") or _has_pair(chunk, b"\n\r")):
        return chunk
    data = np.frombuffer(chunk, dtype=np.uint8)
    ends = np.flatnonzero(data == _NEWLINE) if quote is None else _row_ends(chunk, quote, 0)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends + 1])
    lengths = np.append(ends, len(data)) - starts
    first = data[np.minimum(starts, len(data) - 1)]
    is_empty = (lengths == 0) | ((lengths == 1) & (first == _RETURN))
    kept = np.ones(len(data) + 1, dtype=bool)
    kept[starts[is_empty]] = False
    kept[(starts + lengths)[is_empty]] = False
    return data[kept[:-1]].tobytes()


def _has_pair(chunk: bytes, pair: bytes) -> bool:
    """The same as `pair in chunk` for two bytes, several times as fast."""
    if pair[1:] not in chunk:
        return False
    wanted = np.frombuffer(pair, dtype=np.uint16)[0]
    for first in (0, 1):
        words = np.frombuffer(chunk, dtype=np.uint16, offset=first, count=max(0, len(chunk) - first) // 2)
        # In blocks, so that what is compared stays in the processor's cache.
        if any((words[at : at + _BLOCK] == wanted).any() for at in range(0, len(words), _BLOCK)):
            return True
    return False


def _row_ends(chunk: bytes, quote: bytes, parity: int) -> NDArray[np.int64]:
    """The places of line ends that no quotes hold."""
    data = np.frombuffer(chunk, dtype=np.uint8)
    quotes, lines = np.flatnonzero(data == quote[0]), np.flatnonzero(data == _NEWLINE)
    found: NDArray[np.int64] = lines[(np.searchsorted(quotes, lines) + parity) % 2 == 0]
    return found
