"""The driver that leads is killed, or its pod deleted: the next one goes on with the same microbatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from e2e.harness import timeouts
from e2e.harness.kubernetes import Object
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until

Strike = Callable[[Story, Object], float]
"""Does away with a driver's pod or processes; returns when nothing of it is left."""


def _strike_leader_under_load(story: Story, strike: Strike, name: str, bound: float, drivers: int) -> None:
    rounds = 2
    rows = story.rows()
    waits = []
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        for _ in range(rounds):
            until("all drivers are warm", lambda: _ready(story) == drivers, timeouts.FIRST_COMMIT)
            before = reader.total
            until("commits go on", partial(reader.has_seen, before + 50), timeouts.RECOVERY)
            waits.append(_next_commit(story, reader, strike))
    story.wait_ready()
    slowest = story.figure(name, max(waits), "s", bound, note=f"slowest of {rounds}")
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert not appender.failures, appender.failures[:3]
    assert not reader.failures, reader.failures[:3]
    assert slowest.is_borne, str(slowest)


def _next_commit(story: Story, reader: Reader, strike: Strike) -> float:
    """Seconds from the strike to the first change of rows that the victim can not have made."""
    victim, struck = story.leader(), time.monotonic()
    gone = strike(story, victim)
    return reader.first_commit_after(gone, timeouts.RECOVERY) - struck


def _kill(story: Story, victim: Object) -> float:
    return story.system.faults.kill(victim)


def _delete(story: Story, victim: Object) -> float:
    """Without grace; yet the kubelet sends SIGTERM first and waits a second: a stop, not a crash."""
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    story.kubernetes.delete("Pod", story.namespace, name, grace=0)

    def is_gone() -> bool:
        found = story.kubernetes.get("Pod", story.namespace, name)
        has_processes = story.system.cluster.kind == "own" and bool(story.system.faults.processes_of(victim))
        return not has_processes and (found is None or found["metadata"]["uid"] != uid)

    until(f"{name} is gone", is_gone, timeouts.GONE, pause=0.02)
    return time.monotonic()


@pytest.mark.quick
def test_the_standby_goes_on_when_the_leader_is_killed(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.topology("counts-count", driver={"replicas": 2}), story.counts_on_spark())
    story.wait_ready()
    _strike_leader_under_load(story, _kill, "driver killed (SIGKILL) to next commit, warm standby", 8.0, drivers=2)


def test_a_new_driver_goes_on_when_the_only_one_is_killed(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.counts_on_spark())
    story.wait_ready()
    _strike_leader_under_load(story, _kill, "driver killed (SIGKILL) to next commit, no standby", 30.0, drivers=1)


@pytest.mark.long
def test_the_standby_goes_on_when_the_leaders_pod_is_deleted(story: Story) -> None:
    story.apply(story.topology("counts-count", driver={"replicas": 2}), story.counts_on_spark())
    story.wait_ready()
    _strike_leader_under_load(story, _delete, "driver pod deleted to next commit, warm standby", 8.0, drivers=2)


@pytest.mark.long
def test_a_new_driver_goes_on_when_the_only_pod_is_deleted(story: Story) -> None:
    story.apply(story.counts_on_spark())
    story.wait_ready()
    _strike_leader_under_load(story, _delete, "driver pod deleted to next commit, no standby", 30.0, drivers=1)


def _ready(story: Story) -> int:
    pods = story.drivers()
    return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"]["conditions"]) for p in pods)
