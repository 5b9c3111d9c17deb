"""What tests of Tidemill need of the cluster works: pods, names, Services, logs, figures, and things that break."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import minio as minio_client
import pytest
import urllib3
from e2e.cluster import minio
from e2e.cluster.shell import say, wait_until
from e2e.cluster.tests.conftest import TestCluster

SECURE = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture(scope="module")
def namespace(cluster: TestCluster) -> str:
    """A namespace that takes restricted pods only, with a server on node1 and a Service before it."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "probes", "labels": labels}}
    cluster.kubectl("apply", "-f", "-", text=json.dumps(made))
    wait_until("the account is there", lambda: "default" in cluster.kubectl("get", "sa", "-n", "probes"), 10)
    start_pod(cluster, "server", "node1", ["serve", "8080", "hello"])
    cluster.kubectl("expose", "pod", "server", "-n", "probes", "--port=80", "--target-port=8080")
    cluster.kubectl("wait", "pod/server", "-n", "probes", "--for=condition=Ready", "--timeout=30s")
    return "probes"


def start_pod(cluster: TestCluster, name: str, node: str, arguments: list[str]) -> None:
    container = {"name": "probe", "image": "localhost/tidemill/probe:1", "args": arguments, "securityContext": SECURE}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "restartPolicy": "Never" if arguments[0] == "get" else "Always",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    metadata = {"name": name, "namespace": "probes", "labels": {"probe": name}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.kubectl("apply", "-f", "-", text=json.dumps(pod))


def answer(url: str) -> str:
    """What a server answers to this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=3) as got:
        return str(got.read().decode())


def answers(url: str) -> bool:
    try:
        return answer(url) == "hello"
    except OSError:
        return False


def ready(cluster: TestCluster, node: str) -> str:
    conditions: list[dict[str, Any]] = cluster.get("node", node)["status"]["conditions"]
    return next(str(condition["status"]) for condition in conditions if condition["type"] == "Ready")


@pytest.mark.parametrize("node", ["node0", "node1"])
@pytest.mark.parametrize("name", ["server", "server.probes.svc", "server.probes.svc.cluster.local"])
def test_pod_reaches_service_by_name_when_on_any_node(
    cluster: TestCluster, namespace: str, node: str, name: str
) -> None:
    pod = f"client-{node}-{name.count('.')}"
    start_pod(cluster, pod, node, ["get", f"http://{name}"])
    cluster.kubectl("wait", f"pod/{pod}", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=20s")
    assert cluster.kubectl("logs", pod, "-n", namespace) == "hello"


def test_host_reaches_service_and_pod_when_asked_by_address(cluster: TestCluster, namespace: str) -> None:
    assert answer(f"http://{cluster.get('service', 'server', '-n', namespace)['spec']['clusterIP']}") == "hello"
    assert answer(f"http://{cluster.get('pod', 'server', '-n', namespace)['status']['podIP']}:8080") == "hello"


def test_api_server_reaches_a_service_when_it_has_to_call_a_webhook(cluster: TestCluster, namespace: str) -> None:
    """A webhook that talks no TLS is reached and not understood; without a way it is `network is unreachable`."""
    hook = {
        "name": "probe.tidemill.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"name": "server", "namespace": namespace, "path": "/", "port": 80}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hooked"}},
    }  # fmt: skip
    configuration = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                     "metadata": {"name": "probe"}, "webhooks": [hook]}  # fmt: skip
    cluster.kubectl("create", "namespace", "hooked")
    cluster.kubectl("apply", "-f", "-", text=json.dumps(configuration))
    try:
        with pytest.raises(Exception, match="server gave HTTP response to HTTPS client"):
            cluster.kubectl("create", "configmap", "asked", "-n", "hooked")
    finally:
        cluster.kubectl("delete", "validatingwebhookconfiguration", "probe")


def test_server_sees_address_of_pod_when_called_from_other_node(cluster: TestCluster, namespace: str) -> None:
    """Network policies judge by the caller's address, so nothing between pods may hide it."""
    start_pod(cluster, "who", "node0", ["caller", "8081"])
    cluster.kubectl("wait", "pod/who", "-n", namespace, "--for=condition=Ready", "--timeout=20s")
    here = cluster.get("pod", "who", "-n", namespace)["status"]["podIP"]
    there = cluster.get("pod", "server", "-n", namespace)["status"]["podIP"]
    said = cluster.kubectl("exec", "server", "-n", namespace, "--", "/probe", "get", f"http://{here}:8081")
    assert said == there


def test_exec_works_when_pod_runs(cluster: TestCluster, namespace: str) -> None:
    said = cluster.kubectl("exec", "server", "-n", namespace, "--", "/probe", "get", "http://localhost:8080")
    assert said == "hello"


def test_port_forward_works_when_pod_runs(cluster: TestCluster, namespace: str) -> None:
    command = [str(cluster.tools["kubectl"]), f"--kubeconfig={cluster.plan.kubeconfig}", "port-forward"]
    with subprocess.Popen([*command, "-n", namespace, "svc/server", ":80"], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        port = run.stdout.readline().rsplit(":", 1)[1].split(" ")[0]
        assert answer(f"http://127.0.0.1:{port}") == "hello"
        run.terminate()


def test_memory_of_pod_is_known_when_it_runs(cluster: TestCluster, namespace: str) -> None:
    def memory() -> int:
        summary = json.loads(cluster.kubectl("get", "--raw", "/api/v1/nodes/node1/proxy/stats/summary"))
        found = [pod for pod in summary["pods"] if pod["podRef"]["name"] == "server"]
        return int(found[0].get("memory", {}).get("workingSetBytes", 0)) if found else 0

    wait_until("the kubelet has measured the pod", lambda: memory() > 100_000, 30, pause=1)


def test_root_pod_is_refused_when_namespace_is_restricted(cluster: TestCluster, namespace: str) -> None:
    with pytest.raises(Exception, match="violates PodSecurity"):
        cluster.kubectl("run", "root", "-n", namespace, "--image=localhost/tidemill/probe:1")


@pytest.mark.parametrize("tls", [False, True])
def test_minio_keeps_data_when_its_pod_is_replaced(cluster: TestCluster, tls: bool, tmp_path: Path) -> None:
    name = "store-tls" if tls else "store"
    cluster.kubectl("create", "namespace", name)
    kubectl: list[str | Path] = [cluster.tools["kubectl"], f"--kubeconfig={cluster.plan.kubeconfig}"]
    store = minio.install(kubectl, name, tls=tls)
    assert store.url == f"s3://tidemill?endpoint={'https' if tls else 'http'}://minio.{name}.svc:9000"
    client = connect(cluster, name, tmp_path if tls else None)
    client.put_object("tidemill", "a/b", io.BytesIO(b"kept"), 4)
    cluster.kubectl("delete", "pod", "minio-0", "-n", name)
    cluster.kubectl("rollout", "status", "statefulset/minio", "-n", name, "--timeout=60s")
    assert client.get_object("tidemill", "a/b").data == b"kept"


def connect(cluster: TestCluster, namespace: str, folder: Path | None) -> minio_client.Minio:
    """A client of the Service's address; with a folder by TLS, as one who trusts the Secret `minio-ca` only."""
    options: dict[str, Any] = {"retries": urllib3.Retry(10, backoff_factor=0.2)}
    if folder:
        authority = folder / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster.get("secret", "minio-ca", "-n", namespace)["data"]["ca.crt"]))
        name = f"minio.{namespace}.svc"
        options |= {"ca_certs": str(authority), "cert_reqs": "CERT_REQUIRED", "assert_hostname": name}
    address = cluster.get("service", "minio", "-n", namespace)["spec"]["clusterIP"]
    return minio_client.Minio(
        f"{address}:9000", minio.USER, minio.PASSWORD, secure=folder is not None,
        http_client=urllib3.PoolManager(**options),
    )  # fmt: skip


