"""Objects of other modules on Spark: the same wherever supersteps run, whoever has more tasks."""

from __future__ import annotations

from typing import Any

import pytest
import spark_modules as modules

from tidemill import InProcessCluster, LaunchConfig, Path
from tidemill.spark.session import Session

pytestmark = pytest.mark.spark
WORDS = [[f"k{number % 37}", number] for number in range(1, 301)]
KEYS = [f"k{number}" for number in range(40)]


def borrowed(engine: str, module: Any, tasks: int) -> tuple[dict[str, Any], list[list[Any]]]:
    """The counts of the words, and the partitions of the depot to which the borrower appends."""
    with InProcessCluster.create(engine=engine) as cluster:
        cluster.launch_module(modules.Lender(), LaunchConfig(4, 2))
        cluster.cluster_depot("Lender", "*lent").append_many(WORDS)
        cluster.wait_for_microbatch_processed_count("Lender", "mb", len(WORDS), 60_000)
        cluster.launch_module(module, LaunchConfig(tasks, 2))
        cluster.wait_for_microbatch_processed_count("Borrower", "mb", len(WORDS), 60_000)
        cluster.cluster_depot("Borrower", "*asked").append_many(KEYS)
        cluster.wait_for_microbatch_processed_count("Borrower", "mb", len(WORDS) + len(KEYS), 60_000)
        counts, back = cluster.cluster_pstate("Borrower", "$$counts"), cluster.cluster_depot("Lender", "*back")
        found = {key: counts.select_one(Path.key(key)) for key in KEYS}
        return found, [back.read(p, *back.get_partition_info(p)) for p in range(4)]


@pytest.mark.parametrize(
    ("placement", "tasks", "is_looping"),
    [("spread", 2, False), ("spread", 8, True), ("fused", 8, False), ("fused", 2, True), ("inline", 2, False)],
)
def test_another_modules_objects_give_the_same_when_supersteps_run_elsewhere(
    spark: Session, placement: str, tasks: int, is_looping: bool
) -> None:
    found = borrowed("spark", modules.Borrower(placement, is_looping), tasks)

    assert found == borrowed("local", modules.Borrower("auto", is_looping), tasks)
    assert found[0] == {key: sum(k == key for k, _ in WORDS) or None for key in KEYS}
    sums = {key: sum(value for k, value in WORDS if k == key) or None for key in KEYS}
    assert sorted(record for rows in found[1] for record in rows) == sorted([key, sums[key], sums[key]] for key in KEYS)
