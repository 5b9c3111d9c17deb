"""What all our pods have in common: restricted security, the store's credentials, folders that can be written.

Every pod meets the restricted Pod Security Standard: no root, no capabilities, no privilege escalation, the runtime's
seccomp profile, and a root file system that is read-only, so /tmp and the work folder are volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidemill_operator.resources.names import Json

CA_FOLDER: Final = "/etc/tidemill-ca"
CONF_FOLDER: Final = "/etc/tidemill"
TOKEN_FOLDER: Final = "/etc/tidemill-token"
WORK_FOLDER: Final = "/work"
_REQUIRED_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_OPTIONAL_KEYS: Final = ("AWS_SESSION_TOKEN", "AWS_REGION")

NODE_LOST_SECONDS: Final = 15
"""A pod of a node that went away is replaced after this time; Kubernetes' own default is 300 s."""

STARTUP_SECONDS: Final = 300
"""How long a container may take to answer for the first time: fifty of them may start on one busy node."""


def container_security() -> Json:
    """The security context of a container, as the restricted Pod Security Standard asks."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pod_security() -> Json:
    """The security context of a pod, as the restricted Pod Security Standard asks."""
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def store_env(store: Mapping[str, Any]) -> list[Json]:
    """Environment with the store's credentials and certificate authority; single keys, so nothing else is exposed."""
    env: list[Json] = []
    secret = store.get("credentialsSecretRef", {}).get("name")
    if secret:
        env += [_from_secret(key, secret, is_optional=False) for key in _REQUIRED_KEYS]
        env += [_from_secret(key, secret, is_optional=True) for key in _OPTIONAL_KEYS]
    authority = store.get("caSecretRef")
    if authority:
        path = f"{CA_FOLDER}/{authority.get('key', 'ca.crt')}"
        # Not SSL_CERT_FILE: a module's own code would trust nobody else any more.
        env.append({"name": "AWS_CA_BUNDLE", "value": path})
    return env


def _from_secret(key: str, secret: str, is_optional: bool) -> Json:
    reference: Json = {"name": secret, "key": key}
    if is_optional:
        reference["optional"] = True
    return {"name": key, "valueFrom": {"secretKeyRef": reference}}


def words(command: Iterable[str]) -> list[str]:
    """A container's arguments so that it gets them as they are: of `$$` in them the kubelet leaves one, and it puts the
    value of a variable in the place of `$(NAME)`.
    """
    return [word.replace("$", "$$") for word in command]


def pod_env() -> list[Json]:
    """Who and where the pod is."""
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
        "POD_IP": "status.podIP",
    }
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def folder_env() -> list[Json]:
    """Environment that points programs at /tmp, because the root file system is read-only."""
    return [{"name": "HOME", "value": "/tmp"}, {"name": "TMPDIR", "value": "/tmp"}]


def volumes(store: Mapping[str, Any], config_map: str | None = None) -> tuple[list[Json], list[Json]]:
    """(volumes, mounts) of a pod: /tmp, the work folder, the authority, and a ConfigMap at /etc/tidemill."""
    found: list[Json] = [{"name": "tmp", "emptyDir": {}}, {"name": "work", "emptyDir": {}}]
    mounts: list[Json] = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "work", "mountPath": WORK_FOLDER}]
    authority = store.get("caSecretRef")
    if authority:
        found.append({"name": "store-ca", "secret": {"secretName": authority["name"]}})
        mounts.append({"name": "store-ca", "mountPath": CA_FOLDER, "readOnly": True})
    if config_map:
        found.append({"name": "conf", "configMap": {"name": config_map}})
        mounts.append({"name": "conf", "mountPath": CONF_FOLDER, "readOnly": True})
    return found, mounts


def pull(template: Mapping[str, Any]) -> Json:
    """Pull secrets of a pod's spec."""
    secrets = template.get("imagePullSecrets")
    return {"imagePullSecrets": [{"name": item["name"]} for item in secrets]} if secrets else {}


def node_tolerations() -> list[Json]:
    """Lets a pod leave a lost node after `NODE_LOST_SECONDS`."""
    return [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": NODE_LOST_SECONDS,
        }
        for key in ("not-ready", "unreachable")
    ]


def spread(selector: Mapping[str, str]) -> list[Json]:
    """Pods of one role on different nodes where it can be."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selector)},
        }
    ]


def resources(given: Mapping[str, Any] | None, default: Mapping[str, Any]) -> Json:
    """The container's resources: the user's where there are any, else ours."""
    return dict(given) if given else dict(default)


def probe(path: str, port: int, period: int, failures: int) -> Json:
    """The port is a number: a name would have to be among the ports of the container, which others may write."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 3,
    }
