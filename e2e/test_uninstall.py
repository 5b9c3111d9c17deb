"""Nothing hangs in whatever order things are taken away, and data stays where it is to stay."""

from __future__ import annotations

import pytest

from e2e.harness import timeouts
from e2e.harness.story import Story
from e2e.harness.system import RELEASE
from e2e.harness.traffic import assert_equals_truth
from e2e.harness.waiting import until


@pytest.mark.long
def test_a_module_comes_back_with_its_rows_when_the_operator_was_uninstalled_under_it(story: Story) -> None:
    """Operator first, Module afterwards: the wrong order, which must not leave anything that hangs."""
    story.apply(story.module())
    story.wait_ready()
    story.append(story.rows(), [f"before-{i}" for i in range(50)])
    assert_equals_truth(story.rows(), story.ledger)
    try:
        _uninstall(story)
        story.append(story.rows(), ["without an operator"])
        assert_equals_truth(story.rows(), story.ledger)
        story.kubernetes.delete("Module", story.namespace, "counts")
        gone = lambda: story.kubernetes.get("Module", story.namespace, "counts") is None  # noqa: E731
        until("the Module is gone", gone, timeouts.GONE)
        until("its pods are gone", lambda: not story.kubernetes.list("Pod", story.namespace), timeouts.GONE)
    finally:
        story.system.install_operator()
    story.apply(story.module())
    story.wait_ready()
    story._gateways.clear()
    assert_equals_truth(story.rows(), story.ledger)


def _uninstall(story: Story) -> None:
    story.system.helm_run("uninstall", RELEASE, "--wait")
    found = story.kubernetes.kubectl("get", "crd", "-o", "name")
    assert "modules.tidemill.dev" in found, "uninstall keeps the CRDs"


@pytest.mark.long
def test_a_namespace_goes_away_when_it_is_deleted_with_everything_in_it(story: Story) -> None:
    story.apply(story.module())
    story.wait_ready()
    story.kubernetes.kubectl("delete", "namespace", story.namespace, "--wait=false")

    until("the namespace is gone", lambda: not story._exists(), timeouts.GONE)
