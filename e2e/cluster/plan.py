"""Where everything of a cluster of ours lies: names, addresses, folders. All follow from its number."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def cache_folder() -> Path:
    """The folder outside the checkout for what is slow to make and keeps: programs, images."""
    return Path(os.environ.get("TIDEMILL_CACHE") or Path.home() / ".cache/tidemill").absolute()


@dataclass(frozen=True)
class Plan:
    """One cluster of this machine. Clusters of different numbers (0 to 9) do not meet."""

    number: int = 0

    @property
    def tag(self) -> str:
        """Begins the name of every network namespace, link and control group of the cluster."""
        return f"tm{self.number}"

    @property
    def folder(self) -> Path:
        """Holds all state: nothing of a cluster is written elsewhere."""
        return cache_folder() / f"cluster-{self.number}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        """A log file for each program of the control plane, and one folder for each node."""
        return self.folder / "log"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.folder / "pki"

    @property
    def control_space(self) -> str:
        """The network namespace of the control plane, which also holds the bridge between the nodes."""
        return f"{self.tag}-control"

    @property
    def host_link(self) -> str:
        """The only link on the host's side."""
        return f"{self.tag}-host"

    @property
    def host_address(self) -> str:
        """By which pods reach the host."""
        return f"10.99.{self.number}.254"

    @property
    def control_address(self) -> str:
        """Of the API server (port 6443) and of DNS (port 53)."""
        return f"10.99.{self.number}.1"

    @property
    def pod_range(self) -> str:
        """All pods."""
        return f"10.{100 + self.number}.0.0/16"

    @property
    def service_range(self) -> str:
        """All Services."""
        return f"10.{120 + self.number}.0.0/16"

    @property
    def api_service_address(self) -> str:
        """The `kubernetes` Service."""
        return f"10.{120 + self.number}.0.1"

    @property
    def dns_service_address(self) -> str:
        """The `kube-dns` Service."""
        return f"10.{120 + self.number}.0.10"

    def node(self, name: str) -> NodePlan:
        """One node by its name, `node0` and on."""
        return NodePlan(self, int(name.removeprefix("node")))


@dataclass(frozen=True)
class NodePlan:
    """One node: a network, mount and process namespace of its own with containerd, kubelet and kube-proxy."""

    cluster: Plan
    index: int

    @property
    def name(self) -> str:
        """As `kubectl get nodes` shows it."""
        return f"node{self.index}"

    @property
    def space(self) -> str:
        """Its network namespace and its control group."""
        return f"{self.cluster.tag}-{self.name}"

    @property
    def folder(self) -> Path:
        """What survives a stop of the node, as a disk would."""
        return self.cluster.folder / self.name

    @property
    def address(self) -> str:
        """Of the node itself."""
        return f"10.99.{self.cluster.number}.{10 + self.index}"

    @property
    def pod_range(self) -> str:
        """Its pods."""
        return f"10.{100 + self.cluster.number}.{self.index}.0/24"
