"""A store whose silence is noticed while a call still waits, not only when it gives up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.store.objects import Buffer, ObjectStore


class WatchedStore:
    """Passes every call on, and knows since when the store has answered none of those that wait.

    A large object that takes long is no silence as long as other calls come back beside it.
    """

    def __init__(self, store: ObjectStore, monotonic_ms: Callable[[], float]) -> None:
        self.watched, self._monotonic_ms = store, monotonic_ms
        self._waiting: dict[int, tuple[float, str]] = {}
        self._numbers = itertools.count()
        self._answered_ms = monotonic_ms()
        self.url, self.counts = store.url, store.counts

    def silence(self) -> tuple[float, str]:
        """(milliseconds without any answer while a call waits, 0 if none waits; the oldest such call)."""
        waiting = list(self._waiting.values())
        if not waiting:
            return 0.0, ""
        begun, call = min(waiting)
        return self._monotonic_ms() - max(begun, self._answered_ms), call

    @contextmanager
    def _call(self, verb: str, key: str) -> Iterator[None]:
        number = next(self._numbers)
        self._waiting[number] = (self._monotonic_ms(), f"{verb} {key}")
        try:
            yield
        finally:
            del self._waiting[number]
            self._answered_ms = self._monotonic_ms()

    def get(self, key: str) -> bytes:
        with self._call("get", key):
            return self.watched.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._call("get", key):
            return self.watched.get_range(key, start, length)

    def create(self, key: str, data: Buffer) -> None:
        with self._call("create", key):
            self.watched.create(key, data)

    def exists(self, key: str) -> bool:
        with self._call("exists", key):
            return self.watched.exists(key)

    def delete(self, key: str) -> None:
        with self._call("delete", key):
            self.watched.delete(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Each page is asked for while the keys are taken; each is a call of its own here."""
        with self._call("list", prefix):
            keys = self.watched.list(prefix, after)
        end = object()
        while True:
            with self._call("list", prefix):
                key = next(keys, end)
            if not isinstance(key, str):
                return
            yield key

    def local_path(self, key: str) -> Path | None:
        return self.watched.local_path(key)
