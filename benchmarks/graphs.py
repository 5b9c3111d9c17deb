"""Task graphs beside Spark, Polars and DuckDB, in turns within one process, since the speed of a machine varies.

usage: python -m benchmarks.graphs FOLDER tables|pagerank|growth|recovery|skew ROUNDS CORES   (prints one JSON object)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from examples.taskgraph import pagerank, queries
from examples.taskgraph.data import TABLES, scheme

from benchmarks.graph_files import DAMPING, PAGES, RANK_ROUNDS, Result, Runs, shown
from benchmarks.memory import Peaks
from benchmarks.peers import duckdb_graphs, polars_graphs, spark_sql_graphs
from tidemill import CountExecutor, GraphFrame, TaskGraph
from tidemill.graphs.frames import heavy_keys

WARM = 2
RECOVERY_WAVES = 12


class GraphTables(queries.Tables):
    """The tables as frames of a graph, with the names that the queries use."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(TaskGraph(folder / "store", checkpoint_waves=None), str(folder))
        self._kind = kind

    def __getattr__(self, table: str) -> GraphFrame:
        if self._kind == "parquet":
            return self._graph.read_parquet(f"{self._folder}/{table}.parquet")
        if table not in TABLES:
            return self._graph.read_csv(f"{self._folder}/{table}.csv", quote_char=None)
        return super().__getattr__(table)


def in_graphs(folder: Path, kind: str) -> Runs:
    """The queries as task graphs."""
    tables = GraphTables(folder, kind)
    return {
        "tpch_q6": lambda: queries.q6(tables).collect().rows(),
        "tpch_q12": lambda: queries.q12(tables).collect().rows(),
        "join_count": lambda: tables.a.join(tables.b, "key").agg(pl.len()).collect().rows(),
    }


def ranks(folder: Path) -> Callable[[], Result]:
    """Rounds of PageRank as one graph; the matrix is stored before."""
    store = str(folder / "store")
    datasets = pagerank.matrix_of(pl.read_parquet(folder / "links.parquet"), PAGES, store)
    vector = pl.DataFrame({"y": pl.int_range(PAGES, eager=True)}).with_columns(val=pl.lit(1.0 / PAGES))
    return lambda: shown(pagerank.rounds(vector, datasets, RANK_ROUNDS, DAMPING, store)["val"])


