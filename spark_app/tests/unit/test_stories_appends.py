"""Stories of topologies that append to depots: chains, rings, their own depot, and what readers see of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from stories import module_of

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Ops,
    Path,
    PState,
    RecordRefused,
)
from tidemill.cli.topology_watch import TopologyWatch
from tidemill.clients.status_reader import topology_status
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.leader.check import check_module
from tidemill.leader.report import RunnerState

_NUMBERS = itertools.count()
BEGINNING = MicrobatchSourceOptions.start_from_beginning()


@pytest.fixture
def name() -> str:
    return f"Appends{next(_NUMBERS)}"


def records_of(cluster: InProcessCluster, module: str, depot: str) -> list[list[Any]]:
    """The records of a depot, partition by partition."""
    handle = cluster.cluster_depot(module, depot)
    partitions = range(handle.get_object_info().num_partitions)
    return [handle.read(p, *handle.get_partition_info(p)) for p in partitions]


def countdown(source: str, target: str) -> Any:
    """Each record [id, left] is noted; while something is left it goes on to the other depot."""

    def add(topologies: Any, name: str, pstate: str) -> None:
        mb = topologies.microbatch(name)
        mb.pstate(pstate, PState.map_schema(int, PState.list_schema(int)))
        rows = mb.source(source, BEGINNING).out("*mb").explode_microbatch("*mb").out("*r")
        rows = rows.each(Ops.EXPAND, "*r").out("*id", "*left").hash_partition("*id")
        rows = rows.compound_agg(pstate, CompoundAgg.map("*id", Agg.list("*left")))
        rows.if_true(
            Expr(Ops.GREATER_THAN, "*left", 0),
            Block.depot_partition_append(target, Expr(Ops.TUPLE, "*id", Expr(Ops.DEC, "*left"))),
        )

    return add


def test_a_second_topology_reads_what_the_first_appends_when_they_are_a_chain(
    cluster: InProcessCluster, name: str
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        setup.declare_depot("*letters", Depot.disallow())
        rows = topologies.microbatch("split").source("*words").out("*mb").explode_microbatch("*mb").out("*word")
        rows = rows.each(list, "*word").out("*letters").each(Ops.EXPLODE, "*letters").out("*letter")
        rows.hash_partition("*letter").depot_partition_append("*letters", "*letter")
        mb = topologies.microbatch("count")
        mb.pstate("$$counts", PState.map_schema(str, int))
        letters = mb.source("*letters").out("*mb").explode_microbatch("*mb").out("*letter")
        letters.compound_agg("$$counts", CompoundAgg.map("*letter", Agg.count()))

    cluster.launch_module(module_of(name, define), LaunchConfig(4, 2))
    words = cluster.cluster_depot(name, "*words")
    words.append_many(["abba", "cab"])

    cluster.wait_for_microbatch_processed_count(name, "split", 2)
    assert sorted(itertools.chain(*records_of(cluster, name, "*letters"))) == sorted("abbacab")
    cluster.wait_until_processed(name)
    counts = cluster.cluster_pstate(name, "$$counts")
    assert [counts.select_one(Path.key(letter)) for letter in "abc"] == [3, 3, 1]
    with pytest.raises(RecordRefused, match="clients cannot append"):
        cluster.cluster_depot(name, "*letters").append("d")
    assert check_module(cluster.store, name) == []


def test_a_topology_reads_its_own_appends_in_later_microbatches_when_it_appends_to_its_source(
    cluster: InProcessCluster, name: str
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        countdown("*in", "*in")(topologies, "mb", "$$seen")

    cluster.launch_module(module_of(name, define), LaunchConfig(2, 1))
    depot = cluster.cluster_depot(name, "*in")
    depot.append_many([[n, n] for n in range(6)])

    cluster.wait_for_microbatch_processed_count(name, "mb", sum(n + 1 for n in range(6)))
    seen = cluster.cluster_pstate(name, "$$seen")
    assert [seen.select_one(Path.key(n)) for n in range(6)] == [list(range(n, -1, -1)) for n in range(6)]
    assert check_module(cluster.store, name) == []


def test_each_record_goes_round_when_two_topologies_feed_each_other(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*ping", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*pong", Depot.disallow())
        countdown("*ping", "*pong")(topologies, "a", "$$a")
        countdown("*pong", "*ping")(topologies, "b", "$$b")

    cluster.launch_module(module_of(name, define), LaunchConfig(4, 2))
    cluster.cluster_depot(name, "*ping").append_many([[n, 9] for n in range(20)])

    cluster.wait_for_microbatch_processed_count(name, "a", 100)
    cluster.wait_for_microbatch_processed_count(name, "b", 100)
    a, b = cluster.cluster_pstate(name, "$$a"), cluster.cluster_pstate(name, "$$b")
    assert all(a.select_one(Path.key(n)) == [9, 7, 5, 3, 1] for n in range(20))
    assert all(b.select_one(Path.key(n)) == [8, 6, 4, 2, 0] for n in range(20))


def test_who_stands_by_sees_nothing_left_when_the_leader_published_what_its_entry_lists(
    cluster: InProcessCluster, name: str
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.disallow())
        rows = topologies.microbatch("mb").source("*in").out("*mb").explode_microbatch("*mb").out("*v")
        rows.depot_partition_append("*out", "*v")

    cluster.launch_module(module_of(name, define), LaunchConfig(1, 1))
    cluster.cluster_depot(name, "*in").append(1)
    cluster.wait_until_processed(name)
    definition = DefinitionLog(cluster.store, name).newest()
    assert definition is not None
    head = CommitLog(cluster.store, definition.topology_prefix("mb")).head()
    assert head is not None
    assert len(head[1].appends) == 1

    assert TopologyWatch(cluster.store, definition, "mb").look(RunnerState()).unpublished == 0
    assert topology_status(cluster.store, definition, "mb").unpublished == 0


def test_a_tick_appends_when_nothing_was_read(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_tick_depot("*tick", 20)
        setup.declare_depot("*beats", Depot.disallow()).global_()
        ticks = topologies.microbatch("mb").source("*tick").out("*mb").explode_microbatch("*mb")
        ticks.depot_partition_append("*beats", "beat")
        beats = topologies.microbatch("reader").source("*beats", BEGINNING).out("*mb")
        beats.explode_microbatch("*mb").out("*beat").each(Ops.IDENTITY, "*beat").out("*again")

    cluster.launch_module(module_of(name, define), LaunchConfig(2, 1))
    cluster.wait_for_microbatch_processed_count(name, "reader", 3)

    assert set(records_of(cluster, name, "*beats")[0]) == {"beat"}


def test_a_failed_attempt_leaves_nothing_when_its_code_raises_after_the_append(
    cluster: InProcessCluster, name: str
) -> None:
    failures = iter([True, True])

    def fails_twice(record: Any) -> Any:
        if next(failures, False):
            raise ValueError("not now")
        return record

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.disallow())
        setup.set_launch_topology_dynamic_option("mb", "topology.microbatch.retry.delay.base.millis", 1)
        rows = topologies.microbatch("mb").source("*in").out("*mb").explode_microbatch("*mb").out("*r")
        rows.depot_partition_append("*out", "*r").each(fails_twice, "*r").out("*again").depot_partition_append(
            "*out", "*again"
        )

    cluster.launch_module(module_of(name, define), LaunchConfig(1, 1))
    cluster.cluster_depot(name, "*in").append("x")
    cluster.wait_for_microbatch_processed_count(name, "mb", 1)

    assert cluster.microbatch_state(name, "mb") == (1, 3)
    assert records_of(cluster, name, "*out") == [["x", "x"]]
