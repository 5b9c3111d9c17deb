"""`format("tidemill")` in a real Spark: reads with filters, streams, appends, and a query that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guide_code import blocks_of
from killed_query import again
from pyspark.sql import SparkSession
from scanned import Shown

import tidemill.spark
from tidemill import InProcessCluster
from tidemill.spark.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]  # Spark starts many processes
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "data-doors.md"
PROGRAM = Path(__file__).with_name("killed_query.py")


@pytest.fixture(scope="module")
def sql(spark: Session) -> SparkSession:
    """A session of the SparkContext that the other tests use."""
    found = SparkSession(spark.context)
    tidemill.spark.register(found)
    return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with InProcessCluster.create(engine="local", store=tmp_path_factory.mktemp("store")) as cluster:
        shown = Shown(cluster)
        shown.put("counts", {f"k{i:03}": {j: i * j for j in range(i % 7)} for i in range(30)})
        cluster.cluster_depot("Shapes", "*events").append_many([{"id": i} for i in range(17)])
        yield shown


def options(shown: Shown, **more: Any) -> dict[str, Any]:
    return {"store": shown.store.url, "module": "Shapes", **more}


def test_spark_reads_and_appends_when_it_knows_the_format(sql: SparkSession, shown: Shown) -> None:
    counts = sql.read.format("tidemill").options(**options(shown, pstate="counts", partitions=2)).load()
    found = counts.where("k0 in ('k006', 'k013') and k1 >= 4").select("k0", "value").orderBy("k0", "value").collect()
    maps = sql.read.format("tidemill").options(**options(shown, pstate="counts", maps="true")).load()

    assert [tuple(row) for row in found] == [("k006", 24), ("k006", 30), ("k013", 52), ("k013", 65)]
    assert maps.where("k0 = 'k009'").select("value").first()[0] == {0: 0, 1: 9}

    counts.where("k0 = 'k006'").selectExpr("k1 as id", "k0 as name").write.format("tidemill").options(
        **options(shown, depot="events")
    ).mode("append").save()
    events = sql.read.format("tidemill").options(**options(shown, depot="events")).schema("id long, name string").load()
    assert sorted(row.id for row in events.where("name is not null").collect()) == list(range(6))


def test_each_row_is_appended_once_when_a_query_is_killed_and_started_again(shown: Shown, tmp_path: Path) -> None:
    def run(*words: str) -> int:
        command = [sys.executable, str(PROGRAM), shown.store.url, str(tmp_path / "checkpoint"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or words, done.stderr[-3000:]
        return done.returncode

    before = tidemill.scan_depot(shown.store, "Shapes", "events").collect().height
    assert run("0") != 0
    halfway = tidemill.scan_depot(shown.store, "Shapes", "people").collect().height
    run()

    found = tidemill.scan_depot(shown.store, "Shapes", "people").collect()
    assert 0 < halfway < before
    assert found.height == before
    ids = tidemill.scan_depot(shown.store, "Shapes", "events").collect()["record"].to_list()
    assert sorted(found["id"].to_list()) == sorted(json.loads(text)["id"] for text in ids)


def test_the_page_on_data_doors_tells_what_happens_when_its_spark_examples_are_run(
    sql: SparkSession, tmp_path: Path
) -> None:
    local, on_spark = GUIDE.read_text(encoding="utf-8").split("\n## Spark\n")
    module, *_ = blocks_of(local)
    names: dict[str, Any] = {"__name__": "guide"}
    for block in (module, *blocks_of(on_spark)):
        here = block.replace('"data"', repr(str(tmp_path / "data"))).replace('"checkpoint"', repr(str(tmp_path / "c")))
        again(lambda here=here: exec(compile(here, str(GUIDE), "exec"), names))

    assert [tuple(row) for row in names["ann"]] == [("/buy", 1), ("/home", 1)]
    found = tidemill.scan_depot(tmp_path / "data", "Visits", "visits").collect()["record"].to_list()
    assert sorted(json.loads(text)["user"] for text in found) == ["ann", "ann", "anna", "anna", "bob"]
