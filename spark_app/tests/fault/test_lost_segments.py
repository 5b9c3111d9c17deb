"""A depot whose newest segments were lost while nobody looked: whoever read them does not go on with others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path as Folder
from typing import Any

import pytest
from pyspark.sql import datasource as api
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tidemill import Agg, BadInput, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState, TaskGraph
from tidemill import Path as TidemillPath
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, retain, roll
from tidemill.graphs.inputs.depot_input import depot_input
from tidemill.leader.check import check_module
from tidemill.spark.data_source import DepotStreamReader, TidemillDataSource
from tidemill.store.urls import connect, forget_stores
from tidemill.values.errors import CorruptState

DEPOT, ROUNDS = "*words", 4
ANOTHER = "another one stands there"
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
    assert [found for found in findings(folder) if found.startswith("S6 mb source") and ANOTHER in found]
    with pytest.raises(STOPPED, match=ANOTHER):
        count_of(folder, "other")


# --- task graphs and streams of Spark --------------------------------------------------------------------------------


class Copies(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*out", Depot.random())


def copying(folder: Folder) -> TaskGraph:
    graph = TaskGraph(str(folder), id="copy", checkpoint_waves=1)
    words = graph.new_input_depot("Words", DEPOT, 1, endless=True)
    graph.new_output_depot({0: words}, "Copies", "*out", 1, {0: "value"})
    return graph


def in_new_process(cursor: Any = None) -> Any:
    forget_stores()
    return cursor


def stream(folder: Folder, **options: str) -> DepotStreamReader:
    """Of a query that is started, or started again."""
    in_new_process()
    given = {"store": str(folder), "module": "Words", "depot": DEPOT, **options}
    found = TidemillDataSource(api.CaseInsensitiveDict(given))
    return found.streamReader(found.schema())


def test_graph_stops_when_another_segment_stands_where_it_had_read_one(folder: Folder) -> None:
    with opened(folder) as cluster:
        cluster.launch_module(Copies(), LaunchConfig(1, 1))
    graph = copying(folder)
    graph.stop()  # after the first wave
    graph.run()
    lose_newest(folder)
    append(folder, "new 1", "new 2")
    in_new_process()
    with pytest.raises(CorruptState, match=ANOTHER):
        TaskGraph.resume("copy", str(folder)).run()


@pytest.mark.parametrize("is_endless", [False, True])
def test_input_of_a_graph_notices_a_lost_segment_when_it_goes_on(folder: Folder, is_endless: bool) -> None:
    append(folder, *(f"more {number}" for number in range(25_000)))
    reader = depot_input(str(folder), "Words", DEPOT, None, is_endless)
    (begun,) = reader.plan(1)
    _, cursor = reader.read(begun)
    assert in_new_process(reader.read(cursor)[0]).height == 10_000
    lose_newest(folder)
    for words in (["short"], [f"new {number}" for number in range(30_000)]):
        append(folder, *words)
        in_new_process()
        again = depot_input(str(folder), "Words", DEPOT, None, is_endless)
        with pytest.raises(CorruptState, match=ANOTHER):
            again.read(cursor)


def test_input_of_a_graph_notices_a_lost_segment_when_it_began_at_the_end(folder: Folder) -> None:
    from tidemill.language.dataflow import StartFrom

    reader = depot_input(str(folder), "Words", DEPOT, None, True, StartFrom("end"))
    (cursor,) = reader.plan(1)
    assert reader.read(cursor) == (None, cursor)
    lose_newest(folder)
    in_new_process()
    reader = depot_input(str(folder), "Words", DEPOT, None, True)
    with pytest.raises(CorruptState, match=f"the newest one is {ROUNDS - 1}"):
        reader.read(cursor)


def test_input_of_a_graph_goes_on_when_its_segment_was_rolled_or_deleted_by_retention(folder: Folder) -> None:
    reader = depot_input(str(folder), "Words", DEPOT, None, True)
    _, cursor = reader.read(reader.plan(1)[0])
    for word in ("word 4", "word 5", "word 6"):
        append(folder, word)
    log = depot_log(folder)
    assert roll(log, RollingLimits(2, 4))
    in_new_process()
    assert reader.read(cursor)[0].height == 3
    retain(log, 2, [5], grace_millis=-1)
    assert ROUNDS not in {first for first, _, _ in log.files.list_rolled()}
    place = cursor[0]._replace(offset=ROUNDS + 1)
    in_new_process()
    reader = depot_input(str(folder), "Words", DEPOT, None, True)
    assert reader.read((place,))[0].height == 2


def test_process_that_saw_less_of_a_depot_takes_no_segment_for_lost(folder: Folder) -> None:
    """As a worker to whom a channel comes from another one."""
    here = depot_input(str(folder), "Words", DEPOT, None)
    assert here.read(here.plan(1)[0])[0].height == ROUNDS
    append(folder, "word 4", "word 5")
    elsewhere = depot_input(str(folder), "Words", DEPOT, None)
    (place,) = elsewhere.plan(1)[0]
    reached = elsewhere._log.reached([ROUNDS + 1])
    assert reached is not None
    assert here.read((place._replace(offset=ROUNDS, reached=reached),))[0].height == 2


@pytest.mark.parametrize("options", [{}, {"startingOffsets": "latest"}])
def test_stream_stops_when_another_segment_stands_where_it_had_read_one(folder: Folder, options: Any) -> None:
    reader = stream(folder, **options)
    end = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())))
    assert stream(folder).latestOffset(end, ReadAllAvailable()) == end
    lose_newest(folder)
    with pytest.raises(CorruptState, match=f"the newest one is {ROUNDS - 1}"):
        stream(folder).latestOffset(end, ReadAllAvailable())
    append(folder, "new 1", "new 2")
    with pytest.raises(CorruptState, match=ANOTHER):
        stream(folder).latestOffset(end, ReadAllAvailable())
    with pytest.raises(CorruptState, match=ANOTHER):  # a batch that is done again
        stream(folder).partitions(reader.initialOffset(), end)


def test_stream_goes_on_when_a_segment_was_lost_that_it_had_not_come_to(folder: Folder) -> None:
    reader = stream(folder)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    lose_newest(folder)
    append(folder, "new 1", "new 2")
    assert stream(folder).latestOffset(end, ReadAllAvailable())["offsets"] == {"0": ROUNDS + 1}


def test_stream_goes_on_when_its_segment_was_rolled_or_its_offset_names_none(folder: Folder) -> None:
    reader = stream(folder)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    append(folder, "word 4", "word 5")
    append(folder, "word 6")
    assert roll(depot_log(folder), RollingLimits(2, 4))
    assert stream(folder).latestOffset(end, ReadAllAvailable())["offsets"] == {"0": ROUNDS + 3}
    del end["segment"]  # as older versions wrote it
    assert stream(folder).latestOffset(end, ReadAllAvailable())["offsets"] == {"0": ROUNDS + 3}


def test_stream_is_refused_when_it_would_begin_beyond_the_end_of_its_depot(folder: Folder) -> None:
    """It would wait, and leave out what comes until then."""
    with pytest.raises(BadInput, match=r'\*words ends at \{"0": 4\}, and .* begins beyond it, at \{"0": 5\}'):
        stream(folder, startingOffsets='{"0": 5}').initialOffset()
