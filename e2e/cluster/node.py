"""Nodes: containerd, kubelet and kube-proxy in namespaces of their own, so that one can be lost without the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from e2e.cluster import disks
from e2e.cluster.plan import CGROUPS, CONTAINERD_SOCKET, NodePlan
from e2e.cluster.shell import ClusterError, run, start, wait_until
from e2e.cluster.spaces import end_all, first_process, inside, remove_group

HERE = Path(__file__).parent
KUBELET_FOLDER = Path("/var/lib/kubelet")  # only a place to mount on: each node has its own there
PAUSE_IMAGE = "localhost/tidemill/pause:1"


def prepare(node: NodePlan) -> None:
    """Writes the node's settings. Its containerd folder may be there already, with images."""
    plan = node.cluster
    disks.make_folders(node)
    for folder in [node.folder / "kubelet", node.folder / "cni", plan.logs / node.name]:
        folder.mkdir(parents=True, exist_ok=True)
    (node.folder / "containerd.toml").write_text(containerd_settings(node.folder / "containerd", node.folder / "cni"))
    (node.folder / "cni/10-bridge.conflist").write_text(json.dumps(_pod_network(node), indent=1))
    (node.folder / "kubelet.yaml").write_text(json.dumps(_kubelet_settings(node), indent=1))
    shutil.copy(plan.pki / f"{node.name}.kubeconfig", node.folder / "kubelet.kubeconfig")


def start_node(node: NodePlan, tools: dict[str, Path]) -> None:
    """Starts the node's programs, unless they run."""
    if first_process(node.space) is not None:
        return
    plan = node.cluster
    _make_group(node.space)
    KUBELET_FOLDER.mkdir(exist_ok=True)
    start(
        inside(
            node.space, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            "bash", HERE / "node.sh", node.folder, plan.logs / node.name, node.name,
            tools["kubelet"], tools["kube-proxy"], plan.kubeconfig, plan.pod_range, node.address,
        ),
        plan.logs / node.name / "node.log",
    )  # fmt: skip
    wait_until(f"{node.name} has started", lambda: first_process(node.space) is not None, 10)


def stop_node(node: NodePlan) -> None:
    """Ends all of a node at once, pods included, as if its power failed. Its disk stays."""
    end_all(node.space)
    remove_group(node.space)


def containerd_command(node: NodePlan) -> list[str]:
    """The `ctr` command line that talks to a node's containerd from the host.

    Raises:
        ClusterError: the node is off.
    """
    first = first_process(node.space)
    if first is None:
        raise ClusterError(f"{node.name} is off: start it with `python -m e2e.cluster node start {node.name}`.")
    socket = Path(f"/proc/{first}/root{CONTAINERD_SOCKET}")
    wait_until(f"containerd of {node.name} answers", socket.exists, 30)
    return ["ctr", "-a", str(socket), "-n", "k8s.io"]


def _make_group(name: str) -> None:
    """The control group below which the kubelet makes those of pods.

    Each node has one, since two kubelets in one would end each other's pods.
    """
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / name).mkdir(exist_ok=True)
        return
    for hierarchy in CGROUPS.iterdir():
        if hierarchy.is_dir() and (hierarchy / "cgroup.procs").exists():
            (hierarchy / name).mkdir(exist_ok=True)
    for setting in ["cpuset.cpus", "cpuset.mems"]:
        if (CGROUPS / "cpuset" / setting).exists():
            (CGROUPS / "cpuset" / name / setting).write_text((CGROUPS / "cpuset" / setting).read_text())


def containerd_settings(root: Path, cni: Path) -> str:
    """containerd.toml for a containerd with its state in a private /run and its images in `root`."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{root}"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root / "opt"}"
[{cri}]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [{cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [{cri}.containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [{cri}.containerd.runtimes.runc.options]
        BinaryName = "{shutil.which("runc") or "/usr/sbin/runc"}"
"""


def _pod_network(node: NodePlan) -> dict[str, object]:
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni",  # forgotten when the node loses power, as its pods are
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "tidemill", "plugins": [bridge, ports]}


def _kubelet_settings(node: NodePlan) -> dict[str, object]:
    plan = node.cluster
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.space}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "clusterDNS": [plan.dns_service_address],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plan.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(plan.pki / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(plan.pki / f"{node.name}.key"),
        "maxPods": 110,
        "serializeImagePulls": False,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "enforceNodeAllocatable": [],
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "volumePluginDir": str(node.folder / "kubelet/volume-plugins"),
        "podLogsDir": str(node.folder / "pods-log"),
        "seccompDefault": True,
    }


def ready_nodes(kubectl: Path, kubeconfig: Path) -> list[str]:
    """The names of the nodes that say Ready."""
    shown = run(kubectl, f"--kubeconfig={kubeconfig}", "get", "nodes", "-o", "json")
    return [
        item["metadata"]["name"]
        for item in json.loads(shown)["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", []))
    ]
