"""The operator's own Lease: only the replica that holds it reconciles (kopf has no such thing).

As in client-go, time is counted from when a change of the Lease was seen here, never from the clock of another machine.
A clean stop releases the Lease, so the next replica goes on within a second or two; a crash waits it out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tidemill_operator.apply.api import Api, ApiFailure, Conflict, Missing
from tidemill_operator.resources.names import Json

log = logging.getLogger(__name__)

DURATION_SECONDS: Final = 12
RENEW_SECONDS: Final = 3.0
RENEW_DEADLINE_SECONDS: Final = 9.0
"""A holder that could not renew for so long stops before anybody else may start."""

RETRY_SECONDS: Final = 1.0


class Leadership:
    """`identity` is unique to this process: a pod's name, which a restarted container shares, is not enough."""

    def __init__(
        self, api: Api, namespace: str, name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._namespace, self._name, self._identity = api, namespace, name, identity
        self._clock = clock
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._lease: Json | None = None
        self.is_held = False

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while not await self.try_acquire():
            await asyncio.sleep(RETRY_SECONDS)
        log.info("holds the Lease", extra={"lease": self._name, "identity": self._identity})

    async def try_acquire(self) -> bool:
        """Take the Lease if it is free, released or run out."""
        try:
            lease = await self._api.get("Lease", self._namespace, self._name)
        except Missing:
            return await self._write(self._frame(), is_new=True)
        except ApiFailure as error:
            log.warning("the Lease can not be read: %s", error.message)
            return False
        spec = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        stamp = (holder, str(spec.get("renewTime")))
        if stamp != self._seen:
            self._seen, self._seen_at = stamp, self._clock()
        is_over = self._clock() - self._seen_at > float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)
        if holder not in ("", self._identity) and not is_over:
            return False
        return await self._write(lease, is_new=False)

    async def keep(self) -> None:
        """Renew until the Lease is lost; then return. The caller must end the process at once."""
        renewed = self._clock()
        while self._clock() - renewed < RENEW_DEADLINE_SECONDS:
            await asyncio.sleep(RENEW_SECONDS)
            asked, left = self._clock(), RENEW_DEADLINE_SECONDS - (self._clock() - renewed)
            try:
                # A call that hangs must not outlast the Lease: others take it then.
                async with asyncio.timeout(max(0.0, left)):
                    found = await self._renew()
            except TimeoutError:
                break
            if found is False:
                break
            renewed = asked if found else renewed
        self.is_held = False

    async def _renew(self) -> bool | None:
        """Whether it is ours for another while; False: somebody else has it; None: not known."""
        try:
            lease = await self._api.get("Lease", self._namespace, self._name)
        except Missing:
            lease = self._frame()
        except ApiFailure as error:
            log.warning("the Lease can not be renewed: %s", error.message)
            return None
        holder = lease.get("spec", {}).get("holderIdentity") or ""
        if holder not in ("", self._identity):
            return False
        return await self._write(lease, is_new="resourceVersion" not in lease["metadata"]) or None

    async def release(self) -> None:
        """Let the next replica in at once."""
        if not self.is_held or self._lease is None:
            return
        self.is_held = False
        spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_now()}
        try:
            await self._api.replace({**self._lease, "spec": spec})
        except ApiFailure as error:
            log.warning("the Lease was not released: %s", error.message)

    def _frame(self) -> Json:
        metadata = {"name": self._name, "namespace": self._namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}

    async def _write(self, lease: Json, is_new: bool) -> bool:
        before, now = lease.get("spec", {}), _micro_now()
        is_ours = before.get("holderIdentity") == self._identity
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": before.get("acquireTime", now) if is_ours else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if is_ours else 1),
        }
        call = self._api.create if is_new else self._api.replace
        try:
            self._lease = await call({**lease, "spec": spec})
        except Conflict:
            return False
        except ApiFailure as error:
            log.warning("the Lease can not be written: %s", error.message)
            return False
        self.is_held = True
        return True


def _micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
