"""Launching, resuming, updating, pausing and destroying modules, on one store and on the engine `local`."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import pytest
from waiting import eventually

from tidemill import (
    Agg,
    CompoundAgg,
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    ModuleExists,
    OffsetAgo,
    Ops,
    Path,
    PState,
    UnknownName,
    UpdateOptions,
)
from tidemill.cluster.launch import destroy, prepare
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.collection import collect
from tidemill.leader.deletions import Deletions
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore


class Counter(Module):
    """Counts words; the keyword arguments make the versions that the tests update between."""

    def __init__(self, name: str = "Counter", *, by: int = 1, extra_pstate: bool = False, fails_on: str = "") -> None:
        self._name, self._by, self._extra, self._fails_on = name, by, extra_pstate, fails_on

    def module_name(self) -> str:
        return self._name

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("count")
        mb.pstate("$$counts", PState.map_schema(str, int))
        if self._extra:
            mb.pstate("$$extra", PState.map_schema(str, int))
        fails_on, by = self._fails_on, self._by

        def check(word: str) -> str:
            if word == fails_on:
                raise ValueError(f"cannot count {word!r}")
            return word

        chain = mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*raw")
        chain = chain.each(check if fails_on else Ops.IDENTITY, "*raw").out("*word")
        chain.compound_agg("$$counts", CompoundAgg.map("*word", Agg.sum(by)))


def url_of(folder: Folder) -> str:
    return folder.as_uri()


def test_counts_go_on_when_a_module_is_launched_again_on_its_store(tmp_path: Folder) -> None:
    for expected in (2, 4):
        with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
            cluster.launch_module(Counter(), LaunchConfig(2, 1))
            cluster.cluster_depot("Counter", "*words").append_many(["a", "a"])
            cluster.wait_for_microbatch_processed_count("Counter", "count", expected)
            assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("a")) == expected


def test_appended_records_wait_when_no_runner_is_there(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.cluster_depot("Counter", "*words").append_many(["a", "b", "a"])
        assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("a")) is None
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        cluster.wait_for_microbatch_processed_count("Counter", "count", 3)
        assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("a")) == 2


@pytest.mark.parametrize(
    ("module", "config"), [(Counter(extra_pstate=True), LaunchConfig(2, 1)), (Counter(), LaunchConfig(4, 1))]
)
def test_launch_is_refused_when_the_stored_definition_is_another(
    tmp_path: Folder, module: Module, config: LaunchConfig
) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster, pytest.raises(DefinitionError):
        cluster.launch_module(module, config)


def test_launch_is_refused_when_the_module_already_runs_in_this_cluster() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        with pytest.raises(ModuleExists):
            cluster.launch_module(Counter(), LaunchConfig(2, 1))


def test_a_standby_takes_over_when_the_leader_closes(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as standby:
        leader = InProcessCluster.create(store=url_of(tmp_path))
        leader.launch_module(Counter(), LaunchConfig(2, 1))
        launching = threading.Thread(target=standby.launch_module, args=(Counter(), LaunchConfig(2, 1)), daemon=True)
        launching.start()
        leader.cluster_depot("Counter", "*words").append_many(["a"])
        leader.wait_for_microbatch_processed_count("Counter", "count", 1)
        leader.close()
        launching.join(20)
        assert not launching.is_alive()
        standby.cluster_depot("Counter", "*words").append_many(["a"])
        standby.wait_for_microbatch_processed_count("Counter", "count", 2)
        assert standby.cluster_pstate("Counter", "$$counts").select_one(Path.key("a")) == 2


def test_another_definition_is_refused_when_a_leader_is_alive(tmp_path: Folder) -> None:
    with (
        InProcessCluster.create(store=url_of(tmp_path)) as leader,
        InProcessCluster.create(store=url_of(tmp_path)) as second,
    ):
        leader.launch_module(Counter(), LaunchConfig(2, 1))
        with pytest.raises(ModuleExists):
            second.launch_module(Counter(by=7, extra_pstate=True), LaunchConfig(2, 1))


def test_update_is_refused_when_a_removed_pstate_is_not_named() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(extra_pstate=True), LaunchConfig(2, 1))
        with pytest.raises(DefinitionError, match=r"\$\$extra"):
            cluster.update_module(Counter())
        cluster.update_module(Counter(), UpdateOptions.objects_to_delete("$$extra"))
        with pytest.raises(UnknownName):
            cluster.cluster_pstate("Counter", "$$extra").select_one(Path.key("a"))


def test_tasks_stay_and_threads_are_those_said_when_a_run_updates(tmp_path: Folder) -> None:
    url = url_of(tmp_path)
    prepare(url, Counter(), 4, 2)
    with pytest.raises(DefinitionError, match="has 4 tasks for ever, not 8"):
        prepare(url, Counter(extra_pstate=True), 8, updates=True)
    updated = prepare(url, Counter(extra_pstate=True), 4, 1, updates=True).definition
    assert (updated.number, updated.tasks, updated.threads) == (2, 4, 1)
    again = prepare(url, Counter(), None, None, deleted=("$$extra",), updates=True).definition
    assert (again.number, again.tasks, again.threads) == (3, 4, 1)


def test_nothing_old_comes_back_when_a_pstate_is_removed_and_added_again() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        words = cluster.cluster_depot("Counter", "*words")
        words.append("a")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)
        cluster.update_module(Renamed(), UpdateOptions.objects_to_delete("$$counts"))
        cluster.update_module(Counter(), UpdateOptions.objects_to_delete("$$other"))
        words.append("b")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 2)
        counts = cluster.cluster_pstate("Counter", "$$counts")
        assert counts.select_one(Path.key("a")) is None
        assert counts.select_one(Path.key("b")) == 1


def test_what_an_update_deletes_is_gone_for_good_at_once() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(extra_pstate=True), LaunchConfig(2, 1))
        cluster.update_module(Counter(), UpdateOptions.objects_to_delete("$$extra"))
        definition = DefinitionLog(cluster.store, "Counter").newest()
        assert definition is not None
        decided = Deletions(cluster.store, "Counter").decision(definition)
        assert ([gone.name for gone in definition.retired], decided and decided.is_done) == (["$$extra"], True)
        cluster.update_module(Counter())
        definition = DefinitionLog(cluster.store, "Counter").newest()
        assert definition is not None
        assert definition.retired == ()


class Renamed(Counter):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("count")
        mb.pstate("$$other", PState.map_schema(str, int))
        (mb.source("*words").out("*microbatch")
           .explode_microbatch("*microbatch").out("*word")
           .compound_agg("$$other", CompoundAgg.map("*word", Agg.count())))  # fmt: skip


def test_update_is_refused_when_the_module_was_never_launched() -> None:
    with InProcessCluster.create() as cluster, pytest.raises(UnknownName):
        cluster.update_module(Counter())


def test_a_destroyed_module_is_gone_when_it_is_launched_anew(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        cluster.cluster_depot("Counter", "*words").append("a")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)
        assert cluster.get_deployed_module_names() == ["Counter"]
        cluster.destroy_module("Counter")
        assert cluster.get_deployed_module_names() == []
        with pytest.raises(UnknownName):
            cluster.cluster_depot("Counter", "*words").append("a")
        cluster.launch_module(Counter(), LaunchConfig(4, 1))
        cluster.cluster_depot("Counter", "*words").append("a")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)
        assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("a")) == 1


def test_nothing_is_deleted_when_a_module_is_launched_before_its_destruction_ends(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        cluster.cluster_depot("Counter", "*words").append("old")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)
        cluster.pause_microbatch_topology("Counter", "count")
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:

        def launch_meanwhile(verb: str, key: str) -> None:
            if verb == "delete" and not cluster.get_deployed_module_names():
                cluster.launch_module(Counter(), LaunchConfig(4, 1))
                cluster.cluster_depot("Counter", "*words").append("new")

        destroy(FaultyObjectStore(cluster.store, FaultPlan(before=launch_meanwhile)), "Counter")

        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)
        assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("new")) == 1


@pytest.mark.parametrize("deletions", range(0, 12, 3))
def test_a_module_begins_anew_when_its_destruction_was_cut_off(tmp_path: Folder, deletions: int) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        cluster.cluster_depot("Counter", "*words").append("old")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)
        for _ in range(3):
            cluster.pause_microbatch_topology("Counter", "count")
            cluster.resume_microbatch_topology("Counter", "count")
        cluster.pause_microbatch_topology("Counter", "count")
    left = iter(range(deletions))

    def cut_off(verb: str, key: str) -> None:
        if verb == "delete" and next(left, None) is None:
            raise Crash(key)

    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        with contextlib.suppress(Crash):
            destroy(FaultyObjectStore(cluster.store, FaultPlan(before=cut_off)), "Counter")
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        cluster.cluster_depot("Counter", "*words").append("new")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)
        assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("new")) == 1


def test_nothing_is_processed_when_a_topology_is_paused() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        words = cluster.cluster_depot("Counter", "*words")
        cluster.pause_microbatch_topology("Counter", "count")
        cluster.pause_microbatch_topology("Counter", "count")
        words.append_many(["a", "b", "c"])
        with pytest.raises(TimeoutError, match="0 of 3"):
            cluster.wait_for_microbatch_processed_count("Counter", "count", 3, timeout_millis=200)
        assert cluster.microbatch_state("Counter", "count") == (0, 0)
        cluster.resume_microbatch_topology("Counter", "count")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 3)
        assert cluster.microbatch_state("Counter", "count") == (1, 1)


def test_a_pause_holds_when_the_module_is_launched_again(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        cluster.pause_microbatch_topology("Counter", "count")
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        cluster.cluster_depot("Counter", "*words").append("a")
        with pytest.raises(TimeoutError):
            cluster.wait_for_microbatch_processed_count("Counter", "count", 1, timeout_millis=200)
        cluster.resume_microbatch_topology("Counter", "count")
        cluster.wait_for_microbatch_processed_count("Counter", "count", 1)


def test_a_poison_record_is_processed_once_when_the_code_is_updated() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(fails_on="poison"), LaunchConfig(2, 1))
        words = cluster.cluster_depot("Counter", "*words")
        words.append_many(["a", "poison", "b"])
        with pytest.raises(TimeoutError, match="cannot count 'poison'"):
            cluster.wait_for_microbatch_processed_count("Counter", "count", 3, timeout_millis=1500)
        cluster.update_module(Counter())
        cluster.wait_for_microbatch_processed_count("Counter", "count", 3)
        counts = cluster.cluster_pstate("Counter", "$$counts")
        assert [counts.select_one(Path.key(word)) for word in ("a", "poison", "b")] == [1, 1, 1]
        microbatch_id, version = cluster.microbatch_state("Counter", "count")
        assert (microbatch_id, version) == (1, version)
        assert version >= 2


def test_a_poison_record_is_processed_once_when_the_module_starts_again_with_fixed_code(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(fails_on="poison"), LaunchConfig(2, 1))
        cluster.cluster_depot("Counter", "*words").append_many(["a", "poison"])
        with pytest.raises(TimeoutError, match="poison"):
            cluster.wait_for_microbatch_processed_count("Counter", "count", 2, timeout_millis=1000)
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(fails_on="another"), LaunchConfig(2, 1))
        cluster.wait_for_microbatch_processed_count("Counter", "count", 2)
        assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("poison")) == 1


class StartFrom(Module):
    """One depot, read from several starts by topologies of their own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        setup.declare_depot("*quiet", Depot.random())
        for name, options in self._options.items():
            mb = topologies.microbatch(name)
            mb.pstate(f"$${name}", PState.map_schema(str, int))
            (mb.source("*words", *([options] if options else [])).out("*microbatch")
               .explode_microbatch("*microbatch").out("*word")
               .hash_partition("*word")
               .compound_agg(f"$${name}", CompoundAgg.map("*word", Agg.count())))  # fmt: skip


