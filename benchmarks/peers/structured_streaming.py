"""The peer: Spark Structured Streaming, keyed count and sum, state in RocksDB, tuned as its documentation advises.

Changelog checkpointing on, row counting off, a block cache that holds the state, as many shuffle partitions as cores,
AQE off, a sink that costs nothing. Prints one JSON object: seconds of each batch (trigger execution, as Spark reports
it), and totals of the state.
usage: python -m benchmarks.peers.structured_streaming INPUT_FOLDER FILES_PER_TRIGGER CORES
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROCKSDB = "spark.sql.streaming.stateStore.rocksdb."
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.log.level": "ERROR",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    ROCKSDB + "changelogCheckpointing.enabled": "true",
    ROCKSDB + "trackTotalNumberOfRows": "false",
    ROCKSDB + "blockCacheSizeMB": "512",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


def _session(cores: int) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.sql.shuffle.partitions", str(cores))
    for key, value in CONF.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run(folder: str, files_per_trigger: int, cores: int) -> dict[str, Any]:
    """Process all files in order, `files_per_trigger` a batch, and read the whole state at the end."""
    spark = _session(cores)
    checkpoint = tempfile.mkdtemp(prefix="tidemill-bench-")
    rows = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", files_per_trigger).parquet(folder)
    counts = rows.groupBy("k").agg(F.count("*").alias("count"), F.sum("v").alias("sum"))
    query = (
        counts.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [batch for batch in query.recentProgress if batch["numInputRows"] > 0]
    state = spark.read.format("statestore").load(checkpoint).agg(F.count("*"), F.sum("value.count"), F.sum("value.sum"))
    total = state.collect()[0]
    spark.stop()
    return {
        "seconds": [batch["durationMs"]["triggerExecution"] / 1000 for batch in progress],
        "rows": [batch["numInputRows"] for batch in progress],
        "state": [int(value) for value in total],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))) + "\n")
