"""An executor dies while a microbatch is under way on it."""

from __future__ import annotations

import time
from functools import partial

import pytest

from e2e.harness import timeouts
from e2e.harness.kubernetes import Object
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until

SLOW_MILLIS = 40
"""Each record takes that long, so that a microbatch is long enough to be hit in its middle."""


@pytest.mark.quick
def test_nothing_is_lost_or_doubled_when_executors_are_killed_mid_microbatch(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.counts_on_spark())
    story.wait_ready()
    rows, driver = story.rows(), story.leader()["metadata"]["uid"]
    waits: dict[str, float] = {}
    with Reader(rows) as reader, Appender(rows, story.ledger, pace=0.5, milliseconds=SLOW_MILLIS) as appender:
        for how in ("process", "pod", "process"):
            before = reader.total
            until("commits go on", partial(reader.has_seen, before), timeouts.RECOVERY)
            victim = until("an executor works", lambda: _working(story), timeouts.RECOVERY)[0]
            until("a microbatch is under way", lambda: _is_processing(story), timeouts.RECOVERY, pause=0.02)
            gone = struck = time.monotonic()
            if how == "process":
                gone = story.system.faults.kill(victim)
            else:
                story.kubernetes.delete("Pod", story.namespace, victim["metadata"]["name"], grace=0)
            waits[how] = max(waits.get(how, 0.0), reader.first_commit_after(gone, timeouts.RECOVERY) - struck)
    story.figure("executor killed (SIGKILL) mid-microbatch to next commit", waits["process"], "s", note="slower of 2")
    story.figure("executor pod deleted mid-microbatch to next commit", waits["pod"], "s")
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert not appender.failures and not reader.failures, (appender.failures[:3], reader.failures[:3])
    assert story.leader()["metadata"]["uid"] == driver, "the driver must live through the loss of its executors"


def _working(story: Story) -> list[Object]:
    """Executors that have processed something: while there is none, small microbatches run in the driver."""
    return [pod for pod in story.executors() if story.system.faults.processes_of(pod, "python")]


def _is_processing(story: Story) -> bool:
    return str(story.status().get("phase", "")).lower() in ("prime", "process", "commit", "running")
