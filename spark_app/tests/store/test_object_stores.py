"""What every kind of store promises, on a folder and on a real MinIO."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tidemill.store.local import LocalStore, sweep_unfinished
from tidemill.store.log import Log
from tidemill.store.objects import AlreadyExists, NotFound, ObjectStore
from tidemill.store.urls import (
    FORMAT,
    FORMAT_KEY,
    check_store,
    connect,
    open_store,
    probe_create,
    restored_at,
    store_id,
)
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import CorruptState, NewerFormat, OutcomeUnknown, StoreRefused, StoreUnavailable

STRANGE = "Module/depots/*d-1a/$$p %20#+é/log/1.arrow"


def test_object_comes_back_when_created(store: ObjectStore) -> None:
    for key in ("a/b", STRANGE):
        store.create(key, memoryview(b"0123456789"))
        assert store.get(key) == b"0123456789"
        assert store.get_range(key, 2, 3) == b"234"
        assert store.get_range(key, 8, 100) == b"89"
        assert store.exists(key)
        path = store.local_path(key)
        assert path is None or path.read_bytes() == b"0123456789"


def test_a_store_that_gives_no_answer_is_worth_another_try_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that starts beside a busy store must wait, not give up."""
    store = MemoryStore()
    create = store.create

    def lost(key: str, data: Any) -> None:
        create(key, data)
        raise OutcomeUnknown("lost", key=key)

    monkeypatch.setattr(store, "create", lost)
    with pytest.raises(StoreUnavailable, match="lost"):
        check_store(store)
    monkeypatch.undo()
    check_store(store)


def test_nothing_exists_when_its_key_is_that_of_a_folder(store: ObjectStore) -> None:
    store.create("a/b", b"")
    assert not store.exists("a")
    assert store.exists("a/b")


def test_create_is_refused_when_the_key_exists(store: ObjectStore) -> None:
    store.create("a", b"first")
    with pytest.raises(AlreadyExists):
        store.create("a", b"second")
    assert store.get("a") == b"first"


def test_absent_object_is_not_found_when_read(store: ObjectStore) -> None:
    store.create("a", b"")
    for read in (store.get, lambda key: store.get_range(key, 0, 10)):
        for key in ("b", "c/d"):
            with pytest.raises(NotFound):
                read(key)
    assert not store.exists("b")


def test_delete_is_idempotent_when_repeated(store: ObjectStore) -> None:
    store.create("a/b", b"x")
    for _ in range(2):
        store.delete("a/b")
    assert not store.exists("a/b")
    store.create("a/b", b"again")


def test_list_gives_keys_of_a_folder_in_order_when_others_begin_alike(store: ObjectStore) -> None:
    keys = ["log/2", "log/10", "log/a/b", "log-2/1", "logs", STRANGE]
    for key in keys:
        store.create(key, b"")
    assert list(store.list("log")) == ["log/10", "log/2", "log/a/b"]
    assert list(store.list("")) == sorted(keys)
    assert list(store.list("none")) == []


def test_a_store_is_there_when_another_thread_made_its_folder_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = LocalStore(tmp_path / "new")
    looked_at = os.stat

    def look(path: Any, **options: Any) -> os.stat_result:
        """Another thread makes the folder, and sees it, right after this one did not."""
        try:
            return looked_at(path, **options)
        except FileNotFoundError:
            if path == str(made.folder):
                os.mkdir(path)
                made.check_there()
            raise

    monkeypatch.setattr(os, "stat", look)
    made.check_there()
    monkeypatch.undo()
    assert made.folder.is_dir()


def test_exactly_one_wins_when_threads_create_one_key(store: ObjectStore) -> None:
    def create(key: str, writer: int) -> bool:
        try:
            store.create(key, str(writer).encode())
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        for round_number in range(5):
            key = f"race/{round_number}"
            wins = list(pool.map(lambda writer, key=key: create(key, writer), range(8)))
            assert wins.count(True) == 1
            assert store.get(key) == str(wins.index(True)).encode()


def test_requests_are_counted_when_made(store: ObjectStore) -> None:
    store.create("a", b"")
    store.exists("a")
    store.exists("b")
    assert store.counts == {"create": 1, "exists": 2}


def test_store_opens_twice_when_it_is_sound(store_url: str) -> None:
    assert open_store(store_url) is open_store(store_url)
    check_store(connect(store_url))
    assert list(connect(store_url).list("")) == [FORMAT_KEY]


def test_store_is_refused_when_a_newer_version_wrote_it(store: ObjectStore) -> None:
    store.create(FORMAT_KEY, b'{"format": 999}')
    with pytest.raises(NewerFormat, match="999"):
        check_store(store)


def test_store_is_refused_when_an_older_version_wrote_it(store: ObjectStore) -> None:
    store.create(FORMAT_KEY, b'{"format": 1, "id": "a"}')
    with pytest.raises(StoreRefused, match=f"has format 1, never released; this Tidemill reads {FORMAT}"):
        check_store(store)


