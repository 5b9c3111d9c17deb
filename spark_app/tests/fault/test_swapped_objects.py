"""An object that stands in the place of another one of its kind, or is cut: noticed by `check` and by readers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.leader.check import check_module
from tidemill.store.urls import connect, open_store
from tidemill.tables.stored_parts import part_loader
from tidemill.values.errors import CorruptState

ROUNDS = 6
LARGE = 300_000


class Pairs(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))  # fmt: skip


def words(round_: int) -> list[str]:
    """Some rounds change little, and ride in the log's entry; others are objects of their own."""
    return [f"word {round_}"] if round_ % 2 else [f"{round_}{i:06d}".ljust(LARGE // 100, "x") for i in range(100)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A store with two of each kind of object: entries, deltas, segments, rolled segments, options."""
    folder = tmp_path_factory.mktemp("original")
    count = 0
    with InProcessCluster.create("local", store=folder.as_uri()) as cluster:
        cluster.launch_module(Pairs(), LaunchConfig(1, 1))
        for round_ in range(ROUNDS):
            cluster.cluster_depot("Pairs", "*words").append_many(words(round_))
            count += len(words(round_))
            cluster.wait_for_microbatch_processed_count("Pairs", "mb", count)
        cluster.pause_microbatch_topology("Pairs", "mb")
        cluster.resume_microbatch_topology("Pairs", "mb")
    (depot,) = (folder / "Pairs" / "depots").iterdir()
    log = DepotLog(connect(folder.as_uri()), depot.relative_to(folder).as_posix(), 1)
    roll(log, RollingLimits(2, 2))
    roll(log, RollingLimits(2, 2))
    return folder


@pytest.fixture
def folder(original: Folder, tmp_path: Folder) -> Folder:
    return Folder(shutil.copytree(original, tmp_path / "store"))


def needed(folder: Folder) -> Iterator[tuple[Folder, Folder]]:
    """Each object that the newest state needs, with another one of its kind."""
    for kind in ("definition/*.json", "options/*.json", "depots/*/log/*.arrow", "depots/*/rolled/*.arrow",
                 "topologies/*/log/*.zip", "topologies/*/deltas/*.zip"):  # fmt: skip
        found = sorted((folder / "Pairs").glob(kind))
        newest = found[-2:] if "log/*.zip" in kind else found[-1:] if "options" in kind else found
        for path in newest:
            yield path, found[0] if path != found[0] else found[-1]


def faults(folder: Folder) -> list[str]:
    return [str(finding) for finding in check_module(connect(folder.as_uri()), "Pairs") if finding.is_fault]


def test_the_store_has_two_of_each_kind(original: Folder) -> None:
    kinds = {path.parent.relative_to(original / "Pairs").as_posix() for path, _ in needed(original)}
    assert len(kinds) == 6
    assert faults(original) == []


def test_check_names_the_object_when_another_one_stands_in_its_place(folder: Folder) -> None:
    for path, other in list(needed(folder)):
        if path == other:
            continue
        kept = path.read_bytes()
        path.write_bytes(other.read_bytes())
        found = faults(folder)
        assert any(path.name in text or path.parent.parent.name in text for text in found), (path, found)
        path.write_bytes(kept)
    assert faults(folder) == []


def test_check_names_the_object_when_it_is_cut(folder: Folder) -> None:
    for path, _ in list(needed(folder)):
        kept = path.read_bytes()
        path.write_bytes(kept[: len(kept) * 2 // 3])
        assert faults(folder), path
        path.write_bytes(kept)
    assert faults(folder) == []


def select_all(folder: Folder) -> list[Any]:
    part_loader.cache_clear()
    return PStateHandle(ModuleClient(open_store(folder.as_uri()), "Pairs"), "$$counts").select(Path.all())


@pytest.mark.parametrize("kind", ["deltas/*.zip", "log/*.zip"])
def test_readers_raise_when_another_object_stands_in_the_place(
    folder: Folder, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Folder
) -> None:
    monkeypatch.setenv("TIDEMILL_CACHE_DIR", str(tmp_path / "cache"))
    found = sorted((folder / "Pairs").glob(f"topologies/*/{kind}"))
    found[-1].write_bytes(found[-2].read_bytes())
    with pytest.raises(CorruptState) as raised:
        select_all(folder)
    assert found[-1].name in str(raised.value)


@pytest.mark.parametrize("kind", ["log", "rolled"])
def test_records_are_not_read_when_another_segment_stands_in_the_place(folder: Folder, kind: str) -> None:
    (depot,) = (folder / "Pairs" / "depots").iterdir()
    found = sorted((depot / kind).glob("*.arrow"))
    found[-1].write_bytes(found[-2].read_bytes())
    log = DepotLog(connect(folder.as_uri()), depot.relative_to(folder).as_posix(), 1)
    with pytest.raises(CorruptState, match="changed their places"):
        log.read_columns(0, 0, log.ends()[0])
