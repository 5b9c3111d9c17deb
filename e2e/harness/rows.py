"""Rows through the gateway: appends and selects, as any client over HTTP does them."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any
from urllib.parse import quote, urlsplit

from e2e.harness import timeouts


class Refused(Exception):
    """The gateway answered with an error; the text has status and sentence."""


class Gateway:
    """One gateway; a kept connection for each thread. It tries nothing twice: whoever counts failures sees each."""

    def __init__(self, url: str, token: str) -> None:
        self._address = urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._local = threading.local()

    def append(self, module: str, depot: str, records: list[Any], idempotency_key: str) -> None:
        """Returns when the records are durable."""
        path = f"/modules/{module}/depots/{quote(depot, safe='')}/append"
        self._post(path, records, {"Idempotency-Key": idempotency_key})

    def select(self, module: str, pstate: str, path: list[Any]) -> list[Any]:
        """Everything that a path navigates to."""
        found = self._post(f"/modules/{module}/pstates/{quote(pstate, safe='')}/select", {"path": path})
        return list(found)

    def select_one(self, module: str, pstate: str, path: list[Any]) -> Any:
        """The one value that a path navigates to."""
        return self._post(f"/modules/{module}/pstates/{quote(pstate, safe='')}/selectOne", {"path": path})

    def _post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        connection = self._connection()
        try:
            connection.request("POST", f"/api/v1{path}", json.dumps(body), self._headers | (headers or {}))
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._forget()
            raise
        if answer.status != 200:
            raise Refused(f"{answer.status} {text[:500].decode(errors='replace')}")
        return json.loads(text)

    def _connection(self) -> http.client.HTTPConnection:
        known: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if known is None:
            known = http.client.HTTPConnection(self._address, timeout=timeouts.REQUEST)
            self._local.connection = known
        return known

    def _forget(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def close(self) -> None:
        """Ends this thread's connection."""
        self._forget()


class CountsRows:
    """The rows of the `Counts` module."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def append(self, records: list[list[Any]], idempotency_key: str) -> None:
        """Returns when the records are durable."""
        self._gateway.append("Counts", "*events", records, idempotency_key)

    def versions(self) -> dict[str, int]:
        """Records counted so far, by the revision that counted them; one read of one snapshot."""
        return dict(self._gateway.select("Counts", "$$versions", [["all"]]))

    def ids(self, key: str, pstate: str = "$$ids") -> dict[str, int]:
        """How often each id of a key was counted."""
        return dict(self._gateway.select("Counts", pstate, [key, ["all"]]))