def test_a_source_starts_where_its_option_says_when_its_topology_first_meets_the_depot() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(StartFrom({"live": None}), LaunchConfig(1, 1))
        words = cluster.cluster_depot("StartFrom", "*words")
        words.append_many(["old", "older", "old"])
        cluster.wait_for_microbatch_processed_count("StartFrom", "live", 3)
        options = {
            "live": None,
            "end": None,
            "beginning": MicrobatchSourceOptions.start_from_beginning(),
            "ago": MicrobatchSourceOptions.start_from_offset_ago(1, OffsetAgo.RECORDS),
            "clamped": MicrobatchSourceOptions.start_from_offset_ago(99, OffsetAgo.RECORDS),
            "hours": MicrobatchSourceOptions.start_from_offset_ago(1, OffsetAgo.HOURS),
            "after": MicrobatchSourceOptions.start_from_offset_after_timestamp(4_102_444_800_000),
        }
        cluster.update_module(StartFrom(options))
        words.append("new")
        expected = {"live": 4, "end": 1, "beginning": 4, "ago": 2, "clamped": 4, "hours": 4, "after": 1}
        for name, count in expected.items():
            cluster.wait_for_microbatch_processed_count("StartFrom", name, count)
            counts = cluster.cluster_pstate("StartFrom", f"$${name}")
            found = [counts.select_one(Path.key(word)) or 0 for word in ("old", "older", "new")]
            assert (name, sum(found)) == (name, count)


