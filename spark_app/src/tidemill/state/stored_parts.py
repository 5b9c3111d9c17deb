"""The bytes of stored parts by their names."""

from __future__ import annotations

from tidemill.model import entries
from tidemill.model.errors import reading_object
from tidemill.store.objects import ObjectStore


def entry_of(name: str) -> int | None:
    """The number of the log entry that holds a part; None where the part is an object of its own."""
    key, mark, _ = name.partition("#")
    return int(key.rpartition("/")[2].partition(".")[0]) if mark else None


def read_part(store: ObjectStore, prefix: str, name: str) -> bytes:
    """The bytes of a part: an object below the topology's prefix, or `<key>#<member>` of a log entry there."""
    key, _, member = name.partition("#")
    content = store.get(f"{prefix}/{key}")
    with reading_object(f"{prefix}/{name}"):
        return entries.member(content, member) if member else content
