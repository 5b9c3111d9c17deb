"""Connections that wait for the next microbatch, of a system that several threads deliver to at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar


class Closable(Protocol):
    """What is closed when nobody needs it any more."""

    def close(self) -> None:
        """Let go of what it holds."""


T = TypeVar("T", bound=Closable)

IDLE_MAX: Final = 2
"""So many connections wait for the next microbatches, of several topologies perhaps."""


class IdleConnections(Generic[T]):
    """Connections of one process; a thread has one for itself while it uses it."""

    def __init__(self, connect: Callable[[], T]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[T] = []
        self._is_closed = False

    def close(self) -> None:
        """Close what is not in use; what is in use closes after it."""
        with self._lock:
            self._is_closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def one(self) -> Iterator[T]:
        """A connection; one in whose use something went wrong is not used again."""
        with self._lock:
            found = self._idle.pop() if self._idle else None
        connection = found if found is not None else self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            is_kept = not self._is_closed and len(self._idle) < IDLE_MAX
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
