"""A Module that another one mirrors: what would break the mirrors is refused, until the manifest says the word."""

from __future__ import annotations

import pytest

from e2e.harness import modules, timeouts
from e2e.harness.kubernetes import Object, condition, is_true
from e2e.harness.story import Story
from e2e.harness.traffic import assert_equals_truth
from e2e.harness.waiting import until

DEADLINE: Object = {"progressDeadlineSeconds": 60, "stableMicrobatches": 3}
SMALLER: Object = {"image": modules.image("v2"), "objectsToDelete": ["$$total"], "rollout": DEADLINE}
"""The image that has no `$$total` any more."""


def _watched(story: Story) -> None:
    """`Counts`, and a Module that mirrors its depot and its total, both with records."""
    story.apply(story.module(rollout=DEADLINE))
    story.wait_ready()
    story.append(story.rows(), [f"first-{i}" for i in range(100)])
    story.apply(story.module("watch", {**modules.COUNTS, "engine": "Local", "entry": "counts:Watch"}))
    story.wait_ready("watch")
    _wait_for(story, "watch-watch", 100)


def _wait_for(story: Story, topology: str, records: int) -> None:
    def count() -> int:
        return int(story.status(topology).get("processedCount", 0))

    until(f"{topology} has processed {records}", lambda: count() >= records, timeouts.CAUGHT_UP)
    assert count() == records


@pytest.mark.long
def test_an_update_is_refused_until_it_may_break_mirrors_when_another_module_reads_what_it_deletes(
    story: Story,
) -> None:
    _watched(story)
    story.apply(story.module(**SMALLER))
    message = str(story.wait_stalled()["message"])
    assert "$$total" in message and "Watch" in message, message
    story.append(story.rows(), ["meanwhile"])
    _wait_for(story, "watch-watch", 101)

    story.apply(story.module(**SMALLER, breakMirrors=SMALLER["image"]))
    until("the new image is active", lambda: _active_image(story) == SMALLER["image"], timeouts.ROLLOUT)
    story.append(story.rows(), ["after"])
    _wait_for(story, "counts-count", 102)
    failure = until("the reader says why it stands", lambda: _failure(story), timeouts.RECOVERY)
    assert "$$total" in failure, failure
    assert_equals_truth(story.rows(), story.ledger)


@pytest.mark.long
def test_the_data_stays_until_it_may_break_mirrors_when_another_module_reads_what_a_deletion_destroys(
    story: Story,
) -> None:
    _watched(story)
    story.apply(story.module(rollout=DEADLINE, deletionPolicy="Delete"))
    story.wait_ready()
    story.kubernetes.delete("Module", story.namespace, "counts")
    message = until("the deletion is refused", lambda: _refusal(story), timeouts.REFUSED)
    assert "Watch" in message, message
    assert story.system.store.objects(story.bucket)

    story.kubernetes.patch("Module", story.namespace, "counts", {"spec": {"breakMirrors": "deletion"}})
    until("the Module is gone", lambda: _is_gone(story), timeouts.GONE)


def _active_image(story: Story) -> str:
    module = story.get_module()
    is_done = is_true(module, "Ready") and not is_true(module, "Reconciling")
    return str(module["spec"]["image"]) if is_done else ""


def _failure(story: Story) -> str:
    """What the reader's Topology says of its last attempt."""
    failures = story.status("watch-watch").get("failures") or [{}]
    return str(failures[0].get("message", ""))


def _refusal(story: Story) -> str:
    found: Object = story.kubernetes.get("Module", story.namespace, "counts") or {}
    stalled = condition(found, "Stalled") or condition(found, "Ready") or {}
    return str(stalled.get("message", "")) if stalled.get("reason") == "DestroyFailed" else ""


def _is_gone(story: Story) -> bool:
    return story.kubernetes.get("Module", story.namespace, "counts") is None
