"""Which cluster tests run on: the one of KUBECONFIG, else a kind cluster, else one of our own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import kind, own, packages
from e2e.cluster.plan import Plan
from e2e.cluster.shell import ClusterError, run
from e2e.cluster.tools import find_tools


@dataclass(frozen=True)
class Cluster:
    """A cluster to test on."""

    kind: str
    """`given` (by KUBECONFIG), `kind` or `own`."""
    kubeconfig: Path
    plan: Plan

    @property
    def is_routed(self) -> bool:
        """Whether this machine reaches pods and Services by their addresses; else tests forward ports."""
        return self.kind == "own"


def find(number: int = 0) -> Cluster:
    """The cluster to use, whether it runs or not.

    Raises:
        ClusterError: this machine offers none; the error says what to install.
    """
    plan = Plan(number)
    given = os.environ.get("KUBECONFIG")
    if given and Path(given) != plan.kubeconfig:
        return Cluster("given", Path(given), plan)
    if own.exists(plan):
        return Cluster("own", plan.kubeconfig, plan)
    if kind.is_possible():
        return Cluster("kind", kind.kubeconfig(), plan)
    obstacles = packages.obstacles()
    if obstacles:
        raise ClusterError(
            "There is no cluster to test on: set KUBECONFIG to one, or install kind and Docker, or let this start one "
            f"of its own ({'; '.join(obstacles)})."
        )
    return Cluster("own", plan.kubeconfig, plan)


def check_given(kubeconfig: Path) -> str:
    """The nodes of a cluster that was named by KUBECONFIG.

    Raises:
        ClusterError: it does not answer.
    """
    kubectl = find_tools()["kubectl"]
    return run(kubectl, f"--kubeconfig={kubeconfig}", "get", "nodes", "--request-timeout=10s")
