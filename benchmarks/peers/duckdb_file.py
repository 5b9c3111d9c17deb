"""The comparison on one machine: a DuckDB file, each batch one durable transaction of upserts by primary key.

usage: python -m benchmarks.peers.duckdb_file INPUT_FOLDER CORES     (one Parquet file a batch; prints JSON)
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

UPSERT = """
insert into counts select k, count(*), sum(v) from read_parquet(?) group by k
on conflict do update set count = counts.count + excluded.count, sum = counts.sum + excluded.sum
"""


def run(folder: str, cores: int) -> dict[str, Any]:
    """Process all files in order; seconds of each, its commit included."""
    path = Path(tempfile.mkdtemp(prefix="tidemill-bench-")) / "counts.duckdb"
    connection = duckdb.connect(str(path), config={"threads": cores})
    connection.execute("create table counts (k bigint primary key, count bigint, sum hugeint)")
    seconds = []
    for file in sorted(Path(folder).glob("*.parquet")):
        start = time.perf_counter()
        connection.execute(UPSERT, [str(file)])
        seconds.append(time.perf_counter() - start)
    total = connection.execute("select count(*), sum(count), sum(sum) from counts").fetchone()
    connection.close()
    return {"seconds": seconds, "state": [int(value) for value in total or ()]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]))) + "\n")
