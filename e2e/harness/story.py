"""One story: a namespace and a bucket of its own, and what is asked of the objects in it."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any, TypeVar

from e2e.harness import modules, timeouts
from e2e.harness.figures import Figure, Figures
from e2e.harness.kubernetes import Object, condition, is_true
from e2e.harness.rows import CountsRows, Gateway
from e2e.harness.store import credentials
from e2e.harness.system import NAMESPACE as SYSTEM_NAMESPACE
from e2e.harness.system import STORY_LABEL, System
from e2e.harness.traffic import Ledger
from e2e.harness.waiting import until

_T = TypeVar("_T")

GATEWAY_PORT = 80


class Story:
    """What a test works with. `name` is the test's file without `test_`; it names namespace and bucket."""

    def __init__(self, system: System, figures: Figures, name: str, suffix: str = "") -> None:
        self.system = system
        self.kubernetes = system.kubernetes
        self.name = name
        self.namespace = f"e2e-{name}{suffix}".replace("_", "-")[:50]
        self.bucket = self.namespace
        self.ledger = Ledger()
        self._figures = figures
        self._gateways: dict[str, Gateway] = {}

    # --- before and after --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Namespace, bucket and Secret; what an interrupted run left is removed first."""
        self.close()
        labels = {STORY_LABEL: "story", "pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.namespace, "labels": labels}
        self.kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.kubernetes.apply(credentials(self.namespace))
        self.system.store.make(self.bucket)

    def close(self) -> None:
        """Removes everything of the story, and waits until it is gone."""
        self._begin_to_close()
        until(f"namespace {self.namespace} is gone", lambda: not self._exists(), timeouts.GONE)
        self.system.store.remove(self.bucket)

    def leave(self) -> None:
        """Removes everything of the story; nobody waits for its pods before the run ends, or it is told again."""
        self._begin_to_close()
        self.system.left.append(self.close)

    def _begin_to_close(self) -> None:
        for gateway in self._gateways.values():
            gateway.close()
        self._gateways.clear()
        if self._exists():
            self._release_objects()
            self.kubernetes.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false")

    def _exists(self) -> bool:
        out = self.kubernetes.kubectl("get", "namespace", self.namespace, "--ignore-not-found", "-o", "name")
        return bool(out.strip())

    def _release_objects(self) -> None:
        """Deletes Modules and Topologies first; without an operator that takes finalizers away, takes them away."""
        where = ["-n", self.namespace, "--ignore-not-found"]
        self.kubernetes.kubectl(
            "delete", "modules.tidemill.dev,topologies.tidemill.dev", "--all", "--wait=false", *where
        )
        try:
            until("no Module is left", lambda: not self._left(), timeouts.GONE)
        except AssertionError:
            for kind, name in self._left():
                self.kubernetes.patch(kind, self.namespace, name, {"metadata": {"finalizers": None}})

    def _left(self) -> list[tuple[str, str]]:
        kinds = ("Module", "Topology")
        return [(k, each["metadata"]["name"]) for k in kinds for each in self.kubernetes.list(k, self.namespace)]

    # --- what a user does --------------------------------------------------------------------------------------------

    def module(self, name: str = "counts", base: Object | None = None, **spec: Any) -> Object:
        """The manifest of a Module on the story's bucket; `Counts` inside the driver unless said otherwise."""
        chosen = {**modules.COUNTS, "engine": "Local"} if base is None else base
        return modules.module(self.namespace, name, self.system.store.url(self.bucket), chosen, **spec)

    def counts_on_spark(self, name: str = "counts", **spec: Any) -> Object:
        """`Counts` on Spark with one small executor."""
        return self.module(name, {**modules.COUNTS, "engine": "Spark", "spark": modules.SMALL_SPARK}, **spec)

    def topology(self, name: str, topology: str = "count", module: str = "counts", **spec: Any) -> Object:
        """The manifest of a Topology."""
        return modules.topology(self.namespace, name, module, topology, **spec)

    def apply(self, *objects: Object) -> float:
        """Applies manifests; when that was."""
        moment = time.monotonic()
        self.kubernetes.apply(*objects)
        return moment

    # --- what a user looks at ----------------------------------------------------------------------------------------

    def get_module(self, name: str = "counts") -> Object:
        """The Module as it is now."""
        found = self.kubernetes.get("Module", self.namespace, name)
        assert found is not None, f"no Module {name}"
        return found

    def get_topology(self, name: str = "counts-count") -> Object:
        """The Topology as it is now."""
        found = self.kubernetes.get("Topology", self.namespace, name)
        assert found is not None, f"no Topology {name}"
        return found

    def status(self, name: str = "counts-count") -> Object:
        """A Topology's status."""
        return self.get_topology(name).get("status") or {}

    def wait_ready(self, name: str = "counts", seconds: float = timeouts.FIRST_COMMIT) -> Object:
        """The Module once it is Ready at its newest generation, with nothing under way."""

        def look() -> Object | None:
            found = self.get_module(name)
            is_done = is_true(found, "Ready") and not is_true(found, "Reconciling")
            return found if is_done else None

        return self._told(f"Module {name} is Ready", look, seconds)

    def wait_stable(self, revision: int, name: str = "counts", seconds: float = timeouts.ROLLOUT) -> Object:
        """The Module once `revision` is its last stable one."""

        def look() -> Object | None:
            found = self.get_module(name)
            return found if (found.get("status") or {}).get("currentRevision") == revision else None

        return self._told(f"revision {revision} of Module {name} is stable", look, seconds)

    def wait_stalled(self, name: str = "counts", seconds: float = timeouts.REFUSED) -> Object:
        """The condition Stalled of the Module once it is true."""

        def look() -> Object | None:
            found = self.get_module(name)
            return condition(found, "Stalled") if is_true(found, "Stalled") else None

        return self._told(f"Module {name} is Stalled", look, seconds)

    def events(self, reason: str) -> list[Object]:
        """Events of a reason in the story's namespace."""
        return [each for each in self.kubernetes.list("Event", self.namespace) if each.get("reason") == reason]

    def drivers(self, topology: str = "counts-count", revision: int | None = None) -> list[Object]:
        """Driver pods of a Topology that are not on their way out."""
        labels = {"app.kubernetes.io/component": "driver", "tidemill.dev/topology": topology}
        if revision is not None:
            labels["tidemill.dev/revision"] = str(revision)
        pods = self.kubernetes.list("Pod", self.namespace, labels)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def leader(self, topology: str = "counts-count") -> Object:
        """The pod that leads a Topology, by its Lease.

        Raises:
            WaitedInVain: nobody leads for long.
        """

        def look() -> Object | None:
            lease = self.kubernetes.get("Lease", self.namespace, topology) or {}
            holder = str(lease.get("spec", {}).get("holderIdentity") or "")
            pods = self.drivers(topology)
            return next((pod for pod in pods if holder.startswith(pod["metadata"]["name"])), None)

        return self._told(f"a driver leads {topology}", look, timeouts.RECOVERY)

    def executors(self, topology: str = "counts-count") -> list[Object]:
        """Executor pods of a Topology that run."""
        labels = {"app.kubernetes.io/component": "executor", "tidemill.dev/topology": topology}
        pods = self.kubernetes.list("Pod", self.namespace, labels)
        return [pod for pod in pods if pod["status"].get("phase") == "Running" and not _is_leaving(pod)]

    # --- rows --------------------------------------------------------------------------------------------------------

    def gateway(self, name: str = "counts") -> Gateway:
        """The module's HTTP interface, once it is there and ready."""
        if name not in self._gateways:
            self._told(f"the gateway of {name} is ready", lambda: self._is_gateway_ready(name), timeouts.RECOVERY)
            secret = self.kubernetes.get("Secret", self.namespace, f"{name}-gateway-token")
            assert secret is not None
            token = base64.b64decode(secret["data"]["token"]).decode()
            address = self.system.reach.address(self.namespace, f"{name}-gateway", GATEWAY_PORT)
            self._gateways[name] = Gateway(f"http://{address}", token)
        return self._gateways[name]

    def _is_gateway_ready(self, name: str) -> bool:
        found = self.kubernetes.get("Deployment", self.namespace, f"{name}-gateway") or {}
        return bool(found.get("status", {}).get("readyReplicas"))

    def rows(self, name: str = "counts") -> CountsRows:
        """The rows of a `Counts` module."""
        return CountsRows(self.gateway(name))

    def append(self, rows: CountsRows, ids: list[str], key: str = "k0", milliseconds: int = 0) -> None:
        """Appends records and notes them in the ledger; until they are acknowledged."""
        records: list[list[Any]] = [[key, each, milliseconds] for each in ids]
        idempotency_key = f"{key}-{ids[0]}-{len(ids)}"

        def append() -> bool:
            rows.append(records, idempotency_key)
            return True

        until("the records are appended", append, timeouts.RECOVERY)
        self.ledger.note(records)

    def figure(self, name: str, value: float, unit: str, bound: float | None = None, note: str = "") -> Figure:
        """Keeps a measured figure; the story itself asserts `holds` where it promises something."""
        return self._figures.add(Figure(name, round(value, 4), unit, bound, self.name, note))

    # --- when it fails -----------------------------------------------------------------------------------------------

    def _told(self, what: str, look: Callable[[], _T | None], seconds: float) -> _T:
        try:
            return until(what, look, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tell()}") from None

    def tell(self) -> str:
        """The story's objects and the last lines of its pods, for the text of a failure."""
        looks = (
            ["get", "modules.tidemill.dev,topologies.tidemill.dev,pods,jobs,leases", "-o", "wide"],
            ["get", "modules.tidemill.dev", "-o", "jsonpath={.items[*].status}"],
            ["get", "topologies.tidemill.dev", "-o", "jsonpath={.items[*].status}"],
            ["get", "events", "--sort-by=.lastTimestamp"],
        )
        parts = [_tried(lambda a=look: self.kubernetes.kubectl("-n", self.namespace, *a)[-6000:]) for look in looks]
        for namespace in (self.namespace, SYSTEM_NAMESPACE):
            names = str(_tried(lambda n=namespace: self.kubernetes.kubectl("-n", n, "get", "pods", "-o", "name")))
            for name in names.split():
                logs = _tried(lambda n=namespace, p=name: self.kubernetes.logs(n, p, lines=25))
                parts.append(f"--- {name}\n{logs}")
        return "\n".join(str(part) for part in parts)


def _is_leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _tried(look: Any) -> Any:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - telling must not hide what it tells of
        return f"({error})"
