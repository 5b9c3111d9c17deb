"""Driver pods of a topology: the Deployment `T-n`, and what of it is the same for each revision (ConfigMap `M-n`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tidemill_operator.resources import memory, merge, names, pods
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.revision import Revision, may_break, ownership

HTTP_PORT: Final = 8081
DRIVER_PORT: Final = 7078
BLOCKS_PORT: Final = 7079
UI_PORT: Final = 4040
GRACE_SECONDS: Final = 30
"""10 s for the microbatch under way, then Spark is closed."""

RESTORE: Final = "--restore-retired"
"""Objects of a rollback that revisions deleted which were never stable come back with their data."""

_DRIVER_RESOURCES: Final = {"requests": {"cpu": "500m", "memory": "1536Mi"}, "limits": {"memory": "2Gi"}}
_LOCAL_RESOURCES: Final = {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
_EXECUTOR_RESOURCES: Final = {"requests": {"cpu": "500m", "memory": "1536Mi"}}
_NONCE_ANNOTATION: Final = "tidemill.dev/restart-nonce"


def engine_of(template: Mapping[str, Any]) -> str:
    """The driver's `--engine`: "local" for Local, else "spark"."""
    return "local" if template.get("engine") == "Local" else "spark"


def config_map(module: Mapping[str, Any], revision: Revision) -> Json:
    """ConfigMap `M-n`: spark.json (docs/kubernetes/architecture.md) and the executors' pod template."""
    name = names.name_of(module)
    built = names.base_object(
        "v1",
        "ConfigMap",
        names.revision_name(name, revision.number),
        module,
        names.labels(name, "definition", revision=revision.number),
    )
    built["data"] = {
        "spark.json": json.dumps(spark_settings(revision.template), indent=1, sort_keys=True),
        "executor.yaml": yaml.safe_dump(executor_pod(name, revision), sort_keys=True),
    }
    return built


def spark_settings(template: Mapping[str, Any]) -> Json:
    """What the driver makes Spark's settings of; it adds all that depends on its own pod."""
    spark = template.get("spark", {})
    settings: Json = {
        "master": "k8s://https://kubernetes.default.svc",
        "image": template["image"],
        "imagePullPolicy": template.get("imagePullPolicy", "IfNotPresent"),
        "executors": executors(template),
        "driverMemory": f"{memory.heap_mebibytes(container_resources(template))}m",
        "podTemplate": f"{pods.CONF_FOLDER}/executor.yaml",
        "conf": dict(spark.get("conf", {})),
    }
    return settings


def container_resources(template: Mapping[str, Any]) -> Json:
    """What the driver's container asks for: the pod template's word, else `spark.driver.resources`, else ours."""
    given = template.get("spark", {}).get("driver", {})
    default = _DRIVER_RESOURCES if engine_of(template) == "spark" else _LOCAL_RESOURCES
    ours = {"spec": {"containers": [{"name": "driver", "resources": pods.resources(given.get("resources"), default)}]}}
    merged = merge.merge_template(ours, given.get("template"))
    found = next(item for item in merged["spec"]["containers"] if item["name"] == "driver")
    return dict(found.get("resources") or {})


def executors(template: Mapping[str, Any]) -> Json:
    """Numbers of executors, as `count` or as `min` and `max`; one executor if the spec does not say."""
    given = template.get("spark", {}).get("executors") or {"count": 1}
    return {key: given[key] for key in ("count", "min", "max") if key in given}


def executor_pod(module: str, revision: Revision) -> Json:
    """The pod template of executors; Spark sets image, command, restart policy and memory of its container."""
    template = revision.template
    found, mounts = pods.volumes(template["store"])
    given = template.get("spark", {}).get("executor", {})
    ours: Json = {
        "metadata": {
            "labels": names.labels(module, "executor", revision=revision.number),
            "annotations": {"argocd.argoproj.io/ignore-restart-policy": "true"},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": pods.pod_security(),
            "tolerations": pods.node_tolerations(),
            **pods.pull(template),
            "volumes": found,
            "containers": [
                {
                    "name": "executor",
                    "image": template["image"],
                    "env": pods.store_env(template["store"]) + pods.folder_env(),
                    "resources": pods.resources(given.get("resources"), _EXECUTOR_RESOURCES),
                    "securityContext": pods.container_security(),
                    "volumeMounts": mounts,
                }
            ],
        },
    }
    return {"apiVersion": "v1", "kind": "Pod", **merge.merge_template(ours, given.get("template"))}


def arguments(module: Mapping[str, Any], topology: Mapping[str, Any], revision: Revision) -> list[str]:
    """The driver's arguments (docs/kubernetes/architecture.md, Driver), as its container says them."""
    template, verdict = revision.template, revision.verdict
    found = [
        *("--store", template["store"]["url"]),
        *("--module-resource", names.name_of(module)),
        *("--topology-resource", names.name_of(topology)),
        *("--topology", topology["spec"]["topology"]),
        *("--revision", str(revision.number)),
        *("--definition-base", str(verdict.base if verdict else 0)),
        *("--tasks", str(template["tasks"])),
        *("--threads", str(template["threads"])),
        *("--engine", engine_of(template)),
        *ownership(module, revision),
        *may_break(revision),
    ]
    if template.get("objectsToDelete"):
        found += ["--objects-to-delete", ",".join(template["objectsToDelete"])]
    if revision.goes_back:
        found += [RESTORE]
    if engine_of(template) == "spark":
        found += ["--conf", f"{pods.CONF_FOLDER}/spark.json"]
    return pods.words(["tidemill", "drive", template["entry"], *found])


