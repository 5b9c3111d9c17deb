"""Objects of a module on Spark: opened once in each worker process, closed where the next version runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path as Folder

import pytest
from declared_objects import Book, Prices, notes

from tidemill import InProcessCluster, LaunchConfig, Path, UserCodeError
from tidemill.journal.options_log import OptionsLog
from tidemill.spark.session import Session

pytestmark = pytest.mark.spark
MICROBATCHES = 12


def opened(log: Folder) -> Counter[str]:
    return Counter(process for process, what, *_ in notes(log) if what == "open")


@pytest.mark.parametrize("placement", ["spread", "fused", "inline"])
def test_a_worker_opens_an_object_once_when_it_runs_many_attempts(
    spark: Session, tmp_path: Folder, placement: str
) -> None:
    with InProcessCluster.create(engine="spark") as cluster:
        module = Prices(Book(tmp_path / "old", {"a": 1, "b": 2}))
        cluster.launch_module(module, LaunchConfig(4, 2))
        OptionsLog(cluster.store, "Prices").set("topology", "mb", "topology.microbatch.placement", placement)
        for count in range(1, MICROBATCHES + 1):
            cluster.cluster_depot("Prices", "*items").append("ab"[count % 2])
            cluster.wait_for_microbatch_processed_count("Prices", "mb", count, 60_000)
        before = opened(tmp_path / "old")
        assert set(before.values()) == {1}

        cluster.update_module(Prices(Book(tmp_path / "new", {"a": 7})))
        for count in range(MICROBATCHES + 1, 2 * MICROBATCHES + 1):
            cluster.cluster_depot("Prices", "*items").append("a")
            cluster.wait_for_microbatch_processed_count("Prices", "mb", count, 60_000)
        after = opened(tmp_path / "new")
        assert set(after.values()) == {1}
        closed = {process for process, what, *_ in notes(tmp_path / "old") if what == "close"}
        assert set(before) & set(after) <= closed
        total = cluster.cluster_pstate("Prices", "$$sums").select_one(Path.key("a"))
        assert total == MICROBATCHES // 2 * 30 + MICROBATCHES * 80


def test_a_worker_tries_again_when_an_object_cannot_be_opened(spark: Session, tmp_path: Folder) -> None:
    (tmp_path / "down").touch()
    with InProcessCluster.create(engine="spark") as cluster:
        cluster.launch_module(Prices(Book(tmp_path / "log", {"a": 1}, tmp_path / "down")), LaunchConfig(4, 2))
        cluster.cluster_depot("Prices", "*items").append("a")
        with pytest.raises(UserCodeError, match=r"The object '\*book', declared at .* ConnectionError: no answer"):
            cluster.wait_for_microbatch_processed_count("Prices", "mb", 1, 60_000)
        (tmp_path / "down").unlink()
        cluster.wait_for_microbatch_processed_count("Prices", "mb", 1, 60_000, fail_fast=False)
