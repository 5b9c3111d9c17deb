"""One SparkContext for all tests that need Spark: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill.spark.session import Session, shared_session, stop_shared_session
from tidemill.spark.settings import SparkSettings


@pytest.fixture(scope="session")
def spark() -> Iterator[Session]:
    yield shared_session(SparkSettings(master="local[2]"))
    stop_shared_session()
