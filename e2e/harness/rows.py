"""Rows through the gateway, by Tidemill's own client."""

from __future__ import annotations

import threading
from typing import Any

from tidemill import Path
from tidemill.client import Client, DepotClient, PStateClient


class Gateway:
    """One gateway. It tries nothing twice by itself, so that whoever counts failures sees each."""

    def __init__(self, url: str, token: str) -> None:
        self._client = Client(url, token, retry_seconds=0)
        self._lock = threading.Lock()
        self._depots: dict[tuple[str, str], DepotClient] = {}
        self._pstates: dict[tuple[str, str], PStateClient] = {}

    def append(self, module: str, depot: str, records: Any, idempotency_key: str) -> None:
        """Returns when the records are durable; the same key again appends nothing."""
        with self._lock:
            known = self._depots.get((module, depot))
        if known is None:
            known = self._client.depot(module, depot)
            with self._lock:
                self._depots[module, depot] = known
        known.append_many(records, producer=idempotency_key, sequence=0)

    def select(self, module: str, pstate: str, path: Path) -> list[Any]:
        """Everything that a path navigates to."""
        return list(self._pstate(module, pstate).select(path))

    def select_one(self, module: str, pstate: str, path: Path) -> Any:
        """The one value that a path navigates to."""
        return self._pstate(module, pstate).select_one(path)

    def _pstate(self, module: str, pstate: str) -> PStateClient:
        with self._lock:
            known = self._pstates.get((module, pstate))
        if known is None:
            known = self._client.pstate(module, pstate)
            with self._lock:
                self._pstates[module, pstate] = known
        return known

    def close(self) -> None:
        """Ends its connections."""
        self._client.close()


class CountsRows:
    """The rows of the `Counts` module."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def append(self, records: list[list[Any]], idempotency_key: str) -> None:
        """Returns when the records are durable."""
        self._gateway.append("Counts", "*events", records, idempotency_key)

    def versions(self) -> dict[str, int]:
        """Records counted so far, by the revision that counted them; one read of one snapshot."""
        return dict(self._gateway.select("Counts", "$$versions", Path.all()))

    def ids(self, key: str, pstate: str = "$$ids") -> dict[str, int]:
        """How often each id of a key was counted."""
        return dict(self._gateway.select("Counts", pstate, Path.key(key).all()))
