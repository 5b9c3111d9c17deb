"""Names that nobody else has: ids of declared objects, nonces of log entries, random parts of object names.

All randomness of the runtime comes through here, so that a simulation with a seed can be run again.
"""

from __future__ import annotations

import os
import random


class Ids:
    """A source of unique names: from the operating system, or repeatable where a seed is given (simulations only)."""

    def __init__(self, seed: int | str | None = None) -> None:
        self._seeded = None if seed is None else random.Random(seed)

    def new_id(self) -> str:
        """8 hex digits: the id of a declared object, unique within its module."""
        return self._bytes(4).hex()

    def nonce(self) -> str:
        """16 hex digits that no other writer has, to know its bytes by; also the random part of object names."""
        return self._bytes(8).hex()

    def _bytes(self, count: int) -> bytes:
        return os.urandom(count) if self._seeded is None else self._seeded.randbytes(count)


_SYSTEM = Ids()


def new_id() -> str:
    """The id of a newly declared object."""
    return _SYSTEM.new_id()


def nonce() -> str:
    """A name that nobody else has."""
    return _SYSTEM.nonce()
