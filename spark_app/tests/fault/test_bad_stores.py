"""Stores that are full, read-only, gone, slow, damaged, newer, or not to be trusted; and clocks that jump."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest
from poison import Tally, append, counts, faulty, launch, objects, state, wait

from tidemill import InProcessCluster, Path
from tidemill.leader.check import check_module
from tidemill.store import urls
from tidemill.tables.stored_parts import part_loader
from tidemill.testing.faulty_store import FaultPlan
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import CorruptState, NewerFormat, OutcomeUnknown, StoreRefused, StoreUnavailable

TIDEMILL = Folder(sys.executable).parent / "tidemill"
FAST = {
    "topology.microbatch.retry.delay.base.millis": 1,
    "topology.microbatch.retry.delay.max.millis": 20,
}


# --- full, read-only, unreachable, slow ------------------------------------------------------------------------------


class Trouble:
    """A fault that a test switches on and off."""

    def __init__(self, raises: Callable[[str], Exception], verbs: tuple[str, ...] = ("create",)) -> None:
        self.is_on = False
        self._raises, self._verbs = raises, verbs

    def __call__(self, verb: str, key: str) -> None:
        if self.is_on and verb in self._verbs and "/lease" not in key:
            raise self._raises(key)


def _full(key: str) -> Exception:
    return StoreUnavailable("The store is full; free some space.", key=key)


def _gone(key: str) -> Exception:
    return StoreUnavailable("The store did not answer; is it running?", key=key)


@pytest.mark.parametrize(
    ("raises", "verbs"),
    [(_full, ("create",)), (_gone, ("create", "get", "exists", "list"))],
    ids=["full", "unreachable"],
)
def test_topology_waits_and_goes_on_when_its_store_is_in_trouble(
    tmp_path: Folder, raises: Callable[[str], Exception], verbs: tuple[str, ...]
) -> None:
    trouble = Trouble(raises, verbs)
    url = tmp_path.as_uri()
    faulty(url, FaultPlan(before=trouble))
    with InProcessCluster.create(store=url) as cluster:
        launch(cluster, Tally(options=FAST))
        append(cluster, "a")
        wait(cluster, 1)
        before = objects(tmp_path)
        trouble.is_on = True
        with pytest.raises((StoreUnavailable, OutcomeUnknown), match="store"):
            append(cluster, "b")
        with pytest.raises(TimeoutError) as waited:
            wait(cluster, 2, timeout_millis=100)
        assert "of 2 processed records" in str(waited.value)
        assert objects(tmp_path) == before
        trouble.is_on = False
        append(cluster, "b")
        wait(cluster, 2)
        assert counts(cluster, "a", "b") == [1, 1]
        assert check_module(cluster.store, "Tally") == []


def test_commit_waits_and_says_why_when_the_store_fills_up_after_an_append(tmp_path: Folder) -> None:
    trouble = Trouble(_full)
    url = tmp_path.as_uri()
    faulty(url, FaultPlan(before=lambda verb, key: trouble(verb, key) if "topologies" in key else None))
    with InProcessCluster.create(store=url) as cluster:
        launch(cluster, Tally(options=FAST))
        trouble.is_on = True
        append(cluster, "a")
        cluster._running["Tally"].topologies["tally"].wait_for(lambda now: "full" in now.report.store_trouble, 20)
        with pytest.raises(TimeoutError, match="waits for the store: The store is full"):
            wait(cluster, 1, timeout_millis=50)
        trouble.is_on = False
        wait(cluster, 1)
        assert counts(cluster, "a") == [1]


def test_append_says_that_it_may_have_happened_when_the_answer_is_lost_and_nobody_can_ask(tmp_path: Folder) -> None:
    is_lost = threading.Event()
    url = tmp_path.as_uri()

    def after(verb: str, key: str) -> None:
        if is_lost.is_set() and verb == "create" and "/depots/" in key:
            raise OutcomeUnknown("no answer", key=key)

    def before(verb: str, key: str) -> None:
        if is_lost.is_set() and verb == "get" and "/depots/" in key:
            raise StoreUnavailable("no answer", key=key)

    faulty(url, FaultPlan(before=before, after=after))
    with InProcessCluster.create(store=url) as cluster:
        launch(cluster, Tally(options=FAST))
        is_lost.set()
        with pytest.raises(OutcomeUnknown, match="may have been written"):
            append(cluster, "a")
        is_lost.clear()
        wait(cluster, 1)
        assert counts(cluster, "a") == [1]


def test_every_record_counts_once_when_the_store_is_slow(tmp_path: Folder) -> None:
    never = threading.Event()
    url = tmp_path.as_uri()
    faulty(url, FaultPlan(before=lambda verb, key: never.wait(0.01) and None, after=lambda verb, key: None))
    with InProcessCluster.create(store=url) as cluster:
        launch(cluster, Tally())
        for _ in range(3):
            append(cluster, "a", "b")
        wait(cluster, 6)
        assert counts(cluster, "a", "b") == [3, 3]


SMALL = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tidemill.values.errors import StoreUnavailable
from tidemill.depot.log import DepotLog
from tidemill.depot.appender import DepotAppender
from tidemill.store.local import LocalStore
depot = DepotLog(LocalStore(Path(sys.argv[1])), "d", 1, patience=())
DepotAppender(depot).append(0, "before")
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
try:
    DepotAppender(depot).append(0, "x" * 10000)
except StoreUnavailable as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
DepotAppender(depot).append(0, "after")
depot.follow()
print(depot.read_columns(0, 0, 2).to_list(), sorted(p.name for p in Path(sys.argv[1]).rglob("*") if p.is_file()))
"""


