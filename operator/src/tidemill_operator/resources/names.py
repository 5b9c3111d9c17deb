"""Names, labels and owners of everything the operator makes (docs/kubernetes/architecture.md, Objects)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

GROUP: Final = "tidemill.dev"
API_VERSION: Final = "tidemill.dev/v1alpha1"
FIELD_MANAGER: Final = "tidemill-operator"
FINALIZER: Final = "tidemill.dev/destroy-data"
MODULE_LABEL: Final = "tidemill.dev/module"
TOPOLOGY_LABEL: Final = "tidemill.dev/topology"
REVISION_LABEL: Final = "tidemill.dev/revision"
GENERATED_LABEL: Final = "tidemill.dev/generated"
VERDICT_ANNOTATION: Final = "tidemill.dev/verdict"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
TOPOLOGY_NAME_LIMIT: Final = 45
"""A pod's name is <topology>-<revision>-<hash>-<random>, and a label's value has at most 63 characters."""


def digest(value: Any, length: int = 10) -> str:
    """A short name for a JSON value; equal values have equal digests."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def name_of(obj: Mapping[str, Any]) -> str:
    """The object's `metadata.name`."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: Mapping[str, Any]) -> str:
    """The object's namespace; "" for kinds outside namespaces."""
    return str(obj["metadata"].get("namespace", ""))


def labels(module: str, component: str, topology: str | None = None, revision: int | None = None) -> dict[str, str]:
    """Labels of an object of `module`; `component` is driver, gateway, describe, destroy, executor or definition."""
    found = {
        "app.kubernetes.io/name": "tidemill",
        "app.kubernetes.io/instance": module,
        "app.kubernetes.io/component": component,
        MANAGED_BY: FIELD_MANAGER,
        MODULE_LABEL: module,
    }
    if topology is not None:
        found[TOPOLOGY_LABEL] = topology
    if revision is not None:
        found[REVISION_LABEL] = str(revision)
    return found


def owner(obj: Mapping[str, Any]) -> Json:
    """The owner reference to a Module or Topology."""
    return {
        "apiVersion": API_VERSION,
        "kind": obj["kind"],
        "name": name_of(obj),
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def base_object(
    api_version: str, kind: str, name: str, owned_by: Mapping[str, Any], label_map: Mapping[str, str]
) -> Json:
    """The frame of an owned object in its owner's namespace."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace_of(owned_by),
            "labels": dict(label_map),
            "ownerReferences": [owner(owned_by)],
        },
    }


def revision_name(module: str, revision: int) -> str:
    """The ControllerRevision and the ConfigMap of a revision: `M-n`."""
    return f"{module}-{revision}"


def describe_name(module: str, revision: int) -> str:
    """The Job that checks a revision against the store: `M-n-describe`."""
    return f"{module}-{revision}-describe"


def driver_name(topology: str, revision: int) -> str:
    """The Deployment or SparkApplication of a topology's drivers at a revision: `T-n`."""
    return f"{topology}-{revision}"


def gateway_name(module: str) -> str:
    """The gateway's Deployment, Service, NetworkPolicy and disruption budget: `M-gateway`."""
    return f"{module}-gateway"


def token_secret_name(module: str) -> str:
    """The Secret with the gateway's token, where the spec names none: `M-gateway-token`."""
    return f"{module}-gateway-token"


def driver_access_name(module: str) -> str:
    """The ServiceAccount, RoleBinding and NetworkPolicy of the drivers: `M-driver`."""
    return f"{module}-driver"


def destroy_name(module: str) -> str:
    """The Job that deletes the data of a deleted Module: `M-destroy`."""
    return f"{module}-destroy"


def generated_topology_name(module: str, topology: str, is_ambiguous: bool = False) -> str:
    """`M-<topology>` as a valid name: capitals and other signs folded, long ones shortened with a digest.

    Two names that fold to the same one differ by the digest that folding adds.
    """
    folded = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", topology).lower()).strip("-")
    name = f"{module}-{folded}"
    is_plain = re.sub("[_-]", "", topology).isalnum() and bool(folded)
    if is_plain and len(name) <= TOPOLOGY_NAME_LIMIT and not is_ambiguous:
        return name
    return f"{name[: TOPOLOGY_NAME_LIMIT - 7].rstrip('-')}-{digest(topology, 6)}"
