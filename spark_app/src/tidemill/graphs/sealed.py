"""Objects of graphs that say themselves what they are: a line with key and checksum before the content.

So one that is cut, or stands in the place of another one, is noticed when it is read, before anything of it is used.
"""

from __future__ import annotations

from tidemill.journal.snapshot import checksum_of
from tidemill.values.errors import CorruptState


def sealed(key: str, content: bytes) -> bytes:
    """The bytes of the object `key`."""
    return _line(key, content) + content


def unsealed(key: str, data: bytes) -> bytes:
    """The content of the object that was found at `key`. Raises CorruptState: it is not what was written there."""
    content = data[data.find(b"\n") + 1 :]
    if not data.startswith(_line(key, content)):
        raise not_written(key)
    return content


def not_written(key: str) -> CorruptState:
    """The error of an object that was found at `key`."""
    return CorruptState(f"{key} is not what was written there: run `tidemill check`.", key=key)


def _line(key: str, content: bytes) -> bytes:
    return f"{key} {checksum_of(content)}\n".encode()
