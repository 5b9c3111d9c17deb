"""The cluster that is started here, where the machine has none."""

from __future__ import annotations

import fcntl
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import certificates, control, disks, images, network, node, packages, spaces
from e2e.cluster.plan import CGROUPS, NodePlan, Plan, cache_folder
from e2e.cluster.shell import ClusterError, run, say, succeeds, wait_until
from e2e.cluster.tools import find_tools

HERE = Path(__file__).parent


def up(plan: Plan, node_count: int) -> None:
    """Starts the cluster, unless it runs; what a crash left behind is removed first."""
    packages.install_missing()
    with _locked(plan):
        _up(plan, node_count)


def _up(plan: Plan, node_count: int) -> None:
    tools = find_tools()
    if is_whole(plan, node_count):
        wait_nodes_ready(plan, tools, node_count)
        images.load_built(nodes_of(plan))
        return
    if exists(plan):
        say("Removing what another start left behind ...")
        _down(plan)
    begin = time.monotonic()
    _create(plan, node_count, tools)
    say(f"{node_count} node{'s' if node_count > 1 else ''} ready after {time.monotonic() - begin:.1f} s.")


def _create(plan: Plan, node_count: int, tools: dict[str, Path]) -> None:
    nodes = [NodePlan(plan, index) for index in range(node_count)]
    for folder in [plan.folder, plan.logs, *(each.folder for each in nodes)]:
        folder.mkdir(parents=True)
    network.make_control(plan)
    for each in nodes:
        network.make_node(each)
    network.join_nodes(nodes)
    certificates.make_all(plan, nodes)
    say("Starting the control plane, unpacking images ...")
    with ThreadPoolExecutor() as pool:
        storing = pool.submit(_store_images, plan, nodes, tools)
        control.start_control(plan, tools)
        storing.result()
    for each in nodes:
        node.prepare(each)
        node.start_node(each, tools)
    _apply_basics(plan, tools, nodes)
    wait_nodes_ready(plan, tools, node_count)


def _store_images(plan: Plan, nodes: list[NodePlan], tools: dict[str, Path]) -> None:
    images.fill_store(plan, tools)
    for each in nodes:
        images.link_store(each)


def down(plan: Plan) -> None:
    """Ends everything of the cluster and removes it, also what a crash left behind. Nothing there is fine."""
    with _locked(plan):
        _down(plan)


@contextmanager
def _locked(plan: Plan) -> Iterator[None]:
    """One start or end of a cluster at a time."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{plan.folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _down(plan: Plan) -> None:
    names = spaces.spaces_of(plan)
    for space in names:
        if space.startswith(f"{plan.tag}-node"):
            spaces.end_all(space)
    for group in _groups(plan):
        spaces.remove_group(group)
    for space in names:
        spaces.remove_space(space)
    if succeeds("ip", "link", "show", plan.host_link):
        run("ip", "link", "delete", plan.host_link)
    _remove_folder(plan)


def _remove_folder(plan: Plan) -> None:
    # Removed with the last cluster only, since it would take away the mounts on it in the nodes of others.
    if not spaces.spaces_of_all() and node.KUBELET_FOLDER.is_dir() and not any(node.KUBELET_FOLDER.iterdir()):
        node.KUBELET_FOLDER.rmdir()
    for mount in _mounts_below(plan.folder):
        run("umount", "-l", mount)
    if plan.folder.exists():
        run("rm", "-rf", "--one-file-system", plan.folder)


def exists(plan: Plan) -> bool:
    """Whether there is something of the cluster, whole or not."""
    return bool(spaces.spaces_of(plan)) or plan.folder.exists()


def left_behind(plan: Plan) -> list[str]:
    """What of the cluster is on this machine: empty when it is down."""
    found = [f"network namespace {name}" for name in spaces.spaces_of(plan)]
    found += [f"process {pid} in {name}" for name in spaces.spaces_of(plan) for pid in spaces.processes_in(name)]
    found += [f"process {pid} in control group {name}" for name in _groups(plan)
              for pid in spaces.processes_in_group(name)]  # fmt: skip
    found += [f"control group {name}" for name in _groups(plan)]
    found += [f"mount {mount}" for mount in _mounts_below(plan.folder)]
    if Path("/sys/class/net", plan.host_link).exists():
        found.append(f"link {plan.host_link}")
    ours = [plan.pod_range.rsplit(".", 2)[0] + ".", plan.service_range, plan.control_address.rsplit(".", 1)[0] + "."]
    routes = run("ip", "-4", "route").splitlines()
    found += [f"route {route}" for route in routes if any(route.startswith(start) for start in ours)]
    if plan.folder.exists():
        found.append(f"folder {plan.folder}")
    return found


def nodes_of(plan: Plan) -> list[NodePlan]:
    """The nodes of the cluster, running or not."""
    prefix = f"{plan.tag}-node"
    return [plan.node(name.removeprefix(f"{plan.tag}-")) for name in spaces.spaces_of(plan) if name.startswith(prefix)]


def is_whole(plan: Plan, node_count: int) -> bool:
    """Whether all programs of a cluster with so many nodes run."""
    return (
        plan.kubeconfig.exists()
        and set(control.running(plan)) == set(control.PROGRAMS)
        and [each.index for each in nodes_of(plan)] == list(range(node_count))
        and all(spaces.first_process(each.space) for each in nodes_of(plan))
    )


def wait_nodes_ready(plan: Plan, tools: dict[str, Path], node_count: int) -> None:
    """Waits until so many nodes are Ready.

    Raises:
        ClusterError: they are not within 90 s; the error names their logs.
    """
    try:
        wait_until(
            f"{node_count} nodes are ready",
            lambda: len(node.ready_nodes(tools["kubectl"], plan.kubeconfig)) >= node_count,
            90,
            pause=0.3,
        )
    except ClusterError as error:
        raise ClusterError(f"{error} Logs: {plan.logs}") from error


def _apply_basics(plan: Plan, tools: dict[str, Path], nodes: list[NodePlan]) -> None:
    """Volumes, and the `kube-dns` Service.

    CoreDNS runs beside the control plane, so that no node's loss takes names away.
    """
    text = (HERE / "manifests/dns.yaml").read_text()
    text = text.replace("${DNS_SERVICE}", plan.dns_service_address).replace("${CONTROL}", plan.control_address)
    kubectl: list[str | Path] = [tools["kubectl"], f"--kubeconfig={plan.kubeconfig}"]
    wait_until("kube-system exists", lambda: succeeds(*kubectl, "get", "namespace", "kube-system"), 30)
    run(*kubectl, "apply", "-f", "-", text=text)
    run(*kubectl, "apply", "-f", "-", text=disks.manifest(nodes))


def _groups(plan: Plan) -> list[str]:
    """The control groups of the cluster's nodes, known by their names."""
    folders = [CGROUPS, *(path for path in CGROUPS.iterdir() if path.is_dir())] if CGROUPS.is_dir() else []
    pattern = re.compile(rf"{plan.tag}-node\d+")
    return sorted({path.name for folder in folders for path in folder.iterdir() if pattern.fullmatch(path.name)})


def _mounts_below(folder: Path) -> list[str]:
    targets = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [target for target in reversed(targets) if Path(target).is_relative_to(folder)]


def is_possible() -> bool:
    """Whether this machine can run it."""
    return not packages.obstacles() and shutil.which("ip") is not None
