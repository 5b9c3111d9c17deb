"""Which copy of a store lives. A restore makes a copy of its own beside what was there, and then points to it.

    _tidemill/current/<n>.json        created if absent: from the n-th restore on, the store is in this folder
    _tidemill/restored/<n>-<nonce>/   all objects of that copy, as a store of its own

So what a process of the time before still writes, however late, never meets an object of the time after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from tidemill.store.json_codec import SUFFIX, JsonCodec
from tidemill.store.objects import RESERVED, ObjectStore
from tidemill.values.ids import nonce

CURRENT: Final = f"{RESERVED}/current"
RESTORED: Final = f"{RESERVED}/restored"
_DIGITS: Final = 8


@dataclass(frozen=True)
class Incarnation:
    """The n-th copy of a store, in a folder of it; 0 and "" are the store as it began."""

    number: int = 0
    folder: str = ""


@dataclass(frozen=True)
class Switch:
    """That from now on the store is in `folder`: which backup was restored into it, and when."""

    folder: str
    backup: str
    restored_ms: int


_JSON: Final[JsonCodec[Switch]] = JsonCodec(Switch)


def current(base: ObjectStore) -> Incarnation:
    """The copy that lives. Costs a listing of one short folder.

    Raises:
        CorruptState: its mark cannot be read.
    """
    newest = max(base.list(CURRENT), default=None)
    if newest is None:
        return Incarnation()
    return Incarnation(int(newest.rpartition("/")[2].partition(".")[0]), _folder(base, newest))


def _folder(base: ObjectStore, key: str) -> str:
    return _JSON.decode(base.get(key), key).folder


def following(base: ObjectStore) -> Incarnation:
    """A new copy, in a folder that nobody has used."""
    number = current(base).number + 1
    return Incarnation(number, f"{RESTORED}/{number}-{nonce()}")


def switch(base: ObjectStore, to: Incarnation, backup: str, now_ms: int) -> None:
    """From now on the store is this copy, into which this backup was restored.

    Raises:
        AlreadyExists: another restore was faster.
        OutcomeUnknown: look which copy lives.
    """
    key = f"{CURRENT}/{to.number:0{_DIGITS}d}{SUFFIX}"
    base.create(key, _JSON.sealed(Switch(to.folder, backup, now_ms), key))


def unfinished(base: ObjectStore) -> list[str]:
    """The objects of copies that no restore came to point to."""
    folders = {_folder(base, key) for key in base.list(CURRENT)}
    return [key for key in base.list(RESTORED) if "/".join(key.split("/")[:3]) not in folders]


def base_url(url: str) -> str:
    """The URL of the whole store, from that of one of its copies."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.partition(f"/{RESTORED}/")[0]))


def below(url: str, folder: str) -> str:
    """The URL of a folder of the store with this URL."""
    if not folder:
        return url
    if "://" not in url:
        return f"{url.rstrip('/')}/{folder}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(folder)}"))
