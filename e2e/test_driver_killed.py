"""The driver that leads is killed in the middle of its work: the next one goes on with the same microbatch."""

from __future__ import annotations

import time

import pytest

from e2e.harness import timeouts
from e2e.harness.kubernetes import Object
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until


def _kill_leader_under_load(story: Story, rounds: int, name: str, bound: float, drivers: int) -> None:
    rows = story.rows()
    waits = []
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        for _ in range(rounds):
            until("all drivers are warm", lambda: _ready(story) == drivers, timeouts.FIRST_COMMIT)
            before = reader.total
            until("commits go on", lambda b=before: reader.total > b + 50, timeouts.RECOVERY)
            waits.append(_kill(story, reader, story.leader()))
    story.wait_ready()
    slowest = story.figure(name, max(waits), "s", bound, note=f"slowest of {rounds}")
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert not appender.failures, appender.failures[:3]
    assert not reader.failures, reader.failures[:3]
    assert slowest.is_borne, str(slowest)


def _kill(story: Story, reader: Reader, victim: Object) -> float:
    killed = time.monotonic()
    story.kubernetes.delete("Pod", story.namespace, victim["metadata"]["name"], grace=0)
    return reader.first_commit_after(killed, timeouts.RECOVERY) - killed


@pytest.mark.quick
def test_the_standby_goes_on_when_the_leader_is_killed(story: Story) -> None:
    story.apply(story.topology("counts-count", driver={"replicas": 2}), story.counts_on_spark())
    story.wait_ready()
    _kill_leader_under_load(story, 2, "driver killed to next commit, warm standby", 8.0, drivers=2)


@pytest.mark.quick
def test_a_new_driver_goes_on_when_the_only_one_is_killed(story: Story) -> None:
    story.apply(story.counts_on_spark())
    story.wait_ready()
    _kill_leader_under_load(story, 2, "driver killed to next commit, no standby", 30.0, drivers=1)


def _ready(story: Story) -> int:
    pods = story.drivers()
    return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"]["conditions"]) for p in pods)
