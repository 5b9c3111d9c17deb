"""What a process holds of stored parts is bounded in bytes and in open files, and lets go of what no state names."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Path, PState
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.tables import container, stored_parts
from tidemill.tables.container import TableRows, TooManyMapped, encode, map_file, mapped_files
from tidemill.tables.part_cache import PartCache
from tidemill.tables.part_memory import MAPPED_WEIGHT, PartMemory, weight
from tidemill.tables.parts import PartLoader
from tidemill.tables.tables import Table

ALL = TaskSet(1, 0)
logger = logging.getLogger(__name__)


def content(name: str, rows: int = 10) -> bytes:
    return encode({("7", "0"): TableRows(Table("0", ()), pl.DataFrame({"task": [0] * rows}))}, {}, f"M/t/{name}")


class Store:
    """Parts in a folder, as a local store has them, and by name."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.reads = 0

    def add(self, name: str, rows: int = 10) -> Part:
        data = content(name, rows)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return Part(name, ALL, {"7/0": rows}).sealed(data)

    def read(self, name: str) -> bytes:
        self.reads += 1
        return (self.folder / name).read_bytes()

    def loader(self, memory: PartMemory, **more: Any) -> PartLoader:
        return PartLoader(self.read, None, local_path=lambda name: self.folder / name, memory=memory, **more)


@pytest.fixture
def store(tmp_path: Folder) -> Store:
    return Store(tmp_path)


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A limit of mapped files that is 16 above what other tests left mapped."""
    gc.collect()
    before = mapped_files()
    monkeypatch.setattr(container, "mapped_files_max", lambda: before + 16)
    yield before


def test_loaders_share_one_bound_of_what_is_really_held(store: Store) -> None:
    parts = [store.add(f"deltas/{i:02}.zip") for i in range(40)]
    one = weight(store.loader(PartMemory()).load(parts[0]))
    assert one > 5 * parts[0].bytes, "a small part weighs more than its bytes"
    memory = PartMemory(10 * one)
    for loader in (store.loader(memory), store.loader(memory)):
        for part in parts:
            loader.load(part)
            assert memory.bytes <= 10 * one
    assert len(memory) == 10
    assert memory.bytes == sum(weight(held) for held in memory._held.values())


def test_parts_that_the_last_two_states_do_not_name_are_dropped(store: Store) -> None:
    memory = PartMemory()
    loader, other = store.loader(memory), store.loader(memory)
    parts = [store.add(f"deltas/{i}.zip") for i in range(5)]
    other.load(parts[0])
    for i, part in enumerate(parts):
        loader.note(Snapshot((Level("delta", i + 1, i + 1, (part,)),)))
        loader.load(part)
    assert sorted(name for _, name, _ in memory._held) == ["deltas/0.zip", "deltas/3.zip", "deltas/4.zip"]


def test_a_dropped_part_is_unmapped_when_nobody_uses_it(store: Store, few_files: int) -> None:
    memory = PartMemory()
    loader = store.loader(memory, mapped_bytes_min=0)
    for i in range(200):
        part = store.add(f"deltas/{i}.zip")
        loader.note(Snapshot((Level("delta", i + 1, i + 1, (part,)),)))
        assert loader.load(part).pages
        (store.folder / part.name).unlink()
        assert mapped_files() <= few_files + 2
    assert store.reads == 0


def test_small_files_are_read_and_large_ones_mapped(store: Store) -> None:
    memory = PartMemory()
    loader = store.loader(memory)
    small, large = store.add("deltas/a.zip"), store.add("deltas/b.zip", 200_000)
    assert not loader.load(small).pages and store.reads == 1
    assert len(loader.load(large).pages) == 1 and store.reads == 1
    assert weight(loader.load(large)) >= MAPPED_WEIGHT


def test_parts_are_read_when_as_many_files_are_mapped_as_may_be(store: Store, few_files: int) -> None:
    loader = store.loader(PartMemory(), mapped_bytes_min=0)
    used = [loader.load(store.add(f"deltas/{i}.zip")) for i in range(30)]
    assert mapped_files() == few_files + 16
    assert store.reads == 14 and all(held.tables["7", "0"].num_rows == 10 for held in used)
    path = store.folder / "deltas" / "0.zip"
    with pytest.raises(TooManyMapped):
        map_file(path)
    used.clear()
    assert loader.load(store.add("deltas/again.zip")).pages, "what nobody uses gives its place"


def test_a_huge_file_is_mapped_even_so(store: Store, few_files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "ALWAYS_MAPPED_BYTES", 1)
    loader = store.loader(PartMemory(), mapped_bytes_min=0)
    held = [loader.load(store.add(f"deltas/{i}.zip")) for i in range(20)]
    assert mapped_files() == few_files + 20 and len(held) == 20


def test_an_entry_of_the_cache_stays_when_this_process_has_no_place_for_it(
    tmp_path: Folder, few_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemill.tables import part_cache

    monkeypatch.setattr(part_cache, "MAPPED_BYTES_MIN", 0)
    cache, data = PartCache(tmp_path, "store"), content("runs/a.zip")
    part = Part("runs/a.zip", ALL, {"7/0": 10}).sealed(data)
    assert cache.fill(part, data) is not None
    monkeypatch.setattr(container, "mapped_files_max", lambda: 0)
    assert cache.get(part) is None
    monkeypatch.setattr(container, "mapped_files_max", lambda: 1_000_000)
    assert cache.get(part) is not None


def test_no_more_than_a_quarter_of_the_open_files_are_maps() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 16 <= container.mapped_files_max() <= max(16, soft // 4)


# --- over thousands of microbatches ----------------------------------------------------------------------------------


class Counted(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(int, int))
        mb.pstate("$$q", PState.map_schema(int, PState.map_schema(int, int).subindexed()))
        rows = mb.source("*d").out("*m").explode_microbatch("*m").out("*k").hash_partition("*k")
        rows = rows.compound_agg("$$p", CompoundAgg.map("*k", Agg.count()))
        rows.compound_agg("$$q", CompoundAgg.map("*k", CompoundAgg.map("*k", Agg.count())))


class Allocated(ctypes.Structure):
    """`struct mallinfo2` of glibc: what its allocator has got, and what of that is in use."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "top",
        )
    ]


