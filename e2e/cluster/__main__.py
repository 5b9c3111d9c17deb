"""`python -m e2e.cluster up|down|status|able|load|node|apiserver`: the cluster that the end-to-end tests run on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from e2e.cluster import control, images, kind, node, own, spaces
from e2e.cluster.choice import Cluster, check_given, find
from e2e.cluster.plan import NodePlan
from e2e.cluster.shell import ClusterError, run, say
from e2e.cluster.tools import find_tools


def main() -> int:
    """Does what the command line asks; 1 with one sentence on stderr when it cannot."""
    given = _parser().parse_args()
    try:
        given.do(find(given.number), given)
    except ClusterError as error:
        say(str(error))
        return 1
    return 0


def _up(cluster: Cluster, given: argparse.Namespace) -> None:
    if cluster.kind == "own":
        own.up(cluster.plan, given.nodes)
    elif cluster.kind == "kind":
        kind.up(given.nodes)
        kind.load_all(find_tools())
    else:
        say(f"KUBECONFIG names a cluster, so that one is used:\n{check_given(cluster.kubeconfig)}")
        return
    say(f"Use it with:\n  export KUBECONFIG={cluster.kubeconfig}\n  export PATH={_programs()}:$PATH")


def _able(cluster: Cluster, given: argparse.Namespace) -> None:
    say(f"Stories can be told here, on a cluster of this kind: {cluster.kind}.")


def _programs() -> Path:
    """A folder with `kubectl` and `helm` by their plain names."""
    tools = find_tools()
    folder = tools["kubectl"].parent / "path"
    folder.mkdir(exist_ok=True)
    for name in ["kubectl", "helm"]:
        link = folder / name
        if not link.exists() or link.resolve() != tools[name].resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(tools[name])
    return folder


def _down(cluster: Cluster, given: argparse.Namespace) -> None:
    if cluster.kind == "given":
        say("KUBECONFIG names a cluster that was not started here: it stays as it is.")
    elif cluster.kind == "kind":
        kind.down()
    else:
        own.down(cluster.plan)
        left = own.left_behind(cluster.plan)
        if left:
            raise ClusterError("Left behind: " + ", ".join(left))
        say("The cluster is gone.")


def _status(cluster: Cluster, given: argparse.Namespace) -> None:
    if cluster.kind != "own":
        say(f"{cluster.kind} cluster, {cluster.kubeconfig}\n{check_given(cluster.kubeconfig)}")
        return
    plan = cluster.plan
    if not own.exists(plan):
        raise ClusterError("No cluster runs. Start one with `python -m e2e.cluster up`.")
    here = control.running(plan)
    for program in control.PROGRAMS:
        say(f"{program:24} {'runs' if program in here else 'OFF, log: ' + str(plan.logs / (program + '.log'))}")
    for each in own.nodes_of(plan):
        say(f"{each.name:24} {'runs' if spaces.first_process(each.space) else 'OFF'}")
    if "kube-apiserver" in here:
        say(run(find_tools()["kubectl"], f"--kubeconfig={plan.kubeconfig}", "get", "nodes", "-o", "wide").rstrip())
    say(f"export KUBECONFIG={plan.kubeconfig}")


def _load(cluster: Cluster, given: argparse.Namespace) -> None:
    if cluster.kind == "kind":
        if given.archives:
            kind.load_archives(given.archives)
        else:
            kind.load_all(find_tools())
        return
    nodes = own.nodes_of(_own(cluster).plan)
    if given.archives:
        images.load_archives(nodes, given.archives)
    else:
        say(f"Loaded: {', '.join(images.load_built(nodes)) or 'nothing new'}")


def _node(cluster: Cluster, given: argparse.Namespace) -> None:
    each = _known_node(_own(cluster), given.name)
    if given.action == "stop":
        node.stop_node(each)
    else:
        node.start_node(each, find_tools())


def _api_server(cluster: Cluster, given: argparse.Namespace) -> None:
    plan = _own(cluster).plan
    if given.action == "stop":
        control.stop_api_server(plan)
    else:
        control.start_api_server(plan, find_tools())


def _own(cluster: Cluster) -> Cluster:
    if cluster.kind != "own" or not own.nodes_of(cluster.plan):
        raise ClusterError("This works on a cluster of our own only: unset KUBECONFIG, `python -m e2e.cluster up`.")
    return cluster


def _known_node(cluster: Cluster, name: str) -> NodePlan:
    known = {each.name: each for each in own.nodes_of(cluster.plan)}
    if name not in known:
        raise ClusterError(f"There is no node {name}; there are {', '.join(known)}.")
    return known[name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    parser.add_argument("--number", type=int, default=0, choices=range(10), help="which cluster of this machine")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start the cluster, or check the one of KUBECONFIG")
    up.add_argument("--nodes", type=int, default=1, choices=range(1, 6))
    up.set_defaults(do=_up)
    commands.add_parser("down", help="end it and leave nothing behind").set_defaults(do=_down)
    commands.add_parser("status", help="what of it runs").set_defaults(do=_status)
    able = commands.add_parser("able", help="whether a cluster can be used or started here; says what is lacking")
    able.set_defaults(do=_able)
    load = commands.add_parser("load", help="put images on all nodes: those of FILEs, or those built by e2e.images")
    load.add_argument("archives", nargs="*", type=Path, metavar="FILE")
    load.set_defaults(do=_load)
    nodes = commands.add_parser("node", help="cut the power of a node, or give it back")
    nodes.add_argument("action", choices=["stop", "start"])
    nodes.add_argument("name")
    nodes.set_defaults(do=_node)
    api = commands.add_parser("apiserver", help="kill the API server, or start it again")
    api.add_argument("action", choices=["stop", "start"])
    api.set_defaults(do=_api_server)
    return parser


if __name__ == "__main__":
    sys.exit(main())
