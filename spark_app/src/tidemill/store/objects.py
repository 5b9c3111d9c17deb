"""The seam between Tidemill and where its bytes are: immutable objects, created once, read, listed and deleted.

There is no update and no rename: `create` of a key that exists fails, and that one promise carries commits, fencing and
appends (docs/invariants.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tidemill.values.errors import TidemillError

RESERVED = "_tidemill"
"""The folder of a store that belongs to no module."""

Buffer = Any
"""bytes, or anything with the buffer protocol (a memoryview, a `pyarrow.Buffer`)."""


class AlreadyExists(TidemillError):
    """A create met an object of this key; its writer, perhaps this very process, is found out by reading it."""

    code = "AlreadyExists"


class NotFound(TidemillError):
    """There is no object of this key: never written, or trimmed, or collected."""

    code = "NotFound"


class ObjectStore(Protocol):
    """Objects by key; keys are relative paths with `/`. All methods may be called from several threads.

    Every method may raise `StoreUnavailable`: the store did not do it, and the same call may succeed later.
    `counts` counts requests by verb since the store was opened (get, create, exists, delete, list).
    """

    url: str
    counts: dict[str, int]

    def get(self, key: str) -> bytes:
        """The whole object. Raises NotFound."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; fewer at the object's end. Raises NotFound."""

    def create(self, key: str, data: Buffer) -> None:
        """Write an object whole and durably, if there is none of this key.

        Raises:
            AlreadyExists: there is one; nothing was changed.
            OutcomeUnknown: no answer; the object may exist, or appear a little later.
        """

    def exists(self, key: str) -> bool:
        """Whether there is an object of this key."""

    def delete(self, key: str) -> None:
        """Remove an object; an absent one is no error."""

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """The keys below the folder `prefix` ("" is all), in ascending order; with `after` those greater than it."""

    def local_path(self, key: str) -> Path | None:
        """The file that holds this object, for memory-mapping; None where objects are not files."""


def count_request(counts: dict[str, int], verb: str) -> None:
    """Count one request; `verb` is get, create, exists, delete or list."""
    counts[verb] = counts.get(verb, 0) + 1
