"""Runs attempts and compactions on Spark: sessions, stages, and what travels between them; and Spark's own door to a
store, `format("tidemill")`.

The only package that imports `pyspark`. It knows the steps; the commit log is written by `leader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.spark.data_source import TidemillDataSource


def register(spark: Any) -> type[TidemillDataSource]:
    """Make `format("tidemill")` known to a SparkSession, and let Spark push filters down to Python sources.

    Raises:
        BadInput: PySpark is not installed.
    """
    from tidemill.values.extras import needing

    with needing("spark"):
        from tidemill.spark.data_source import TidemillDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TidemillDataSource)
    return TidemillDataSource
