"""Stories of the documentation's pages on depots, paths and testing, as a user retells them."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import Future
from pathlib import Path as Folder
from typing import Any

import pytest
from stories import Story, module_of

from tidemill import (
    AckLevel,
    Agg,
    BadInput,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    ModuleExists,
    OffsetAgo,
    Ops,
    Path,
    PState,
    RecordRefused,
    SortedRangeFromOptions,
    SortedRangeOptions,
    SortedRangeToOptions,
    TidemillError,
    UnknownName,
    UpdateOptions,
)

_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"Clients{next(_NUMBERS)}"


def held(schema: Any, value: Any) -> Any:
    """A definition whose `$$p` holds a value under the key `k`, and whose depot brings it there."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, schema)).global_()
        (
            mb.source("*in")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*v")
            .global_partition()
            .local_transform("$$p", Path.key("k").term_val(value))
        )

    return define


MAP = {"a": 1, "b": 2, "c": 3, "d": 4}
K = Path.key("k")
MAP_PATHS: list[tuple[Any, list[Any]]] = [
    (K.key("a"), [1]),
    (Path.key("k", "a"), [1]),
    (K.key("z"), [None]),
    (K.must("a"), [1]),
    (K.must("z"), []),
    (Path.must("k", "a"), [1]),
    (K.map_vals(), [1, 2, 3, 4]),
    (K.map_keys(), ["a", "b", "c", "d"]),
    (K.map_key("b"), ["b"]),
    (K.map_key("z"), []),
    (K.all(), [["a", 1], ["b", 2], ["c", 3], ["d", 4]]),
    (K.all().first(), ["a", "b", "c", "d"]),
    (K.sub_map("a", "z"), [{"a": 1}]),
    (K.sorted_map_range("b", "d"), [{"b": 2, "c": 3}]),
    (K.sorted_map_range("b", "d", SortedRangeOptions.exclude_start().include_end()), [{"c": 3, "d": 4}]),
    (K.sorted_map_range_from("b"), [{"b": 2, "c": 3, "d": 4}]),
    (K.sorted_map_range_from("b", 2), [{"b": 2, "c": 3}]),
    (K.sorted_map_range_from("b", SortedRangeFromOptions.exclude_start()), [{"c": 3, "d": 4}]),
    (K.sorted_map_range_from("b", SortedRangeFromOptions.exclude_start().max_amt(1)), [{"c": 3}]),
    (K.sorted_map_range_from_start(2), [{"a": 1, "b": 2}]),
    (K.sorted_map_range_to("c"), [{"a": 1, "b": 2}]),
    (K.sorted_map_range_to("c", 1), [{"b": 2}]),
    (K.sorted_map_range_to("c", SortedRangeToOptions.include_end()), [{"a": 1, "b": 2, "c": 3}]),
    (K.sorted_map_range_to_end(3), [{"b": 2, "c": 3, "d": 4}]),
    (K.map_vals().filter_pred(Ops.IS_EVEN), [2, 4]),
    (K.map_vals().filter_equal(2), [2]),
    (K.map_vals().filter_not_equal(2), [1, 3, 4]),
    (K.map_vals().filter_less_than(2), [1]),
    (K.map_vals().filter_less_than_or_equal(2), [1, 2]),
    (K.map_vals().filter_greater_than(3), [4]),
    (K.map_vals().filter_greater_than_or_equal(3), [3, 4]),
    (K.filter_selected(Path.must("a")).key("b"), [2]),
    (K.filter_selected(Path.must("z")).key("b"), []),
    (K.filter_not_selected(Path.must("z")).key("b"), [2]),
    (K.key("z").null_to_val(7), [7]),
    (K.key("a").null_to_val(7), [1]),
    (K.key("a").view(Ops.PLUS, 10), [11]),
    (K.view(Ops.SIZE), [4]),
    (K.sorted_map_range_from("a").transformed(Path.map_vals().term(Ops.INC)).key("a"), [2]),
    (K.key("a").stay(), [1]),
    (K.key("a").stop(), []),
    (K.if_path(Path.must("a"), Path.key("b"), Path.key("c")), [2]),
    (K.if_path(Path.must("z"), Path.key("b"), Path.key("c")), [3]),
    (K.if_path(Path.must("z"), Path.key("b")), []),
    (K.multi_path(Path.key("d"), Path.key("a")), [4, 1]),
    (K.subselect(Path.map_vals().filter_pred(Ops.IS_ODD)), [[1, 3]]),
    (K.with_page_size(1, Path.map_vals()), [1, 2, 3, 4]),
    (K.collect(Path.map_vals()).key("a"), [[[1, 2, 3, 4], 1]]),
    (K.collect_one(Path.key("b")).key("a"), [[2, 1]]),
    (K.put_collected("x").map_vals(), [["x", 1], ["x", 2], ["x", 3], ["x", 4]]),
    (K.collect_one(Path.key("b")).key("a").dispense_collected(), [1]),
    (K.collect_one(Path.key("b")).is_collected(lambda found: found == [2]).key("a"), [[2, 1]]),
    (K.collect_one(Path.key("b")).is_collected(lambda found: found == [3]).key("a"), []),
]
SET_PATHS: list[tuple[Any, list[Any]]] = [
    (K.all(), [1, 2, 3, 4]),
    (K.set_elem(2), [2]),
    (K.set_elem(9), []),
    (K.subset(2, 9), [{2}]),
    (K.sorted_set_range(2, 4), [{2, 3}]),
    (K.sorted_set_range_from(3), [{3, 4}]),
    (K.sorted_set_range_from(2, 2), [{2, 3}]),
    (K.sorted_set_range_from_start(2), [{1, 2}]),
    (K.sorted_set_range_to(3), [{1, 2}]),
    (K.sorted_set_range_to(3, 1), [{2}]),
    (K.sorted_set_range_to_end(2), [{3, 4}]),
    (K.view(Ops.SIZE), [4]),
    (K.view(Ops.CONTAINS, 3), [True]),
    (Path.key("none").all(), []),
]


