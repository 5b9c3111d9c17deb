"""The leader stands still past its Lease (SIGSTOP) and wakes up as a zombie: it can never commit again."""

from __future__ import annotations

import time

import pytest

from e2e.harness import timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import holds_for, until


@pytest.mark.quick
def test_a_zombie_changes_nothing_when_it_wakes_up(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.topology("counts-count", driver={"replicas": 2}), story.module())
    story.wait_ready()
    rows = story.rows()
    until("there is a standby", lambda: len(story.drivers()) == 2, timeouts.RECOVERY)
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("commits go on", lambda: reader.total > 100, timeouts.RECOVERY)
        old, epoch = story.leader(), story.status().get("epoch", 0)
        stopped = time.monotonic()
        with story.system.faults.stopped(old):
            taken = reader.first_commit_after(stopped, timeouts.RECOVERY) - stopped
            until("a new epoch", lambda: story.status().get("epoch", 0) > epoch, timeouts.RECOVERY)
            new = story.leader()
            assert new["metadata"]["uid"] != old["metadata"]["uid"]
        total = reader.total
        until("commits go on beside the zombie", lambda: reader.total > total + 200, timeouts.RECOVERY)
        holds_for("the new leader leads", lambda: _leads(story, new["metadata"]["uid"]), 5.0)
    figure = story.figure("leader stopped (SIGSTOP) to next commit, standby", taken, "s", 8.0)
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert not appender.failures and not reader.failures, (appender.failures[:3], reader.failures[:3])
    assert figure.is_borne, str(figure)


def _leads(story: Story, uid: str) -> bool:
    return bool(story.leader()["metadata"]["uid"] == uid)
