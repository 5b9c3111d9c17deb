"""What goes wrong on purpose: signals to processes in pods, pods deleted, the API server and nodes stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.cluster import control, node, own
from e2e.cluster.choice import Cluster
from e2e.cluster.spaces import processes_in_group
from e2e.cluster.tools import find_tools
from e2e.harness.kubernetes import Object


class Faults:
    """Faults that need the machine behind the nodes; only a cluster that was started here offers them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stopped: list[int] = []

    def need_own_cluster(self) -> None:
        """Ends the story as not run, with the reason, where the nodes' processes can not be reached."""
        if self._cluster.kind != "own":
            pytest.skip("this story signals processes on nodes: it needs the cluster that e2e.cluster starts")

    def processes_of(self, pod: Object, program: str = "") -> list[int]:
        """Processes of a pod, by their numbers on this machine; those only whose command line holds `program`."""
        uid = pod["metadata"]["uid"].replace("-", "_")
        found = []
        for each in own.nodes_of(self._cluster.plan):
            for pid in processes_in_group(each.space):
                group = _read(pid, "cgroup")
                if (uid in group or pod["metadata"]["uid"] in group) and program in _read(pid, "cmdline"):
                    found.append(pid)
        return [pid for pid in found if Path(_read(pid, "cmdline").split("\0")[0]).name != "pause"]

    def kill(self, pod: Object, program: str = "") -> list[int]:
        """SIGKILL to the processes of a pod's containers, as the kernel does when memory is short."""
        pids = self.processes_of(pod, program)
        assert pids, f"no process with {program!r} in pod {pod['metadata']['name']}"
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        return pids

    @contextmanager
    def stopped(self, pod: Object) -> Iterator[list[int]]:
        """All processes of a pod stand still (SIGSTOP), then go on (SIGCONT)."""
        pids = self.processes_of(pod)
        assert pids, f"no process in pod {pod['metadata']['name']}"
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        self._stopped += pids
        try:
            yield pids
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)
            self._stopped = [pid for pid in self._stopped if pid not in pids]

    @contextmanager
    def api_server_away(self) -> Iterator[None]:
        """The API server is killed, and started again at the end."""
        plan = self._cluster.plan
        control.stop_api_server(plan)
        try:
            yield
        finally:
            control.start_api_server(plan, find_tools())

    @contextmanager
    def node_away(self, name: str) -> Iterator[None]:
        """A node loses its power, and gets it back at the end."""
        each = self._cluster.plan.node(name)
        node.stop_node(each)
        try:
            yield
        finally:
            node.start_node(each, find_tools())

    def mend(self) -> None:
        """Lets go on what stands still, whatever became of the story."""
        for pid in self._stopped:
            _signal(pid, signal.SIGCONT)
        self._stopped.clear()


def _signal(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