class TwoSources(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*left", Depot.hash_by(Ops.IDENTITY))
        setup.declare_depot("*right", Depot.hash_by(Ops.IDENTITY))
        for name in ("both", "other"):
            mb = topologies.microbatch(name)
            mb.pstate(f"$${name}", PState.map_schema(str, int))
            for depot, weight in (("*left", 1), ("*right", 10)):
                (mb.source(depot).out("*microbatch")
                   .explode_microbatch("*microbatch").out("*word")
                   .compound_agg(f"$${name}", CompoundAgg.map("*word", Agg.sum(weight))))  # fmt: skip


def test_sources_share_a_pstate_and_topologies_run_side_by_side_when_a_module_has_several() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(TwoSources(), LaunchConfig(4, 2))
        cluster.cluster_depot("TwoSources", "*left").append_many(["a", "b", "a"])
        cluster.cluster_depot("TwoSources", "*right").append_many(["a"])
        for name in ("both", "other"):
            cluster.wait_for_microbatch_processed_count("TwoSources", name, 4)
            counts = cluster.cluster_pstate("TwoSources", f"$${name}")
            assert [counts.select_one(Path.key(word)) for word in "ab"] == [12, 1]
        info = cluster.get_microbatch_depot_info("TwoSources", "both")
        assert sorted(info) == ["*left", "*right"]


def test_a_topology_goes_on_when_another_of_the_module_is_paused() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(TwoSources(), LaunchConfig(2, 1))
        cluster.pause_microbatch_topology("TwoSources", "other")
        cluster.cluster_depot("TwoSources", "*left").append_many(["a", "b"])
        cluster.wait_for_microbatch_processed_count("TwoSources", "both", 2)
        assert cluster.cluster_pstate("TwoSources", "$$other").select_one(Path.key("a")) is None
        cluster.resume_microbatch_topology("TwoSources", "other")
        eventually(lambda: cluster.cluster_pstate("TwoSources", "$$other").select_one(Path.key("a")) == 1)


@pytest.mark.parametrize("name", ["Nobody", ""])
def test_unknown_name_is_raised_when_there_is_no_such_module(name: str) -> None:
    with InProcessCluster.create() as cluster:
        with pytest.raises(UnknownName):
            cluster.cluster_depot(name, "*d").append(1)
        with pytest.raises(UnknownName):
            cluster.cluster_pstate(name, "$$p").select(Path.stay())
        with pytest.raises(UnknownName):
            cluster.wait_for_microbatch_processed_count(name, "t", 1)


class Latecomer(Counter):
    """The same with a second topology, which reads all that the depot has."""

    def define(self, setup: Any, topologies: Any) -> None:
        super().define(setup, topologies)
        late = topologies.microbatch("late")
        late.pstate("$$all", PState.map_schema(str, int))
        options = MicrobatchSourceOptions.start_from_beginning()
        chain = late.source("*words", options).out("*microbatch").explode_microbatch("*microbatch").out("*word")
        chain.compound_agg("$$all", CompoundAgg.map("*word", Agg.count()))


def test_retention_spares_what_a_new_topology_reads_when_the_old_version_collects(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=url_of(tmp_path)) as cluster:
        cluster.launch_module(Counter(), LaunchConfig(1, 1))
        words = cluster.cluster_depot("Counter", "*words")
        words.append_many(["a"] * 50)
        cluster.wait_for_microbatch_processed_count("Counter", "count", 50)
        options = OptionsLog(cluster.store, "Counter")
        options.set("depot", "*words", "depot.max.entries.per.partition", 10)
        options.pause("late")
        asleep = cluster._running["Counter"].topologies["count"]._topology_store
        cluster.update_module(Latecomer())

        collect(asleep, 0)

        assert words.get_partition_info(0).start_offset == 0
        cluster.resume_microbatch_topology("Counter", "late")
        cluster.wait_for_microbatch_processed_count("Counter", "late", 50)
        assert cluster.cluster_pstate("Counter", "$$all").select_one(Path.key("a")) == 50


def fence(cluster: InProcessCluster) -> None:
    """What another leader's claim does: the next entry of this one collides."""
    prefix = cluster._client("Counter").definition().topology_prefix("count")
    log = CommitLog(cluster.store, prefix)
    head = log.head()
    assert head is not None
    claim = replace(head[1], kind="claim", nonce="another", epoch=head[1].epoch + 1, owner="another process")
    log.append(head[0] + 1, claim, {})


def test_a_fenced_runner_stands_by_and_goes_on_when_the_other_leader_is_gone() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        running = cluster._running["Counter"]
        depot = cluster.cluster_depot("Counter", "*words")
        for count in (1, 2):
            before = running.topologies["count"]
            fence(cluster)
            depot.append("a")
            cluster.wait_for_microbatch_processed_count("Counter", "count", count)
            assert before.state.role == "fenced"
            assert running.topologies["count"] is not before
        assert cluster.cluster_pstate("Counter", "$$counts").select_one(Path.key("a")) == 2


def test_a_fenced_runner_stays_gone_when_its_module_was_closed() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Counter(), LaunchConfig(2, 1))
        running = cluster._running["Counter"]
        runner = running.topologies["count"]
        running._ended()
        fence(cluster)
        cluster.cluster_depot("Counter", "*words").append("a")
        runner.wait_for(lambda now: now.role == "fenced", 20)
        assert runner.join(20)
        assert running.topologies["count"] is runner
