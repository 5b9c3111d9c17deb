"""An API server in memory, the controllers that act on what the operator makes, and drivers that commit.

It can end the operator's process at any call, before the call takes effect or after.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill_operator.apply.api import ApiFailure, Conflict, Invalid, Missing
from tidemill_operator.apply.events import EventRecorder
from tidemill_operator.apply.performer import Performer
from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.reconcile.queue import WorkKey, WorkQueue
from tidemill_operator.reconcile.reconciler import Reconciler
from tidemill_operator.reconcile.wake_ups import wake
from tidemill_operator.resources import names
from tidemill_operator.resources.settings import Defaults

Json = dict[str, Any]
NAMESPACE = "ns"


def copied(value: Any) -> Any:
    """A deep copy of a JSON value; several times as fast as `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    return [copied(child) for child in value] if isinstance(value, list) else value


def expanded(arguments: Iterable[str]) -> list[str]:
    """Arguments as the kubelet gives them to a process that has no variables: of `$$` one `$` is left, and
    the value of a variable comes in the place of `$(NAME)`.
    """
    pattern = r"\$(\$|\([A-Za-z_][A-Za-z0-9_.-]*\))"
    return [re.sub(pattern, lambda found: "$" if found[1] == "$" else "", each) for each in arguments]


class Killed(BaseException):
    """The operator's process ended here."""


class ManualTime:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @property
    def text(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")


class ApiDouble:
    """Objects by (kind, namespace, name). `seen` gets every change, as a watch does."""

    def __init__(self, time: ManualTime) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.calls: Counter[str] = Counter()
        self.created: Counter[str] = Counter()
        self.history: list[str] = []
        self.logs: dict[str, str] = {}
        self.refuse: Callable[[Json], str | None] = lambda obj: None
        self.fail: Callable[[Json], str | None] = lambda obj: None
        self.seen: Callable[[str, Json], None] = lambda kind, obj: None
        self.kill_at: int | None = None
        self.is_killed_after_effect = False
        self._time, self._version, self._uid = time, 0, 0

    # what tests and controllers do

    def put(self, obj: Json) -> Json:
        """Create or replace as a user or another controller would."""
        key = (obj["kind"], obj["metadata"].get("namespace", NAMESPACE), obj["metadata"]["name"])
        obj = copied(obj)
        known = self.objects.get(key)
        metadata = obj["metadata"]
        metadata["namespace"] = key[1]
        if known is None:
            self._uid += 1
            metadata.update(uid=f"uid-{self._uid}", creationTimestamp=self._time.text, generation=1)
            self.created[obj["kind"]] += 1
        else:
            kept = {name: known["metadata"][name] for name in ("uid", "creationTimestamp")}
            is_changed = known.get("spec") != obj.get("spec")
            metadata.update(kept, generation=known["metadata"]["generation"] + int(is_changed))
            if known.get("status") and "status" not in obj:
                obj["status"] = known["status"]
        if known is not None and _content(known) == _content(obj):
            return copied(known)
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        self.objects[key] = obj
        self.seen("MODIFIED", copied(obj))
        return copied(obj)

    def edit(self, kind: str, name: str, change: Callable[[Json], None]) -> Json:
        obj = copied(self.objects[(kind, NAMESPACE, name)])
        change(obj)
        return self.put(obj)

    def remove(self, kind: str, name: str) -> None:
        """Delete, at once unless a finalizer holds it; what it owns goes too."""
        obj = self.objects.get((kind, NAMESPACE, name))
        if obj is None:
            return
        if obj["metadata"].get("finalizers"):
            self.edit(kind, name, lambda found: found["metadata"].update(deletionTimestamp=self._time.text))
            return
        del self.objects[(kind, NAMESPACE, name)]
        self.seen("DELETED", copied(obj))
        for other in list(self.objects.values()):
            if any(owner["uid"] == obj["metadata"]["uid"] for owner in other["metadata"].get("ownerReferences", ())):
                self.remove(other["kind"], other["metadata"]["name"])

    def find(self, kind: str, name: str) -> Json:
        return self.objects[(kind, NAMESPACE, name)]

    def names(self, kind: str) -> list[str]:
        return sorted(name for found, _, name in self.objects if found == kind)

    # the protocol

    async def apply(self, obj: Json) -> Json:
        return self._call("apply", obj, lambda: self._applied(obj))

    async def apply_status(self, obj: Json) -> Json:
        return self._call("status", obj, lambda: self._status(obj))

    async def clear_status(self, obj: Json, fields: Sequence[str]) -> Json:
        def effect() -> Json:
            known = self.objects.get(_key(obj))
            if known is None or known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                raise Conflict(409, "changed")
            changed = copied(known)
            changed["status"] = {name: value for name, value in known["status"].items() if name not in fields}
            return self.put(changed)

        answer: Json = self._call("status", obj, effect)
        return answer

    async def create(self, obj: Json) -> Json:
        return self._call("create", obj, lambda: self._new(obj))

    async def replace(self, obj: Json) -> Json:
        def effect() -> Json:
            known = self.objects.get(_key(obj))
            if known is None or known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                raise Conflict(409, "changed")
            return self.put(obj)

        return self._call("update", obj, effect)

    async def get(self, kind: str, namespace: str, name: str) -> Json:
        def effect() -> Json:
            if (kind, namespace, name) not in self.objects:
                raise Missing(404, f"no {kind} {name}")
            return copied(self.objects[(kind, namespace, name)])

        return self._call("get", {"kind": kind, "metadata": {"name": name}}, effect)

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        self._call("delete", {"kind": kind, "metadata": {"name": name}}, lambda: self.remove(kind, name))

    async def log(self, namespace: str, pod: str, container: str) -> str:
        return self._call("log", {"kind": "Pod", "metadata": {"name": pod}}, lambda: self.logs.get(pod, ""))

    async def cluster(self) -> str:
        return "cluster-1"

    async def list(self, kind: str, namespace: str | None) -> list[Json]:
        return [copied(obj) for (found, _, _), obj in self.objects.items() if found == kind]

    def _call(self, verb: str, obj: Json, effect: Callable[[], Any]) -> Any:
        text = f"{verb} {obj['kind']}/{obj['metadata'].get('name', '')}"
        is_last = self.kill_at is not None and len(self.history) == self.kill_at
        self.history.append(text)
        self.calls[verb] += 1
        if is_last and not self.is_killed_after_effect:
            raise Killed(text)
        trouble = self.fail(obj) if verb == "apply" else None
        if trouble:
            raise ApiFailure(500, trouble)
        answer = effect()
        if is_last:
            raise Killed(text)
        return answer

    def _applied(self, obj: Json) -> Json:
        refusal = self.refuse(obj)
        if refusal:
            raise Invalid(422, refusal)
        known = self.objects.get(_key(obj))
        uid = obj["metadata"].get("uid")
        if uid is not None and (known is None or known["metadata"]["uid"] != uid):
            raise Conflict(409, "uid mismatch")
        merged = _merged(known or {}, obj)
        if "finalizers" in obj["metadata"]:
            merged["metadata"]["finalizers"] = list(obj["metadata"]["finalizers"])
        if known is not None and known["kind"] == "ControllerRevision" and known["data"] != obj["data"]:
            raise Invalid(422, "data: field is immutable")
        answer = self.put(merged)
        if answer["metadata"].get("deletionTimestamp") and not answer["metadata"].get("finalizers"):
            self.remove(answer["kind"], answer["metadata"]["name"])
        return answer

    def _status(self, obj: Json) -> Json:
        known = self.objects.get(_key(obj))
        if known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]:
            raise Conflict(409, "gone")
        version = obj["metadata"].get("resourceVersion")
        if version is not None and version != known["metadata"]["resourceVersion"]:
            raise Conflict(409, "changed")
        changed = copied(known)
        status = obj["status"] if version is not None else {**known.get("status", {}), **obj["status"]}
        changed["status"] = copied(status)
        return self.put(changed)

    def _new(self, obj: Json) -> Json:
        if _key(obj) in self.objects:
            raise Conflict(409, "exists")
        return self.put(obj)


def _key(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", NAMESPACE), obj["metadata"]["name"]


def _content(obj: Json) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": "", "generation": 0}}


def _merged(known: Any, wanted: Any) -> Any:
    if isinstance(known, dict) and isinstance(wanted, dict):
        return {**known, **{key: _merged(known.get(key), value) for key, value in wanted.items()}}
    return copied(wanted)


class ClusterDouble:
    """The API server with controllers: Jobs, Deployments, drivers. `images` says how each image behaves."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.api = ApiDouble(self.time)
        self.images: dict[str, Json] = {}
        self.definition = 0
        self.defined_by = 0
        self.is_silent, self.store_trouble = False, ""
        self.operator = OperatorDouble(self.api, self.time)
        self.restarts = 0

    def restart_operator(self) -> None:
        self.restarts += 1
        self.operator = OperatorDouble(self.api, self.time)

    async def settle(self, seconds: float = 120.0, is_killing: bool = False) -> None:
        """Let operator and controllers act until `seconds` have passed."""
        end = self.time.seconds() + seconds
        while self.time.seconds() < end:
            try:
                await self.operator.step()
            except Killed:
                assert is_killing
                self.api.kill_at = None
                self.restart_operator()
                await self.operator.step()
            self.act()
            self.time.pass_seconds(1.0)

    def act(self) -> None:
        """One turn of everything that is not the operator."""
        acts = {"Job": self._run_job, "Deployment": self._run_deployment, "Topology": self._lead}
        for kind, act in acts.items():
            for obj in [obj for obj in self.api.objects.values() if obj["kind"] == kind]:
                act(obj)

    def _image(self, pod_spec: Json) -> Json:
        return self.images.get(pod_spec["containers"][0]["image"], {})

    def _run_job(self, job: Json) -> None:
        name = names.name_of(job) + "-pod"
        if ("Pod", NAMESPACE, name) in self.api.objects:
            return
        template, image = job["spec"]["template"], self._image(job["spec"]["template"]["spec"])
        self.api.put(
            {
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "labels": {**template["metadata"]["labels"], "job-name": names.name_of(job)},
                    "ownerReferences": [{"kind": "Job", "uid": job["metadata"]["uid"]}],
                },
                "spec": {"restartPolicy": "Never"},
                "status": image.get("describe_status", {"phase": "Succeeded"}),
            }
        )
        is_back = "--restore-retired" in template["spec"]["containers"][0]["args"]
        faults = [*image.get("faults", ()), *(image.get("faults_when_back", ()) if is_back else ())]
        verdict = {
            "tidemill": "describe",
            "module": "Flights",
            "base": self.definition,
            "is_valid": not faults,
            "faults": faults,
            "definition": {
                "depots": [{"name": "*d"}],
                "pstates": [{"name": name} for name in image.get("pstates", ["$$p"])],
                "topologies": [
                    {"name": topology, "sources": [{"depot": "*d"}]} for topology in image.get("topologies", ["core"])
                ],
            },
            "gateway": "stock",
            "reason": image.get("reason"),
            "warnings": image.get("warnings", []),
        }
        self.api.logs[name] = "warming up\n" + json.dumps(verdict)

    def _run_deployment(self, deployment: Json) -> None:
        wanted = deployment["spec"]["replicas"]
        template, name = deployment["spec"]["template"], names.name_of(deployment)
        image = self._image(template["spec"])
        for number in range(wanted):
            pod_name = f"{name}-{names.digest(template, 4)}-{number}"
            if ("Pod", NAMESPACE, pod_name) not in self.api.objects:
                self.api.put(
                    {
                        "kind": "Pod",
                        "metadata": {
                            "name": pod_name,
                            "labels": dict(template["metadata"]["labels"]),
                            "ownerReferences": [{"kind": "Deployment", "uid": deployment["metadata"]["uid"]}],
                        },
                        "spec": {},
                        "status": image.get("driver_status") or _ready_status(),
                    }
                )
        ready = 0 if image.get("driver_status") else wanted
        if self._is_superseded(template):
            ready = 0
            for number in range(wanted):
                pod_name = f"{name}-{names.digest(template, 4)}-{number}"
                self.api.edit("Pod", pod_name, lambda found: found.update(status={"phase": "Running"}))
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": ready,
        }
        if deployment.get("status") != status:
            self.api.edit("Deployment", name, lambda found: found.update(status=status))

    def _is_superseded(self, template: Json) -> bool:
        """A driver may write the definition after its base, or lead under it if its own revision wrote it."""
        arguments = template["spec"]["containers"][0].get("args", [])
        if "--definition-base" not in arguments:
            return False
        base = int(arguments[arguments.index("--definition-base") + 1])
        is_theirs = self.definition == base + 1 and self.defined_by != int(
            template["metadata"]["labels"][names.REVISION_LABEL]
        )
        return self.definition > base + 1 or is_theirs

    def _lead(self, topology: Json) -> None:
        """The driver of the active revision leads and commits once a second; it writes its definition first."""
        module = self.api.objects.get(("Module", NAMESPACE, topology["spec"]["moduleRef"]["name"]))
        if module is None:
            return
        active = module.get("status", {}).get("activeRevision", 0)
        pods = [
            pod
            for pod in self.operator.cache.of_module("Pod", NAMESPACE, names.name_of(module))
            if pod["metadata"]["labels"].get(names.TOPOLOGY_LABEL) == names.name_of(topology)
            and pod["status"].get("conditions")
        ]
        status = topology.get("status", {})
        mine = [pod for pod in pods if pod["metadata"]["labels"][names.REVISION_LABEL] == str(active)]
        if mine and (status.get("revision") != active or status.get("leader") not in map(names.name_of, mine)):
            if self.defined_by != active:
                self.defined_by, self.definition = active, self.definition + 1
            self._report(topology, revision=active, leader=names.name_of(mine[0]), commits=0)
        elif status.get("leader") in map(names.name_of, pods):
            self._report(topology, status["revision"], status["leader"], status["commitsSinceClaim"] + 1)

    def _report(self, topology: Json, revision: int, leader: str, commits: int) -> None:
        if self.is_silent:
            return
        failing = self._failing(leader)
        status = {
            **topology.get("status", {}),
            "revision": revision,
            "leader": leader,
            "definition": self.definition,
            "commitsSinceClaim": 0 if failing else commits,
            "failuresInRow": topology.get("status", {}).get("failuresInRow", 0) + 1 if failing else 0,
            "failures": [{"code": "UserCodeError", "message": "boom"}] if failing else [],
            "lag": {"*d": 1},
            "lagTotal": 1,
            "rowsPerSecond": 95.8,
            "phase": "Process",
            "heartbeatTime": self.time.text,
            "storeTrouble": self.store_trouble,
            **self._says(leader),
        }
        status = {name: value for name, value in status.items() if value is not None}
        self.api.edit("Topology", names.name_of(topology), lambda found: found.update(status=status))

    def _says(self, leader: str) -> Json:
        """What an image makes its drivers report instead; None: nothing."""
        found: Json = self._behaviour(leader).get("reports", {})
        return found

    def _failing(self, leader: str) -> bool:
        return bool(self._behaviour(leader).get("is_failing"))

    def _behaviour(self, leader: str) -> Json:
        revision = self.api.find("Pod", leader)["metadata"]["labels"][names.REVISION_LABEL]
        module = self.api.find("Pod", leader)["metadata"]["labels"][names.MODULE_LABEL]
        image = self.api.find("ControllerRevision", f"{module}-{revision}")["data"]["template"]["image"]
        return self.images.get(image, {})


def _ready_status() -> Json:
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class OperatorDouble:
    """The operator's process without kopf: its cache is fed by the API double."""

    def __init__(self, api: ApiDouble, time: ManualTime) -> None:
        self.cache = ObjectCache()
        self.queue = WorkQueue(time.seconds)
        self.cache.listen(lambda obj: wake(self.cache, self.queue, obj))
        performer = Performer(api, self.cache, EventRecorder(api, "test"), time)
        self.reconciler = Reconciler(self.cache, performer, Defaults(cluster="cluster-1"), time)
        self.reconciles: Counter[str] = Counter()
        for obj in list(api.objects.values()):
            self._seen("MODIFIED", obj)
        api.seen = self._seen

    def _seen(self, kind: str, obj: Json) -> None:
        if obj["kind"] in ("Secret", "Event", "Lease"):
            return
        if kind == "DELETED":
            self.cache.remove(obj)
        else:
            self.cache.put(obj)

    async def step(self) -> None:
        """Reconcile everything that is due."""
        while isinstance(found := self.queue.take_due(), tuple):
            key: WorkKey = found[0]
            self.reconciles[key.kind] += 1
            try:
                self.queue.done(key, await self.reconciler.reconcile(key))
            except ApiFailure as error:  # as a worker does: the object is tried again
                if isinstance(error, Missing | Invalid):
                    raise
                self.queue.failed(key)
