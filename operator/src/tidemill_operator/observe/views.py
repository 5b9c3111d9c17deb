"""What `decide` looks at: a Module with its revisions, Jobs, topologies and pods; one Topology with its Module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.observe.problems import Problem, age_seconds, is_pod_ready, pod_problem
from tidemill_operator.resources import driver, gateway, names, revision, topology
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.reasons import Reason
from tidemill_operator.resources.revision import Revision


@dataclass(frozen=True)
class JobView:
    """A describe or destroy Job. `pod` succeeded: its log can be read. `may_retry`: it failed for want of a store."""

    exists: bool = False
    is_complete: bool = False
    is_failed: bool = False
    may_retry: bool = False
    finished_seconds: float = 0.0
    pod: str | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class DriversView:
    """The drivers of one topology at one revision."""

    exists: bool = False
    is_warm: bool = False
    pods: int = 0
    ready_pods: tuple[str, ...] = ()
    problem: Problem | None = None


@dataclass(frozen=True)
class TopologyView:
    """A Topology, its drivers by revision, and what its leader says."""

    obj: Json
    drivers: Mapping[int, DriversView] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the resource; `topology` is the name in the module's code."""
        return names.name_of(self.obj)

    @property
    def topology(self) -> str:
        """The name of the topology in the module's code."""
        return str(self.obj["spec"]["topology"])

    @property
    def status(self) -> Json:
        """The status that its leader and the operator wrote; empty before the first."""
        found: Json = self.obj.get("status", {})
        return found

    def of(self, number: int) -> DriversView:
        """The drivers of revision `number`; an empty view if it has none."""
        return self.drivers.get(number, DriversView())

    def is_led_by(self, number: int) -> bool:
        """Whether a driver of this revision leads and its pod works."""
        return self.status.get("revision") == number and self.status.get("leader") in self.of(number).ready_pods

    def silent_seconds(self, now: datetime) -> float:
        """How long ago a driver said that it is there; 0 where none ever did."""
        return age_seconds(self.status["heartbeatTime"], now) if self.status.get("heartbeatTime") else 0.0

    @property
    def is_led(self) -> bool:
        """Whether the revision that its status names leads and its pod works."""
        return self.is_led_by(int(self.status.get("revision") or 0))


@dataclass(frozen=True)
class ModuleView:
    """A Module and all that was made of it."""

    obj: Json
    revisions: Mapping[int, Revision] = field(default_factory=dict)
    describes: Mapping[int, JobView] = field(default_factory=dict)
    topologies: Sequence[TopologyView] = ()
    gateway_ready: int = 0
    gateway_problem: Problem | None = None
    destroy: JobView = field(default_factory=JobView)
    pods: int = 0
    refused: Problem | None = None
    binding: Json | None = None

    @property
    def name(self) -> str:
        """The name of the resource; the module in the store may have another one."""
        return names.name_of(self.obj)

    @property
    def spec(self) -> Json:
        """The spec as the API server holds it, with defaults filled in."""
        found: Json = self.obj["spec"]
        return found

    @property
    def status(self) -> Json:
        """The status that the operator wrote; empty before the first."""
        found: Json = self.obj.get("status", {})
        return found

    def runner_of(self, topology_name: str) -> TopologyView | None:
        """The Topology that runs a topology of the code: the oldest that a person made, else ours."""
        found = [view for view in self.topologies if view.topology == topology_name]
        return min(found, key=rank, default=None)


def rank(view: TopologyView) -> tuple[bool, str, str]:
    """Which of two Topologies for one topology comes first."""
    return topology.is_generated(view.obj), view.obj["metadata"].get("creationTimestamp", ""), view.name


@dataclass(frozen=True)
class TopologyUnit:
    """A Topology, its Module (None: there is none), and what of it is there that may have to go."""

    view: TopologyView
    module: ModuleView | None
    launched: Sequence[Json] = ()
    budget: Json | None = None
    has_account: bool = False
    configured: frozenset[int] = frozenset()
    """Revisions that have their ConfigMap."""

    refused: Problem | None = None


def topology_unit(
    cache: ObjectCache, namespace: str, name: str, now: datetime, refused: Problem | None = None
) -> TopologyUnit | None:
    """The Topology as it is now; None if there is none. Its Module's view holds no other topologies."""
    obj = cache.get("Topology", namespace, name)
    if obj is None:
        return None
    module_name = topology.module_of(obj)
    pods = cache.of_module("Pod", namespace, module_name)
    return TopologyUnit(
        view=_topology_view(cache, obj, pods, now),
        module=module_view(cache, namespace, module_name, now, only=obj["spec"]["topology"]),
        launched=_launched(cache, obj),
        budget=cache.get("PodDisruptionBudget", namespace, name),
        refused=refused,
        has_account=cache.get("ServiceAccount", namespace, names.driver_access_name(module_name)) is not None,
        configured=frozenset(revision_of(item) for item in cache.of_module("ConfigMap", namespace, module_name)),
    )


