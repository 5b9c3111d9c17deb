"""TPC-H 12 and PageRank as task graphs, each in a process that is killed (kill -9) in the middle, and their results.

A graph with an id goes on where its last checkpoint is when the same program starts again. The first process of each
graph waits after some waves, so that the kill comes in the middle on any machine. DuckDB computes the same.
usage: python examples/taskgraph/demo.py [--scale 0.3] [--pages 100000]
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import duckdb
import numpy as np
import polars as pl

from examples.taskgraph import pagerank, seed_programs
from examples.taskgraph.data import TABLES, generate, scheme
from tidemill import AggExecutor, Dataset, JoinExecutor, TaskGraph

CHECKPOINT_WAVES = 2
KILLED_AFTER = 5
"""The wave after which a process waits to be killed; its successor goes on from a checkpoint some waves before."""
WAVES = 20
LINKS_PER_PAGE, ROUNDS, DAMPING = 10, 12, 0.85
SECONDS_MAX = 600


def twelve(folder: Path) -> tuple[TaskGraph, Dataset]:
    """TPC-H 12, its lines read in about `WAVES` waves."""
    graph = TaskGraph(folder / "store", id="tpch-12", checkpoint_waves=CHECKPOINT_WAVES)
    lines = folder / "lineitem.tbl"
    orders = graph.new_input_csv(
        folder,
        "orders.tbl",
        scheme("orders"),
        2,
        batch_func=seed_programs.orders_filter,
        sep="|",
        schema=TABLES["orders"],
    )
    late = graph.new_input_csv(
        folder,
        lines.name,
        scheme("lineitem"),
        2,
        batch_func=seed_programs.late_lineitems,
        sep="|",
        schema=TABLES["lineitem"],
        stride=lines.stat().st_size // (2 * WAVES) + 1,
    )
    join = JoinExecutor(left_on="o_orderkey", right_on="l_orderkey", batch_func=seed_programs.lines_by_priority)
    joined = graph.new_non_blocking_node({0: orders, 1: late}, join, 2, {0: "o_orderkey", 1: "l_orderkey"})
    return graph, graph.new_blocking_node({0: joined}, AggExecutor("l_shipmode"), 1, {0: None})


def ranks(folder: Path) -> tuple[TaskGraph, Dataset]:
    """Rounds of PageRank over the matrix that `write` stored."""
    store = str(folder / "store")
    matrix = [Dataset(store, name) for name in (folder / "matrix").read_text().split()]
    pages = int(pl.scan_parquet(folder / "links.parquet").select(pl.max("source")).collect().item()) + 1
    vector = pl.DataFrame({"y": pl.int_range(pages, eager=True)}).with_columns(val=pl.lit(1.0 / pages))
    graph = TaskGraph(store, id="pagerank", checkpoint_waves=CHECKPOINT_WAVES)
    return graph, pagerank.add_rounds(graph, vector, matrix, ROUNDS, DAMPING)


GRAPHS: dict[str, Callable[[Path], tuple[TaskGraph, Dataset]]] = {"tpch-12": twelve, "pagerank": ranks}


def write(folder: Path, scale: float, pages: int) -> None:
    """The tables, the links, and their matrix as Datasets."""
    generate(folder, scale)
    chosen = np.random.default_rng(1)
    links = {
        "source": np.append(chosen.integers(0, pages, LINKS_PER_PAGE * pages), pages - 1),
        "target": np.append(chosen.zipf(1.5, LINKS_PER_PAGE * pages) % pages, 0),
    }
    rows = pl.DataFrame(links).unique()
    rows.write_parquet(folder / "links.parquet")
    matrix = pagerank.matrix_of(rows, pages, str(folder / "store"))
    (folder / "matrix").write_text(" ".join(dataset.id for dataset in matrix))


def run(name: str, folder: Path, waits: bool) -> None:
    """Run a graph to its end in this process; or, if it `waits`, until it is killed. Prints its first wave."""
    graph, _ = GRAPHS[name](folder)
    first: list[int] = []

    def look(waves: Any) -> None:
        first.append(waves.wave)
        if len(first) == 1:
            print(waves.wave, flush=True)
        if waits and waves.wave >= KILLED_AFTER:
            print("waits", flush=True)
            time.sleep(SECONDS_MAX)  # until the kill; not for ever, should it never come

    graph.observe(look)
    graph.run(progress=True)


def process(name: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    """A process that runs a graph; its progress goes to this one's terminal."""
    command = [sys.executable, __file__, "--folder", str(folder), "--graph", name, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed_and_resumed(name: str, folder: Path) -> pl.DataFrame:
    """The result of a graph whose first process is killed.

    Raises:
        SystemExit: a process ended by itself, or the second one began anew.
    """
    first = process(name, folder, "--waits")
    assert first.stdout is not None
    if "waits\n" not in iter(first.stdout.readline, ""):
        raise SystemExit(f"{name}: the first process ended with {first.wait()} before it could be killed")
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # the progress hid the cursor, and nothing could show it again
    print(f"{name}: kill -9 of its process behind wave {KILLED_AFTER}", flush=True)
    second = process(name, folder)
    printed = second.communicate(timeout=SECONDS_MAX)[0]
    if second.returncode != 0 or int(printed) <= CHECKPOINT_WAVES:
        raise SystemExit(f"{name}: the graph did not go on where it was")
    graph, dataset = GRAPHS[name](folder)
    graph.run()  # it has ended: nothing runs
    print(f"{name}: the same program went on with wave {printed.strip()} and ended", flush=True)
    return dataset.to_polars()


def twelve_in_duckdb(folder: Path) -> list[Any]:
    """TPC-H 12 in SQL over the same files."""
    with duckdb.connect() as database:
        for table in ("orders", "lineitem"):
            names = scheme(table)
            database.execute(
                f"create view {table} as select * from read_csv('{folder}/{table}.tbl', delim='|', header=false, "
                f"quote='', names={names})"
            )
        found: list[Any] = database.execute(
            """select l_shipmode, sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end),
               sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 0 else 1 end) from orders join lineitem
               on o_orderkey = l_orderkey where l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
               and l_shipdate < l_commitdate and l_receiptdate >= '1994-01-01' and l_receiptdate < '1995-01-01'
               group by l_shipmode order by l_shipmode"""
        ).fetchall()
        return found


def ranks_in_duckdb(folder: Path) -> list[Any]:
    """The same rounds of PageRank in SQL."""
    with duckdb.connect() as database:
        database.execute(f"create table links as select * from '{folder}/links.parquet'")
        database.execute("create table degrees as select source, count(*) degree from links group by source")
        database.execute(
            """create table ranks as select range y, 1.0::double / (select max(source) + 1 from links) val
               from range((select max(source) + 1 from links))"""
        )
        for _ in range(ROUNDS):
            database.execute(
                f"""create or replace table ranks as with
                    sums as (select target, sum(val / degree) s from links join degrees using (source)
                             join ranks on y = source group by target),
                    lost as (select coalesce(sum(val), 0) l from ranks where y not in (select source from degrees))
                    select y, {DAMPING} * (coalesce(s, 0) + l / (select count(*) from ranks))
                    + {1 - DAMPING} / (select count(*) from ranks) val
                    from ranks left join sums on target = y, lost"""
            )
        found: list[Any] = database.execute("select y, val from ranks order by y").fetchall()
        return found


def compare(name: str, found: list[Any], expected: list[Any]) -> None:
    """Say that two results are equal, floats to a billionth. Raises SystemExit where they are not."""
    pairs = [pair for one, other in zip(found, expected, strict=True) for pair in zip(one, other, strict=True)]
    if not all(a == b or (isinstance(a, float) and math.isclose(a, b, rel_tol=1e-9)) for a, b in pairs):
        raise SystemExit(f"{name}: DuckDB has other rows")
    print(f"{name}: {len(found):,} rows, equal to DuckDB's", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.3, help="of the TPC-H tables; 1 is 1 GB")
    parser.add_argument("--pages", type=int, default=100_000, help="of PageRank")
    for hidden in ("--folder", "--graph"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--waits", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.graph:
        run(given.graph, Path(given.folder), given.waits)
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as name:
        folder = Path(name)
        print(f"TPC-H at scale {given.scale:g}, {given.pages:,} pages with {LINKS_PER_PAGE * given.pages:,} links")
        write(folder, given.scale, given.pages)
        made = killed_and_resumed("tpch-12", folder).sort("l_shipmode")
        print(made)
        compare("tpch-12", made.rows(), twelve_in_duckdb(folder))
        ranked = killed_and_resumed("pagerank", folder).sort("y")
        print(ranked.top_k(5, by="val"))
        compare("pagerank", ranked.rows(), ranks_in_duckdb(folder))


if __name__ == "__main__":
    main()
