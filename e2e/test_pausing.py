"""A paused Topology counts nothing and loses nothing; its driver stays."""

from __future__ import annotations

import pytest

from e2e.harness import timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import Reader, assert_equals_truth
from e2e.harness.waiting import holds_for, until

QUIET_SECONDS = 3.0


@pytest.mark.quick
def test_rows_stand_still_when_paused_and_catch_up_when_resumed(story: Story) -> None:
    story.apply(story.topology("counts-count"), story.module())
    story.wait_ready()
    rows, before = story.rows(), story.leader()
    story.append(rows, [f"before-{i}" for i in range(50)])
    assert_equals_truth(rows, story.ledger)
    story.apply(story.topology("counts-count", paused=True))
    until("it is paused", lambda: str(story.status().get("phase", "")).lower() == "paused", timeouts.STATUS)
    with Reader(rows) as reader:
        story.append(rows, [f"meanwhile-{i}" for i in range(50)])
        until("a row was read", lambda: reader.reads > 0, timeouts.STATUS)
        holds_for("rows stand still", lambda: reader.total == 50, QUIET_SECONDS)
        resumed = story.apply(story.topology("counts-count", paused=False))
        caught_up = until("rows catch up", lambda: reader.sights[-1].at if reader.total == 100 else 0, timeouts.STATUS)
    story.figure("resumed to caught up", caught_up - resumed, "s")
    assert_equals_truth(rows, story.ledger)
    assert story.leader()["metadata"]["uid"] == before["metadata"]["uid"]
