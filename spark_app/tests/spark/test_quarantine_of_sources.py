"""Poison of every kind of source, on both engines: in quarantine it is as it was appended, and it comes back once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as Folder
from typing import Any

import pytest
from lines_depot import LinesDepot
from poisoned_sources import KINDS, Kind, Owner, Picky

from tidemill import BadInput, InProcessCluster, LaunchConfig, Path
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.check import check_module

pytestmark = pytest.mark.spark
ENGINES = ["local", "spark"]
GOOD = [[key, number] for number in range(1, 9) for key in "abc"]
POISON = [["a", -1], ["b", -2]]
TOO_LARGE = ["c", 2_000]
TAKEN_AWAY = ["a", 0]


@contextmanager
def running(engine: Any, kind: Kind, folder: Folder) -> Iterator[InProcessCluster]:
    """A module of this kind, paused before its first microbatch."""
    for partition in range(2):
        (folder / f"{partition}.jsonl").touch()
    with InProcessCluster.create(engine) as cluster:
        if "mirrored" in kind:
            cluster.launch_module(Owner(folder if "migrated" in kind else None), LaunchConfig(4, 2))
        cluster.launch_module(Picky(kind, folder), LaunchConfig(2, 2))
        cluster.pause_microbatch_topology("Picky", "mb")
        yield cluster


def append(cluster: InProcessCluster, kind: Kind, folder: Folder, records: list[list[Any]]) -> None:
    if kind == "external":
        for record in records:
            LinesDepot(folder).append(ord(record[0]) % 2, record)
    else:
        cluster.cluster_depot("Owner" if "mirrored" in kind else "Picky", "*pairs").append_many(records)


def processed(cluster: InProcessCluster, count: int) -> None:
    cluster.wait_for_microbatch_processed_count("Picky", "mb", count, 120_000, fail_fast=False)


def counted(cluster: InProcessCluster) -> int:
    counts = cluster.cluster_pstate("Picky", "$$counts")
    return sum(counts.select_one(Path.key(key)) or 0 for key in "abc")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_poison_is_in_quarantine_as_it_was_appended_whatever_its_source_is(
    spark: object, tmp_path: Folder, engine: str, kind: Kind
) -> None:
    is_migrated = "migrated" in kind
    poison = [*POISON, TOO_LARGE] if is_migrated else POISON
    records = [
        *GOOD[:10],
        POISON[0],
        *GOOD[10:],
        POISON[1],
        *([TAKEN_AWAY, TOO_LARGE, ["b", 1]] if is_migrated else ()),
    ]
    good = len(GOOD) + is_migrated
    with running(engine, kind, tmp_path) as cluster:
        append(cluster, kind, tmp_path, records)
        cluster.resume_microbatch_topology("Picky", "mb")
        processed(cluster, len(records))
        quarantine = cluster.quarantine("Picky", "mb")
        held = quarantine.records()
        assert sorted(each.record for each in held) == sorted(poison)
        assert {(each.depot, each.source) for each in held} == {("*pairs", "*pairs")}
        assert counted(cluster) == good

        (tmp_path / "mended").touch()
        if kind == "external":
            with pytest.raises(BadInput, match="is outside the store"):
                quarantine.retry()
            assert quarantine.drop() == len(poison)
        else:
            assert quarantine.retry() == len(poison)
            processed(cluster, len(records) + len(poison))
            assert counted(cluster) == good + len(poison)
        assert quarantine.count == 0
        assert check_module(cluster.store, "Picky") == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_microbatch_waits_when_a_larger_share_of_it_is_poison_than_may_go(
    spark: object, tmp_path: Folder, engine: str
) -> None:
    share = "topology.quarantine.microbatch.max.share"
    with running(engine, "own", tmp_path) as cluster:
        options = OptionsLog(cluster.store, "Picky")
        options.set("topology", "mb", share, 0.4)
        append(cluster, "own", tmp_path, [["a", -1], ["b", -2], ["c", -3], ["a", 1], ["b", 2]])
        cluster.resume_microbatch_topology("Picky", "mb")
        runner = cluster._running["Picky"].topologies["mb"]
        refused = f"2 of the 5 records of this microbatch are there, and {share} is 0.4"
        runner.wait_for(lambda now: now.report.failure is not None and refused in now.report.failure.message, 120)
        assert (counted(cluster), cluster.quarantine("Picky", "mb").count) == (0, 0)

        options.set("topology", "mb", share, 0.6)
        processed(cluster, 5)
        assert (counted(cluster), cluster.quarantine("Picky", "mb").count) == (2, 3)
