"""Folders of a store, without the keys in them."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.store.objects import ObjectStore

_LAST = "\U0010ffff"
"""Behind every other letter of a key."""


def folders_in(store: ObjectStore, folder: str) -> Iterator[str]:
    """The names of the folders in a folder, in ascending order: a request for each, where objects are no files."""
    place = store.local_path(folder)
    if place is not None:
        yield from sorted(each.name for each in place.iterdir() if each.is_dir()) if place.is_dir() else ()
        return
    after = ""
    while (key := next(iter(store.list(folder, after)), None)) is not None:
        name, _, rest = key.removeprefix(f"{folder}/").partition("/")
        if rest:
            yield name
        after = f"{folder}/{name}/{_LAST}" if rest else key