def test_store_is_corrupt_when_its_format_is_no_number(store: ObjectStore) -> None:
    store.create(FORMAT_KEY, b'{"format": "2", "id": "a"}')
    with pytest.raises(CorruptState, match=FORMAT_KEY):
        check_store(store)


def test_a_flipped_bit_is_told_when_it_is_in_the_mark_of_a_store() -> None:
    store = MemoryStore()
    check_store(store, {"m/topologies/t-1": 7})
    whole = store.objects[FORMAT_KEY]
    for place in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        store.objects[FORMAT_KEY] = bytes(damaged)
        with pytest.raises((CorruptState, NewerFormat, StoreRefused)):
            check_store(store)


def test_store_is_read_when_its_mark_is_of_before_checksums() -> None:
    store = MemoryStore()
    store.objects[FORMAT_KEY] = b'{"format": %d, "id": "a", "restored": {"m/topologies/t-1": 7}}' % FORMAT
    check_store(store)
    assert store_id(store) == "a"
    assert restored_at(store, "m/topologies/t-1") == 7


class ForgetfulStore(MemoryStore):
    """Ignores create-if-absent, as S3 servers of the past do."""

    def create(self, key: str, data: Any) -> None:
        self.objects[key] = bytes(data)


def test_store_is_refused_when_a_second_create_wins() -> None:
    store = ForgetfulStore()
    with pytest.raises(StoreRefused, match="If-None-Match"):
        probe_create(store)
    assert store.objects == {}


@pytest.mark.parametrize("url", ["", "ftp://host/x", "s3://", "s3://bucket?endpiont=x", "file://host/x"])
def test_url_is_refused_when_it_is_no_store(url: str) -> None:
    with pytest.raises(StoreRefused):
        connect(url)


@pytest.mark.s3
def test_store_is_unavailable_when_nothing_listens(minio_server: object) -> None:
    store = connect("s3://bucket/prefix?endpoint=http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="did not answer"):
        store.get("a")
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        store.create("a", b"")


@pytest.mark.s3
def test_store_is_unavailable_when_the_credentials_are_wrong(minio_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreUnavailable, match="credentials"):
        connect(minio_url).create("a", b"")


# --- folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.ENOSPC, "full"), (errno.EROFS, "read-only"), (errno.EACCES, "permission")]
)
def test_folder_says_what_to_do_when_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    store = LocalStore(tmp_path)

    def fail(handle: int, data: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(StoreUnavailable, match=advice):
        store.create("a", b"x")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ask", [lambda store: store.exists("a"), lambda store: store.check_there()])
def test_nothing_counts_as_absent_when_the_disk_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[LocalStore], Any]
) -> None:
    store = LocalStore(tmp_path)

    def fail(path: Any, **options: Any) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        ask(store)


def test_outcome_is_unknown_when_the_name_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    synced = threading.Event()
    real = os.fsync

    def fail_second(handle: int) -> None:
        if synced.is_set():
            raise OSError(errno.EIO, "broken disk")
        synced.set()
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_second)
    with pytest.raises(OutcomeUnknown):
        store.create("a", b"x")
    with pytest.raises(StoreUnavailable):
        store.get("a")
    monkeypatch.undo()
    assert store.get("a") == b"x"


def test_an_append_is_not_acknowledged_when_its_name_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(LocalStore(tmp_path), "log", ".x", lambda data, _: data.decode(), patience=(0.0, 0.0))
    log.append(1, b"first", "first")
    real = os.fsync

    def fail_on_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "broken disk")
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_on_folders)
    with pytest.raises(OutcomeUnknown):
        log.append(2, b"second", "second")
    monkeypatch.undo()
    log.append(2, b"second", "second")


def test_unfinished_creates_are_no_objects_when_listed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / ".create-abc").write_bytes(b"half")
    assert list(LocalStore(tmp_path).list("")) == []


def test_key_is_refused_when_it_leaves_the_folder(tmp_path: Path) -> None:
    for key in ("../x", "/etc/passwd", "a/../../b"):
        with pytest.raises(ValueError, match="not a key"):
            LocalStore(tmp_path).get(key)


def test_unfinished_creates_are_swept_when_they_are_old(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/b/1", b"whole")
    old, young = tmp_path / "a" / "b" / ".create-old", tmp_path / "a" / ".create-young"
    for path, seconds in ((old, 1_000), (young, 3_000)):
        path.write_bytes(b"half")
        os.utime(path, (seconds, seconds))
    assert sweep_unfinished(tmp_path / "a", 2_000_000) == 1
    assert not old.exists() and young.exists() and store.get("a/b/1") == b"whole"
    assert sweep_unfinished(tmp_path / "nothing", 2_000_000) == 0
