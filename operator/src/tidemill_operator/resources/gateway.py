"""The HTTP interface of a Module: Deployment, Service, disruption budget, and a token made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemill_operator.resources import merge, names, pods
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.revision import Revision
from tidemill_operator.resources.settings import Defaults

PORT: Final = 8080
_RESOURCES: Final = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def replicas(module: Mapping[str, Any]) -> int:
    """The number of gateway pods: 1 if the spec does not say, 0 for no gateway."""
    return int(module["spec"].get("gateway", {}).get("replicas", 1))


def token_reference(module: Mapping[str, Any]) -> tuple[str, str]:
    """(name, key) of the Secret that holds the token."""
    given = module["spec"].get("gateway", {}).get("auth", {}).get("secretRef")
    if given:
        return given["name"], given.get("key", "token")
    return names.token_secret_name(names.name_of(module)), "token"


def makes_token(module: Mapping[str, Any]) -> bool:
    """Whether the operator has to create the token's Secret: there is a gateway, and the spec names no Secret."""
    return replicas(module) > 0 and "secretRef" not in module["spec"].get("gateway", {}).get("auth", {})


def token_secret(module: Mapping[str, Any], token: str) -> Json:
    """Only ever created, never read or changed by the operator: a token that people use must not move."""
    name = names.name_of(module)
    built = names.base_object("v1", "Secret", names.token_secret_name(name), module, names.labels(name, "gateway"))
    built["type"] = "Opaque"
    built["stringData"] = {"token": token}
    return built


def objects(module: Mapping[str, Any], revision: Revision, defaults: Defaults) -> list[Json]:
    """Deployment, Service and, from two replicas on, a disruption budget. `revision` is the active one."""
    if replicas(module) == 0:
        return []
    found = [deployment(module, revision, defaults), service(module)]
    if replicas(module) > 1:
        found.append(_budget(module))
    return found


def deployment(module: Mapping[str, Any], revision: Revision, defaults: Defaults) -> Json:
    """The gateway's Deployment; a new pod is ready before an old one goes."""
    name = names.name_of(module)
    labels = names.labels(name, "gateway")
    built = names.base_object("apps/v1", "Deployment", names.gateway_name(name), module, labels)
    built["spec"] = {
        "replicas": replicas(module),
        "revisionHistoryLimit": 0,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": _selector(name)},
        "template": _pod_template(module, revision, defaults, labels),
    }
    return built


def _selector(module: str) -> dict[str, str]:
    return {names.MODULE_LABEL: module, "app.kubernetes.io/component": "gateway"}


def _pod_template(module: Mapping[str, Any], revision: Revision, defaults: Defaults, labels: Mapping[str, str]) -> Json:
    given = module["spec"].get("gateway", {})
    store = module["spec"]["store"]
    secret, key = token_reference(module)
    found, mounts = pods.volumes(store)
    found.append({"name": "token", "secret": {"secretName": secret, "items": [{"key": key, "path": "token"}]}})
    mounts.append({"name": "token", "mountPath": pods.TOKEN_FOLDER, "readOnly": True})
    ours: Json = {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            "securityContext": pods.pod_security(),
            "tolerations": pods.node_tolerations(),
            "topologySpreadConstraints": pods.spread(_selector(names.name_of(module))),
            **pods.pull(module["spec"]),
            "volumes": found,
            "containers": [_container(module, revision, defaults, mounts)],
        },
    }
    return merge.merge_template(ours, given.get("template"))


def _container(module: Mapping[str, Any], revision: Revision, defaults: Defaults, mounts: list[Json]) -> Json:
    verdict, template = revision.verdict, revision.template
    needs_own = verdict is not None and verdict.needs_own_gateway
    store = module["spec"]["store"]
    command = ["tidemill", "gateway"] if needs_own else []  # The stock image's entrypoint says it already.
    command += ["--store", store["url"], "--port", str(PORT), "--host", "0.0.0.0"]
    if verdict is not None:
        command += ["--module", verdict.module]
    if needs_own:
        command += ["--entry", template["entry"]]
    if defaults.has_open_metrics:
        command += ["--open-metrics"]
    token = {"name": "TIDEMILL_TOKEN_FILE", "value": f"{pods.TOKEN_FOLDER}/token"}
    return {
        "name": "gateway",
        "image": template["image"] if needs_own else defaults.gateway_image,
        "imagePullPolicy": template.get("imagePullPolicy", "IfNotPresent") if needs_own else "IfNotPresent",
        "args": pods.words(command),
        "env": [token, *pods.pod_env(), *pods.store_env(store), *pods.folder_env()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": pods.probe("/healthz", PORT, period=1, failures=pods.STARTUP_SECONDS),
        "livenessProbe": pods.probe("/healthz", PORT, period=5, failures=6),
        "readinessProbe": pods.probe("/readyz", PORT, period=2, failures=2),
        # Endpoints need a moment to forget a pod; until then it goes on serving.
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},
        "resources": pods.resources(module["spec"].get("gateway", {}).get("resources"), _RESOURCES),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def service(module: Mapping[str, Any]) -> Json:
    """The Service `M-gateway`: port 80 of the cluster to the gateway's HTTP port."""
    name = names.name_of(module)
    built = names.base_object("v1", "Service", names.gateway_name(name), module, names.labels(name, "gateway"))
    built["spec"] = {
        "type": "ClusterIP",
        "selector": _selector(name),
        "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
    }
    return built


def _budget(module: Mapping[str, Any]) -> Json:
    name = names.name_of(module)
    labels = names.labels(name, "gateway")
    built = names.base_object("policy/v1", "PodDisruptionBudget", names.gateway_name(name), module, labels)
    built["spec"] = {"maxUnavailable": 1, "selector": {"matchLabels": _selector(name)}}
    return built
