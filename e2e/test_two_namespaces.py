"""Two Modules of the same name in two namespaces know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.conftest import FIGURES
from e2e.harness.story import Story
from e2e.harness.system import System
from e2e.harness.traffic import assert_equals_truth


@pytest.fixture
def other(system: System) -> Iterator[Story]:
    """A second namespace with a bucket."""
    told = Story(system, FIGURES, "two_namespaces", "-other")
    told.open()
    try:
        yield told
    finally:
        told.leave()


@pytest.mark.quick
def test_rows_stay_apart_when_two_namespaces_hold_the_same_names(story: Story, other: Story) -> None:
    stories = [story, other]
    for each in stories:
        each.apply(each.topology("counts-count"), each.module())
    for number, each in enumerate(stories):
        each.wait_ready()
        each.append(each.rows(), [f"of-{number}-{i}" for i in range(100 + number)])
    for each in stories:
        assert_equals_truth(each.rows(), each.ledger)
    other.kubernetes.delete("Module", other.namespace, "counts")
    story.append(story.rows(), ["after the other was deleted"])

    assert_equals_truth(story.rows(), story.ledger)