def test_nothing_half_written_stays_when_a_file_cannot_grow(tmp_path: Folder) -> None:
    done = subprocess.run([sys.executable, "-c", SMALL, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said, found = done.stdout.strip().splitlines()
    assert str(tmp_path) in said
    assert found == f"['before', 'after'] {[f'{n:020d}.arrow' for n in (1, 2)]}"


FULL = """
import sys
from pathlib import Path
from tidemill.values.errors import StoreUnavailable
from tidemill.store.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
store.create("a", b"1")
try:
    store.create("b", b"x" * 4_000_000)
except StoreUnavailable as error:
    print(error)
store.create("c", b"3")
print(list(store.list("")))
"""


def _in_a_mount(folder: Folder, options: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with a small file system of its own at `folder`, in a mount namespace."""
    script = f'mount -t tmpfs -o size=1m none "$1" && {options} exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), sys.executable, program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _can_mount(folder: Folder) -> bool:
    return shutil.which("unshare") is not None and _in_a_mount(folder, "", "pass").returncode == 0


def test_advice_is_given_and_earlier_objects_stay_when_the_disk_is_full(tmp_path: Folder) -> None:
    if not _can_mount(tmp_path):
        pytest.skip("this machine lets no test mount a small disk; the file that cannot grow is tested everywhere")
    done = _in_a_mount(tmp_path, "", FULL)
    said, found = done.stdout.strip().splitlines()
    assert "is full; free some space" in said
    assert found == "['a', 'c']"


def test_store_is_refused_with_advice_when_it_is_read_only(tmp_path: Folder) -> None:
    if not _can_mount(tmp_path):
        pytest.skip("this machine lets no test mount a disk read-only")
    program = "import sys\nfrom tidemill.store.urls import open_store\nopen_store(sys.argv[1])"
    done = _in_a_mount(tmp_path, 'mount -o remount,ro "$1" &&', program)
    assert "StoreUnavailable" in done.stderr
    assert "is read-only; mount it writable" in done.stderr


@pytest.mark.s3
def test_topology_goes_on_when_minio_was_away(minio_server: Any, s3_url: str) -> None:
    with InProcessCluster.create(store=s3_url) as cluster:
        launch(cluster, Tally(options=FAST))
        append(cluster, "a")
        wait(cluster, 1)
        minio_server.kill()
        try:
            with pytest.raises((StoreUnavailable, OutcomeUnknown), match="did not answer|gave no answer|not answered"):
                append(cluster, "b")
            with pytest.raises(TimeoutError, match="of 2 processed records .*did not answer"):
                wait(cluster, 2, timeout_millis=200)
        finally:
            minio_server.start()
        append(cluster, "c")
        wait(cluster, 2)
        assert counts(cluster, "a", "c") == [1, 1]


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A stopped store with three microbatches, one of them large enough for objects of its own."""
    folder = tmp_path_factory.mktemp("written") / "store"
    with InProcessCluster.create(store=str(folder)) as cluster:
        launch(cluster, Tally(options=FAST))
        append(cluster, "a", "b")
        wait(cluster, 2)
        append(cluster, *(f"key-{i}-{i * 7919 % 1000003}" for i in range(40_000)))
        wait(cluster, 40_002)
        append(cluster, "a")
        wait(cluster, 40_003)
    return folder


def _flip(path: Folder, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0x41
    path.write_bytes(bytes(content))


def _one(folder: Folder, pattern: str, index: int) -> Folder:
    return sorted((folder / "Tally").glob(pattern))[index]


LOG = "topologies/*/log/*.zip"
SEGMENTS = "depots/words*/log/*.arrow"
DAMAGE: dict[str, tuple[str, int, Callable[[Folder], None]]] = {
    "delta flipped": ("topologies/*/deltas/*.zip", 0, lambda path: _flip(path, 0.5)),
    "delta empty": ("topologies/*/deltas/*.zip", 0, lambda path: path.write_bytes(b"") and None),
    "delta missing": ("topologies/*/deltas/*.zip", 0, lambda path: path.unlink()),
    "newest entry cut": (LOG, -1, lambda path: path.write_bytes(path.read_bytes()[:-30]) and None),
    "newest entry empty": (LOG, -1, lambda path: path.write_bytes(b"") and None),
    "entry missing": (LOG, 2, lambda path: path.unlink()),
    "segment letter changed": (SEGMENTS, 1, lambda path: _flip(path, 0.5)),
    "segment cut": (SEGMENTS, 1, lambda path: path.write_bytes(path.read_bytes()[:700]) and None),
    "segment missing": (SEGMENTS, 1, lambda path: path.unlink()),
    "newest segment empty": (SEGMENTS, -1, lambda path: path.write_bytes(b"") and None),
    "definition cut": ("definition/*.json", -1, lambda path: path.write_text("{") and None),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_check_names_the_object_and_nothing_is_overwritten_when_it_is_damaged(
    written: Folder, tmp_path: Folder, damage: str
) -> None:
    store = shutil.copytree(written, tmp_path / "store")
    pattern, index, change = DAMAGE[damage]
    path = _one(store, pattern, index)
    change(path)
    before = objects(store)
    done = subprocess.run(
        [TIDEMILL, "check", "--store", str(store)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert path.name in done.stdout
    assert objects(store) == before
    with pytest.raises((CorruptState, TimeoutError)) as raised, InProcessCluster.create(store=str(store)) as cluster:
        launch(cluster, Tally(options=FAST))
        append(cluster, "a")
        if damage.startswith(("segment ", "delta ")):  # what was written long ago only a reader meets
            _read_everything(cluster)
        wait(cluster, 40_004, timeout_millis=1_500)
    assert path.name in str(raised.value)
    after = objects(store)
    assert {name: after.get(name) for name in before} == before


def _read_everything(cluster: InProcessCluster) -> None:
    words = cluster.cluster_depot("Tally", "*words")
    for partition in range(2):
        words.read(partition, 0, words.get_partition_info(partition).end_offset)
    assert list(cluster.cluster_pstate("Tally", "$$counts").scan())


def test_a_reader_says_which_object_is_damaged_when_it_selects(written: Folder, tmp_path: Folder) -> None:
    store = shutil.copytree(written, tmp_path / "store")
    path = _one(store, "topologies/*/deltas/*.zip", 0)
    _flip(path, 0.5)
    with InProcessCluster.create(store=str(store)) as cluster, pytest.raises(CorruptState, match=path.name):
        for task in ("a", "b", "key-1-7919", "key-2-15838"):
            cluster.cluster_pstate("Tally", "$$counts").select_one(Path.key(task))


def test_topology_stops_with_the_reason_when_what_it_follows_is_damaged(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=str(tmp_path)) as cluster:
        launch(cluster)
        folder = tmp_path / "Tally" / "options"
        folder.mkdir(exist_ok=True)
        (folder / f"{1:020d}.json").write_text("no options")
        with pytest.raises(TimeoutError, match=rf"runner stopped: CorruptState: .*{1:020d}\.json"):
            wait(cluster, 1, timeout_millis=1_500)
        assert state(cluster).role == "failed"


def test_foreign_files_do_no_harm_when_they_lie_in_the_folders_of_a_store(written: Folder, tmp_path: Folder) -> None:
    store = shutil.copytree(written, tmp_path / "store")
    for path in list((store / "Tally").rglob("log")):
        (path / ".DS_Store").write_text("finder")
        (path / "README.txt").write_text("hands off")
    with InProcessCluster.create(store=str(store)) as cluster:
        launch(cluster, Tally(options=FAST))
        append(cluster, "a")
        wait(cluster, 40_004)
        assert counts(cluster, "a") == [3]


# --- newer versions, and stores without create-if-absent -------------------------------------------------------------


def _newer_json(path: Folder) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))


def _newer_member(path: Folder, name: str, key: str) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {info: archive.read(info) for info in archive.namelist()}
    members[name] = json.dumps(json.loads(members[name]) | {key: 99}).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for info, content in members.items():
            archive.writestr(info, content)
    path.write_bytes(buffer.getvalue())


NEWER: dict[str, tuple[str, int, Callable[[Folder], None]]] = {
    "marker": ("../_tidemill/format.json", 0, _newer_json),
    "definition": ("definition/*.json", -1, _newer_json),
    "entry": (LOG, -1, lambda path: _newer_member(path, "entry.json", "format")),
}


@pytest.mark.parametrize("what", NEWER)
def test_newer_format_is_refused_and_nothing_is_changed_when_a_newer_version_wrote_it(
    written: Folder, tmp_path: Folder, what: str
) -> None:
    store = shutil.copytree(written, tmp_path / "store")
    pattern, index, change = NEWER[what]
    change(_one(store, pattern, index))
    before = objects(store)
    with pytest.raises(NewerFormat, match="newer"), InProcessCluster.create(store=str(store)) as cluster:
        launch(cluster, Tally(options=FAST))
    assert objects(store) == before


def test_newer_part_is_refused_and_nothing_is_changed_when_a_newer_version_wrote_it(
    written: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shutil.copytree(written, tmp_path / "store")
    with InProcessCluster.create(store=str(store)) as cluster:
        launch(cluster, Tally(options=FAST))
        monkeypatch.setattr("tidemill.tables.container.FORMAT_VERSION", 99)
        append(cluster, *(f"later-{i}-{i * 7919 % 1000003}" for i in range(40_000)))
        wait(cluster, 80_003)
    monkeypatch.undo()
    part_loader.cache_clear()
    before = objects(store)
    with InProcessCluster.create(store=str(store)) as cluster:
        launch(cluster, Tally(options=FAST))
        with pytest.raises(NewerFormat):
            _read_everything(cluster)
    after = objects(store)
    assert {name: after.get(name) for name in before} == before


class Forgetful(MemoryStore):
    """Ignores create-if-absent, as some S3 servers do."""

    def create(self, key: str, data: Any) -> None:
        self.objects[key] = bytes(data)


def test_store_is_refused_when_it_lets_a_second_create_win() -> None:
    store = Forgetful("forgetful")
    with pytest.raises(StoreRefused, match="If-None-Match"):
        urls.check_store(store)
    assert store.objects == {}


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("gopher://x", "is not a store"),
        ("s3://", "names no bucket"),
        ("s3://bucket?endpont=x", "endpont"),
        ("file://host/folder", "three slashes"),
        ("", "is not a store"),
    ],
)
def test_store_is_refused_when_its_url_is_wrong(url: str, text: str) -> None:
    with pytest.raises(StoreRefused, match=text):
        InProcessCluster.create(store=url)


def test_store_is_refused_when_it_is_a_file(tmp_path: Folder) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreUnavailable, match="file"):
        InProcessCluster.create(store=os.fspath(tmp_path / "file"))
