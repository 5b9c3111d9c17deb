"""The cluster's API as stories use it: objects as plain dicts, kubectl where a user would use it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lightkube
from lightkube.core.exceptions import ApiError
from lightkube.core.resource import NamespacedResource
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.apps_v1 import ControllerRevision, Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Event, Pod, Secret, Service

from e2e.harness import timeouts

Object = dict[str, Any]

KINDS: dict[str, type[NamespacedResource]] = {
    "Module": create_namespaced_resource("tidemill.dev", "v1alpha1", "Module", "modules"),
    "Topology": create_namespaced_resource("tidemill.dev", "v1alpha1", "Topology", "topologies"),
    "ControllerRevision": ControllerRevision,
    "Deployment": Deployment,
    "Job": Job,
    "Lease": Lease,
    "ConfigMap": ConfigMap,
    "Event": Event,
    "Pod": Pod,
    "Secret": Secret,
    "Service": Service,
}


class KubectlFailed(AssertionError):
    """kubectl refused; the text is what it printed."""


class Kubernetes:
    """One cluster, by its kubeconfig."""

    def __init__(self, kubeconfig: Path, kubectl: Path | str) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = str(kubectl)
        config = lightkube.KubeConfig.from_file(kubeconfig)
        self._client = lightkube.Client(config=config, trust_env=False)

    def kubectl(self, *arguments: str, text: str | None = None, seconds: float = timeouts.COMMAND) -> str:
        """What kubectl prints.

        Raises:
            KubectlFailed: it ended with an error.
        """
        command = [self._kubectl, f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds)
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def apply(self, *objects: Mapping[str, Any], manager: str = "user") -> None:
        """As a user does: server-side, as a field manager of their own."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", "-", text=text)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object, or None if there is none."""
        try:
            return _plain(self._client.get(KINDS[kind], name, namespace=namespace))
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    def list(self, kind: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """All objects of a kind with these labels."""
        found: Iterable[Any] = self._client.list(KINDS[kind], namespace=namespace, labels=dict(labels or {}))
        return [_plain(each) for each in found]

    def delete(self, kind: str, namespace: str, name: str, grace: int | None = None) -> None:
        """Asks for deletion, and returns at once; an object that is not there is fine."""
        try:
            self._client.delete(KINDS[kind], name, namespace=namespace, grace_period=grace)
        except ApiError as error:
            if error.status.code != 404:
                raise

    def patch(self, kind: str, namespace: str, name: str, change: Mapping[str, Any]) -> None:
        """A merge patch, as `kubectl edit` would make it."""
        from lightkube.types import PatchType

        self._client.patch(KINDS[kind], name, dict(change), namespace=namespace, patch_type=PatchType.MERGE)

    def logs(self, namespace: str, pod: str, container: str | None = None, lines: int = 60) -> str:
        """The end of a container's log, for the text of a failure."""
        arguments = ["logs", "-n", namespace, pod, f"--tail={lines}"]
        return self.kubectl(*arguments, *(["-c", container] if container else ["--all-containers=true"]))


def _plain(found: Any) -> Object:
    plain: Object = found.to_dict() if hasattr(found, "to_dict") else dict(found)
    return plain


def condition(found: Object | None, kind: str) -> Object | None:
    """A condition of an object's status, or None."""
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), None)


def is_true(found: Object | None, kind: str) -> bool:
    """Whether a condition is there, is True, and is about the newest spec."""
    each = condition(found, kind)
    if found is None or each is None or each["status"] != "True":
        return False
    return bool(each.get("observedGeneration", 0) >= found["metadata"]["generation"]) or (
        found["status"].get("observedGeneration") == found["metadata"]["generation"]
    )