def test_pods_answer_when_api_server_is_down(cluster: TestCluster, namespace: str) -> None:
    address = cluster.get("service", "server", "-n", namespace)["spec"]["clusterIP"]
    cluster.command("apiserver", "stop")
    with pytest.raises(Exception, match="refused"):
        cluster.kubectl("get", "nodes", "--request-timeout=2s")
    assert answer(f"http://{address}") == "hello"
    cluster.command("apiserver", "start")
    assert ready(cluster, "node0") == "True"


def test_node_is_lost_and_comes_back_when_its_power_goes_and_returns(cluster: TestCluster, namespace: str) -> None:
    url = f"http://{cluster.get('service', 'server', '-n', namespace)['spec']['clusterIP']}"
    begin = time.monotonic()
    cluster.command("node", "stop", "node1")
    assert not answers(url)
    wait_until("node1 is missed", lambda: ready(cluster, "node1") != "True", 60, pause=1)
    say(f"\nnode lost -> noticed: {time.monotonic() - begin:.1f} s")
    assert ready(cluster, "node0") == "True"
    cluster.command("node", "start", "node1")
    wait_until("node1 is ready again", lambda: ready(cluster, "node1") == "True", 60, pause=1)
    wait_until("its pod answers again", lambda: answers(url), 60, pause=0.5)
