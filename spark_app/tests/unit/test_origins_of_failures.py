"""Finding the record of a failing row where the other records of the microbatch fail, too."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from mirrored import BEGINNING, launch

from tidemill import Depot, InProcessCluster, Ops
from tidemill.engine import thread
from tidemill.engine.origins import with_origin
from tidemill.values.errors import UserCodeError

BROKEN: list[int] = []
"""Records at which the migration fails by now."""


def migrated(record: int) -> int:
    if record in BROKEN:
        raise ValueError(f"{record} cannot be migrated")
    if -record in BROKEN:
        sys.exit(record)
    return record


def liked(record: int) -> int:
    if record == 7:
        raise ValueError("not seven")
    return record


def define(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by(Ops.IDENTITY)).migration("m", migrated)
    rows = topologies.microbatch("mb").source("*d", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
    rows.each(liked, "*r").out("*x")


@pytest.mark.parametrize("broken", [[1, 2, 3], [-1, -2, -3]])
def test_record_is_found_when_the_migration_fails_at_records_of_other_threads(
    monkeypatch: pytest.MonkeyPatch, broken: list[int]
) -> None:
    seen: list[tuple[Any, Any]] = []

    def noted(work: Any, error: UserCodeError) -> UserCodeError:
        row = error.row
        seen.append((work, row))
        return with_origin(work, error)

    monkeypatch.setattr(thread, "with_origin", noted)
    BROKEN.clear()
    with InProcessCluster.create("local") as cluster:
        launch(cluster, "M", define)
        cluster.cluster_depot("M", "*d").append_many([1, 2, 3, 7])
        runner = cluster._running["M"].topologies["mb"]
        runner.wait_for(lambda now: now.report.failure is not None, 20)
        cluster.pause_microbatch_topology("M", "mb")
        work, row = seen[0]
        BROKEN.extend(broken)  # each thread reads its own records; on Spark only the failing one's are known to be good
        error = UserCodeError("not seven")
        error.row = row
        found = with_origin(work, error)
        assert found.context["source"] == "*d"
        where = (found.context["partition"], found.context["offset"])
        BROKEN.clear()
        assert cluster.cluster_depot("M", "*d").read(where[0], where[1], where[1] + 1) == [7]
