"""CPU and time of a Spark session from its start to its third job, with the class archive and without, by turns.

usage: python -m benchmarks.spark_start --rounds N     (prints one JSON object: medians in seconds)
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from tidemill.spark.class_archive import archived
from tidemill.spark.session import shared_session, stop_shared_session
from tidemill.spark.settings import SparkSettings

JOBS = 3
CLUSTER = "local-cluster[2,1,1024]"
WAYS = {
    "driver with archive": ("local[2]", True),
    "driver without archive": ("local[2]", False),
    "driver and two executors with archive": (CLUSTER, True),
    "driver and two executors without archive": (CLUSTER, False),
}


def run_one(master: str, has_archive: bool) -> dict[str, float]:
    """Starts a session in this process, and ends it. A class path of the user keeps the archive from being used."""
    jars = f"{pyspark.__path__[0]}/jars/*"
    extra = {} if has_archive else {f"spark.{process}.extraClassPath": jars for process in ("driver", "executor")}
    if has_archive and not archived({}, ("driver",)):
        sys.exit("There is no archive: python scripts/class_archive.py makes it.")
    begin = time.monotonic()
    session = shared_session(SparkSettings(master=master, extra=extra))
    started = time.monotonic() - begin
    for _ in range(JOBS):
        assert session.context.parallelize(range(10), 2).map(lambda number: number + 1).sum() == 55
    stop_shared_session()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu_s": used.ru_utime + used.ru_stime, "start_s": started}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(run_one(*WAYS[options.way])))
        return
    command = [sys.executable, "-m", "benchmarks.spark_start", "--way"]
    root = Path(__file__).resolve().parent.parent
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, runs in found.items():
            done = subprocess.run([*command, way], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    medians = {
        way: {key: round(statistics.median(run[key] for run in runs), 2) for key in ("cpu_s", "start_s")}
        for way, runs in found.items()
    }
    print(json.dumps(medians, indent=2))


if __name__ == "__main__":
    main()
