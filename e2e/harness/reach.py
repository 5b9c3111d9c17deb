"""How this machine reaches a Service: by its address where routes lead there, else by a forwarded port."""

from __future__ import annotations

import socket
import subprocess
from contextlib import closing

from e2e.cluster.choice import Cluster
from e2e.harness import timeouts
from e2e.harness.kubernetes import Kubernetes
from e2e.harness.waiting import until


class Reach:
    """Addresses of Services; forwards that were started end with `close`."""

    def __init__(self, cluster: Cluster, kubernetes: Kubernetes, kubectl: str) -> None:
        self._is_routed = cluster.is_routed
        self._kubernetes = kubernetes
        self._kubectl = kubectl
        self._forwards: dict[tuple[str, str, int], tuple[subprocess.Popen[bytes], str]] = {}

    def address(self, namespace: str, service: str, port: int) -> str:
        """`host:port` of a Service that exists."""
        if not self._is_routed:
            return self._forward(namespace, service, port)
        found = self._kubernetes.get("Service", namespace, service)
        assert found is not None, f"no Service {namespace}/{service}"
        return f"{found['spec']['clusterIP']}:{port}"

    def _forward(self, namespace: str, service: str, port: int) -> str:
        key = (namespace, service, port)
        known = self._forwards.get(key)
        if known and known[0].poll() is None:
            return known[1]
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            local = free.getsockname()[1]
        command = [self._kubectl, f"--kubeconfig={self._kubernetes.kubeconfig}", "-n", namespace]
        process = subprocess.Popen(
            [*command, "port-forward", f"service/{service}", f"{local}:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        address = f"127.0.0.1:{local}"
        self._forwards[key] = (process, address)
        until(f"port {port} of {service} is forwarded", lambda: _answers(local), timeouts.STATUS)
        return address

    def close(self) -> None:
        """Ends all forwards."""
        for process, _ in self._forwards.values():
            process.terminate()
            process.wait(timeouts.STATUS)
        self._forwards.clear()


def _answers(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