def deployment(module: Mapping[str, Any], topology: Mapping[str, Any], revision: Revision) -> Json:
    """Deployment `T-n`: the drivers of topology T at revision n, one of which leads."""
    name, module_name = names.name_of(topology), names.name_of(module)
    labels = names.labels(module_name, "driver", name, revision.number)
    built = names.base_object("apps/v1", "Deployment", names.driver_name(name, revision.number), topology, labels)
    selector = {key: labels[key] for key in (names.TOPOLOGY_LABEL, names.REVISION_LABEL)}
    built["spec"] = {
        "replicas": replicas(topology),
        "revisionHistoryLimit": 0,
        "progressDeadlineSeconds": _deadline(module),
        "strategy": _strategy(module),
        "selector": {"matchLabels": selector},
        "template": pod_template(module, topology, revision, labels, selector),
    }
    return built


def replicas(topology: Mapping[str, Any]) -> int:
    """The number of driver pods of a revision: one leads, the others stand by. 1 if the spec does not say."""
    return int(topology["spec"].get("driver", {}).get("replicas", 1))


def _deadline(module: Mapping[str, Any]) -> int:
    return int(module["spec"].get("rollout", {}).get("progressDeadlineSeconds", 120))


def _strategy(module: Mapping[str, Any]) -> Json:
    """A restart warms the new driver beside the old one too, unless the user says that two do not fit."""
    if module["spec"].get("rollout", {}).get("strategy") == "Recreate":
        return {"type": "Recreate"}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def pod_template(
    module: Mapping[str, Any],
    topology: Mapping[str, Any],
    revision: Revision,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
) -> Json:
    """The pod template of a driver: ours, with the user's `spark.driver.template` merged over it."""
    template = revision.template
    is_spark = engine_of(template) == "spark"
    configured = names.revision_name(names.name_of(module), revision.number) if is_spark else None
    found, mounts = pods.volumes(template["store"], configured)
    given = template.get("spark", {}).get("driver", {})
    annotations = {"argocd.argoproj.io/ignore-restart-policy": "true"}
    if topology["spec"].get("restartNonce"):
        annotations[_NONCE_ANNOTATION] = topology["spec"]["restartNonce"]
    ours: Json = {
        "metadata": {"labels": dict(labels), "annotations": annotations},
        "spec": {
            "serviceAccountName": names.driver_access_name(names.name_of(module)),
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": pods.pod_security(),
            "tolerations": pods.node_tolerations(),
            "topologySpreadConstraints": pods.spread(selector),
            **pods.pull(template),
            "volumes": found,
            "containers": [_container(module, topology, revision, mounts, given.get("resources"))],
        },
    }
    return merge.merge_template(ours, given.get("template"))


def _container(
    module: Mapping[str, Any],
    topology: Mapping[str, Any],
    revision: Revision,
    mounts: list[Json],
    given: Mapping[str, Any] | None,
) -> Json:
    template = revision.template
    default = _DRIVER_RESOURCES if engine_of(template) == "spark" else _LOCAL_RESOURCES
    return {
        "name": "driver",
        "image": template["image"],
        "imagePullPolicy": template.get("imagePullPolicy", "IfNotPresent"),
        "args": arguments(module, topology, revision),
        "env": pods.pod_env() + pods.store_env(template["store"]) + pods.folder_env(),
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT},
            {"name": "spark-driver", "containerPort": DRIVER_PORT},
            {"name": "spark-blocks", "containerPort": BLOCKS_PORT},
            {"name": "spark-ui", "containerPort": UI_PORT},
        ],
        # Many drivers that start at once on a busy node take long: only then they are left alone.
        "startupProbe": pods.probe("/healthz", HTTP_PORT, period=1, failures=pods.STARTUP_SECONDS),
        "livenessProbe": pods.probe("/healthz", HTTP_PORT, period=5, failures=6),
        "readinessProbe": pods.probe("/readyz", HTTP_PORT, period=1, failures=1),
        "resources": pods.resources(given, default),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def disruption_budget(module: Mapping[str, Any], topology: Mapping[str, Any]) -> Json:
    """With a standby one driver may go at a time. Without one there is no budget: it would only block a drain."""
    name = names.name_of(topology)
    labels = names.labels(names.name_of(module), "driver", name)
    built = names.base_object("policy/v1", "PodDisruptionBudget", name, topology, labels)
    built["spec"] = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {names.TOPOLOGY_LABEL: name, "app.kubernetes.io/component": "driver"}},
    }
    return built
