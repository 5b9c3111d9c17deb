"""Who waits for a topology: is told of a failure that repeats, and finds no thread left when a cluster was closed."""

from __future__ import annotations

import threading
from pathlib import Path as Folder
from typing import Any

import pytest
from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Module, PState
from tidemill.cli.run import _is_done
from tidemill.cli.topology_watch import TopologyWatch
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Failure
from tidemill.journal.failures import Repetition
from tidemill.leader.report import RunnerState
from tidemill.store.local import LocalStore
from tidemill.values.errors import BadInput, CorruptState, MicrobatchFails, StoreUnavailable

CONFIG = LaunchConfig(2, 1)


def liked(word: str) -> str:
    if word == "poison":
        raise ValueError("this word is not liked")
    return word


class Liked(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        source = mb.source("*d", MicrobatchSourceOptions.start_from_beginning())
        words = source.out("*m").explode_microbatch("*m").out("*raw").each(liked, "*raw").out("*w")
        words.hash_partition("*w").compound_agg("$$p", CompoundAgg.map("*w", Agg.count()))


@pytest.fixture
def cluster(tmp_path: Folder) -> Any:
    with InProcessCluster.create("local", store=tmp_path / "store") as made:
        made.launch_module(Liked(), CONFIG)
        yield made


def failure(version: int, message: str = "no", code: str = "UserCodeFailed", microbatch_id: int = 1) -> Failure:
    return Failure(microbatch_id, version, "process", code, message, 0)


def test_a_failure_repeats_when_the_third_version_fails_in_the_same_way() -> None:
    seen = Repetition()
    told = [failure(1), failure(1), failure(2), failure(2), failure(5)]
    assert [seen.sees(each) for each in told] == [False, False, False, False, True]


@pytest.mark.parametrize(
    "other", [failure(3, "else"), failure(3, code="AttemptLost"), failure(1, microbatch_id=2), None]
)
def test_a_failure_does_not_repeat_when_another_one_came_between(other: Failure | None) -> None:
    seen = Repetition()
    assert not any(seen.sees(each) for each in (failure(1), failure(2), other, failure(4), failure(5)))


def test_a_wait_ends_with_the_failure_when_the_same_one_repeats(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Liked", "*d").append("poison")
    with pytest.raises(MicrobatchFails, match="0 of 1 processed records(.|\n)*this word is not liked") as raised:
        cluster.wait_for_microbatch_processed_count("Liked", "mb", 1, 3_600_000)
    assert "poison" in raised.value.sample and "in liked" in raised.value.trace
    with pytest.raises(TimeoutError) as waited:
        cluster.wait_for_microbatch_processed_count("Liked", "mb", 1, 50, fail_fast=False)
    assert not isinstance(waited.value, MicrobatchFails)


def test_a_pause_returns_when_the_microbatch_fails_each_time(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Liked", "*d").append("poison")
    with pytest.raises(MicrobatchFails):
        cluster.wait_for_microbatch_processed_count("Liked", "mb", 1)
    cluster.pause_microbatch_topology("Liked", "mb")
    version = cluster._running["Liked"].topologies["mb"].state.report.failure
    cluster.resume_microbatch_topology("Liked", "mb")
    runner = cluster._running["Liked"].topologies["mb"]
    eventually(lambda: runner.state.report.failure != version)


# --- `tidemill run` --------------------------------------------------------------------------------------------------


def watch(cluster: InProcessCluster) -> TopologyWatch:
    definition = DefinitionLog(cluster.store, "Liked").newest()
    assert definition is not None
    return TopologyWatch(cluster.store, definition, "mb")


def test_a_standby_shows_the_logs_numbers_when_another_process_leads(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Liked", "*d").append_many(["a", "b", "c"])
    cluster.wait_for_microbatch_processed_count("Liked", "mb", 3)
    watching = watch(cluster)
    line = watching.look(RunnerState())
    assert (line.processed, line.waiting, line.microbatch_id, line.role, line.phase) == (3, 0, 1, "standby", None)
    assert line.is_idle and _is_done({"mb": watching}, [line], 3)


def test_run_until_idle_is_refused_when_records_wait_for_a_paused_topology(cluster: InProcessCluster) -> None:
    cluster.pause_microbatch_topology("Liked", "mb")
    cluster.cluster_depot("Liked", "*d").append("a")
    watching = watch(cluster)
    line = watching.look(RunnerState())
    assert line.is_idle and line.waiting == 1
    with pytest.raises(BadInput, match="with 1 record not processed. .*tidemill resume Liked mb"):
        _is_done({"mb": watching}, [line], 3)


def test_run_until_idle_ends_when_the_same_failure_repeats_in_the_log(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Liked", "*d").append("poison")
    watching = watch(cluster)
    raised: list[MicrobatchFails] = []

    def has_ended() -> bool:
        try:
            return _is_done({"mb": watching}, [watching.look(RunnerState())], 0)
        except MicrobatchFails as error:
            raised.append(error)
            return True

    eventually(has_ended, 60)
    assert "this word is not liked" in str(raised[0])


def test_progress_shows_the_trouble_and_the_last_numbers_when_the_store_does_not_answer(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.cluster_depot("Liked", "*d").append("a")
    cluster.wait_for_microbatch_processed_count("Liked", "mb", 1)
    watching = watch(cluster)
    watching.look(RunnerState())

    def away(self: LocalStore, key: str) -> bool:
        raise StoreUnavailable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "exists", away)
        line = watching.look(RunnerState())
    assert (line.trouble, line.processed, line.is_idle) == ("it is away", 1, False)
    assert watching.look(RunnerState()).trouble == ""


# --- the store and the threads ---------------------------------------------------------------------------------------


def test_a_module_starts_when_one_read_of_each_object_came_back_corrupt(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
        cluster.launch_module(Liked(), CONFIG)
        cluster.cluster_depot("Liked", "*d").append("a")
        cluster.wait_for_microbatch_processed_count("Liked", "mb", 1)
        set_options(cluster)
    once: set[str] = set()
    real = LocalStore.get

    def get(self: LocalStore, key: str) -> bytes:
        if key in once or "/lease" in key:
            return real(self, key)
        once.add(key)
        return real(self, key)[:-9] + b"\0" * 9

    monkeypatch.setattr(LocalStore, "get", get)
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
        cluster.launch_module(Liked(), CONFIG)
        cluster.cluster_depot("Liked", "*d").append("a")
        cluster.wait_for_microbatch_processed_count("Liked", "mb", 2)
    assert any("/definition/" in key for key in once) and any("/log/" in key for key in once)


def set_options(cluster: InProcessCluster) -> None:
    cluster.pause_microbatch_topology("Liked", "mb")
    cluster.resume_microbatch_topology("Liked", "mb")


def test_a_module_is_refused_when_an_object_stays_corrupt(tmp_path: Folder) -> None:
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
        cluster.launch_module(Liked(), CONFIG)
    (definition,) = (tmp_path / "store" / "Liked" / "definition").glob("*.json")
    definition.write_bytes(b"{")
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster, pytest.raises(CorruptState):
        cluster.launch_module(Liked(), CONFIG)


def test_no_thread_is_left_when_a_cluster_was_closed(tmp_path: Folder) -> None:
    before = set(threading.enumerate())
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
        cluster.launch_module(Liked(), CONFIG)
        depot = cluster.cluster_depot("Liked", "*d")
        for _ in range(40):  # enough for compactions and collections beside the attempts
            depot.append("a")
        depot.append_async("b")
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()]
    assert not [name for name in left if "tidemill" in name], left
