"""Revisions that can not work are refused or taken back, with the reason, while the old one goes on."""

from __future__ import annotations

import time

import pytest

from e2e.harness import modules, timeouts
from e2e.harness.kubernetes import condition
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until

STALLED_SECONDS = 120.0
DEADLINE = {"progressDeadlineSeconds": 60, "stableMicrobatches": 3}


def _refused(story: Story, image: str, what: str) -> str:
    """Applies an image that can not work, under load; the message of Stalled."""
    story.apply(story.module(rollout=DEADLINE))
    story.wait_ready()
    rows = story.rows()
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("commits go on", lambda: reader.total > 50, timeouts.RECOVERY)
        applied = story.apply(story.module(image=image, rollout=DEADLINE))
        message = str(story.wait_stalled()["message"])
        stalled = time.monotonic()
        total = reader.total
        until("the old revision still commits", lambda: reader.total > total + 100, timeouts.RECOVERY)
        assert set(reader.sights[-1].versions) == {"v1"}
        story.apply(story.module(rollout=DEADLINE))
        story.wait_ready()
    figure = story.figure(f"{what} applied to Stalled", stalled - applied, "s", STALLED_SECONDS)
    assert_equals_truth(rows, story.ledger)
    assert not appender.failures, appender.failures[:3]
    assert not reader.failures, reader.failures[:3]
    assert figure.is_borne, str(figure)
    return message


@pytest.mark.quick
def test_all_reasons_are_told_when_an_update_is_incompatible(story: Story) -> None:
    message = _refused(story, modules.image("incompatible"), "incompatible definition")

    for part in ("*other", "tick", "$$ids", "$$versions"):
        assert part in message, message


def test_the_import_error_is_told_when_a_module_does_not_import(story: Story) -> None:
    message = _refused(story, modules.image("broken-import"), "module that does not import")

    assert "a_package_that_nobody_has" in message, message


@pytest.mark.long
def test_the_image_is_named_when_it_can_not_be_pulled(story: Story) -> None:
    message = _refused(story, "localhost/tidemill/nobody-built-this:v1", "image that is not there")

    assert "nobody-built-this" in message, message


def _rolled_back(story: Story, variant: str) -> tuple[str, float]:
    """Applies a revision that fails once it is active; (what the Module says afterwards, seconds to the rollback)."""
    story.apply(story.module(rollout=DEADLINE))
    story.wait_ready()
    rows = story.rows()
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("commits go on", lambda: reader.total > 50, timeouts.RECOVERY)
        applied = story.apply(story.module(image=modules.image(variant), rollout=DEADLINE))
        message = str(story.wait_stalled()["message"])
        total = reader.total
        until("the stable revision commits again", lambda: reader.total > total + 100, timeouts.ROLLOUT)
        recovered = time.monotonic() - applied
        longest = reader.longest_pause(applied, time.monotonic())
        assert set(reader.sights[-1].versions) == {"v1"}
    story.figure(f"longest pause of rows when a {variant} revision is rolled back", longest, "s")
    assert_equals_truth(rows, story.ledger)
    assert not appender.failures, appender.failures[:3]
    assert not reader.failures, reader.failures[:3]
    return message, recovered


@pytest.mark.long
def test_the_stable_revision_stays_when_a_new_driver_crashes(story: Story) -> None:
    """It never becomes warm, so the running one never stops."""
    message, seconds = _rolled_back(story, "crashing")

    figure = story.figure("crash loop applied to Stalled, old revision committing", seconds, "s")
    assert message, str(figure)


@pytest.mark.quick
def test_the_stable_revision_comes_back_when_each_microbatch_of_a_new_one_fails(story: Story) -> None:
    message, seconds = _rolled_back(story, "failing")

    story.figure("failing revision applied to rolled back and committing", seconds, "s")
    module = story.get_module()
    assert "can not count" in message, message
    assert (module["status"].get("rollback") or {}).get("failedRevision") == 2, module["status"]
    assert condition(module, "Ready") is not None
