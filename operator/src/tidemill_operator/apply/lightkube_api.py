"""The API server through lightkube's asynchronous client, as plain dicts."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from typing import Any

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from tidemill_operator.apply.api import ApiFailure, Conflict, Going, Invalid, Missing
from tidemill_operator.apply.metrics import API_CALLS
from tidemill_operator.resources import names
from tidemill_operator.resources.kinds import KINDS
from tidemill_operator.resources.names import Json

log = logging.getLogger(__name__)

_LOG_LINES = 200
_SYSTEM_NAMESPACE = "kube-system"
"""Each cluster has one, and nobody can delete it."""

_TIMEOUT_SECONDS = 10.0
"""Every call ends: a server that takes longer is asked again later, with back-off."""


class LightkubeApi:
    """`Api` over lightkube. Kinds that lightkube knows are used as generic resources too: dict in, dict out."""

    def __init__(self) -> None:
        self._client = _connect()
        self._resources: dict[str, Any] = {}

    async def apply(self, obj: Json) -> Json:
        return await self._patch(obj, self._resource(obj["kind"]))

    async def apply_status(self, obj: Json) -> Json:
        return await self._patch(obj, self._resource(obj["kind"]).Status)

    async def clear_status(self, obj: Json, fields: Sequence[str]) -> Json:
        name, namespace, resource = names.name_of(obj), names.namespace_of(obj), self._resource(obj["kind"]).Status
        version = obj["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": dict.fromkeys(fields)}
        call = self._client.patch(resource, name, body, namespace=namespace, patch_type=PatchType.MERGE)
        return self._plain(await self._do("patch", obj["kind"], call), obj)

    async def _patch(self, obj: Json, resource: Any) -> Json:
        name, namespace = names.name_of(obj), names.namespace_of(obj)
        call = self._client.patch(resource, name, obj, namespace=namespace, patch_type=PatchType.APPLY, force=True)
        return self._plain(await self._do("apply", obj["kind"], call), obj)

    async def create(self, obj: Json) -> Json:
        resource = self._resource(obj["kind"])
        return self._plain(await self._do("create", obj["kind"], self._client.create(resource(obj))), obj)

    async def replace(self, obj: Json) -> Json:
        resource = self._resource(obj["kind"])
        return self._plain(await self._do("update", obj["kind"], self._client.replace(resource(obj))), obj)

    async def get(self, kind: str, namespace: str, name: str) -> Json:
        call = self._client.get(self._resource(kind), name, namespace=namespace)
        return self._plain(await self._do("get", kind, call), {"kind": kind})

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        call = self._client.delete(self._resource(kind), name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        try:
            await self._do("delete", kind, call)
        except Missing:
            return

    async def log(self, namespace: str, pod: str, container: str) -> str:
        API_CALLS.labels(verb="get", kind="Pod/log", code="").inc()
        try:
            found = self._client.log(pod, namespace=namespace, container=container, tail_lines=_LOG_LINES)
            return "".join([line async for line in found])
        except (httpx2.HTTPError, ApiError) as error:
            raise _failure(error) from error

    async def cluster(self) -> str:
        resource = create_global_resource("", "v1", "Namespace", "namespaces")
        found = await self._do("get", "Namespace", self._client.get(resource, _SYSTEM_NAMESPACE))
        return str(found["metadata"]["uid"])

    async def list(self, kind: str, namespace: str | None) -> list[Json]:
        known = KINDS[kind]
        labels: Any = {names.MANAGED_BY: names.FIELD_MANAGER} if known.is_ours else None
        API_CALLS.labels(verb="list", kind=kind, code="").inc()
        try:
            call = self._client.list(self._resource(kind), namespace=namespace or "*", labels=labels, chunk_size=500)
            return [self._plain(item, {"kind": kind}) async for item in call]
        except (httpx2.HTTPError, ApiError) as error:
            raise _failure(error) from error

    async def close(self) -> None:
        """Close the connections to the API server."""
        await self._client.close()

    def _resource(self, kind: str) -> Any:
        found = self._resources.get(kind)
        if found is None:
            known = KINDS[kind]
            found = create_namespaced_resource(known.group, known.version, known.kind, known.plural)
            self._resources[kind] = found
        return found

    def _plain(self, answer: Any, obj: Json) -> Json:
        kind = KINDS[obj["kind"]]
        return {**answer, "apiVersion": kind.api_version, "kind": kind.kind}

    async def _do(self, verb: str, kind: str, call: Any) -> Any:
        try:
            answer = await call
        except (httpx2.HTTPError, ApiError) as error:
            failure = _failure(error)
            API_CALLS.labels(verb=verb, kind=kind, code=str(failure.code)).inc()
            raise failure from error
        API_CALLS.labels(verb=verb, kind=kind, code="200").inc()
        return answer


def _connect() -> AsyncClient:
    """A client for the cluster we are in, or that of KUBECONFIG.

    The cluster's own authority is trusted as it is: since Python 3.13 those without a key usage are refused.
    """
    config = KubeConfig.from_env().get()
    if config is None or config.user is None:
        raise ApiFailure(0, "no cluster: run in a pod with a service account, or set KUBECONFIG")
    context = verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return AsyncClient(
        config,
        field_manager=names.FIELD_MANAGER,
        timeout=httpx2.Timeout(_TIMEOUT_SECONDS),
        transport=httpx2.AsyncHTTPTransport(verify=context),
        trust_env=False,
    )


def _failure(error: Exception) -> ApiFailure:
    if not isinstance(error, httpx2.HTTPStatusError):
        return ApiFailure(0, f"the API server does not answer: {type(error).__name__} {error}")
    code = error.response.status_code if error.response is not None else 0
    status = error.status if isinstance(error, ApiError) else None
    code = int(getattr(status, "code", None) or code)
    text = str(getattr(status, "message", None) or error)
    if code == 403 and "being terminated" in text:
        return Going(code, text)
    kinds: dict[int, type[ApiFailure]] = {404: Missing, 409: Conflict, 400: Invalid, 422: Invalid}
    return kinds.get(code, ApiFailure)(code, text)
