"""Runs in the runner image: a module on the engine `spark`, then Spark SQL, and prints one JSON object of results."""

import getpass
import json
import sys
from pathlib import Path

MODULE = """
from tidemill import Agg, CompoundAgg, Depot, Module, Ops, PState

class Pairs(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("sums")
        mb.pstate("$$sums", PState.map_schema(str, int))
        (mb.source("*pairs").out("*microbatch")
           .explode_microbatch("*microbatch").out("*pair")
           .each(Ops.EXPAND, "*pair").out("*key", "*number")
           .hash_partition("*key")
           .compound_agg("$$sums", CompoundAgg.map("*key", Agg.sum("*number"))))
"""


def sums() -> list[int]:
    from pairs import Pairs

    from tidemill import InProcessCluster, LaunchConfig
    from tidemill import Path as Navigation

    with InProcessCluster.create(engine="spark") as cluster:
        cluster.launch_module(Pairs(), LaunchConfig(4, 2))
        depot = cluster.cluster_depot("Pairs", "*pairs")
        for number in range(100):
            depot.append([f"k{number % 5}", number])
        cluster.wait_for_microbatch_processed_count("Pairs", "sums", 100)
        state = cluster.cluster_pstate("Pairs", "$$sums")
        return [state.select_one(Navigation.key(f"k{number}")) for number in range(5)]


def frames() -> dict[str, object]:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    frame = spark.range(100)
    groups = frame.groupBy((frame.id % 3).alias("rest")).count().orderBy("rest").collect()
    frame.write.parquet("/tmp/frame")
    user = spark.sparkContext._jvm.java.lang.System.getProperty("user.name")
    found = {"groups": [list(row) for row in groups], "parquet": spark.read.parquet("/tmp/frame").count(), "java": user}
    spark.stop()
    return found


sys.path.insert(0, "/tmp")
Path("/tmp/pairs.py").write_text(MODULE)
results = {"sums": sums(), "user": getpass.getuser()}
from tidemill.spark.session import stop_shared_session  # noqa: E402

stop_shared_session()
sys.stdout.write(json.dumps({**results, **frames()}))
