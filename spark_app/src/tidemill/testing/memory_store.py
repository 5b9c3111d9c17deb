"""A store in memory, for simulations of thousands of runs: same promises, no disk."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from pathlib import Path

from tidemill.store.objects import AlreadyExists, Buffer, NotFound, count_request


class MemoryStore:
    """An object store in a dict, as durable as the test that holds it; a test may edit `objects`, key -> bytes."""

    def __init__(self, name: str = "memory") -> None:
        self.url = f"memory://{name}"
        self.counts: dict[str, int] = {}
        self.objects: dict[str, bytes] = {}
        self._keys: list[str] = []
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes:
        count_request(self.counts, "get")
        try:
            return self.objects[key]
        except KeyError:
            raise NotFound(f"No object {key} in {self.url}.", key=key) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def create(self, key: str, data: Buffer) -> None:
        count_request(self.counts, "create")
        with self._lock:
            if key in self.objects:
                raise AlreadyExists(f"An object {key} exists in {self.url}.", key=key)
            self.objects[key] = bytes(data)
            insort(self._keys, key)

    def exists(self, key: str) -> bool:
        count_request(self.counts, "exists")
        return key in self.objects

    def delete(self, key: str) -> None:
        count_request(self.counts, "delete")
        with self._lock:
            if self.objects.pop(key, None) is not None:
                self._keys = [other for other in self._keys if other != key]

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        count_request(self.counts, "list")
        with self._lock:
            if len(self._keys) != len(self.objects):  # a test put one there
                self._keys = sorted(self.objects)
            low = max(bisect_left(self._keys, prefix + "/") if prefix else 0, bisect_right(self._keys, after))
            high = bisect_left(self._keys, prefix + "0") if prefix else len(self._keys)  # "0" follows "/"
            return iter(self._keys[low:high])

    def local_path(self, key: str) -> Path | None:
        return None
