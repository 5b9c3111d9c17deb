"""Drivers as a SparkApplication of the kubeflow operator, built with its own models (kubeflow-spark-api).

What the kubeflow operator does with it decides the shape: one application a topology and revision, whose spec is never
edited for an option (any edit kills the driver); `Always` with both retry intervals (without them one failed submission
is for ever); and no NetworkPolicy of Spark's own, which its role may not create.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeflow_spark_api.models.io_k8s_api_core_v1_pod_template_spec import IoK8sApiCoreV1PodTemplateSpec
from kubeflow_spark_api.models.spark_v1beta2_driver_spec import SparkV1beta2DriverSpec
from kubeflow_spark_api.models.spark_v1beta2_dynamic_allocation import SparkV1beta2DynamicAllocation
from kubeflow_spark_api.models.spark_v1beta2_executor_spec import SparkV1beta2ExecutorSpec
from kubeflow_spark_api.models.spark_v1beta2_restart_policy import SparkV1beta2RestartPolicy
from kubeflow_spark_api.models.spark_v1beta2_spark_application_spec import SparkV1beta2SparkApplicationSpec

from tidemill_operator.resources import driver, memory, names
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.revision import Revision

SPARK_VERSION: Final = "4.3.0"
RETRY_SECONDS: Final = 1
"""The least that the kubeflow operator allows. It multiplies by the submissions that an application ever had and counts
from the last one: with 5 s a driver that crashes twice in its fourth week would be away for minutes."""
MAIN_FILE: Final = "local:///opt/tidemill/drive.py"
"""A file of the runner image that calls `tidemill` with its arguments: spark-submit wants a file to run."""

_FOREVER: Final = 2_147_483_647
_SPARK_PORTS: Final = (driver.DRIVER_PORT, driver.BLOCKS_PORT, driver.UI_PORT)
_DRIVER_CORES: Final = "spark.kubernetes.driver"
_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:-UsePerfData"
"""As `tidemill.spark.settings` has it; here the JVM runs before the driver can say so."""
_NO_NETWORK_POLICY: Final = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"


def application(module: Mapping[str, Any], topology: Mapping[str, Any], revision: Revision) -> Json:
    """SparkApplication `T-n`. A standby is not possible with it: a driver's name is fixed."""
    name, module_name = names.name_of(topology), names.name_of(module)
    labels = names.labels(module_name, "driver", name, revision.number)
    built = names.base_object(
        "sparkoperator.k8s.io/v1beta2", "SparkApplication", names.driver_name(name, revision.number), topology, labels
    )
    built["spec"] = _spec(module, topology, revision, labels).to_dict()
    return built


def _spec(
    module: Mapping[str, Any], topology: Mapping[str, Any], revision: Revision, labels: Mapping[str, str]
) -> SparkV1beta2SparkApplicationSpec:
    template = revision.template
    return SparkV1beta2SparkApplicationSpec(
        type="Python",
        pythonVersion="3",
        mode="cluster",
        sparkVersion=SPARK_VERSION,
        image=template["image"],
        imagePullPolicy=template.get("imagePullPolicy", "IfNotPresent"),
        imagePullSecrets=[item["name"] for item in template.get("imagePullSecrets", ())] or None,
        mainApplicationFile=MAIN_FILE,
        # The file stands for the command's name.
        arguments=driver.arguments(module, topology, revision)[1:],
        sparkConf=_conf(template),
        restartPolicy=SparkV1beta2RestartPolicy(
            type="Always",
            onFailureRetries=_FOREVER,
            onFailureRetryInterval=RETRY_SECONDS,
            onSubmissionFailureRetries=_FOREVER,
            onSubmissionFailureRetryInterval=RETRY_SECONDS,
        ),
        dynamicAllocation=_dynamic_allocation(template),
        driver=_driver(module, topology, revision, labels),
        executor=_executor(names.name_of(module), topology, revision),
    )


def _conf(template: Mapping[str, Any]) -> dict[str, str]:
    """The submission's own settings; the driver sets the rest itself, as with the native launcher."""
    return {
        "spark.driver.extraJavaOptions": _JVM,
        **template.get("spark", {}).get("conf", {}),
        "spark.kubernetes.driver.pod.excludedFeatureSteps": _NO_NETWORK_POLICY,
        "spark.kubernetes.executor.disableConfigMap": "true",
    }


def _dynamic_allocation(template: Mapping[str, Any]) -> SparkV1beta2DynamicAllocation | None:
    given = driver.executors(template)
    if "min" not in given:
        return None
    return SparkV1beta2DynamicAllocation(
        enabled=True, initialExecutors=given["min"], minExecutors=given["min"], maxExecutors=given["max"]
    )


def _driver(
    module: Mapping[str, Any], topology: Mapping[str, Any], revision: Revision, labels: Mapping[str, str]
) -> SparkV1beta2DriverSpec:
    pod = driver.pod_template(module, topology, revision, labels, {names.TOPOLOGY_LABEL: names.name_of(topology)})
    container = pod["spec"]["containers"][0]
    # Spark names the container, gives it the arguments, and adds its own ports: 7078, 7079, 4040.
    for field in ("args", "image", "imagePullPolicy"):
        container.pop(field, None)
    container["ports"] = [port for port in container.get("ports") or () if port["containerPort"] not in _SPARK_PORTS]
    container["name"] = "spark-kubernetes-driver"
    return SparkV1beta2DriverSpec(
        **_sizes(revision.template),
        serviceAccount=names.driver_access_name(names.name_of(module)),
        labels=dict(labels),
        template=IoK8sApiCoreV1PodTemplateSpec.from_dict(pod),
    )


def _sizes(template: Mapping[str, Any]) -> Json:
    """What Spark makes the container's requests and limits of: it overwrites those of the pod template.

    CPU is taken as it is. Of the memory (the limit, else the request) the JVM's heap is a part and the rest, Python's,
    is Spark's overhead; Spark asks for their sum and limits to it. Settings of the same meaning in `spark.conf` win.
    """
    resources, conf = driver.container_resources(template), template.get("spark", {}).get("conf", {})
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    total, heap = memory.total_mebibytes(resources), memory.heap_mebibytes(resources)
    sizes = {
        "coreRequest": conf.get(f"{_DRIVER_CORES}.request.cores") or requests.get("cpu"),
        "coreLimit": conf.get(f"{_DRIVER_CORES}.limit.cores") or limits.get("cpu"),
        "memory": conf.get("spark.driver.memory") or f"{heap}m",
        "memoryOverhead": conf.get("spark.driver.memoryOverhead")
        or (f"{max(total - heap, memory.BESIDE_MEBIBYTES_MIN)}m" if total else None),
    }
    return {"cores": 1, **{name: str(value) for name, value in sizes.items() if value is not None}}


def _executor(module: str, topology: Mapping[str, Any], revision: Revision) -> SparkV1beta2ExecutorSpec:
    pod = driver.executor_pod(module, revision)
    given = driver.executors(revision.template)
    labels = names.labels(module, "executor", names.name_of(topology), revision.number)
    container = pod["spec"]["containers"][0]
    container["name"] = "spark-kubernetes-executor"
    container.pop("image", None)
    return SparkV1beta2ExecutorSpec(
        cores=1,
        memory="1g",
        instances=given.get("count", given.get("min", 1)),
        labels=labels,
        template=IoK8sApiCoreV1PodTemplateSpec.from_dict({"metadata": pod["metadata"], "spec": pod["spec"]}),
    )