@pytest.mark.parametrize("is_subindexed", [False, True])
@pytest.mark.parametrize("kind", ["map", "set"])
def test_every_navigator_selects_what_its_page_says(
    cluster: InProcessCluster, name: str, kind: str, is_subindexed: bool
) -> None:
    schema = PState.map_schema(str, int) if kind == "map" else PState.set_schema(int)
    story = Story(
        cluster, name, held(schema.subindexed() if is_subindexed else schema, MAP if kind == "map" else {1, 2, 3, 4})
    )
    story.batch(**{"in": [0]})
    found = story.pstate("$$p")
    wrong = []
    for path, expected in MAP_PATHS if kind == "map" else SET_PATHS:
        try:
            values = found.select(path)
        except TidemillError as error:
            values = [error]
        if values != expected:
            wrong.append((path, expected, values))
    assert not wrong, "\n".join(map(str, wrong))


def nothing(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
    setup.declare_depot("*one", Depot.random()).global_()
    setup.declare_depot("*closed", Depot.disallow())
    setup.declare_tick_depot("*tick", 3_600_000)
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(str, int))
    mb.source("*in").out("*microbatch")


def test_a_depot_answers_as_its_page_says(cluster: InProcessCluster, name: str) -> None:
    cluster.launch_module(module_of(name, nothing), LaunchConfig(4, 2))
    depot = cluster.cluster_depot(name, "*one")
    assert depot.append("a") == {}
    assert depot.append(("b", 1), AckLevel.APPEND_ACK) == {}
    assert depot.append(None, ack=AckLevel.ACK) == {}
    assert depot.append_many([1.5, {"x": [True]}]) is None
    future = depot.append_async(b"raw")
    assert isinstance(future, Future)
    assert future.result(10) == {}
    info = depot.get_object_info()
    assert (info.module_name, info.name, info.num_partitions) == (name, "*one", 1)
    assert depot.get_partition_info(0) == (0, 6)
    assert depot.get_partition_info(0).end_offset == 6
    assert depot.read(0, 0, 6) == ["a", ["b", 1], None, 1.5, {"x": [True]}, b"raw"]
    assert depot.read(0, 2, 3) == [None]
    assert depot.read(0, 6, 6) == []
    for wrong in ((0, 0, 7), (0, -1, 2), (0, 3, 2), (1, 0, 1)):
        with pytest.raises(TidemillError):
            depot.read(*wrong)
    for closed in ("*closed", "*tick"):
        with pytest.raises(RecordRefused):
            cluster.cluster_depot(name, closed).append(1)
    assert cluster.cluster_depot(name, "*in").get_object_info().num_partitions == 4
    assert cluster.cluster_pstate(name, "$$p").get_object_info() == (name, "$$p", 4)
    assert cluster.cluster_pstate(name, "$$p").select_one_async(K).result(10) is None
    assert cluster.cluster_pstate(name, "$$p").select_async(K.all()).result(10) == []
    assert depot.get_partition_info_async(0).result(10) == (0, 6)
    assert depot.read_async(0, 0, 1).result(10) == ["a"]
    for handle in (
        lambda: cluster.cluster_depot(name, "*no").append(1),
        lambda: cluster.cluster_pstate(name, "$$no").select(K),
    ):
        with pytest.raises(UnknownName):
            handle()


