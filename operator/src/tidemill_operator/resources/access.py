"""Who a Module's pods are, and who may talk to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator.resources import driver, gateway, names
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.settings import Defaults


def objects(module: Mapping[str, Any], defaults: Defaults) -> list[Json]:
    """ServiceAccount and RoleBinding of the drivers, and network policies where they are wanted."""
    found = [service_account(module), role_binding(module, defaults)]
    if defaults.has_network_policies:
        found.append(driver_policy(module))
        if gateway.replicas(module) > 0:
            found.append(gateway_policy(module))
    return found


def service_account(module: Mapping[str, Any]) -> Json:
    """The account of the driver pods; its name is the one of `driver_access_name`."""
    name = names.name_of(module)
    return names.base_object(
        "v1", "ServiceAccount", names.driver_access_name(name), module, names.labels(name, "driver")
    )


def role_binding(module: Mapping[str, Any], defaults: Defaults) -> Json:
    """Gives the drivers' account the rights of the cluster role `defaults.driver_role` in its own namespace."""
    name = names.name_of(module)
    bound = names.driver_access_name(name)
    built = names.base_object(
        "rbac.authorization.k8s.io/v1", "RoleBinding", bound, module, names.labels(name, "driver")
    )
    built["roleRef"] = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": defaults.driver_role,
    }
    built["subjects"] = [{"kind": "ServiceAccount", "name": bound, "namespace": names.namespace_of(module)}]
    return built


def driver_policy(module: Mapping[str, Any]) -> Json:
    """Spark's ports only among a Module's own drivers and executors; the web port (probes, metrics) for all."""
    name = names.name_of(module)
    built = names.base_object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        names.driver_access_name(name),
        module,
        names.labels(name, "driver"),
    )
    among = {"matchExpressions": [_roles("driver", "executor")], "matchLabels": {names.MODULE_LABEL: name}}
    built["spec"] = {
        "podSelector": among,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": among}]},
            {"ports": [{"protocol": "TCP", "port": driver.HTTP_PORT}]},
        ],
    }
    return built


def _roles(*components: str) -> Json:
    return {"key": "app.kubernetes.io/component", "operator": "In", "values": list(components)}


def gateway_policy(module: Mapping[str, Any]) -> Json:
    """Lets traffic reach the gateway's pods on the HTTP port only."""
    name = names.name_of(module)
    built = names.base_object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        names.gateway_name(name),
        module,
        names.labels(name, "gateway"),
    )
    built["spec"] = {
        "podSelector": {"matchLabels": {names.MODULE_LABEL: name, "app.kubernetes.io/component": "gateway"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": gateway.PORT}]}],
    }
    return built
