"""What goes wrong on purpose: signals to processes in pods, pods deleted, the API server and nodes stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.cluster import control, node, own
from e2e.cluster.choice import Cluster
from e2e.cluster.spaces import processes_in_group
from e2e.cluster.tools import find_tools
from e2e.harness import timeouts
from e2e.harness.kubernetes import Object
from e2e.harness.waiting import until


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
        return sorted(self._containers(pod, program))

    def _containers(self, pod: Object, program: str = "") -> dict[int, str]:
        """The pod's processes with the control groups of their containers; of a restarted container they are others."""
        uid = pod["metadata"]["uid"]
        found = {}
        for each in own.nodes_of(self._cluster.plan):
            for pid in processes_in_group(each.space):
                group, line = _read(pid, "cgroup"), _read(pid, "cmdline")
                is_of_pod = uid in group or uid.replace("-", "_") in group
                if is_of_pod and line and program in line and Path(line.split("\0")[0]).name != "pause":
                    found[pid] = group
        return found

    def kill(self, pod: Object, program: str = "") -> float:
        """SIGKILL to the processes of a pod's containers, as the kernel does when memory is short.

        Returns when the last of them was gone: what is seen later is not their work. Nobody tells them before, so
        nothing is finished and no Lease is released, which a deletion of the pod without grace would let them do.
        """
        name, groups = pod["metadata"]["name"], set(self._containers(pod, program).values())
        assert groups, f"no process with {program!r} in pod {name}"

        def is_gone() -> bool:
            left = [pid for pid, group in self._containers(pod, program).items() if group in groups]
            for pid in left:  # also one that was born after the last look
                _signal(pid, signal.SIGKILL)
            return not left

        until(f"the processes of {name} are gone", is_gone, timeouts.COMMAND, pause=0.01)
        return time.monotonic()

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
