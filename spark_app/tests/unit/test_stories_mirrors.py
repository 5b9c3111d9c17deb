"""Modules that read the depots and PStates of other modules, and append to them."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

import pytest
from mirrored import BEGINNING, bank, launch, report, values
from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, Ops, Path, PState, UpdateOptions
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.definition_log import DefinitionLog
from tidemill.leader.check import check_module

KEYS = [f"k{number}" for number in range(9)]
MOVES = [[KEYS[number % 7], number] for number in range(40)]
SUMS = {key: sum(value for k, value in MOVES if k == key) for key in KEYS[:7]}
COUNTS = {key: sum(k == key for k, _ in MOVES) for key in KEYS[:7]}


def append_moves(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Bank", "*moves").append_many(MOVES)
    cluster.wait_for_microbatch_processed_count("Bank", "mb", len(MOVES))


@pytest.mark.parametrize(("theirs", "own", "threads"), [(4, 2, 2), (2, 8, 2), (1, 4, 4), (8, 1, 1), (4, 4, 2)])
def test_another_modules_depot_and_pstate_are_read_whole_when_tasks_differ(theirs: int, own: int, threads: int) -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank, theirs)
        launch(cluster, "Report", report(), own, threads)
        append_moves(cluster)
        cluster.wait_for_microbatch_processed_count("Report", "mb", len(MOVES))
        cluster.cluster_depot("Report", "*asks").append_many(KEYS)
        cluster.wait_for_microbatch_processed_count("Report", "mb", len(MOVES) + len(KEYS))

        assert values(cluster, "Report", "$$counts", KEYS) == COUNTS
        answers = {key: [SUMS.get(key)] for key in KEYS}
        assert values(cluster, "Report", "$$answers", KEYS) == answers
        assert check_module(cluster.store, "Report") == []


def test_another_modules_objects_are_read_when_it_lives_in_another_store(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=tmp_path / "bank") as banks, InProcessCluster.create() as cluster:
        launch(banks, "Bank", bank, 4)
        append_moves(banks)
        launch(cluster, "Report", report(store=tmp_path / "bank"))
        cluster.wait_for_microbatch_processed_count("Report", "mb", len(MOVES))
        cluster.cluster_depot("Report", "*asks").append("k1")
        cluster.wait_for_microbatch_processed_count("Report", "mb", len(MOVES) + 1)

        assert values(cluster, "Report", "$$counts", KEYS) == COUNTS
        assert values(cluster, "Report", "$$answers", KEYS) == {"k1": [SUMS["k1"]]}


def partitioned(rows: Any, kind: str) -> Any:
    """Rows with `*k` on each partition that the partitioner chooses, with what is there under `*k`."""
    chosen = {
        "hash": lambda: rows.hash_partition("$$theirs", "*k"),
        "path": lambda: rows.path_partition("$$theirs", Path.key("*k")),
        "all": lambda: rows.all_partition("$$theirs"),
        "custom": lambda: rows.custom_partition("$$theirs", lambda partitions, key: partitions - 1, "*k"),
        "direct": lambda: rows.direct_partition("$$theirs", 0),
    }
    return chosen[kind]().local_select("$$theirs", Path.key("*k")).out("*sum")


@pytest.mark.parametrize("kind", ["hash", "path", "all", "custom", "direct"])
@pytest.mark.parametrize(("theirs", "own"), [(4, 2), (2, 4)])
def test_a_partitioner_of_a_mirror_chooses_its_partitions_when_rows_read_it(kind: str, theirs: int, own: int) -> None:
    def asking(setup: Any, topologies: Any) -> None:
        setup.cluster_pstate("$$theirs", "Bank", "$$sums")
        setup.declare_depot("*asks", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$answers", PState.map_schema(str, PState.list_schema(object)))
        rows = mb.source("*asks", BEGINNING).out("*b").explode_microbatch("*b").out("*k")
        rows = partitioned(rows, kind).keep_true("*sum").hash_partition("*k")
        rows.compound_agg("$$answers", CompoundAgg.map("*k", Agg.list("*sum")))

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank, theirs)
        append_moves(cluster)
        launch(cluster, "Asking", asking, own)
        cluster.cluster_depot("Asking", "*asks").append_many(KEYS)
        cluster.wait_for_microbatch_processed_count("Asking", "mb", len(KEYS))
        found = values(cluster, "Asking", "$$answers", KEYS)

    nonzero = {key: [total] for key, total in SUMS.items() if total}
    if kind in ("hash", "path", "all"):
        assert found == nonzero
    else:
        assert found.items() < nonzero.items()


def sink(setup: Any, topologies: Any) -> None:
    """A bank whose moves other modules append."""
    setup.declare_depot("*orders", Depot.disallow()).schema(PState.fixed_keys_schema("k", str, "v", int))
    mb = topologies.microbatch("mb")
    mb.pstate("$$sums", PState.map_schema(str, int))
    rows = mb.source("*orders", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
    rows = rows.each(Ops.GET, "*r", "k").out("*k").each(Ops.GET, "*r", "v").out("*v")
    rows.compound_agg("$$sums", CompoundAgg.map("*k", Agg.sum("*v")))


def shop_of(**where: Any) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*theirs", "Sink", "*orders", **where)
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        rows = mb.source("*in", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
        rows = rows.each(Ops.GET, "*r", "k").out("*k").hash_partition("*theirs", "*k")
        rows.depot_partition_append("*theirs", "*r")

    return define


shop = shop_of()


@pytest.mark.parametrize(("theirs", "own"), [(4, 2), (2, 4), (1, 2)])
def test_records_are_in_another_modules_depot_once_when_a_topology_appends_them(theirs: int, own: int) -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, "Sink", sink, theirs)
        launch(cluster, "Shop", shop, own)
        cluster.cluster_depot("Shop", "*in").append_many([{"k": key, "v": value} for key, value in MOVES])
        cluster.wait_for_microbatch_processed_count("Shop", "mb", len(MOVES))
        cluster.wait_for_microbatch_processed_count("Sink", "mb", len(MOVES))

        assert values(cluster, "Sink", "$$sums", KEYS) == SUMS
        assert check_module(cluster.store, "Shop") == check_module(cluster.store, "Sink") == []


def test_nothing_of_a_record_is_committed_when_another_modules_depot_refuses_it() -> None:
    with InProcessCluster.create() as cluster:
        launch(cluster, "Sink", sink)
        launch(cluster, "Shop", shop)
        cluster.cluster_depot("Shop", "*in").append({"k": "a", "v": "much"})

        with pytest.raises(Exception, match=r"depot_partition_append\(\*theirs\).*much|'much'"):
            cluster.wait_for_microbatch_processed_count("Shop", "mb", 1)
        assert cluster.cluster_depot("Sink", "*orders").get_partition_info(0).end_offset == 0


def newest(cluster: InProcessCluster, module: str) -> StoredDefinition:
    found = DefinitionLog(cluster.store, module).newest()
    assert found is not None
    return found


def without_sums(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
    topologies.microbatch("mb")


def test_a_module_that_others_mirror_stays_when_somebody_destroys_or_cuts_it() -> None:
    from stories import module_of

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank)
        launch(cluster, "Report", report())

        with pytest.raises(Exception, match=r"\*moves.*would be gone, and module 'Report' mirrors it"):
            cluster.destroy_module("Bank")
        options = UpdateOptions.objects_to_delete("$$sums")
        with pytest.raises(Exception, match=r"\$\$sums.*would be gone, and module 'Report' mirrors it"):
            cluster.update_module(module_of("Bank", without_sums), options)
        assert newest(cluster, "Bank").number == 1
        append_moves(cluster)
        cluster.wait_for_microbatch_processed_count("Report", "mb", len(MOVES))

        cluster.update_module(module_of("Bank", without_sums), options.break_mirrors())
        cluster.destroy_module("Report")
        cluster.destroy_module("Bank")


def test_a_module_may_be_destroyed_when_its_readers_mirror_it_no_more() -> None:
    from stories import module_of

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank)
        launch(cluster, "Report", report())

        def alone(setup: Any, topologies: Any) -> None:
            setup.declare_depot("*asks", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$counts", PState.map_schema(str, int))
            mb.pstate("$$answers", PState.map_schema(str, PState.list_schema(object)))

        cluster.update_module(module_of("Report", alone))
        cluster.destroy_module("Bank")
        assert list(cluster.store.list("Bank/readers")) == []


def test_a_reader_is_refused_when_what_it_mirrors_was_made_anew() -> None:
    from stories import module_of

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank)
        launch(cluster, "Report", report())
        append_moves(cluster)
        cluster.wait_for_microbatch_processed_count("Report", "mb", len(MOVES))
        cluster._running.pop("Report").close()
        cluster.destroy_module("Bank", breaks_mirrors=True)
        launch(cluster, "Bank", bank)

        with pytest.raises(Exception, match=r"the mirror of '\*moves' of module 'Bank', was deleted and made anew"):
            launch(cluster, "Report", report())
        cluster.update_module(module_of("Report", report()))
        append_moves(cluster)
        cluster.wait_for_microbatch_processed_count("Report", "mb", 2 * len(MOVES))
        assert values(cluster, "Report", "$$counts", KEYS) == {key: 2 * count for key, count in COUNTS.items()}


def test_the_lag_of_a_mirrored_depot_shows_when_its_reader_is_paused() -> None:
    from tidemill.clients.status_reader import topology_status

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank)
        launch(cluster, "Report", report())
        cluster.pause_microbatch_topology("Report", "mb")
        append_moves(cluster)

        status = topology_status(cluster.store, newest(cluster, "Report"), "mb")
        assert status.lag == {"*asks": 0, "*theirs": len(MOVES)}
        cluster.resume_microbatch_topology("Report", "mb")
        cluster.wait_until_processed("Report", "mb")
        assert values(cluster, "Report", "$$counts", KEYS) == COUNTS


def test_what_was_appended_is_published_when_an_update_takes_the_mirror_away(tmp_path: Folder) -> None:
    """A commit that a leader did not live to publish is published by the next one, whatever it mirrors."""
    from stories import module_of

    from tidemill.leader.publication import Publication

    with InProcessCluster.create() as cluster, pytest.MonkeyPatch.context() as patch:
        launch(cluster, "Sink", sink)
        patch.setattr(Publication, "work", lambda *args: [])
        launch(cluster, "Shop", shop)
        cluster.cluster_depot("Shop", "*in").append({"k": "a", "v": 7})
        eventually(lambda: cluster.microbatch_state("Shop", "mb") > (0, 0), 30.0)
        assert cluster.cluster_depot("Sink", "*orders").get_partition_info(0).end_offset == 0
        patch.undo()

        def alone(setup: Any, topologies: Any) -> None:
            setup.declare_depot("*in", Depot.random())
            topologies.microbatch("mb").source("*in", BEGINNING)

        cluster.update_module(module_of("Shop", alone))
        cluster.wait_for_microbatch_processed_count("Sink", "mb", 1)
        assert values(cluster, "Sink", "$$sums", ["a"]) == {"a": 7}
        assert check_module(cluster.store, "Shop") == []


# --- queries ---


def asking_bank(setup: Any, topologies: Any) -> None:
    """The bank with two queries: one calls the other."""
    bank(setup, topologies)
    total = topologies.query("total", "*keys").out("*all")
    total = total.each(Ops.EXPLODE, "*keys").out("*k").invoke_query("sum of", "*k").out("*v")
    total.origin_partition().agg(Agg.sum("*v")).out("*all")
    one = topologies.query("sum of", "*k").out("*found")
    one = one.select("$$sums", Path.key("*k")).out("*v").each(lambda v: v or 0, "*v").out("*w")
    one.origin_partition().agg(Agg.sum("*w")).out("*found")


def caller(**where: Any) -> Any:
    from stories import module_of

    def define(setup: Any, topologies: Any) -> None:
        setup.cluster_query("*total", module_of("Bank", asking_bank), "total", **where)
        setup.cluster_pstate("$$theirs", "Bank", "$$sums", **where)
        setup.declare_depot("*asks", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(str, PState.list_schema(object)))
        rows = mb.source("*asks", BEGINNING).out("*b").explode_microbatch("*b").out("*keys")
        rows = rows.invoke_query("*total", "*keys").out("*v").invoke_query("twice", "*keys").out("*w")
        rows = rows.each(Ops.FIRST, "*keys").out("*k").hash_partition("*k").each(Ops.TUPLE, "*v", "*w").out("*t")
        rows.compound_agg("$$sums", CompoundAgg.map("*k", Agg.list("*t")))
        twice = topologies.query("twice", "*keys").out("*result").invoke_query("*total", "*keys").out("*v")
        twice = twice.each(Ops.FIRST, "*keys").out("*k").select("$$theirs", Path.key("*k")).out("*one")
        twice = twice.each(Ops.PLUS, "*v", "*v").out("*vv").each(Ops.TUPLE, "*vv", "*one").out("*t")
        twice.origin_partition().agg(Agg.first("*t")).out("*result")

    return define


@pytest.mark.parametrize(("theirs", "own"), [(4, 2), (2, 4), (1, 1)])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_another_modules_query_answers_topologies_and_clients_when_it_is_called(
    tmp_path: Folder, theirs: int, own: int, is_elsewhere: bool
) -> None:
    where = {"store": tmp_path / "bank"} if is_elsewhere else {}
    with InProcessCluster.create(store=tmp_path / "bank") as banks, InProcessCluster.create() as other:
        cluster = other if is_elsewhere else banks
        launch(banks, "Bank", asking_bank, theirs)
        append_moves(banks)
        launch(cluster, "Caller", caller(**where), own)
        cluster.cluster_depot("Caller", "*asks").append(KEYS)
        cluster.wait_for_microbatch_processed_count("Caller", "mb", 1)

        total = sum(SUMS.values())
        expected = [2 * total, SUMS["k0"]]
        assert values(cluster, "Caller", "$$sums", ["k0"]) == {"k0": [[total, expected]]}
        assert cluster.cluster_query("Caller", "twice").invoke(KEYS) == expected
        assert check_module(cluster.store, "Caller") == []


def test_a_bank_whose_query_others_mirror_stays_when_an_update_takes_the_query_away() -> None:
    from stories import module_of

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", asking_bank)
        launch(cluster, "Caller", caller())

        with pytest.raises(Exception, match=r"total.*would be gone, and module 'Caller' mirrors it"):
            cluster.update_module(module_of("Bank", bank))


def test_a_mirrored_depot_is_not_migrated_under_its_readers_unless_the_update_says_so() -> None:
    from stories import module_of

    def migrating(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST)).migration("twice", lambda r: [r[0], 2 * r[1]])
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(str, int))
        mb.source("*moves", BEGINNING)

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank)
        launch(cluster, "Report", report())

        with pytest.raises(Exception, match=r"\*moves.*would have its records migrated, and module .Report."):
            cluster.update_module(module_of("Bank", migrating))
        cluster.update_module(module_of("Bank", migrating), UpdateOptions().break_mirrors())

        cluster.cluster_depot("Bank", "*moves").append_many(MOVES)
        runner = cluster._running["Report"].topologies["mb"]
        failure = runner.wait_for(lambda now: now.report.failure is not None, 20).report.failure
        assert (
            failure is not None
            and "has its records migrated" in failure.message
            and "update this module" in failure.message
        )
        assert values(cluster, "Report", "$$counts", KEYS) == {}, "no record is taken as it was appended"

        cluster.update_module(module_of("Report", report(of=module_of("Bank", migrating))))
        cluster.wait_for_microbatch_processed_count("Report", "mb", len(MOVES))
        assert values(cluster, "Report", "$$counts", KEYS) == COUNTS


def with_sums(schema: Any) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$others", PState.map_schema(str, int))
        if schema is not None:
            mb.pstate("$$sums", PState.map_schema(str, schema))
        mb.source("*moves", BEGINNING)

    return define


@pytest.mark.parametrize(
    ("schema", "text"),
    [(None, "is gone"), (PState.migrated(int, "twice", lambda value: 2 * value), "has another schema, or is migrated")],
)
def test_a_value_is_not_read_as_it_was_when_an_update_broke_the_mirror(schema: Any, text: str) -> None:
    """Also before the other module has written a row anew."""
    from stories import module_of

    with InProcessCluster.create() as cluster:
        launch(cluster, "Bank", bank)
        launch(cluster, "Report", report())
        append_moves(cluster)
        gone = UpdateOptions.objects_to_delete("$$sums") if schema is None else UpdateOptions()
        cluster.update_module(module_of("Bank", with_sums(schema)), gone.break_mirrors())
        cluster.cluster_depot("Report", "*asks").append_many(KEYS)
        runner = cluster._running["Report"].topologies["mb"]
        failure = runner.wait_for(lambda now: now.report.failure is not None, 20).report.failure
        assert failure is not None and text in failure.message
        assert values(cluster, "Report", "$$answers", KEYS) == {}
