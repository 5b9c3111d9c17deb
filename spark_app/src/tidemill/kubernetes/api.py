"""The few calls of the Kubernetes API that a driver makes; objects are plain dicts, as they travel."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import httpx2
from lightkube import ApiError, Client, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from tidemill.values.errors import ApiUnavailable, BadInput

FIELD_MANAGER = "tidemill-driver"
SECONDS_MAX = 3.0
"""A call that has no answer by then failed: a Lease of five seconds is renewed in time by the next one."""

Document = dict[str, Any]

_Module: Any = create_namespaced_resource("tidemill.dev", "v1alpha1", "Module", "modules")
_Topology: Any = create_namespaced_resource("tidemill.dev", "v1alpha1", "Topology", "topologies")
_Lease: Any = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
_Pod: Any = create_namespaced_resource("", "v1", "Pod", "pods")


class ObjectChanged(Exception):
    """Somebody else changed or made the object meanwhile; read it again. Never leaves this package."""


class Leases(Protocol):
    """One Lease object."""

    def read(self) -> Document | None:
        """None if there is none. Raises ApiUnavailable."""

    def create(self, lease: Document) -> Document:
        """Raises ObjectChanged if there is one, ApiUnavailable."""

    def replace(self, lease: Document) -> Document:
        """Only over the `resourceVersion` that it was read with. Raises ObjectChanged, ApiUnavailable."""

    def is_pod_gone(self, name: str, uid: str) -> bool:
        """Whether a holder's pod has ended or is not there. Raises ApiUnavailable."""


class ClusterApi:
    """The API server, as the service account of this pod or as KUBECONFIG says; safe for several threads."""

    def __init__(self, namespace: str) -> None:
        """Raises: BadInput: there is neither a service account nor a kubeconfig."""
        try:
            config = KubeConfig.from_env().get()
        except ConfigError as error:
            raise BadInput(f"There is no access to a Kubernetes API: {error}.") from error
        # trust_env would send calls to the cluster through a proxy that is meant for the world outside.
        timeout = httpx2.Timeout(SECONDS_MAX)
        transport = httpx2.HTTPTransport(verify=_verification(config))
        self._client = Client(config, namespace=namespace, timeout=timeout, transport=transport, trust_env=False)

    def close(self) -> None:
        """Close the connections to the API server."""
        self._client.close()

    def module(self, name: str) -> Document | None:
        """A Module, None if there is none. Raises ApiUnavailable."""
        return self._get(_Module, name)

    def topology(self, name: str) -> Document | None:
        """A Topology, None if there is none. Raises ApiUnavailable."""
        return self._get(_Topology, name)

    def apply_topology_status(self, name: str, status: Mapping[str, Any]) -> bool:
        """Own these fields of a Topology's status; whether there is such a Topology. Raises ApiUnavailable."""
        body = {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Topology", "metadata": {"name": name}}
        with _answers(f"the status of topology {name}"):
            try:
                self._client.patch(
                    _Topology.Status, name, {**body, "status": dict(status)},
                    patch_type=PatchType.APPLY, field_manager=FIELD_MANAGER, force=True,
                )  # fmt: skip
            except ApiError as error:
                if error.response.status_code == 404:
                    return False
                raise
        return True

    def delete_pods(self, labels: Mapping[str, str]) -> None:
        """Delete all pods with these labels. Raises ApiUnavailable."""
        with _answers("deleting executors"):
            for pod in self._client.list(_Pod, labels=dict(labels)):
                self._client.delete(_Pod, pod.metadata.name, grace_period=0)

    def leases(self, name: str) -> Leases:
        """The Lease of this name."""
        return _NamedLease(self, name)

    def _get(self, kind: Any, name: str) -> Document | None:
        with _answers(f"{kind.__name__} {name}"):
            try:
                found: Document = self._client.get(kind, name).to_dict()
            except ApiError as error:
                if error.response.status_code == 404:
                    return None
                raise
            return found


def _verification(config: SingleConfig | None) -> ssl.SSLContext:
    """The cluster's own authority is trusted as it is: since Python 3.13 those without a key usage are refused."""
    assert config is not None and config.user is not None
    context = verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class _NamedLease:
    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api = api
        self._name = name

    def read(self) -> Document | None:
        return self._api._get(_Lease, self._name)

    def create(self, lease: Document) -> Document:
        return self._write("create", lease)

    def replace(self, lease: Document) -> Document:
        return self._write("replace", lease)

    def is_pod_gone(self, name: str, uid: str) -> bool:
        pod = self._api._get(_Pod, name)
        if pod is None or pod["metadata"].get("uid") != uid:
            return True
        return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def _write(self, verb: str, lease: Document) -> Document:
        with _answers(f"lease {self._name}"):
            try:
                written: Document = getattr(self._api._client, verb)(_Lease(**lease)).to_dict()
            except ApiError as error:
                if error.response.status_code in (404, 409):
                    raise ObjectChanged(str(error)) from error
                raise
            return written


@contextmanager
def _answers(what: str) -> Iterator[None]:
    """No answer, and an answer that refuses, are one to a driver: it goes on and asks again."""
    try:
        yield
    except httpx2.HTTPError as error:
        raise ApiUnavailable(f"The Kubernetes API refused or did not answer ({what}): {error}") from error
    except OSError as error:
        raise ApiUnavailable(f"The Kubernetes API cannot be reached ({what}): {error}") from error
