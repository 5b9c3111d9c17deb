"""A cluster for each story: topologies of stories that are over would go on looking for records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill import InProcessCluster


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    """A cluster with nothing in it, which ends with the test."""
    with InProcessCluster.create() as cluster:
        yield cluster