def collecting(options: MicrobatchSourceOptions | None = None, **more: MicrobatchSourceOptions) -> Any:
    """A definition whose `$$seen` collects the records of `*in`, one list for each source."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random()).global_()
        mb = topologies.microbatch("mb")
        mb.pstate("$$seen", PState.map_schema(str, PState.list_schema(int))).global_()
        for label, option in {"main": options, **more}.items():
            source = mb.source("*in") if option is None else mb.source("*in", option)
            rows = source.out("*microbatch").explode_microbatch("*microbatch").out("*v")
            rows.compound_agg("$$seen", CompoundAgg.map(label, Agg.list("*v")))

    return define


def only_depot(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*in", Depot.random()).global_()


S = MicrobatchSourceOptions


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, [9]),
        (S.start_from_beginning(), [1, 2, 3, 9]),
        (S.start_from_offset_ago(2, OffsetAgo.RECORDS), [2, 3, 9]),
        (S.start_from_offset_ago(100, OffsetAgo.RECORDS), [1, 2, 3, 9]),
        (S.start_from_offset_ago(15, OffsetAgo.DAYS), [1, 2, 3, 9]),
        (S.start_from_offset_ago(1, OffsetAgo.HOURS), [1, 2, 3, 9]),
        (S.start_from_offset_ago(1, OffsetAgo.MINUTES), [1, 2, 3, 9]),
        (S.start_from_offset_ago(50, OffsetAgo.SECONDS), [1, 2, 3, 9]),
        (S.start_from_offset_after_timestamp(107740800000), [1, 2, 3, 9]),
        (S.start_from_offset_after_timestamp(10**15), [9]),
    ],
)
def test_a_new_source_starts_where_it_is_told(
    cluster: InProcessCluster, name: str, options: MicrobatchSourceOptions | None, expected: list[int]
) -> None:
    cluster.launch_module(module_of(name, only_depot), LaunchConfig(2, 1))
    depot = cluster.cluster_depot(name, "*in")
    for value in (1, 2, 3):
        depot.append(value)
    cluster.update_module(module_of(name, collecting(options)))
    depot.append(9)
    cluster.wait_for_microbatch_processed_count(name, "mb", len(expected))
    assert cluster.cluster_pstate(name, "$$seen").select_one(Path.key("main")) == expected
    info = cluster.get_microbatch_depot_info(name, "mb")
    [partitions] = info["*in"].values()
    assert partitions[0].end_offset == 4
    cluster.update_module(module_of(name, collecting(S.start_from_beginning())))
    depot.append(10)
    cluster.wait_for_microbatch_processed_count(name, "mb", len(expected) + 1)
    assert cluster.cluster_pstate(name, "$$seen").select_one(Path.key("main")) == [*expected, 10]


def test_a_second_source_of_a_depot_catches_up_from_its_beginning(cluster: InProcessCluster, name: str) -> None:
    cluster.launch_module(module_of(name, collecting()), LaunchConfig(2, 1))
    depot = cluster.cluster_depot(name, "*in")
    depot.append_many([1, 2, 3])
    cluster.wait_for_microbatch_processed_count(name, "mb", 3)
    again = MicrobatchSourceOptions.start_from_beginning().source_id("again")
    cluster.update_module(module_of(name, collecting(None, again=again)))
    depot.append(4)
    cluster.wait_for_microbatch_processed_count(name, "mb", 8)
    seen = cluster.cluster_pstate(name, "$$seen")
    assert [seen.select_one(Path.key(label)) for label in ("main", "again")] == [[1, 2, 3, 4]] * 2
    assert "again" in cluster.get_microbatch_depot_info(name, "mb")["*in"]


def test_two_sources_of_one_depot_need_an_id(cluster: InProcessCluster, name: str) -> None:
    with pytest.raises(DefinitionError, match="source_id"):
        cluster.launch_module(module_of(name, collecting(None, again=S.start_from_beginning())), LaunchConfig(1, 1))


def adding(amount: Any) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", int).global_().initial_value(0)
        mb.source("*in").out("*m").explode_microbatch("*m").out("*v").global_partition().agg("$$n", amount)

    return define


def test_an_update_goes_on_with_state_progress_and_handles(cluster: InProcessCluster, name: str) -> None:
    cluster.launch_module(module_of(name, adding(Agg.sum(2))), LaunchConfig(4, 2))
    depot, number = cluster.cluster_depot(name, "*in"), cluster.cluster_pstate(name, "$$n")
    depot.append(1)
    cluster.wait_for_microbatch_processed_count(name, "mb", 1)
    cluster.update_module(module_of(name, adding(Agg.count())))
    depot.append(1)
    cluster.wait_for_microbatch_processed_count(name, "mb", 2)
    assert number.select_one(Path.stay()) == 3


def test_what_an_update_removes_is_listed_exactly(cluster: InProcessCluster, name: str) -> None:
    cluster.launch_module(module_of(name, collecting()), LaunchConfig(1, 1))
    for options in (None, UpdateOptions.objects_to_delete("*in"), UpdateOptions.objects_to_delete("$$seen", "$$no")):
        with pytest.raises(DefinitionError):
            cluster.update_module(module_of(name, only_depot), options)
    cluster.update_module(module_of(name, only_depot), UpdateOptions.objects_to_delete("$$seen"))
    with pytest.raises(UnknownName):
        cluster.cluster_pstate(name, "$$seen").select(K)


def test_a_wait_that_fails_says_how_far_it_came_and_why(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        rows = mb.source("*in").out("*m").explode_microbatch("*m").out("*v")
        rows.each(lambda value: 1 // value, "*v").out("*x")

    cluster.launch_module(module_of(name, define), LaunchConfig(1, 1))
    cluster.cluster_depot(name, "*in").append(1)
    cluster.wait_for_microbatch_processed_count(name, "mb", 1)
    cluster.cluster_depot(name, "*in").append(0)
    with pytest.raises(TimeoutError, match=r"1 of 2.*ZeroDivisionError") as caught:
        cluster.wait_for_microbatch_processed_count(name, "mb", 2, timeout_millis=1_000)
    assert name in str(caught.value)
    cluster.destroy_module(name)
    assert name not in cluster.get_deployed_module_names()


def test_paused_topologies_gather_one_microbatch(cluster: InProcessCluster, name: str) -> None:
    cluster.launch_module(module_of(name, collecting()), LaunchConfig(1, 1))
    assert cluster.microbatch_state(name, "mb") == (0, 0)
    cluster.pause_microbatch_topology(name, "mb")
    cluster.pause_microbatch_topology(name, "mb")
    before = cluster.microbatch_state(name, "mb")[0]
    cluster.cluster_depot(name, "*in").append_many(range(10))
    with pytest.raises(TimeoutError):
        cluster.wait_for_microbatch_processed_count(name, "mb", 1, 200)
    cluster.resume_microbatch_topology(name, "mb")
    cluster.resume_microbatch_topology(name, "mb")
    cluster.wait_for_microbatch_processed_count(name, "mb", 10)
    assert cluster.microbatch_state(name, "mb")[0] == before + 1


def test_a_tick_runs_once_on_task_0(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_tick_depot("*tick", 20)
        mb = topologies.microbatch("mb")
        mb.pstate("$$tasks", PState.map_schema(int, int)).global_()
        mb.pstate("$$everywhere", int)
        ticked = mb.source("*tick").out("*m").explode_microbatch("*m")
        ticked.each(Ops.CURRENT_TASK_ID).out("*t").compound_agg("$$tasks", CompoundAgg.map("*t", Agg.count()))
        ticked.all_partition().local_transform("$$everywhere", Path.null_to_val(0).term(Ops.INC))

    cluster.launch_module(module_of(name, define), LaunchConfig(4, 2))
    tasks = cluster.cluster_pstate(name, "$$tasks")
    for _ in range(3000):
        counts = dict(tasks.select(Path.all()))
        if counts.get(0, 0) >= 3:
            break
        threading.Event().wait(0.005)
    assert list(counts) == [0]
    assert cluster.microbatch_state(name, "mb")[0] >= counts[0] >= 3
    everywhere = [cluster.cluster_pstate(name, "$$everywhere").select_one(Path.stay(), pkey=key) for key in range(8)]
    assert min(everywhere) >= 3
    cluster.destroy_module(name)


def test_a_launch_goes_on_with_other_code_when_what_is_declared_is_the_same(tmp_path: Folder) -> None:
    """A restart with mended code needs no update; what the code before it computed stays."""
    for launches, aggregator, total in ((1, Agg.sum(5), 5), (2, Agg.count(), 6)):
        with InProcessCluster.create(store=tmp_path) as cluster:
            cluster.launch_module(module_of("Mended", adding(aggregator)), LaunchConfig(2, 1))
            cluster.cluster_depot("Mended", "*in").append(5)
            cluster.wait_for_microbatch_processed_count("Mended", "mb", launches)
            assert cluster.cluster_pstate("Mended", "$$n").select_one(Path.stay()) == total


def test_a_store_keeps_its_module_and_its_rules(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(module_of("Kept", adding(Agg.count())), LaunchConfig(2, 1))
        cluster.cluster_depot("Kept", "*in").append(1)
        cluster.wait_for_microbatch_processed_count("Kept", "mb", 1)
        with pytest.raises(ModuleExists):
            cluster.launch_module(module_of("Kept", adding(Agg.count())), LaunchConfig(2, 1))
    with InProcessCluster.create(store=str(tmp_path)) as cluster:
        with pytest.raises(DefinitionError, match="Go on with 2 .*update_module"):
            cluster.launch_module(module_of("Kept", adding(Agg.count())), LaunchConfig(4, 1))
        with pytest.raises(DefinitionError, match="update_module"):
            cluster.launch_module(module_of("Kept", collecting()), LaunchConfig(2, 1))
        cluster.launch_module(module_of("Kept", adding(Agg.count())), LaunchConfig(2, 1))
        cluster.cluster_depot("Kept", "*in").append(1)
        cluster.wait_for_microbatch_processed_count("Kept", "mb", 2)
        number = cluster.cluster_pstate("Kept", "$$n")
        assert number.select_one(Path.stay()) == 2
        entry = number.current_entry()
        cluster.cluster_depot("Kept", "*in").append(1)
        cluster.wait_for_microbatch_processed_count("Kept", "mb", 3)
        assert number.at(entry).select_one(Path.stay()) == 2
        assert number.select_one(Path.stay(), max_staleness_ms=0) == 3


def test_arguments_of_the_cluster_are_checked() -> None:
    assert os.environ.get("TIDEMILL_ENGINE", "local") in ("local", "spark")
    for tasks, threads in ((3, 1), (0, 1), (2, 4)):
        with pytest.raises(BadInput):
            LaunchConfig(tasks, threads)
    assert Expr(Ops.INC, Expr(Ops.INC, 1)) is not None
