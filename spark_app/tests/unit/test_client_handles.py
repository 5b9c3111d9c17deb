"""Depot and PState handles, in the cluster's process and over HTTP: partitioners, records, reads, routing, freshness.

What they refuse is part of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from gateways import WAYS, launched
from waiting import eventually

from tidemill import (
    AckLevel,
    Agg,
    BadInput,
    BadPath,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    NotOneValue,
    NotSelectable,
    Ops,
    OptionError,
    Path,
    PState,
    RecordRefused,
    SnapshotExpired,
    UnknownName,
    UserCodeError,
)
from tidemill.depot.log import DepotLog
from tidemill.testing import gen_hashing_index_keys
from tidemill.values.data import route

TASKS = 4


def second(record: Any) -> Any:
    return record[1]


def by_length(record: Any, partitions: int) -> int:
    return len(record) if record != "negative" else -1


def to_task_2(partitions: int, key: Any) -> int:
    return 2 if key != "astray" else partitions


class Handles(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*random", Depot.random())
        setup.declare_depot("*first", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*second", Depot.hash_by(second))
        setup.declare_depot("*closed", Depot.disallow())
        setup.declare_depot("*custom", by_length)
        setup.declare_depot("*global", Depot.random()).global_()
        setup.declare_tick_depot("*tick", 3_600_000)
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$nested", PState.map_schema(str, PState.map_schema(int, str).subindexed()))
        mb.pstate("$$own", PState.map_schema(str, int)).key_partitioner(to_task_2)
        mb.pstate("$$private", PState.map_schema(str, int)).make_private()
        mb.pstate("$$total", int).global_().initial_value(5)
        source = mb.source("*first").out("*microbatch").explode_microbatch("*microbatch").out("*pair")
        (source.each(Ops.EXPAND, "*pair").out("*k", "*n")
           .compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))
           .local_transform("$$nested", Path.key("*k", "*n").term_val("*k"))
           .direct_partition(2)
           .compound_agg("$$own", CompoundAgg.map("*k", Agg.count())))  # fmt: skip


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """The same test with the cluster's own handles, and with those of the gateway's client."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(way: str) -> Iterator[InProcessCluster]:
    with launched(way, Handles(), LaunchConfig(TASKS, 2)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def filled(cluster: InProcessCluster) -> InProcessCluster:
    cluster.cluster_depot("Handles", "*first").append_many([("a", 1), ("a", 2), ("b", 3)])
    cluster.wait_for_microbatch_processed_count("Handles", "mb", 3)
    return cluster


def ends(handle: Any) -> list[int]:
    return [handle.get_partition_info(p).end_offset for p in range(handle.get_object_info().num_partitions)]


def test_one_function_serves_both_when_it_takes_a_cluster_or_a_client(way: str) -> None:
    def counted(place: Any) -> tuple[Any, tuple[int, int]]:
        place.cluster_depot("Handles", "*first").append(["z", 1])
        place.wait_until_processed("Handles")
        found = place.cluster_pstate("Handles", "$$counts").select_one(Path.key("z"))
        return found, place.microbatch_state("Handles", "mb")

    with launched(way, Handles(), LaunchConfig(TASKS, 2)) as cluster:
        assert counted(cluster.client if way == "http" else cluster) == (1, (1, 1))


# --- depots ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "", 7, -1, 2.0, 2.5, None, True, b"x", ["deep", 1]])
@pytest.mark.parametrize(("depot", "place"), [("*first", 0), ("*second", 1)])
def test_a_record_goes_where_its_key_hashes_when_appended_alone_or_in_bulk(
    way: str, key: Any, depot: str, place: int
) -> None:
    record = [key, 0] if place == 0 else [0, key]
    with launched(way, Handles(), LaunchConfig(TASKS, 2)) as cluster:
        cluster.pause_microbatch_topology("Handles", "mb")
        handle = cluster.cluster_depot("Handles", depot)
        assert handle.append(record) == {}
        handle.append_many([record, record])
        expected = route(key, TASKS)
        assert ends(handle) == [3 if p == expected else 0 for p in range(TASKS)]
        assert handle.read(expected, 0, 3) == [record] * 3


def test_records_come_back_as_data_when_they_are_tuples_frames_or_tables(cluster: InProcessCluster) -> None:
    handle = cluster.cluster_depot("Handles", "*global")
    frame = pl.DataFrame({"n": [1, 2], "s": ["x", None]})
    handle.append((1, ("deep", None)))
    handle.append_many(frame)
    handle.append_many(frame.to_arrow())
    handle.append_many(value for value in (None, {"set": {1}}))
    rows = [{"n": 1, "s": "x"}, {"n": 2, "s": None}]
    assert handle.read(0, 0, 7) == [[1, ["deep", None]], *rows, *rows, None, {"set": {1}}]
    assert handle.get_object_info() == ("Handles", "*global", 1)
    assert handle.get_partition_info(0) == (0, 7)


def test_random_partitions_share_evenly_when_many_records_or_single_ones_are_appended(
    cluster: InProcessCluster,
) -> None:
    handle = cluster.cluster_depot("Handles", "*random")
    handle.append_many(list(range(10 * TASKS)))
    for number in range(2 * TASKS):
        handle.append(number)
    assert ends(handle) == [12] * TASKS


def test_a_custom_partitioner_decides_when_its_answer_is_a_partition(cluster: InProcessCluster) -> None:
    handle = cluster.cluster_depot("Handles", "*custom")
    handle.append_many(["", "x", "xyz"])
    assert ends(handle) == [1, 1, 0, 1]
    for bad in ("negative", "too long"):
        with pytest.raises(RecordRefused, match="not a partition"):
            handle.append(bad)
    assert ends(handle) == [1, 1, 0, 1]
    with pytest.raises(UserCodeError, match="by_length"):
        handle.append(5)


@pytest.mark.parametrize("record", [object(), {1: lambda: 0}, 2**64, float])
def test_a_record_is_refused_when_it_is_no_data(cluster: InProcessCluster, record: Any) -> None:
    handle = cluster.cluster_depot("Handles", "*random")
    before = ends(handle)
    for append in (handle.append, handle.append_async, lambda value: handle.append_many([value])):
        with pytest.raises(RecordRefused):
            append(record)
    assert ends(handle) == before


@pytest.mark.parametrize("depot", ["*closed", "*tick"])
def test_an_append_is_refused_when_the_depot_takes_none(cluster: InProcessCluster, depot: str) -> None:
    with pytest.raises(RecordRefused):
        cluster.cluster_depot("Handles", depot).append(1)


def test_an_append_happens_once_when_a_producer_repeats_its_sequence(cluster: InProcessCluster) -> None:
    handle = cluster.cluster_depot("Handles", "*second")
    before = sum(ends(handle))
    for _ in range(3):
        handle.append(["x", "k"], producer="p", sequence=1)
        handle.append_many([["x", "k"], ["y", "l"]], producer="p", sequence=2)
    assert sum(ends(handle)) - before == 3
    with pytest.raises(BadInput):
        handle.append(["x", "k"], producer="p")


def test_every_record_is_there_when_threads_append_at_once(cluster: InProcessCluster) -> None:
    handle = cluster.cluster_depot("Handles", "*random")
    before = sum(ends(handle))

    def append(thread: int) -> None:
        futures = [handle.append_async([thread, number], AckLevel.APPEND_ACK) for number in range(25)]
        assert [future.result(20) for future in futures] == [{}] * 25

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(ends(handle)) - before == 100


@pytest.mark.parametrize("call", ["append", "append_async"])
def test_an_append_waits_for_nothing_when_nobody_wants_to_know(cluster: InProcessCluster, call: str) -> None:
    handle = cluster.cluster_depot("Handles", "*random")
    before = sum(ends(handle))
    answer = getattr(handle, call)("unasked", AckLevel.NONE)

    assert answer == {} if call == "append" else answer.done()
    with pytest.raises(BadInput, match="AckLevel"):
        getattr(handle, call)("x", "none")
    handle.append("behind it")
    eventually(lambda: sum(ends(handle)) - before == 2)  # nobody said that the first of them was there already


@pytest.mark.parametrize(
    ("partition", "start", "end"), [(TASKS, 0, 0), (-1, 0, 0), (0, 0, 10**9), (0, -1, 0), (0, 2, 1)]
)
def test_a_read_is_refused_when_there_are_no_such_offsets(
    cluster: InProcessCluster, partition: int, start: int, end: int
) -> None:
    with pytest.raises(BadInput):
        cluster.cluster_depot("Handles", "*first").read(partition, start, end)


# --- PStates ---------------------------------------------------------------------------------------------------------


def test_values_are_found_when_a_path_leads_to_them(filled: InProcessCluster) -> None:
    counts = filled.cluster_pstate("Handles", "$$counts")
    nested = filled.cluster_pstate("Handles", "$$nested")
    assert [counts.select_one(Path.key(key)) for key in "abc"] == [2, 1, None]
    assert nested.select(Path.key("a").all()) == [[1, "a"], [2, "a"]]
    assert nested.select(Path.key("a").map_vals()) == ["a", "a"]
    assert counts.select(Path.must("c"), pkey="c") == []
    assert counts.select(Path.map_vals().filter_greater_than(1), pkey="a") == [2]
    assert filled.cluster_pstate("Handles", "$$own").select_one(Path.key("a")) == 2


def test_a_function_in_a_path_runs_when_the_caller_is_in_the_process(filled: InProcessCluster, way: str) -> None:
    counts, path = filled.cluster_pstate("Handles", "$$counts"), Path.map_vals().filter_pred(lambda value: value > 1)
    if way == "process":
        assert counts.select(path, pkey="a") == [2]
    else:
        with pytest.raises(BadPath, match="does not travel"):
            counts.select(path, pkey="a")
    assert counts.select(Path.key("a").view(Ops.INC)) == [3]


def test_a_global_value_is_its_initial_one_when_nothing_was_written(filled: InProcessCluster) -> None:
    total = filled.cluster_pstate("Handles", "$$total")
    assert total.select_one() == total.select_one(Path.stay()) == 5


def test_a_key_that_looks_like_a_variable_is_a_value_when_a_client_asks(filled: InProcessCluster) -> None:
    assert filled.cluster_pstate("Handles", "$$counts").select_one(Path.key("*a")) is None


@pytest.mark.parametrize(
    ("pstate", "path", "error"),
    [
        ("$$counts", Path.all(), BadPath),
        ("$$counts", Path.key("a").term_val(1), BadPath),
        ("$$counts", Path.key("a").term_void(), BadPath),
        ("$$counts", "a", BadPath),
        ("$$nested", Path.key("a"), NotSelectable),
        ("$$own", Path.key("astray"), BadPath),
    ],
)
def test_a_select_is_refused_when_its_path_cannot_be_followed(
    filled: InProcessCluster, pstate: str, path: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        filled.cluster_pstate("Handles", pstate).select(path)


@pytest.mark.parametrize(
    "path", [Path.must("nobody"), Path.key("a").stop(), Path.multi_path(Path.key("a"), Path.key("a"))]
)
def test_select_one_is_refused_when_there_is_not_one_value(filled: InProcessCluster, path: Path) -> None:
    with pytest.raises(NotOneValue):
        filled.cluster_pstate("Handles", "$$counts").select_one(path, pkey="a")


def test_a_handle_is_refused_when_the_name_is_unknown_or_private(cluster: InProcessCluster) -> None:
    with pytest.raises(NotSelectable, match="private"):
        cluster.cluster_pstate("Handles", "$$private")
    with pytest.raises(UnknownName, match=r"\$\$counts"):
        cluster.cluster_pstate("Handles", "$$nothing")
    with pytest.raises(UnknownName, match=r"\*random"):
        cluster.cluster_depot("Handles", "*nothing")
    with pytest.raises(UnknownName, match="has no query q; it has none"):
        cluster.cluster_query("Handles", "q")


def test_an_option_holds_until_it_is_unset_when_a_client_sets_it() -> None:
    with launched("http", Handles(), LaunchConfig(TASKS, 2)) as cluster:
        client, name = cluster.client, "depot.max.fetch"
        client.set_option("Handles", name, 7, depot="*first")
        found = client.options("Handles")["set"]
        assert found == [{"scope": "depot", "object": "*first", "name": name, "value": 7}]
        with pytest.raises(OptionError, match=name):
            client.set_option("Handles", name, -1, depot="*first")
        with pytest.raises(UnknownName, match=r"\*random"):
            client.unset_option("Handles", name, depot="*nothing")
        assert client.options("Handles")["set"] == found
        client.unset_option("Handles", name, depot="*first")
        assert client.options("Handles")["set"] == []


def test_a_pinned_handle_stays_when_the_topology_goes_on(way: str) -> None:
    with launched(way, Handles(), LaunchConfig(TASKS, 2)) as cluster:
        first, counts = cluster.cluster_depot("Handles", "*first"), cluster.cluster_pstate("Handles", "$$counts")
        for number in range(1, 4):
            first.append(["a", number])
            cluster.wait_for_microbatch_processed_count("Handles", "mb", number)
            # What was durable before the call is seen, always.
            assert counts.select_one(Path.key("a")) == number
            if number == 2:
                pinned = counts.at(counts.current_entry())
        assert pinned.select_one(Path.key("a")) == 2
        assert counts.select_one(Path.key("a"), max_staleness_ms=60_000) == 3
        with pytest.raises(SnapshotExpired):
            counts.at(10_000).select_one(Path.key("a"))


def test_a_depot_tells_of_itself_without_waiting(cluster: InProcessCluster) -> None:
    handle = cluster.cluster_depot("Handles", "*second")
    assert handle.get_object_info_async().result() == handle.get_object_info()


@pytest.mark.parametrize("tasks", [1, 2, 8, 100])
def test_index_keys_belong_to_the_tasks_of_their_places(tasks: int) -> None:
    keys = gen_hashing_index_keys(tasks, "k")
    assert [route(key, tasks) for key in keys] == list(range(tasks))
    assert keys == gen_hashing_index_keys(tasks, "k")


def test_records_can_not_be_read_when_their_logical_start_passed_them_although_they_are_still_there(
    cluster: InProcessCluster,
) -> None:
    handle = cluster.cluster_depot("Handles", "*second")
    while sum(ends(handle)) < 6:
        handle.append(["trimmed", "k"])
    partition = max(range(len(ends(handle))), key=lambda p: ends(handle)[p])
    end = ends(handle)[partition]
    assert len(handle.read(partition, 0, end)) == end
    definition = cluster._client("Handles").definition()  # another process, as a keeper of retention is
    other = DepotLog(cluster.store, definition.depot_prefix("*second"), definition.partitions("*second"))
    starts = [end - 1 if p == partition else 0 for p in range(other.partitions)]
    other.record_starts(starts)
    for start in (0, end - 2):
        with pytest.raises(BadInput, match="no longer kept"):
            handle.read(partition, start, end)
    assert handle.get_partition_info(partition) == (end - 1, end)
    assert len(handle.read(partition, end - 1, end)) == 1
    assert handle.read(partition, 0, 0) == []
