"""Appends of topologies on Spark: the same records in the same partitions wherever supersteps run."""

from __future__ import annotations

from typing import Any

import pytest
import spark_modules as modules

from tidemill import InProcessCluster, LaunchConfig
from tidemill.engine import appends
from tidemill.spark.session import Session

pytestmark = pytest.mark.spark
WORDS = [[f"k{number % 37}", number] for number in range(1, 301)]


def appended(engine: str, module: Any) -> dict[str, list[list[Any]]]:
    """depot -> partition -> records, after two microbatches."""
    with InProcessCluster.create(engine=engine) as cluster:
        cluster.launch_module(module, LaunchConfig(4, 2))
        words = cluster.cluster_depot("Relays", "*words")
        for count in (150, 300):
            cluster.pause_microbatch_topology("Relays", "mb")
            words.append_many(WORDS[count - 150 : count])
            cluster.resume_microbatch_topology("Relays", "mb")
            cluster.wait_for_microbatch_processed_count("Relays", "mb", count, 60_000)
        handles = {name: cluster.cluster_depot("Relays", name) for name in ("*first", "*second")}
        return {
            name: [depot.read(p, *depot.get_partition_info(p)) for p in range(4)] for name, depot in handles.items()
        }


@pytest.mark.parametrize("is_looping", [False, True], ids=["schedule known", "loop over messages"])
@pytest.mark.parametrize("placement", ["spread", "fused", "inline"])
def test_each_partition_has_the_same_records_when_supersteps_run_elsewhere(
    spark: Session, placement: str, is_looping: bool
) -> None:
    found = appended("spark", modules.Relays(placement, is_looping))

    assert found == appended("local", modules.Relays("auto", is_looping))
    assert sorted(record for rows in found["*first"] for record in rows) == sorted(WORDS)


def test_parts_are_objects_when_they_are_large(spark: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the driver's process the bound is lower; workers write objects for their own bound."""
    monkeypatch.setattr(appends, "INLINE_BYTES_MAX", 0)

    assert appended("spark", modules.Relays("inline")) == appended("local", modules.Relays("auto"))
