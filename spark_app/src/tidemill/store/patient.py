"""A store whose reads are asked again within a while, whatever the trouble was.

The S3 client asks again where a server is busy. A refusal that passes, an answer that is cut off and the like come
through: rare for one read, but an attempt of a microbatch makes hundreds, and each would start it anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from tidemill.store.objects import Buffer, ObjectStore
from tidemill.values.errors import StoreUnavailable

PAUSES: Final = (0.01, 0.05, 0.1, 0.3, 0.5)
"""Seconds before each further try."""

SECONDS_MAX: Final = 5.0
"""A store that takes longer to say no was asked for long enough."""

_T = TypeVar("_T")


class PatientStore:
    """Passes every call on; `get`, `exists` and `list` again where the store did not do them. Writes are not repeated:
    what may have happened is settled by whoever wrote.
    """

    def __init__(self, store: ObjectStore, pauses: tuple[float, ...] = PAUSES) -> None:
        self._store, self._pauses = store, pauses
        self.url, self.counts = store.url, store.counts

    def _again(self, read: Callable[[], _T]) -> _T:
        begun = time.monotonic()
        for pause in self._pauses:
            try:
                return read()
            except StoreUnavailable:
                if time.monotonic() - begun > SECONDS_MAX:
                    raise
            threading.Event().wait(pause)
        return read()

    def get(self, key: str) -> bytes:
        return self._again(lambda: self._store.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._again(lambda: self._store.get_range(key, start, length))

    def create(self, key: str, data: Buffer) -> None:
        self._store.create(key, data)

    def exists(self, key: str) -> bool:
        return self._again(lambda: self._store.exists(key))

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return iter(self._again(lambda: list(self._store.list(prefix, after))))

    def local_path(self, key: str) -> Path | None:
        return self._store.local_path(key)
