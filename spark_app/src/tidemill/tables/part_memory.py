"""What a process holds of decoded parts, for all its topologies together: one bound of bytes that are really held."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Final, Protocol
from weakref import WeakSet

from tidemill.tables.container import Container

MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
MAPPED_WEIGHT: Final = 512 * 1024
"""What a mapped part counts in memory: its pages are the system's, but it keeps a file open."""

_CONTAINER_BYTES: Final = 4 * 1024
_TABLE_BYTES: Final = 4 * 1024
_COLUMN_BYTES: Final = 512

Key = tuple[int, str, str]
"""(owner, name, checksum)."""


class PartUser(Protocol):
    """What keeps parts open between its reads."""

    def forget(self) -> None:
        """Let go of all parts, at once: some are dropped."""
        ...


class PartMemory:
    """Decoded containers, least recently used out first; safe for several threads."""

    def __init__(self, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Key, Container] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._users: WeakSet[PartUser] = WeakSet()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def bytes(self) -> int:
        """About what is held now, in bytes."""
        return self._bytes

    def get(self, key: Key) -> Container | None:
        """What is held of a part, which counts as used now; None if it must be decoded."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Key, container: Container) -> None:
        """Hold a part, and drop those used longest ago until the bound holds; at least one stays."""
        with self._lock:
            if key not in self._held:
                self._bytes += weight(container)
                self._held[key] = container
            while self._bytes > self._bytes_max and len(self._held) > 1:
                self._drop(next(iter(self._held)))

    def tell(self, user: PartUser) -> None:
        """Tell a user, from now on, when parts are dropped: the bound is of what is really held."""
        with self._lock:
            self._users.add(user)

    def of(self, owner: int) -> list[Container]:
        """The containers that are held for an owner."""
        with self._lock:
            return [container for key, container in self._held.items() if key[0] == owner]

    def retain(self, owner: int, names: Collection[tuple[str, str]]) -> None:
        """Drop what the owner holds beside these (name, checksum)."""
        with self._lock:
            for key in [key for key in self._held if key[0] == owner and key[1:] not in names]:
                self._drop(key)

    def drop_mapped(self) -> None:
        """Let go of all mapped files: others need the places of open files."""
        with self._lock:
            for key in [key for key, container in self._held.items() if container.pages]:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        self._bytes -= weight(self._held.pop(key))
        for user in self._users:
            user.forget()


def weight(container: Container) -> int:
    """About the bytes that a container keeps in memory: those it was decoded from or to, and what describes them."""
    described: int = sum(_TABLE_BYTES + _COLUMN_BYTES * table.num_columns for table in container.tables.values())
    held = _CONTAINER_BYTES + described + MAPPED_WEIGHT * len(container.pages)
    if container.is_compact:
        held += sum(int(table.nbytes) for table in container.tables.values())
        return held
    return held + (0 if container.is_in_place else container.bytes)
