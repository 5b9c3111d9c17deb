"""A program with a streaming query from one depot to another: `killed_query.py STORE CHECKPOINT [BATCH]`.

With BATCH Spark is killed in the commit of that batch, when its rows are appended and Spark does not know it yet. It
runs until all that is available is taken.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import tidemill.spark
from tidemill.spark.data_source import DepotStreamWriter, TidemillDataSource

STARTS_MAX = 20


def main(store: str, checkpoint: str, batch: int | None) -> None:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    tidemill.spark.register(spark)
    if batch is not None:
        spark.dataSource.register(dying(spark.sparkContext._gateway.proc.pid, batch))
    options = {"store": store, "module": "Shapes"}
    read = spark.readStream.format("tidemill").options(**options, depot="events", maxRecordsPerBatch=9)
    rows = read.schema("offset long, id long").load().selectExpr("id", "cast(id as string) as name").repartition(2)
    write = rows.writeStream.format("tidemill").options(**options, depot="people", checkpointLocation=checkpoint)
    again(lambda: write.trigger(availableNow=True).start().awaitTermination())
    spark.stop()


def again(run: Callable[[], Any]) -> None:
    """Run a streaming query; again where Spark gave the query's Python process less time than it needed to start.

    It gives each ten seconds, which nobody can change, and an overloaded machine may need more.
    """
    for left in reversed(range(STARTS_MAX)):
        try:
            run()
            return
        except StreamingQueryException as error:
            if left == 0 or "failed to connect back" not in str(error):
                raise


def dying(process: int, batch: int) -> type[TidemillDataSource]:
    """The data source, whose writer kills Spark when it has committed this batch."""

    class DyingWriter(DepotStreamWriter):
        def commit(self, messages: list[Any], batchId: int) -> None:
            super().commit(messages, batchId)
            if batchId == batch:
                os.kill(process, signal.SIGKILL)

    class DyingSource(TidemillDataSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
            return DyingWriter(super().streamWriter(schema, overwrite).batches)

    return DyingSource


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
