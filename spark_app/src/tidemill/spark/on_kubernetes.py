"""What a SparkContext in a pod is configured with: the driver in client mode, executors as pods that it owns.

Each setting answers a trap of long-lived drivers: addresses that other pods can reach, executors that come fast,
failure counting that must never end a driver, names that a restarted container does not find taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidemill.values.errors import BadInput

DRIVER_PORT: Final = 7078
BLOCKS_PORT: Final = 7079
POD_LABEL: Final = "tidemill.dev/driver-pod"
"""On executors: the uid of the driver's pod, by which a restarted container finds those of its predecessor."""
TOPOLOGY_LABEL: Final = "tidemill.dev/topology"
"""On executors: which Topology they work for; the pod template is the same for all of a Module."""
HEAP_MEBIBYTES_MIN: Final = 512
_EVER: Final = "2147483647"
_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


@dataclass(frozen=True)
class DriverPod:
    """The pod in which the driver runs; `topology` is the name of its Topology object."""

    name: str
    namespace: str
    ip: str
    uid: str
    topology: str = ""


@dataclass(frozen=True)
class Executors:
    """The executors: as many as `count_min`, or up to `count_max` as the work asks for."""

    image: str
    count_min: int = 1
    count_max: int = 1
    cores: int = 1
    memory: str = ""
    template: str = ""
    pull_policy: str = "IfNotPresent"
    resources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OnKubernetes:
    """Driver and executors of one application."""

    pod: DriverPod
    executors: Executors


def kubernetes_conf(place: OnKubernetes, run: str) -> dict[str, str]:
    """Spark's settings; `run` distinguishes the pods of this context from those of earlier ones of the same driver."""
    pod, executors = place.pod, place.executors
    return {
        # Since 4.1 executors dial the bind address; anything but the pod's own IP breaks them.
        "spark.driver.bindAddress": pod.ip,
        "spark.driver.host": pod.ip,
        "spark.kubernetes.executor.useDriverPodIP": "true",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        "spark.kubernetes.namespace": pod.namespace,
        # The owner of the executors: they go with it.
        "spark.kubernetes.driver.pod.name": pod.name,
        "spark.kubernetes.container.image": executors.image,
        "spark.kubernetes.container.image.pullPolicy": executors.pull_policy,
        "spark.kubernetes.executor.podNamePrefix": f"{pod.name}-{run}",
        f"spark.kubernetes.executor.label.{POD_LABEL}": pod.uid,
        **({f"spark.kubernetes.executor.label.{TOPOLOGY_LABEL}": pod.topology} if pod.topology else {}),
        "spark.kubernetes.executor.disableConfigMap": "true",
        # There is none. With both settings a driver needs no rights on Services and claims, which are others' too.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.allocation.batch.delay": "200ms",
        "spark.kubernetes.executor.eventProcessingInterval": "200ms",
        # The watch does not report a pod that was deleted by force; the list does, from the API server's cache.
        "spark.kubernetes.executor.apiPollingInterval": "5s",
        "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
        "spark.kubernetes.executor.missingPodDetectDelta": "5s",
        "spark.kubernetes.executor.terminationGracePeriodSeconds": "10s",
        # The default counts failed executors over a driver's whole life and ends it after a handful.
        "spark.executor.maxNumFailures": _EVER,
        "spark.executor.failuresValidityInterval": "10min",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        # An executor that hangs in silence holds its attempt up for that long.
        "spark.network.timeout": "30s",
        "spark.network.timeoutInterval": "10s",
        "spark.executor.heartbeatInterval": "5s",
        **({"spark.kubernetes.executor.podTemplateFile": executors.template} if executors.template else {}),
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        **_counts(executors),
        **_sizes(executors),
    }


def _counts(executors: Executors) -> dict[str, str]:
    if executors.count_min == executors.count_max:
        return {"spark.executor.instances": str(executors.count_min)}
    return {
        "spark.dynamicAllocation.enabled": "true",
        # Decommissioning hands shuffled data over; tracking it as well would hold idle executors.
        "spark.dynamicAllocation.shuffleTracking.enabled": "false",
        "spark.dynamicAllocation.minExecutors": str(executors.count_min),
        "spark.dynamicAllocation.initialExecutors": str(executors.count_min),
        "spark.dynamicAllocation.maxExecutors": str(executors.count_max),
        "spark.dynamicAllocation.executorIdleTimeout": "60s",
    }


def _sizes(executors: Executors) -> dict[str, str]:
    """What the pod template says of CPU and memory, which Spark would replace by its own; Python needs most of it."""
    conf = {"spark.executor.cores": str(executors.cores)}
    requests, limits = executors.resources.get("requests") or {}, executors.resources.get("limits") or {}
    if "cpu" in requests:
        conf["spark.kubernetes.executor.request.cores"] = str(requests["cpu"])
    if "cpu" in limits:
        conf["spark.kubernetes.executor.limit.cores"] = str(limits["cpu"])
    memory = limits.get("memory") or requests.get("memory")
    if executors.memory:
        conf["spark.executor.memory"] = executors.memory
    elif memory:
        total = mebibytes(str(memory))
        heap = max(HEAP_MEBIBYTES_MIN, total * 2 // 5)
        if total < 2 * HEAP_MEBIBYTES_MIN:
            raise BadInput(
                f"An executor with {memory} of memory is too small for Spark and Python: give it 1Gi or more."
            )
        conf |= {"spark.executor.memory": f"{heap}m", "spark.executor.memoryOverhead": f"{total - heap}m"}
    return conf


def mebibytes(quantity: str) -> int:
    """A quantity of Kubernetes such as `1500Mi` or `2G`.

    Raises:
        BadInput: it is none.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGT]i?|Ki)?", quantity)
    if found is None:
        raise BadInput(f"'{quantity}' is no amount of memory; write it like 2Gi.")
    return int(float(found[1]) * _UNITS[found[2] or ""] / 2**20)
