"""What Spark itself makes of the operator's SparkApplication: the driver's pod, and an executor of such a driver.

spark-submit runs as the kubeflow operator runs it (internal/controller/sparkapplication/submission.go).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from lightkube.models import core_v1
from recording_api import RecordingApi
from test_operator_objects import TOPOLOGY, full_module, revision
from waiting import eventually

from tidemill.spark.settings import SOCKET_PATH_LIMIT
from tidemill_operator.resources import driver, driver_kind

ROOT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent
SECONDS = 90.0
Json = dict[str, Any]
pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    made = RecordingApi()
    yield made
    made.close()


# The driver's pod


def submitted(api: RecordingApi, folder: Path, **spark: Any) -> Json:
    """The driver's pod that spark-submit posts for the operator's object."""
    module = full_module(spark={"launcher": "SparkApplication", **spark})
    application = json.loads(json.dumps(driver_kind.launched(module, TOPOLOGY, revision(module))))
    arguments = submit_arguments(application, api.url, folder)
    done = subprocess.run([str(SPARK / "bin/spark-submit"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    (pod,) = api.named("pods")
    return pod


def submit_arguments(application: Json, url: str, folder: Path) -> list[str]:
    """As kubeflow's buildSparkSubmitArgs orders them: what comes later wins."""
    spec = application["spec"]
    template = folder / "driver-pod-template.yaml"
    template.write_text(yaml.safe_dump(spec["driver"]["template"]))
    conf = {
        "spark.kubernetes.namespace": application["metadata"]["namespace"],
        "spark.kubernetes.container.image": spec["image"],
        "spark.kubernetes.container.image.pullPolicy": spec["imagePullPolicy"],
        "spark.kubernetes.container.image.pullSecrets": ",".join(spec.get("imagePullSecrets", ())),
        "spark.kubernetes.pyspark.pythonVersion": spec["pythonVersion"],
        "spark.kubernetes.submission.waitAppCompletion": "false",
        **spec["sparkConf"],
        "spark.kubernetes.driver.pod.name": f"{application['metadata']['name']}-driver",
        **driver_conf(spec["driver"]),
        "spark.kubernetes.driver.podTemplateFile": str(template),
        "spark.kubernetes.driver.podTemplateContainerName": "spark-kubernetes-driver",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    head = ["--master", f"k8s://{url}", "--deploy-mode", spec["mode"], "--name", application["metadata"]["name"]]
    return [*head, *options, spec["mainApplicationFile"], *spec["arguments"]]


def driver_conf(given: Json) -> dict[str, str]:
    """kubeflow's driverConfOption."""
    names = {
        "cores": "spark.driver.cores",
        "coreRequest": "spark.kubernetes.driver.request.cores",
        "coreLimit": "spark.kubernetes.driver.limit.cores",
        "memory": "spark.driver.memory",
        "memoryOverhead": "spark.driver.memoryOverhead",
        "serviceAccount": "spark.kubernetes.authenticate.driver.serviceAccountName",
    }
    labels = {f"spark.kubernetes.driver.label.{name}": value for name, value in given["labels"].items()}
    return {**{conf: str(given[name]) for name, conf in names.items() if name in given}, **labels}


def test_a_pod_that_kubernetes_can_probe_and_size_is_posted_when_spark_submits_the_application(
    api: RecordingApi, tmp_path: Path
) -> None:
    asked = {"requests": {"cpu": "100m", "memory": "700Mi"}, "limits": {"cpu": "1500m", "memory": "3Gi"}}

    pod = core_v1.PodSpec.from_dict(submitted(api, tmp_path, driver={"resources": asked})["spec"])

    (container,) = pod.containers
    ports = {port.name: port.containerPort for port in container.ports or ()}
    probes = [container.startupProbe, container.livenessProbe, container.readinessProbe]
    assert [probe.httpGet.port for probe in probes if probe and probe.httpGet] == [driver.HTTP_PORT] * 3
    assert ports["http"] == driver.HTTP_PORT, "by its name the PodMonitor of the chart finds it"
    assert len(set(ports.values())) == len(container.ports or ()), "no port twice"
    assert container.resources is not None
    assert container.resources.requests == {"cpu": "100m", "memory": "3072Mi"}
    assert container.resources.limits == {"cpu": "1500m", "memory": "3072Mi"}
    assert pod.serviceAccountName == "flights-driver"
    assert container.securityContext is not None and container.securityContext.readOnlyRootFilesystem
    assert "SPARK_LOCAL_DIRS" in {variable.name for variable in container.env or ()}, "so start_driver sets it"
    assert "spark.driver.memory=1536m" in _properties(api)


def _properties(api: RecordingApi) -> list[str]:
    """Spark's settings as the driver's JVM will read them."""
    texts = [each["data"]["spark.properties"] for each in api.named("configmaps") if "spark.properties" in each["data"]]
    assert len(texts) == 1
    return [line.strip() for line in texts[0].splitlines()]


# An executor


DRIVER = """
import sys, threading
from pathlib import Path
from tidemill.spark.given_settings import read_settings
from tidemill.spark.on_kubernetes import DriverPod
from tidemill.spark.session import Session

session = Session(read_settings(Path(sys.argv[1]), "t", DriverPod("driver", "ns", "127.0.0.1", "uid-driver", "t")))
print("warm", session.executors, flush=True)
session.stop()
"""


def test_python_workers_start_when_an_executor_has_none_of_the_drivers_folders(
    api: RecordingApi, tmp_path: Path
) -> None:
    # Short, as a pod's /tmp is: a longer one would be no folder for sockets anyway (SOCKET_PATH_LIMIT).
    drivers = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    process = start_driver(api, tmp_path, drivers)
    executor: subprocess.Popen[bytes] | None = None
    try:
        eventually(lambda: process.poll() is not None or executors(api), SECONDS)
        assert process.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
        (folder,) = drivers.glob("tidemill-spark-*")
        assert len(str(folder)) <= SOCKET_PATH_LIMIT
        folder.rename(drivers / "of-another-pod")
        (posted,) = executors(api)
        executor = start_executor(posted, tmp_path)
        pace, end = threading.Event(), time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < end:
            pace.wait(0.1)
        said = (tmp_path / "driver.log").read_text()
        assert "warm 1" in said, said[-3000:] + (tmp_path / "executor.log").read_text()[-5000:]
    finally:
        for each in (process, executor):
            if each is not None and each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
        shutil.rmtree(drivers, ignore_errors=True)


def executors(api: RecordingApi) -> list[Json]:
    return [pod for pod in api.named("pods") if pod["metadata"].get("labels", {}).get("spark-role") == "executor"]


def start_driver(api: RecordingApi, folder: Path, temporary: Path) -> subprocess.Popen[bytes]:
    """The session of a driver as the operator configures it, with what cluster mode puts into its environment."""
    module = full_module(spark={"launcher": "SparkApplication"})
    data = driver.config_map(module, revision(module))["data"]
    settings = json.loads(data["spark.json"])
    template = folder / "executor.yaml"
    template.write_text(data["executor.yaml"])
    settings |= {"master": f"k8s://{api.url}", "podTemplate": str(template)}
    (folder / "spark.json").write_text(json.dumps(settings))
    api.put("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "uid": "uid-driver"}})
    (folder / "local").mkdir()
    environment = os.environ | {
        "SPARK_LOCAL_DIRS": str(folder / "local"), "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    with (folder / "driver.log").open("wb") as log:
        command = [sys.executable, "-c", DRIVER, str(folder / "spark.json")]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def start_executor(pod: Json, folder: Path) -> subprocess.Popen[bytes]:
    """The executor's container as its pod says, by the image's entrypoint; its folders are its own."""
    (container,) = pod["spec"]["containers"]
    variables = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    (folder / "executor").mkdir()
    java = Path(shutil.which("java") or "/usr/bin/java").resolve().parents[1]
    ours = {
        "SPARK_LOCAL_DIRS": str(folder / "executor"), "TMPDIR": "/tmp", "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": pod["metadata"]["name"], "SPARK_HOME": str(SPARK), "JAVA_HOME": str(java),
    }  # fmt: skip
    environment = {"PATH": os.environ["PATH"], **variables, **ours}
    environment["SPARK_EXECUTOR_MEMORY"] = "512m"
    with (folder / "executor.log").open("wb") as log:
        command = ["bash", str(ROOT / "images/runner/entrypoint.sh"), *container["args"]]
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
