"""What a SparkContext of Tidemill is configured with, and why (docs/architecture.md; traps of long-lived PySpark
drivers).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

SOCKET_PATH_LIMIT = 60
"""A Unix socket's path may have 107 bytes; Spark adds a name of 42 to the folder."""


@dataclass(frozen=True)
class SparkSettings:
    """`master` as Spark knows it (`local[*]`: all cores; `k8s://…`); `extra` are Spark settings that win over ours.

    `driver_memory` is the JVM's heap: payloads pass through it one by one. `has_ui` opens Spark's web page. `log` is
    where the JVM and the workers write (what user functions print, too): a file, or "stderr"; None is a file that
    goes with the session.
    """

    master: str = "local[*]"
    name: str = "tidemill"
    driver_memory: str = "1g"
    has_ui: bool = False
    log: str | None = None
    log_level: str = "ERROR"
    extra: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_environment() -> SparkSettings:
        """What TIDEMILL_SPARK_MASTER and TIDEMILL_SPARK_LOG say, else the defaults."""
        found = SparkSettings()
        return replace(
            found,
            master=os.environ.get("TIDEMILL_SPARK_MASTER") or found.master,
            log=os.environ.get("TIDEMILL_SPARK_LOG") or None,
        )

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def spark_conf(settings: SparkSettings, folder: Path) -> dict[str, str]:
    """All settings of the context; `folder` is a temporary one of ours, removed with the session."""
    conf = _COMMON | {
        "spark.master": settings.master,
        "spark.app.name": settings.name,
        "spark.log.level": settings.log_level,
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": str(settings.has_ui).lower(),
        "spark.local.dir": str(folder),
    }
    if len(str(folder)) <= SOCKET_PATH_LIMIT:
        conf["spark.python.unix.domain.socket.dir"] = str(folder)
    if settings.is_local:
        conf |= _LOCAL
    return conf | dict(settings.extra)


def worker_environment() -> dict[str, str]:
    """All cores run tasks, so a task has one: thread pools beside it only cost switches."""
    return {"POLARS_MAX_THREADS": "1", "PYTHONHASHSEED": "0"}


_COMMON = {
    # A Python task over Unix sockets starts in half the time of TCP with a secret; workers stay for the next task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # Python code that hangs is killed this long after its job was cancelled, or a phase timeout would not hold.
    "spark.python.task.killTimeout": "200ms",
    # Any free worker is as good as another: waiting for a certain one costs more than reading from the next executor.
    "spark.locality.wait": "0",
    "spark.shuffle.reduceLocality.enabled": "false",
    # Topologies take turns; within one there is one job at a time (and its compaction).
    "spark.scheduler.mode": "FAIR",
    # A re-run of a finished stage or of a failed task fails the attempt, which starts again with version + 1: a
    # function of the user that is not deterministic could otherwise send a record to two tasks or to none.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    # Shuffle files are deleted after each job; what else hangs on garbage (broadcast task binaries) goes with a
    # collection.
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.cleaner.referenceTracking.blocking": "false",
    # Payloads are Arrow; compressing them and their small envelopes again only costs time. Commands are small too.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.broadcast.checksum": "false",
    # Several jobs a second for months: what the web page remembers is bounded.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.retainedDeadExecutors": "10",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.showConsoleProgress": "false",
    "spark.rdd.compress": "false",
}

_LOCAL = {
    # A fresh container's own name may not resolve, and Spark would die at start.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The JVM shares few cores with Python and does little itself: the quick compiler alone starts faster and is as
    # fast after.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:-UsePerfData",
}