def module_view(
    cache: ObjectCache,
    namespace: str,
    name: str,
    now: datetime,
    refused: Problem | None = None,
    only: str | None = None,
) -> ModuleView | None:
    """The Module as it is now; None if there is none. `refused` is what the API server last said no to.

    With `only` it holds just the Topologies of this topology.
    """
    obj = cache.get("Module", namespace, name)
    if obj is None:
        return None
    revisions = [revision.read_revision(item) for item in cache.of_module("ControllerRevision", namespace, name)]
    pods = cache.of_module("Pod", namespace, name)
    jobs = {names.name_of(job): job for job in cache.of_module("Job", namespace, name)}
    topologies = [
        _topology_view(cache, item, pods, now)
        for item in cache.of_module("Topology", namespace, name)
        if only in (None, item["spec"]["topology"])
    ]
    serving = cache.get("Deployment", namespace, names.gateway_name(name))
    gateways = _with_role(pods, "gateway")
    return ModuleView(
        obj=obj,
        revisions={item.number: item for item in revisions},
        describes={
            item.number: job_view(jobs.get(names.describe_name(name, item.number)), pods, now) for item in revisions
        },
        topologies=sorted(topologies, key=rank),
        gateway_ready=int((serving or {}).get("status", {}).get("readyReplicas", 0)),
        gateway_problem=_first_problem(gateways, now),
        destroy=job_view(jobs.get(names.destroy_name(name)), pods, now),
        pods=len(_with_role(pods, "driver")) + len(_with_role(pods, "executor")) + len(gateways),
        refused=refused,
        binding=cache.get("RoleBinding", namespace, names.driver_access_name(name)),
    )


def _with_role(pods: Sequence[Json], component: str) -> list[Json]:
    return [pod for pod in pods if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component]


def _first_problem(pods: Sequence[Json], now: datetime) -> Problem | None:
    found = [problem for pod in sorted(pods, key=names.name_of) if (problem := pod_problem(pod, now)) is not None]
    return found[0] if found else None


def _topology_view(cache: ObjectCache, obj: Json, pods: Sequence[Json], now: datetime) -> TopologyView:
    name = names.name_of(obj)
    mine = [pod for pod in pods if pod["metadata"]["labels"].get(names.TOPOLOGY_LABEL) == name]
    launched = _launched(cache, obj)
    numbers = {revision_of(item) for item in [*mine, *launched]}
    drivers = {
        number: _drivers_view(
            obj,
            [item for item in launched if revision_of(item) == number],
            [pod for pod in mine if revision_of(pod) == number],
            now,
        )
        for number in numbers
    }
    return TopologyView(obj, drivers)


def _launched(cache: ObjectCache, obj: Json) -> list[Json]:
    """Deployments and SparkApplications of this Topology."""
    namespace, module = names.namespace_of(obj), topology.module_of(obj)
    found = cache.of_module("Deployment", namespace, module) + cache.of_module("SparkApplication", namespace, module)
    return [item for item in found if item["metadata"]["labels"].get(names.TOPOLOGY_LABEL) == names.name_of(obj)]


def revision_of(obj: Mapping[str, Any]) -> int:
    """The number in the object's revision label; 0 if it has none."""
    return int(obj["metadata"].get("labels", {}).get(names.REVISION_LABEL, 0))


def _drivers_view(obj: Json, launched: Sequence[Json], pods: Sequence[Json], now: datetime) -> DriversView:
    drivers = _with_role(pods, "driver")
    alive = [pod for pod in drivers if not pod["metadata"].get("deletionTimestamp")]
    ready = tuple(sorted(names.name_of(pod) for pod in alive if is_pod_ready(pod)))
    # Spark replaces executors that end: only what keeps them from starting is a problem.
    executors = [pod for pod in _with_role(pods, "executor") if pod.get("status", {}).get("phase") == "Pending"]
    problem = _first_problem(drivers, now) or _first_problem(executors, now)
    deployments = [item for item in launched if item["kind"] == "Deployment"]
    problem = problem or next((found for item in deployments if (found := _refused_pods(item))), None)
    wanted = driver.replicas(obj)
    return DriversView(
        exists=bool(launched),
        is_warm=bool(launched) and len(ready) >= wanted and all(_is_rolled_out(item) for item in deployments),
        pods=len(pods),
        ready_pods=ready,
        problem=problem,
    )


def _is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Whether all pods of the Deployment are of its newest template and ready."""
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    is_seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return bool(is_seen and status.get("updatedReplicas", 0) >= wanted and status.get("readyReplicas", 0) >= wanted)


def _refused_pods(deployment: Mapping[str, Any]) -> Problem | None:
    """A quota or an admission rule that lets no pod come."""
    for condition in deployment.get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Problem(
                Reason.INVALID_OBJECT, f"pods of {names.name_of(deployment)}: {condition.get('message', '')}"
            )
    return None


def job_view(job: Json | None, pods: Sequence[Json], now: datetime) -> JobView:
    """The state of a Job and its pods at `now`; `pods` may hold those of other Jobs, None is no Job."""
    if job is None:
        return JobView()
    mine = [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == names.name_of(job)]
    conditions = {
        item["type"]: item for item in job.get("status", {}).get("conditions", ()) if item["status"] == "True"
    }
    failed = conditions.get("Failed")
    over = failed or conditions.get("Complete") or {}
    newest = sorted(mine, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))[-1:]
    succeeded = [pod for pod in mine if pod.get("status", {}).get("phase") == "Succeeded"]
    return JobView(
        exists=not job["metadata"].get("deletionTimestamp"),
        is_complete="Complete" in conditions or "SuccessCriteriaMet" in conditions,
        is_failed=failed is not None,
        may_retry=failed is not None and failed.get("reason") != "PodFailurePolicy",
        finished_seconds=age_seconds(over.get("lastTransitionTime"), now),
        pod=names.name_of(succeeded[0]) if succeeded else None,
        problem=None if succeeded else _first_problem(newest, now),
    )


def gateway_is_ready(view: ModuleView) -> bool:
    """Whether a gateway pod is ready, or the Module wants none."""
    return view.gateway_ready > 0 or gateway.replicas(view.obj) == 0
