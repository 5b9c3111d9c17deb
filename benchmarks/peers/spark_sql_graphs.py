"""The comparison: Spark SQL runs the same queries over the same files, and PageRank with DataFrames, in a warm session.

As many shuffle partitions as cores; AQE is on, as by default; the columns of CSV files have declared types.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

import polars as pl
from examples.taskgraph.data import TABLES
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.graph_files import DAMPING, PAGES, RANK_ROUNDS, WIDE, Result, Runs, shown

TYPES = {pl.Int64(): "bigint", pl.Float64(): "double", pl.String(): "string", pl.Date(): "date"}
QUERIES = {
    "tpch_q6": """select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= '1994-01-01'
        and l_shipdate < '1995-01-01' and l_discount between 0.0499 and 0.0701 and l_quantity < 24""",
    "tpch_q12": """select l_shipmode, sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end),
        sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 0 else 1 end) from orders join lineitem
        on o_orderkey = l_orderkey where l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
        and l_shipdate < l_commitdate and l_receiptdate >= '1994-01-01' and l_receiptdate < '1995-01-01'
        group by l_shipmode order by l_shipmode""",
    "join_count": "select count(*) from a join b using (key)",
}


def session(cores: int) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.sql.shuffle.partitions", str(cores))
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"}
    for key, value in {**settings, "spark.driver.memory": "4g"}.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    return made


def define(spark: SparkSession, folder: str, kind: str) -> None:
    """The tables as views, over CSV or Parquet."""
    for table in ("orders", "lineitem", "a", "b"):
        if kind == "parquet":
            spark.read.parquet(f"{folder}/{table}.parquet").createOrReplaceTempView(table)
            continue
        names = TABLES.get(table) or {"key": pl.Int64(), **dict.fromkeys(WIDE, pl.Int64())}
        columns = ", ".join(f"{name} {TYPES[made]}" for name, made in names.items())
        is_tpch = table in TABLES
        file = f"{folder}/{table}.{'tbl' if is_tpch else 'csv'}"
        rows = spark.read.csv(
            file,
            schema=columns + (", nothing string" if is_tpch else ""),
            sep="|" if is_tpch else ",",
            header=not is_tpch,
        )
        rows.createOrReplaceTempView(table)


def queries(spark: SparkSession, folder: Path, kind: str) -> Runs:
    """The queries; views are made anew for each kind of file: run those of a kind before asking for the next."""
    define(spark, str(folder), kind)
    return {name: partial(_rows, spark, text) for name, text in QUERIES.items()}


def _rows(spark: SparkSession, text: str) -> Result:
    return [list(row) for row in spark.sql(text).collect()]


def ranks(spark: SparkSession, folder: Path) -> Callable[[], Result]:
    """PageRank as a loop over DataFrames; the links are cached."""
    links = spark.read.parquet(f"{folder}/links.parquet")
    degrees = links.groupBy("source").agg(f.count("*").alias("degree"))
    weighted = links.join(degrees, "source").withColumn("weight", 1.0 / f.col("degree")).cache()
    pages = spark.range(PAGES).withColumnRenamed("id", "y").cache()
    dangling = pages.join(degrees, pages.y == degrees.source, "left_anti").cache()
    weighted.count(), dangling.count()

    def run() -> Result:
        vector = pages.withColumn("val", f.lit(1.0 / PAGES))
        for _ in range(RANK_ROUNDS):
            lost = dangling.join(vector, "y").agg(f.sum("val")).first()[0] or 0.0
            base = (1 - DAMPING + DAMPING * lost) / PAGES
            products = weighted.join(vector, weighted.source == vector.y).select(
                "target", (f.col("val") * f.col("weight")).alias("p")
            )
            sums = products.groupBy("target").agg(f.sum("p").alias("s"))
            vector = (
                pages.join(sums, pages.y == sums.target, "left")
                .select("y", (DAMPING * f.coalesce("s", f.lit(0.0)) + base).alias("val"))
                .localCheckpoint()
            )
        return shown(pl.DataFrame(vector.toArrow()).sort("y")["val"])

    return run
