"""Executors come with the work and go without it: `spec.spark.executors` with min and max."""

from __future__ import annotations

import time

import pytest

from e2e.harness import modules, timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import assert_equals_truth
from e2e.harness.waiting import until

KEYS = 8
RECORDS = 60
SLOW_MILLIS = 60
"""Each record takes that long, so that half of a microbatch waits for a core until there is a second executor."""

IDLE_SECONDS = 180
"""An executor goes after a minute without work."""


@pytest.mark.long
def test_executors_come_and_go_and_every_record_counts_once_when_the_work_does(story: Story) -> None:
    spark = {**modules.SMALL_SPARK, "executors": {"min": 1, "max": 2}}
    story.apply(story.topology("counts-count"), story.counts_on_spark(spark=spark))
    story.wait_ready()
    rows, driver = story.rows(), story.leader()["metadata"]["uid"]
    until("one executor is left", lambda: len(story.executors()) == 1, IDLE_SECONDS)
    story.apply(story.topology("counts-count", options={"topology.microbatch.placement": "spread"}))
    began = time.monotonic()
    for number in range(KEYS):
        story.append(rows, [f"{number}-{i}" for i in range(RECORDS)], f"k{number}", SLOW_MILLIS)
    until("a second executor runs", lambda: len(story.executors()) == 2, timeouts.RECOVERY, pause=0.1)
    story.figure("backlog to a second executor", time.monotonic() - began, "s")
    assert_equals_truth(rows, story.ledger)
    story.apply(story.topology("counts-count"))  # where the placement is chosen, empty microbatches keep to it, too
    done = time.monotonic()
    until("the second executor is gone", lambda: len(story.executors()) == 1, IDLE_SECONDS)
    story.figure("idle to one executor less", time.monotonic() - done, "s")
    story.append(rows, ["after"], "k0")

    assert_equals_truth(rows, story.ledger)
    assert story.leader()["metadata"]["uid"] == driver