def in_turns(contestants: dict[str, Callable[[], Result]], rounds: int) -> dict[str, Any]:
    """The median seconds of each contestant, and what each came to."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    results: dict[str, Result] = {}
    for turn in range(WARM + rounds):
        for name, run in contestants.items():
            begin = time.perf_counter()
            results[name] = run()
            if turn >= WARM:
                seconds[name].append(time.perf_counter() - begin)
    return {"seconds": {name: statistics.median(each) for name, each in seconds.items()}, "results": results}


def tables(folder: Path, rounds: int, cores: int) -> dict[str, Any]:
    """Each query on CSV and on Parquet, by all contestants."""
    spark = spark_sql_graphs.session(cores)
    found = {}
    for kind in ("csv", "parquet"):
        all_runs = {
            "tidemill": in_graphs(folder, kind),
            "polars": polars_graphs.queries(folder, kind),
            "duckdb": duckdb_graphs.queries(folder, kind, cores),
            "spark_sql": spark_sql_graphs.queries(spark, folder, kind),
        }
        for name in all_runs["tidemill"]:
            found[f"{name}_{kind}"] = in_turns({who: runs[name] for who, runs in all_runs.items()}, rounds)
    spark.stop()
    return found


def ranked(folder: Path, rounds: int, cores: int) -> dict[str, Any]:
    """PageRank by all contestants."""
    spark = spark_sql_graphs.session(cores)
    contestants = {
        "tidemill": ranks(folder),
        "polars": polars_graphs.ranks(folder),
        "spark_dataframes": spark_sql_graphs.ranks(spark, folder),
    }
    found = {"pagerank": in_turns(contestants, rounds)}
    spark.stop()
    return found


def growth(folder: Path, rounds: int, cores: int) -> dict[str, Any]:
    """Seconds and memory of TPC-H 12 on CSV, for as much data as there is in the folder."""
    run = in_graphs(folder, "csv")["tpch_q12"]
    with Peaks() as peaks:
        found = in_turns({"tidemill": run}, rounds)
    return {"seconds": found["seconds"]["tidemill"], "memory": peaks.megabytes()["driver"]}


def recovery(folder: Path, rounds: int, cores: int) -> dict[str, Any]:
    """The same graph on Spark, whole and with a worker that is killed half-way: seconds, and rows that were read."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    rows: dict[bool, int] = {}
    os.environ["TIDEMILL_SPARK_MASTER"] = f"local[{cores}]"
    for turn in range(1 + rounds):
        for dies in (False, True):
            log = folder / f"batches-{turn}-{dies}"
            log.write_text("")
            begin = time.perf_counter()
            _count_lines(folder, log, rows.get(False, 0) // 2 if dies else None)
            if turn:
                seconds[dies].append(time.perf_counter() - begin)
            rows[dies] = sum(map(int, log.read_text().split()))
    whole, killed = statistics.median(seconds[False]), statistics.median(seconds[True])
    return {"whole": whole, "killed": killed, "share": rows[True] / rows[False] - 1}


def _count_lines(folder: Path, log: Path, dies_at: int | None) -> None:
    """Count the lines of the table in a graph whose batches are written down, and one kills its process."""
    flag = folder / "alive"
    flag.touch()

    def taken(batch: pl.DataFrame) -> pl.DataFrame:
        height = batch.height
        with log.open("a") as file:
            file.write(f"{height}\n")
        if dies_at is not None and sum(map(int, log.read_text().split())) > dies_at:
            with contextlib.suppress(FileNotFoundError):  # the other worker dies
                flag.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return batch.select("l_orderkey")

    graph = TaskGraph(folder / "store", engine="spark", checkpoint_waves=None)
    lines = folder / "lineitem.tbl"
    stride = lines.stat().st_size // (2 * RECOVERY_WAVES) + 1
    source = graph.new_input_csv(
        folder, lines.name, scheme("lineitem"), 2, batch_func=taken, sep="|", schema=TABLES["lineitem"],
        quote_char=None, stride=stride, columns=["l_orderkey"],
    )  # fmt: skip
    counted = graph.new_blocking_node({0: source}, CountExecutor(), 2, {0: "l_orderkey"})
    graph.run()
    whole = pl.scan_parquet(folder / "lineitem.parquet").select(pl.len()).collect().item()
    if counted.to_polars()["count"].sum() != whole or flag.exists() != (dies_at is None):
        raise SystemExit("recovery: the graph lost or doubled lines, or no worker died")


def skew(folder: Path, rounds: int, cores: int) -> dict[str, Any]:
    """The seconds of a join of rows with even keys, of rows with a heavy one, and of these by the key alone."""
    runs = {name: skewed_join(folder, name) for name in ("even", "skewed")}
    found = in_turns({**runs, "by_key": lambda: dealt_by_key(runs["skewed"])}, rounds)
    weights = pl.scan_parquet(folder / "keys.parquet")
    for name in ("even", "skewed", "by_key"):
        rows = pl.scan_parquet(folder / f"{'even' if name == 'even' else 'skewed'}.parquet").join(weights, "key")
        if found["results"][name] != rows.select(SKEW_SUMS).collect().rows():
            raise SystemExit(f"skew: the join '{name}' lost or doubled rows")
    seconds: dict[str, Any] = found["seconds"]
    return seconds


SKEW_SUMS = [pl.col("value").sum(), *(pl.col(f"weight{number}").sum() for number in range(4))]


def skewed_join(folder: Path, name: str) -> Callable[[], Result]:
    """The rows of a file with what there is of their keys, added up."""
    graph = TaskGraph(folder / "store", checkpoint_waves=None)
    rows, keys = (graph.read_parquet(f"{folder}/{each}.parquet", stride=8 << 20) for each in (name, "keys"))
    return lambda: rows.join(keys, "key").agg(*SKEW_SUMS).collect().rows()


def dealt_by_key(run: Callable[[], Result]) -> Result:
    """What a run comes to for which no key is heavy."""
    kept, heavy_keys.HEAVY_KEYS_MAX = heavy_keys.HEAVY_KEYS_MAX, 0
    try:
        return run()
    finally:
        heavy_keys.HEAVY_KEYS_MAX = kept


PARTS = {"tables": tables, "pagerank": ranked, "growth": growth, "recovery": recovery, "skew": skew}


def main() -> None:
    folder, part, rounds, cores = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    sys.stdout.write(json.dumps(PARTS[part](folder, rounds, cores)) + "\n")


if __name__ == "__main__":
    main()
