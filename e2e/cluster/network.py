"""The cluster's network: a bridge in the control plane's namespace, a link to each node, one link to the host.

The host gets routes and nothing else: to each node's pods by the node, to Services by the control plane, whose
kube-proxy turns their addresses into those of pods. So a test talks HTTP to a ClusterIP or to a pod directly.
"""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.plan import NodePlan, Plan
from e2e.cluster.shell import run
from e2e.cluster.spaces import inside

BRIDGE = "nodes"


def make_control(plan: Plan) -> None:
    """The control plane's namespace, its bridge and the host's link to it."""
    space = plan.control_space
    _make_space(space)
    run("ip", "-n", space, "link", "add", BRIDGE, "type", "bridge")
    run("ip", "-n", space, "addr", "add", f"{plan.control_address}/24", "dev", BRIDGE)
    run("ip", "-n", space, "link", "set", BRIDGE, "up")
    # The API server calls Services too: webhooks. Where the route leads is all one, kube-proxy turns the address.
    run("ip", "-n", space, "route", "add", plan.service_range, "dev", BRIDGE)
    run("ip", "link", "add", plan.host_link, "type", "veth", "peer", "name", "host", "netns", space)
    run("ip", "-n", space, "link", "set", "host", "master", BRIDGE, "up")
    run("ip", "addr", "add", f"{plan.host_address}/24", "dev", plan.host_link)
    run("ip", "link", "set", plan.host_link, "up")
    run("ip", "route", "replace", plan.service_range, "via", plan.control_address)


def make_node(node: NodePlan) -> None:
    """A node's namespace with its link to the bridge, and the way to its pods for all others."""
    plan, space = node.cluster, node.space
    _make_space(space)
    control = plan.control_space
    run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", node.name, "netns", control)
    run("ip", "-n", control, "link", "set", node.name, "master", BRIDGE, "up")
    run("ip", "-n", space, "addr", "add", f"{node.address}/24", "dev", "eth0")
    run("ip", "-n", space, "link", "set", "eth0", "up")
    run("ip", "-n", space, "route", "add", "default", "via", plan.host_address)
    run("ip", "-n", control, "route", "replace", node.pod_range, "via", node.address)
    run("ip", "route", "replace", node.pod_range, "via", node.address)


def join_nodes(nodes: list[NodePlan]) -> None:
    """Tells each node the way to the pods of all others."""
    for node in nodes:
        for other in nodes:
            if other != node:
                run("ip", "-n", node.space, "route", "replace", other.pod_range, "via", other.address)


def _make_space(space: str) -> None:
    run("ip", "netns", "add", space)
    run("ip", "-n", space, "link", "set", "lo", "up")
    run(*inside(space, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
    if Path("/proc/sys/net/bridge").is_dir():
        run(*inside(space, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"))
