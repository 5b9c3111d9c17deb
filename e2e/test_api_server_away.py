"""The API server is down for half a minute: streams do not notice."""

from __future__ import annotations

import time

import pytest

from e2e.harness import timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import holds_for, until

AWAY_SECONDS = 30.0


@pytest.mark.quick
def test_commits_go_on_when_the_api_server_is_down(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.counts_on_spark())
    story.wait_ready()
    rows, leader = story.rows(), story.leader()["metadata"]["uid"]
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("commits go on", lambda: reader.total > 50, timeouts.RECOVERY)
        began = time.monotonic()
        with story.system.faults.api_server_away():
            holds_for("time passes", lambda: time.monotonic() - began < AWAY_SECONDS + 5, AWAY_SECONDS)
        total = reader.total
        until("commits go on", lambda: reader.total > total + 100, timeouts.RECOVERY)
        longest = reader.longest_pause(began, time.monotonic())
    story.wait_ready()
    figure = story.figure("longest pause of rows with the API server down for 30 s", longest, "s", 5.0)
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert not appender.failures and not reader.failures, (appender.failures[:3], reader.failures[:3])
    assert story.leader()["metadata"]["uid"] == leader
    assert figure.is_borne, str(figure)
