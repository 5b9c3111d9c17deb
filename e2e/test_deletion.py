"""A deleted Module leaves its data (`Retain`), or takes it along (`Delete`)."""

from __future__ import annotations

import pytest

from e2e.harness import timeouts
from e2e.harness.story import Story
from e2e.harness.traffic import assert_equals_truth
from e2e.harness.waiting import until

OWNED = ("Deployment", "Job", "ControllerRevision", "Lease", "Topology")


def _run_and_delete(story: Story, policy: str) -> None:
    story.apply(story.module(deletionPolicy=policy))
    story.wait_ready()
    story.append(story.rows(), [f"kept-{i}" for i in range(100)])
    assert_equals_truth(story.rows(), story.ledger)
    story.gateway().close()
    story._gateways.clear()
    story.kubernetes.delete("Module", story.namespace, "counts")
    until(
        "the Module is gone", lambda: story.kubernetes.get("Module", story.namespace, "counts") is None, timeouts.GONE
    )
    until("what it owned is gone", lambda: not _left(story), timeouts.GONE)


def _left(story: Story) -> list[str]:
    found = [
        f"{kind}/{each['metadata']['name']}" for kind in OWNED for each in story.kubernetes.list(kind, story.namespace)
    ]
    pods = [f"Pod/{each['metadata']['name']}" for each in story.kubernetes.list("Pod", story.namespace)]
    return found + pods


@pytest.mark.quick
def test_a_new_module_goes_on_with_the_data_when_the_old_one_was_deleted_with_retain(story: Story) -> None:
    _run_and_delete(story, "Retain")
    assert story.system.store.objects(story.bucket)
    story.apply(story.module())
    story.wait_ready()
    story.append(story.rows(), ["after"])

    assert_equals_truth(story.rows(), story.ledger)


@pytest.mark.quick
def test_the_data_is_gone_when_a_module_was_deleted_with_delete(story: Story) -> None:
    _run_and_delete(story, "Delete")

    held = [name for name in story.system.store.objects(story.bucket) if "/depots/" in name or "/topologies/" in name]
    marks = [name for name in held if name.endswith("/log/floor/deleted")]
    left = sorted({*held} - {*marks})
    assert marks and not left, left[:5]
