"""A new image rolls out under constant appends and reads: no request fails, each record counts once."""

from __future__ import annotations

import pytest

from e2e.harness import modules, timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth, percentile
from e2e.harness.waiting import until

GAP_SECONDS = 5.0


@pytest.mark.quick
def test_no_request_fails_and_no_record_counts_twice_when_a_new_image_rolls_out(story: Story) -> None:
    """The figure: from the last commit of the old revision to the first of the new one, seen as rows by a reader."""
    story.apply(story.counts_on_spark())
    story.wait_ready()
    rows = story.rows()
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("the first revision commits", lambda: reader.total > 100, timeouts.RECOVERY)
        applied = story.apply(story.counts_on_spark(image=modules.image("v3")))
        story.wait_stable(2)
        until("the new revision commits", lambda: reader.sights[-1].versions.get("v3", 0) > 100, timeouts.RECOVERY)
    last_old, first_new = reader.hand_over("v1", "v3")
    gap = story.figure("gap of a rolling update", first_new - last_old, "s", GAP_SECONDS)
    story.figure("rolling update, applied to first commit of the new revision", first_new - applied, "s")
    story.figure("appends that failed in a rolling update", len(appender.failures), f"of {len(appender.latencies)}", 0)
    story.figure("reads that failed in a rolling update", len(reader.failures), f"of {reader.reads}", 0)
    story.figure("slowest append in a rolling update", max(appender.latencies), "s")
    story.figure("append p50 in a rolling update", percentile(appender.latencies, 0.5), "s")
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert not appender.failures, appender.failures[:3]
    assert not reader.failures, reader.failures[:3]
    assert gap.is_borne, str(gap)