def native_bytes() -> int:
    """Bytes in use that libraries, and Python for its larger objects, asked glibc for; 0 with another libc.

    What is resident grows for longer: freed memory stays in the arenas of threads, of which each microbatch has one.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0
    libc.mallinfo2.restype = Allocated
    found = libc.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def held() -> dict[str, int]:
    """What this process holds that might grow with each microbatch."""
    gc.collect()
    return {
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),
        "native bytes": native_bytes(),
        "arrow bytes": pa.total_allocated_bytes(),
        "part bytes": stored_parts._memory.bytes,
        "mapped": mapped_files(),
        "open": len(list(Folder("/proc/self/fd").iterdir())),
        "resident kB": int(Folder("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024,
    }


MICROBATCHES = int(os.environ.get("TIDEMILL_GROWTH_MICROBATCHES", "400"))
SPARE = {
    "objects": 1_200,
    "blocks": 4_000,
    "native bytes": 4_000_000,
    "arrow bytes": 300_000,
    "part bytes": 700_000,
    "mapped": 3,
    "open": 3,
    "resident kB": 50_000,
}
"""By how much they differ from time to time: a state has up to 40 levels. A part that is kept is 16 objects, 40 blocks
and 10,000 bytes, so one for each of 200 microbatches is far more.
"""


@pytest.mark.slow
def test_nothing_grows_with_each_microbatch(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.depot import files

    # What is bounded by a few thousand values is full after a hundred, so that all else would show.
    monkeypatch.setattr(files, "_HEADERS_MAX", 100)
    monkeypatch.setattr(files, "_SEGMENTS_MAX", 20)
    seen: list[dict[str, int]] = []
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
        cluster.launch_module(Counted(), LaunchConfig(4, 2))
        depot, counts = cluster.cluster_depot("Counted", "*d"), cluster.cluster_pstate("Counted", "$$p")
        for number in range(1, MICROBATCHES + 1):
            depot.append_many(list(range(number % 50, number % 50 + 5)))
            cluster.wait_for_microbatch_processed_count("Counted", "mb", 5 * number)
            assert counts.select_one(Path.key(number % 50))
            if number % (MICROBATCHES // 4) == 0:
                seen.append(held())
                logger.info("%s microbatches: %s", f"{number:,}", seen[-1])  # shown at once by --log-cli-level=INFO
    first, _, third, last = seen
    grown = {name: min(third[name], last[name]) - first[name] for name in SPARE}
    assert all(grown[name] <= SPARE[name] for name in SPARE), (grown, seen)
