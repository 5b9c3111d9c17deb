"""Opens stores by URL: `file:///folder`, a plain path, `s3://bucket/prefix?endpoint=http://host:9000`.

A store is probed when it is opened for writing: two creates of one key, exactly one may win. What fails this would lose
commits silently, so it is refused.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import xxhash

from tidemill.store import incarnations
from tidemill.store.local import LocalStore
from tidemill.store.objects import RESERVED, AlreadyExists, NotFound, ObjectStore
from tidemill.store.s3 import S3ObjectStore
from tidemill.values.errors import (
    CorruptState,
    NewerFormat,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
    asked_twice,
)
from tidemill.values.ids import nonce

FORMAT = 5
"""The format of a store, with all objects in it, that this version reads and writes."""

FORMAT_KEY = f"{RESERVED}/format.json"
_PROBES = f"{RESERVED}/probes"
_lock = threading.Lock()
_opened: dict[tuple[int, str], ObjectStore] = {}


def open_store(url: str, probe: bool = True) -> ObjectStore:
    """The store of this URL; the same object for the same URL within a process.

    Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION. AWS_CA_BUNDLE
    names a file of certificates (PEM) that are trusted beside the system's. Workers that open what a runner probed
    already pass `probe=False`.

    Raises:
        StoreRefused: the URL is wrong, or the store ignores create-if-absent.
        NewerFormat: a newer Tidemill wrote this store.
        StoreUnavailable: it does not answer.
    """
    # The process id is part of the key: a client's threads do not live on in a forked process.
    known = (os.getpid(), url)
    with _lock:
        store = _opened.get(known)
        if store is None:
            store = _current(url)
            if probe:
                check_store(store)
            _opened[known] = store
        return store


def store_at(own: ObjectStore, url: str) -> ObjectStore:
    """The store of another module: `own` where it has no URL. Raises: as `open_store`; it is not probed."""
    return open_store(url, probe=False) if url else own


def _current(url: str) -> ObjectStore:
    """The copy of the store that lives: the store as it began, or what was restored last."""
    base = connect(url)
    folder = incarnations.current(base).folder
    return connect(incarnations.below(url, folder)) if folder else base


def forget_stores() -> None:
    """Open every store anew from now on: one was restored by this very process."""
    with _lock:
        _opened.clear()


def connect(url: str) -> ObjectStore:
    """A store of its own, neither probed nor shared; of a store that was restored, the one that it was at first.

    Raises:
        StoreRefused: the URL is wrong.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return _connect_s3(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise StoreRefused(
                f"{url} names a host; a folder's URL has three slashes: file:///{parts.netloc}{parts.path}"
            )
        return LocalStore(Path(unquote(parts.path)))
    if "://" in url or not url:
        raise StoreRefused(f"{url!r} is not a store: use a folder, file:///folder or s3://bucket/prefix?endpoint=URL")
    return LocalStore(Path(url).expanduser())


def _connect_s3(url: str) -> ObjectStore:
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := set(options) - {"endpoint", "region"}:
        raise StoreRefused(f"{url} has unknown options {sorted(unknown)}; known are endpoint and region")
    if not parts.netloc:
        raise StoreRefused(f"{url} names no bucket; use s3://bucket/prefix?endpoint=URL")
    config: dict[str, object] = {"region": options.get("region") or os.environ.get("AWS_REGION", "us-east-1")}
    if "endpoint" in options:
        config["endpoint"] = options["endpoint"]
        config["virtual_hosted_style_request"] = False
    return S3ObjectStore(url, parts.netloc, unquote(parts.path).strip("/"), config, _authority())


def _authority() -> bytes:
    """Certificates that are trusted beside the system's; the S3 client itself ignores this variable of AWS."""
    named = os.environ.get("AWS_CA_BUNDLE", "")
    if not named:
        return b""
    try:
        found = Path(named).read_bytes()
    except OSError as error:
        raise StoreRefused(f"AWS_CA_BUNDLE names {named}, which cannot be read: {error.strerror}") from error
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise StoreRefused(f"AWS_CA_BUNDLE names {named}, which holds no certificate (PEM)")
    return found


def check_store(store: ObjectStore, restored: Mapping[str, int] = MappingProxyType({})) -> None:
    """Refuse a store that a newer Tidemill wrote, or that ignores create-if-absent. `restored` is what a new copy
    keeps: by the prefix of each topology the microbatch that it was restored at.

    Raises:
        NewerFormat, StoreRefused, StoreUnavailable: as `open_store`.
    """
    check_format(store)
    try:
        probe_create(store)
        mark: dict[str, Any] = {"format": FORMAT, "id": nonce()}
        if restored:
            mark["restored"] = dict(restored)
        store.create(FORMAT_KEY, json.dumps(mark | {"checksum": _checksum_of(mark)}).encode())
    except AlreadyExists:
        check_format(store)
    except OutcomeUnknown as error:  # the next call asks again: nothing hangs on what became of these objects
        raise StoreUnavailable(str(error), key=FORMAT_KEY) from error


def store_id(store: ObjectStore) -> str:
    """The name that this copy of a store has and no other, given when it was first opened.

    Raises:
        CorruptState: it cannot be read, or was never opened.
    """
    found: str = _mark(store)["id"]
    return found


def restored_at(store: ObjectStore, topology: str) -> int:
    """The microbatch that a topology (by its prefix) was restored at when this copy of the store was made; 0 if it
    began in this copy.

    Raises:
        CorruptState: as `store_id`.
    """
    return int(_mark(store).get("restored", {}).get(topology, 0))


def _mark(store: ObjectStore) -> dict[str, Any]:
    try:
        return _read_mark(store)
    except NotFound as error:
        raise CorruptState(f"{FORMAT_KEY} of the store {store.url} is gone", key=FORMAT_KEY) from error


def _read_mark(store: ObjectStore) -> dict[str, Any]:
    """What the mark says. Raises: NotFound, and as `check_format`."""
    content = store.get(FORMAT_KEY)
    try:
        found: dict[str, Any] = json.loads(content)
        version = index(found["format"])
        checksum = found.pop("checksum", None)  # marks of before had none
        is_whole = found.keys() - {"restored"} == {"format", "id"} and checksum in (None, _checksum_of(found))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"{FORMAT_KEY} of the store {store.url} cannot be read ({error!r}); restore it from a copy of the store"
        raise CorruptState(text, key=FORMAT_KEY) from error
    _refuse_other_format(store, version)
    if not is_whole:
        text = f"{FORMAT_KEY} of the store {store.url} is not as it was written; restore it from a copy of the store"
        raise CorruptState(text, key=FORMAT_KEY)
    return found


def _checksum_of(mark: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(mark, sort_keys=True).encode())


def check_format(store: ObjectStore) -> None:
    """Refuse a store that this version cannot read.

    Raises:
        NewerFormat: a newer Tidemill wrote it.
        StoreRefused: an older one did, whose format was never released.
        CorruptState: its mark cannot be read.
    """
    asked_twice(lambda: _check_format(store))


def _check_format(store: ObjectStore) -> None:
    with suppress(NotFound):
        _read_mark(store)


def _refuse_other_format(store: ObjectStore, found: int) -> None:
    if found > FORMAT:
        text = f"The store {store.url} has format {found}, this Tidemill knows up to {FORMAT}; use the newer Tidemill"
        raise NewerFormat(text, found=found, known=FORMAT)
    if found < FORMAT:
        text = f"The store {store.url} has format {found}, never released; this Tidemill reads {FORMAT}: begin anew"
        raise StoreRefused(text, found=found, known=FORMAT)


def probe_create(store: ObjectStore) -> None:
    """Create one key twice: exactly the first may win. Raises StoreRefused where the second does."""
    key = f"{_PROBES}/{nonce()}"
    store.create(key, b"first")
    try:
        store.create(key, b"second")
    except AlreadyExists:
        return
    finally:
        store.delete(key)
    text = (
        f"The store {store.url} lets a second create of one key win (it ignores If-None-Match); it would lose commits"
    )
    raise StoreRefused(text)
