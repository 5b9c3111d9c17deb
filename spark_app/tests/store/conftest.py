"""What tests of the store share: a store of each kind, and a clock that tests move on."""

from __future__ import annotations

import pytest
from callable_clock import Clock

from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(store_url: str) -> ObjectStore:
    return connect(store_url)
