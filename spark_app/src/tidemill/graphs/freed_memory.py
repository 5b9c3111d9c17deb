"""Memory that was freed and that the C library keeps for later.

A stride of a file is read in pieces of many megabytes. Small objects come to stand where one of them was; then the next
one, which is a little longer, takes new memory, and a run has more of it from wave to wave.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

MUCH_BYTES = 16 * 1024 * 1024
"""What a wave must read for its memory to be given back: that takes a hundredth of the time that reading takes."""


def give_back_memory(behind: int) -> None:
    """Give to the system what is free, also between objects that are not, where much was read: `behind` so many bytes.

    Nothing where the C library has no such call, as on macOS.
    """
    trim = _trim() if behind >= MUCH_BYTES else None
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], Any] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
