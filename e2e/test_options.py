"""A dynamic option of a Topology holds from the next microbatch on, in the same pod."""

from __future__ import annotations

import pytest

from e2e.harness import timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until

DELAY_MILLIS = 1500
OPTION = "topology.microbatch.force.delay.millis"


@pytest.mark.quick
def test_the_next_microbatch_is_different_when_an_option_is_edited(story: Story) -> None:
    """The option spaces microbatches apart, which a reader sees as pauses between changes of rows."""
    story.apply(story.topology("counts-count"), story.module())
    story.wait_ready()
    rows, before = story.rows(), story.leader()
    with Reader(rows) as reader, Appender(rows, story.ledger, pace=0.05):
        until(
            "rows change often", lambda: _pauses(reader)[-10:] and max(_pauses(reader)[-10:]) < 1.0, timeouts.RECOVERY
        )
        edited = story.apply(story.topology("counts-count", options={OPTION: DELAY_MILLIS}))
        seen = until("microbatches are spaced", lambda: _first_long(reader, edited), timeouts.STATUS)
        until("four more are", lambda: len([p for p in _pauses(reader)[-4:] if p > 1.2]) == 4, timeouts.STATUS)
        back = story.apply(story.topology("counts-count"))
        until("rows change often again", lambda: _is_quick_since(reader, back), timeouts.STATUS)
    figure = story.figure("option edited to first microbatch with it", seen - edited, "s", 5.0)
    after = story.leader()
    assert_equals_truth(rows, story.ledger)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert all(each["restartCount"] == 0 for each in after["status"]["containerStatuses"])
    assert figure.is_borne, str(figure)


def _pauses(reader: Reader) -> list[float]:
    moments = [each.at for each in list(reader.sights)]
    return [b - a for a, b in zip(moments, moments[1:], strict=False)]


def _first_long(reader: Reader, since: float) -> float | None:
    """When the first spaced microbatch after `since` began."""
    moments = [each.at for each in list(reader.sights)]
    return next((a for a, b in zip(moments, moments[1:], strict=False) if b - a > 1.2 and b > since), None)


def _is_quick_since(reader: Reader, since: float) -> bool:
    """Whether the newest ten pauses, all of them after `since`, are shorter than the option makes them."""
    moments = [each.at for each in list(reader.sights)]
    return len(moments) > 10 and moments[-11] > since and max(_pauses(reader)[-10:]) < 1.0
