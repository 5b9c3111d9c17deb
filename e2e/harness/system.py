"""The system under test on the cluster: custom resources, operator, store. Installed once for all stories of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from e2e.cluster import own
from e2e.cluster.choice import Cluster, find
from e2e.cluster.shell import run
from e2e.cluster.tools import find_tools
from e2e.harness import timeouts
from e2e.harness.faults import Faults
from e2e.harness.kubernetes import Kubernetes, Object
from e2e.harness.reach import Reach
from e2e.harness.store import Store
from e2e.harness.waiting import until
from e2e.images import layout

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/tidemill"
NAMESPACE = "tidemill-system"
OPERATOR = {"app.kubernetes.io/name": "tidemill-operator"}
RELEASE = "tidemill"
STORY_LABEL = "tidemill.dev/e2e"


def cluster_number() -> int:
    """Which cluster of this machine to use, where it starts its own: E2E_CLUSTER, 0 to 9."""
    return int(os.environ.get("E2E_CLUSTER", "0"))


class System:
    """Everything that stories find on the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        tools = find_tools()
        self.cluster = cluster
        self.helm = str(tools.get("helm", "helm"))
        self.kubernetes = Kubernetes(cluster.kubeconfig, tools["kubectl"])
        self.reach = Reach(cluster, self.kubernetes, str(tools["kubectl"]))
        self.store = Store(self.kubernetes, self.reach)
        self.faults = Faults(cluster)
        self.left: list[Callable[[], None]] = []
        """Ends what stories left behind; called once, at the end."""

    @staticmethod
    def start(nodes: int) -> System:
        """The cluster with everything on it, whatever was there before."""
        cluster = find(cluster_number())
        if cluster.kind == "own" and not own.is_whole(cluster.plan, max(nodes, len(own.nodes_of(cluster.plan)))):
            own.up(cluster.plan, nodes)
        system = System(find(cluster_number()))
        system.install()
        system.sweep()
        return system

    def sweep(self) -> None:
        """Removes namespaces of stories that an interrupted run left behind; each with all that is in it."""
        left = self.kubernetes.kubectl("get", "namespaces", "-l", f"{STORY_LABEL}=story", "-o", "name").split()
        for name in left:
            where = ["-n", name.removeprefix("namespace/"), "--all", "--wait=false"]
            self.kubernetes.kubectl("delete", "modules.tidemill.dev,topologies.tidemill.dev", *where)
            self.kubernetes.kubectl("delete", name, "--wait=false")

    def install(self) -> None:
        """Store, custom resources and operator, all ready."""
        self.store.install()
        self.install_operator()

    def install_operator(self) -> None:
        """As users do, by the chart."""
        images = {
            "operator.image.repository": "localhost/tidemill/operator",
            "operator.image.tag": "dev",
            "gateway.image.repository": "localhost/tidemill/gateway",
            "gateway.image.tag": "dev",
            "operator.replicas": "2",
        }
        settings = [part for name, value in images.items() for part in ("--set", f"{name}={value}")]
        built = layout.index().get("localhost/tidemill/operator:dev")
        if built is not None:  # the tag stays the same: pods are replaced where the image is another one
            settings += ["--set-string", f"operator.podAnnotations.image={built.manifest[-12:]}"]
        self.helm_run(
            "upgrade",
            "--install",
            RELEASE,
            str(CHART),
            "--create-namespace",
            "--take-ownership",
            "--force-conflicts",
            *settings,
        )
        self.wait_operator_ready()

    def helm_run(self, *arguments: str) -> str:
        """One helm command in the operator's namespace."""
        where = [f"--kubeconfig={self.cluster.kubeconfig}", "--namespace", NAMESPACE]
        return run(self.helm, *arguments, *where, seconds=timeouts.SYSTEM_UP)

    def wait_operator_ready(self) -> None:
        """Returns once every replica is ready."""

        def look() -> bool:
            found = self.kubernetes.get("Deployment", NAMESPACE, "tidemill-operator") or {}
            status, wanted = found.get("status", {}), found["spec"]["replicas"]
            fresh = status.get("observedGeneration") == found["metadata"]["generation"]
            return bool(fresh and status.get("readyReplicas") == wanted == status.get("updatedReplicas"))

        until("the operator is ready", look, timeouts.SYSTEM_UP)

    def operator_pods(self) -> list[Object]:
        """Pods of the operator that are not on their way out."""
        pods = self.kubernetes.list("Pod", NAMESPACE, OPERATOR)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def operator_holder(self) -> str:
        """Who holds the operator's Lease: a replica's pod and process; empty if nobody does."""
        lease = self.kubernetes.get("Lease", NAMESPACE, "tidemill-operator") or {}
        return str(lease.get("spec", {}).get("holderIdentity") or "")

    def operator_leader(self) -> str:
        """The name of the pod that holds the operator's Lease; empty if none does."""
        holder = self.operator_holder()
        names = [pod["metadata"]["name"] for pod in self.operator_pods()]
        return next((name for name in names if holder.startswith(name)), "")

    def kill_operator(self, spared: str = "") -> tuple[str, float]:
        """SIGKILL to the leading replica: (who held the Lease, when its processes were gone).

        ("", 0.0) if nobody leads, or still the one that was killed before (`spared`), whose Lease has not run out.
        """
        holder = self.operator_holder()
        pod = next((pod for pod in self.operator_pods() if holder.startswith(pod["metadata"]["name"])), None)
        if pod is None or holder == spared:
            return "", 0.0
        return holder, self.faults.kill(pod)

    def close(self) -> None:
        """Ends what runs on this machine; the cluster stays for the next run."""
        self.faults.mend()
        try:
            for end in self.left:
                end()
        finally:
            self.reach.close()
