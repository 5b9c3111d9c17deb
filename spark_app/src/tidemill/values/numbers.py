"""Numbers that count different things, each of a type of its own: a checker of types refuses one in the other's place.

At run time they are plain ints, and stored as such. Numbers that code walks through (tasks, partitions, offsets,
entries of logs) are plain ints for the checker, too (decision 0029).
"""

from __future__ import annotations

from typing import Final, NewType, TypeVar, cast

MicrobatchId = NewType("MicrobatchId", int)
"""The number of a microbatch of one topology, from 1 on; 0 before any."""

Version = NewType("Version", int)
"""The number of an attempt of one microbatch, from 1 on: it rises with each retry and each new leader."""

Epoch = NewType("Epoch", int)
"""How many leaders a topology has had, the one that wrote included."""

EPOCH_APPENDS: Final = 1 << 32
"""So many numbers an epoch of a producer has; that of an append, which fits 53 bits, has room for 2 million epochs."""

_Number = TypeVar("_Number", bound=int)


def after(number: _Number) -> _Number:
    """The next number of the same kind."""
    return cast(_Number, number + 1)
