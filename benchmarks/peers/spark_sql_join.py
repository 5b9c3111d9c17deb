"""The comparison: Spark SQL joins the same rows and sums up by category, in a session that is warm.

As many shuffle partitions as cores; AQE is on, as by default. The result is collected. Prints one JSON object.
usage: python -m benchmarks.peers.spark_sql_join FOLDER ROUNDS CORES
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession

QUERY = "select category, sum(amount) as total from sales join items using (item) group by category"


def run(folder: str, rounds: int, cores: int) -> dict[str, Any]:
    """Seconds of each round, two of them before to warm up."""
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.sql.shuffle.partitions", str(cores))
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for name in ("sales", "items"):
        spark.read.parquet(f"{folder}/{name}.parquet").createOrReplaceTempView(name)
    seconds, sums = [], {}
    for _ in range(2 + rounds):
        start = time.perf_counter()
        sums = {row["category"]: row["total"] for row in spark.sql(QUERY).collect()}
        seconds.append(time.perf_counter() - start)
    spark.stop()
    wanted = [sums[category] for category in sorted(sums) if category % 50 == 0]
    return {"seconds": seconds[2:], "median": statistics.median(seconds[2:]), "sums": wanted}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))) + "\n")
