"""A depot whose newest segments were lost while nobody looked: whoever read them does not go on with others."""

from __future__ import annotations

import shutil
from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill import Path as TidemillPath
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.leader.check import check_module
from tidemill.store.urls import connect
from tidemill.values.errors import CorruptState

DEPOT, ROUNDS = "*words", 4
STOPPED = (CorruptState, TimeoutError)
"""Of a launch that waits for its leader, or of a wait for what the leader does."""


class Words(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot(DEPOT, Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source(DEPOT).out("*microbatch").explode_microbatch("*microbatch").out("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))  # fmt: skip


def opened(folder: Folder) -> InProcessCluster:
    return InProcessCluster.create("local", store=folder.as_uri())


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The store of a module that processed one segment a round and stopped."""
    folder = tmp_path_factory.mktemp("original")
    with opened(folder) as cluster:
        cluster.launch_module(Words(), LaunchConfig(1, 1))
        for round_ in range(ROUNDS):
            cluster.cluster_depot("Words", DEPOT).append(f"word {round_}")
            cluster.wait_for_microbatch_processed_count("Words", "mb", round_ + 1)
    return folder


@pytest.fixture
def folder(original: Folder, tmp_path: Folder) -> Folder:
    return shutil.copytree(original, tmp_path / "store")


def depot_log(folder: Folder) -> DepotLog:
    (depot,) = (folder / "Words" / "depots").iterdir()
    return DepotLog(connect(folder.as_uri()), depot.relative_to(folder).as_posix(), 1)


def lose_newest(folder: Folder) -> None:
    (depot,) = (folder / "Words" / "depots").iterdir()
    sorted(depot.glob("log/*.arrow"))[-1].unlink()


def append(folder: Folder, *words: str) -> None:
    depot_log(folder).append([(0, list(words))])


def findings(folder: Folder) -> list[str]:
    return [str(finding) for finding in check_module(connect(folder.as_uri()), "Words")]


def count_of(folder: Folder, word: str) -> Any:
    """After one more record was processed."""
    with opened(folder) as cluster:
        cluster.launch_module(Words(), LaunchConfig(1, 1))
        cluster.cluster_depot("Words", DEPOT).append("last")
        cluster.wait_until_processed("Words", "mb")
        return cluster.cluster_pstate("Words", "$$counts").select_one(TidemillPath.key(word))


@pytest.mark.parametrize("words", [["new 1"], ["new 1", "new 2", "new 3"]])
def test_leader_stops_when_another_segment_stands_where_it_had_read_one(folder: Folder, words: list[str]) -> None:
    """The depot is as long as before, or longer: by offsets alone, the first new record would pass for a read one."""
    lose_newest(folder)
    append(folder, *words)
    with pytest.raises(STOPPED, match=r"Segment \d+ .* was read by a source, but now another one stands there"):
        count_of(folder, words[0])


def test_check_names_the_segment_when_another_one_stands_there(folder: Folder) -> None:
    assert findings(folder) == []
    lose_newest(folder)
    append(folder, "new 1")
    (found,) = findings(folder)
    assert found.startswith("S6 mb source")
    assert "another one stands there" in found


def test_leader_stops_when_a_segment_without_records_is_lost(folder: Folder) -> None:
    """As `record_starts` writes one: offsets say nothing of it."""
    depot_log(folder).record_starts([1])
    assert count_of(folder, "word 0") == 1
    append(folder, "word 4")
    assert count_of(folder, "word 4") == 1
    lose_newest(folder)
    lose_newest(folder)
    append(folder, "other")
    append(folder, "other")
    assert any("another one stands there" in found for found in findings(folder))


def test_leader_goes_on_when_its_segment_was_rolled_or_deleted_by_retention(folder: Folder) -> None:
    log = depot_log(folder)
    roll(log, RollingLimits(2, 2))
    append(folder, "word 4", "word 5")
    assert findings(folder) == []
    assert count_of(folder, "word 5") == 1


def test_retries_read_no_other_records_when_their_segment_was_lost(folder: Folder) -> None:
    """The attempt under way names its segment, too."""
    with opened(folder) as cluster:
        cluster.launch_module(Words(), LaunchConfig(1, 1))
        cluster.cluster_depot("Words", DEPOT).append("word 4")
        cluster.wait_for_microbatch_processed_count("Words", "mb", ROUNDS + 1)
    (topology,) = (folder / "Words" / "topologies").iterdir()
    commit = sorted((topology / "log").glob("*.zip"))[-1]
    commit.unlink()  # what is left is the begin
    lose_newest(folder)
    append(folder, "other")
    with pytest.raises(STOPPED, match="another one stands there"):
        count_of(folder, "other")
