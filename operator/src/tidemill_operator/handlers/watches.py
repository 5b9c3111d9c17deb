"""kopf watches; what it sees goes into the cache, which wakes all that it concerns.

Only `on.event` is used: it stores nothing on objects, so users' objects get no annotations and no finalizers of kopf.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable
from typing import Any

import kopf

from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.resources.kinds import WATCHED, Kind


def registry(cache: ObjectCache, begun: Callable[[], None]) -> kopf.OperatorRegistry:
    """Handlers for every watched kind. `begun` is called when a watch begins anew: it shows no earlier deletion."""
    found = kopf.OperatorRegistry()
    for kind in WATCHED:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=found)(_handler(cache, kind, begun))
    kopf.on.login(registry=found)(_login)
    return found


def _handler(cache: ObjectCache, kind: Kind, begun: Callable[[], None]) -> Any:
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        obj = {**event["object"], "apiVersion": kind.api_version, "kind": kind.kind}
        if event["type"] is None:
            begun()
        if event["type"] == "DELETED":
            cache.remove(obj)
        else:
            cache.put(obj)

    return seen


class _Connection(kopf.ConnectionInfo):
    """Trusts the cluster's own authority as it is: since Python 3.13 those without a key usage are refused."""

    def as_ssl_context(self) -> ssl.SSLContext:
        context = super().as_ssl_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    return _Connection(**dataclasses.asdict(found)) if found is not None else None


def settings() -> kopf.OperatorSettings:
    """kopf as a plain watcher: no events, no peers, no scanning for namespaces, only our own objects."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.peering.standalone = True
    found.scanning.disabled = True
    found.networking.request_timeout = 30.0
    found.watching.connect_timeout = 10.0
    found.queueing.idle_timeout = 1.0
    for kind in WATCHED:
        if kind.selector is not None:
            found.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
    return found
