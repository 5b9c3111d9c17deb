"""The comparison: DuckDB runs the queries of the graphs over the same files, with a thread for each core."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import duckdb
import polars as pl
from examples.taskgraph.data import TABLES

from benchmarks.graph_files import WIDE, Result, Runs
from benchmarks.peers.spark_sql_graphs import QUERIES

TYPES = {pl.Int64(): "bigint", pl.Float64(): "double", pl.String(): "varchar", pl.Date(): "date"}


def queries(folder: Path, kind: str, cores: int) -> Runs:
    """The queries in one connection; its tables are the files."""
    database = duckdb.connect(config={"threads": cores})
    for table in ("orders", "lineitem", "a", "b"):
        database.execute(f"create view {table} as select * from {_source(folder, table, kind)}")
    return {name: partial(_rows, database, text) for name, text in QUERIES.items()}


def _source(folder: Path, table: str, kind: str) -> str:
    if kind == "parquet":
        return f"read_parquet('{folder}/{table}.parquet')"
    types = {name: TYPES[made] for name, made in TABLES.get(table, {}).items()}
    if types:
        columns = types | {"nothing": "varchar"}
        return f"read_csv('{folder}/{table}.tbl', delim='|', header=false, quote='', columns={columns})"
    columns = dict.fromkeys(["key", *WIDE], "bigint")
    return f"read_csv('{folder}/{table}.csv', header=true, quote='', columns={columns})"


def _rows(database: duckdb.DuckDBPyConnection, text: str) -> Result:
    return [list(row) for row in database.execute(text).fetchall()]
