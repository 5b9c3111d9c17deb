"""MinIO is killed and comes back, under load."""

from __future__ import annotations

import time
from functools import partial

import pytest

from e2e.harness import timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until


@pytest.mark.quick
def test_everything_goes_on_by_itself_when_minio_restarts(story: Story) -> None:
    """Requests may fail while the store is away; what was acknowledged counts once, and nobody needs help."""
    story.system.faults.need_own_cluster()
    story.apply(story.counts_on_spark())
    story.wait_ready()
    rows = story.rows()
    pods = {pod["metadata"]["uid"] for pod in story.drivers()}
    waits = []
    with Reader(rows) as reader, Appender(rows, story.ledger):
        for _ in range(2):
            before = reader.total
            until("commits go on", partial(reader.has_seen, before + 50), timeouts.RECOVERY)
            killed = story.system.faults.kill(story.system.store.pod())
            story.system.store.wait_ready()
            back = time.monotonic()
            waits.append(reader.first_commit_after(back, timeouts.RECOVERY, settle=0.0) - back)
            story.figure("MinIO away", back - killed, "s")
    story.figure("MinIO back to next commit", max(waits), "s", note=f"slowest of {len(waits)}")
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert {pod["metadata"]["uid"] for pod in story.drivers()} == pods
