"""The code of docs/guide/sinks.md runs as it stands there, on a real PostgreSQL and a real catalog of Iceberg."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from guide_code import names_of
from postgres_process import PostgresProcess
from pyiceberg.catalog import load_catalog
from sink_modules import Selling

from tidemill import InProcessCluster, LaunchConfig
from tidemill.leader import publication
from tidemill.sinks import postgres_server

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "sinks.md"


def test_the_module_of_the_guide_to_sinks_fills_both_tables(postgres: PostgresProcess, tmp_path: Path) -> None:
    names = names_of(GUIDE)
    postgres.fresh('CREATE TABLE totals ("user" text PRIMARY KEY, total bigint)')
    (tmp_path / "files").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/files"}
    with load_catalog("default", **catalog) as made:
        made.create_namespace("sales")
        made.create_table("sales.archive", pa.schema([("user", pa.string()), ("amount", pa.int64())]))
        with InProcessCluster.create("local") as cluster:
            cluster.launch_module(names["Sales"](postgres.conninfo, catalog), LaunchConfig(2, 1))
            sales = cluster.cluster_depot("Sales", "*sales")
            sales.append_many([{"user": "ann", "amount": 3}, {"user": "bob", "amount": 4}])
            sales.append({"user": "ann", "amount": 5})
            cluster.wait_for_microbatch_processed_count("Sales", "mb", 3, 60_000)
        archived = made.load_table("sales.archive").scan().to_arrow().to_pylist()
    assert postgres.rows('SELECT * FROM totals ORDER BY "user"') == [("ann", 8), ("bob", 4)]
    assert sorted(row["amount"] for row in archived) == [3, 4, 5]


def test_the_graph_of_the_guide_to_sinks_publishes_once(postgres: PostgresProcess, tmp_path: Path) -> None:
    publish = names_of(GUIDE)["publish"]
    postgres.fresh("CREATE TABLE prices (item text, price int)")
    for store in ("one", "two"):
        publish(str(tmp_path / store), str(tmp_path / "prices"), postgres.conninfo)
    assert sorted(postgres.rows("SELECT * FROM prices")) == [("ink", 7), ("pen", 2)]


def test_the_sink_of_the_guide_to_sinks_writes_files(tmp_path: Path) -> None:
    lines = names_of(GUIDE)["LinesSink"]
    for name in ("orders", "totals"):
        (tmp_path / name).mkdir()
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Selling(lines(tmp_path / "orders"), lines(tmp_path / "totals")), LaunchConfig(2, 1))
        cluster.cluster_depot("Selling", "*in").append_many([["ann", 1], ["ann", 2]])
        cluster.wait_for_microbatch_processed_count("Selling", "mb", 2, 60_000)
    rows = [json.loads(line) for file in (tmp_path / "orders").iterdir() for line in file.read_text().splitlines()]
    assert sorted(row["amount"] for row in rows) == [1, 2]


def test_the_guide_to_sinks_says_what_holds(postgres: PostgresProcess) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert f"goes on for {publication.MICROBATCHES_MAX} microbatches" in text
    table = text.partition("```sql\n")[2].partition("```")[0]
    assert " ".join(table.split()) == " ".join(postgres_server.CREATE.replace("IF NOT EXISTS ", "").split())
