"""What a SparkContext of Tidemill is configured with, and why (docs/architecture.md; traps of long-lived PySpark
drivers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.spark.class_archive import archived
from tidemill.spark.on_kubernetes import OnKubernetes, kubernetes_conf
from tidemill.values.errors import BadInput
from tidemill.values.ids import nonce

SOCKET_PATH_LIMIT = 60
"""A Unix socket's path may have 107 bytes; Spark adds a name of 42 to the folder."""


@dataclass(frozen=True)
class SparkSettings:
    """`master` as Spark knows it (`local[*]`: all cores; `k8s://…`); `extra` are Spark settings that win over ours,
    but for those that a user may not change (`check_extra`). `kubernetes` is set where executors are pods.

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
    kubernetes: OnKubernetes | None = None

    @property
    def executors(self) -> int:
        """How many executors must be there before work begins."""
        return self.kubernetes.executors.count_min if self.kubernetes is not None else 0

    @property
    def is_local(self) -> bool:
        """Whether driver and workers are processes of this machine."""
        return self.master.startswith("local")

    @property
    def has_executors(self) -> bool:
        """Whether executors are processes beside the driver, be it on this machine (`local-cluster[2,1,1024]`)."""
        return not re.match(r"local(\[|$)", self.master)


def spark_conf(settings: SparkSettings, folder: Path) -> dict[str, str]:
    """All settings of the context; `folder` is a temporary one of ours, removed with the session.

    Raises:
        BadInput: `extra` has settings that a user may not change.
    """
    check_extra(settings.extra)
    conf = _COMMON | {
        "spark.master": settings.master,
        "spark.app.name": settings.name,
        "spark.log.level": settings.log_level,
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": str(settings.has_ui).lower(),
        "spark.local.dir": str(folder),
    }
    # Workers of executors make their sockets there too, and only the folders of their pod template are theirs: with
    # pods it is the default, /tmp.
    if settings.kubernetes is None and len(str(folder)) <= SOCKET_PATH_LIMIT:
        conf["spark.python.unix.domain.socket.dir"] = str(folder)
    if settings.is_local:
        conf |= _LOCAL
    if settings.kubernetes is not None:
        conf |= kubernetes_conf(settings.kubernetes, nonce()[:6])
    conf |= settings.extra
    # In a pod it is the image's entrypoint that knows the executor's class path.
    return conf | archived(conf, ("driver",) if settings.kubernetes is not None else ("driver", "executor"))


def check_extra(extra: Mapping[str, str]) -> None:
    """Whether a user may set all of these.

    Raises:
        BadInput: names every setting that may not be set, and why.
    """
    faults = [f"{key}: {fault}" for key in sorted(extra) if (fault := extra_fault(key, extra[key]))]
    if faults:
        raise BadInput(f"Spark settings that cannot be set: {' '.join(faults)}", keys=sorted(extra))


def extra_fault(key: str, value: object) -> str:
    """Why a user may not set this; empty if it is fine."""
    if not key.startswith("spark."):
        return "names of Spark settings begin with 'spark.'."
    if not isinstance(value, str):
        return f"the value must be a text, not {value!r}; put it in quotes."
    if any(word in key.lower() for word in _SECRET_WORDS):
        return "secrets do not belong into Spark's settings, which its web page shows; use the store's Secret."
    for start, why in _REFUSED.items():
        if key == start or (start.endswith(".") and key.startswith(start)):
            return why
    return ""


def worker_environment() -> dict[str, str]:
    """All cores run tasks, so a task has one: thread pools beside it only cost switches."""
    return {"POLARS_MAX_THREADS": "1", "PYTHONHASHSEED": "0"}


_EXACTLY_ONCE = "it would let Spark run a part of an attempt twice, and records could count twice; leave it out."
_OURS = "Tidemill sets it; leave it out."
_COUNTS = "use spark.executors (count, or min and max) instead."

_REFUSED = {
    "spark.task.maxFailures": _EXACTLY_ONCE,
    "spark.stage.maxConsecutiveAttempts": _EXACTLY_ONCE,
    "spark.stage.maxAttempts": _EXACTLY_ONCE,
    "spark.stage.ignoreDecommissionFetchFailure": _EXACTLY_ONCE,
    "spark.speculation": _EXACTLY_ONCE,
    "spark.speculation.": _EXACTLY_ONCE,
    "spark.master": _OURS,
    "spark.submit.": _OURS,
    "spark.app.name": _OURS,
    "spark.app.id": _OURS,
    "spark.local.dir": _OURS,
    "spark.scheduler.mode": _OURS,
    "spark.driver.host": _OURS,
    "spark.driver.bindAddress": _OURS,
    "spark.driver.port": _OURS,
    "spark.driver.blockManager.port": _OURS,
    "spark.python.unix.domain.socket.": _OURS,
    "spark.executor.maxNumFailures": _OURS,
    "spark.executor.failuresValidityInterval": _OURS,
    "spark.executor.instances": _COUNTS,
    "spark.dynamicAllocation.enabled": _COUNTS,
    "spark.dynamicAllocation.minExecutors": _COUNTS,
    "spark.dynamicAllocation.maxExecutors": _COUNTS,
    "spark.dynamicAllocation.initialExecutors": _COUNTS,
    "spark.kubernetes.namespace": _OURS,
    "spark.kubernetes.authenticate.": _OURS,
    "spark.kubernetes.container.image": "use the Module's image instead.",
    "spark.kubernetes.executor.container.image": "use the Module's image instead.",
    "spark.kubernetes.driver.pod.name": _OURS,
    "spark.kubernetes.executor.useDriverPodIP": _OURS,
    "spark.kubernetes.executor.disableConfigMap": _OURS,
    "spark.kubernetes.executor.podNamePrefix": _OURS,
    "spark.kubernetes.executor.podTemplateFile": "use spark.executor.template instead.",
    "spark.kubernetes.executor.podTemplateContainerName": _OURS,
    "spark.kubernetes.executor.secrets.": "use spark.executor.template instead.",
}
"""What a user may not set; a name that ends with a dot stands for all that begin with it."""

_SECRET_WORDS = ("secret_access_key", "secret.key", "access.key", "access_key", "password", "session_token")

# A JVM shares few cores with Python and does little itself: its quick compiler alone starts faster, then is as fast.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:-UsePerfData"
_COMMON = {
    "spark.driver.extraJavaOptions": _JVM,
    "spark.executor.extraJavaOptions": _JVM,
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
    # By default a stage that lost its input with a decommissioned executor is run again without being counted.
    "spark.stage.ignoreDecommissionFetchFailure": "false",
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
}
