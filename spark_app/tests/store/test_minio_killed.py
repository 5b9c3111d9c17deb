"""A MinIO server that is killed while clients append: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from tidemill.depot.appender import DepotAppender
from tidemill.depot.log import DepotLog
from tidemill.store.urls import connect
from tidemill.values import columns
from tidemill.values.errors import OutcomeUnknown, StoreUnavailable

pytestmark = pytest.mark.s3
PATIENCE = (0.01, 0.05)
ROUNDS = 3
SECONDS_MAX = 120


def test_each_acknowledged_record_is_there_once_when_the_server_is_killed(minio_server: Any, s3_url: str) -> None:
    appender = DepotAppender(DepotLog(connect(s3_url), "depot", 1, patience=PATIENCE))
    acknowledged: list[int] = []
    refused: list[int] = []
    unknown: list[int] = []
    progress = threading.Semaphore(0)
    is_done = threading.Event()

    def append() -> None:
        record = 0
        while not is_done.is_set():
            record += 1
            try:
                appender.append(0, record)
                acknowledged.append(record)
                progress.release()
            except StoreUnavailable:
                refused.append(record)
            except OutcomeUnknown:
                unknown.append(record)

    client = threading.Thread(target=append)
    client.start()
    try:
        for _ in range(ROUNDS):
            for _ in range(20):
                assert progress.acquire(timeout=SECONDS_MAX)
            minio_server.kill()
            minio_server.start()
        for _ in range(20):
            assert progress.acquire(timeout=SECONDS_MAX)
    finally:
        is_done.set()
        client.join(SECONDS_MAX)
    depot = DepotLog(connect(s3_url), "depot", 1)
    found = Counter(columns.to_values(depot.read_columns(0, 0, depot.ends()[0])))
    assert set(found.values()) == {1}
    assert set(acknowledged) <= set(found) <= set(acknowledged) | set(unknown)
    assert not set(refused) & set(found)
