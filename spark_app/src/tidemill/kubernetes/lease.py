"""The right to lead a topology as a Lease of Kubernetes, which people and other tools can see.

As with every lease of Tidemill, being wrong costs a fenced leader, never a wrong commit: an API server that does not
answer is therefore no loss, and the leader goes on.
"""

from __future__ import annotations

import datetime
import threading
from contextlib import suppress
from typing import Any, Final

from tidemill.journal.clock import Clock
from tidemill.kubernetes.api import Document, Leases, ObjectChanged
from tidemill.store.lease import LeasePace
from tidemill.values.errors import RetryableError

DURATION_SECONDS: Final = 5
RENEW_MS: Final = 1_500.0
SILENT_MS: Final = 15_000.0
"""A runner that has not asked for so long hangs: its Lease is left to expire."""
QUIET_MS: Final = 2_000.0
"""A holder that has not renewed for so long may be dead: only then its pod is asked for."""
HAND_OVER_MS: Final = 10_000.0
DEFINITION: Final = "tidemill.dev/definition"
_TRIES: Final = 3


class KubernetesLease:
    """A Lease object; `identity` is the pod's name and uid, so that a restarted container goes on with its lease.

    A holder is believed for as long as the lease says after its last change, on our own clock that never goes back;
    one whose pod is gone is not believed any more.
    One that runs an older definition than `definition` has `HAND_OVER_MS` to let go, then the lease is taken from it.
    """

    pace = LeasePace(renew_ms=500.0, poll_ms=300.0, claim_wait_ms=int(RENEW_MS))

    def __init__(
        self,
        leases: Leases,
        name: str,
        identity: str,
        definition: int,
        clock: Clock,
        owner: Document | None = None,
    ) -> None:
        """`owner` is the Topology with which the Lease goes."""
        self._leases = leases
        self._name = name
        self._identity = identity
        self._definition = definition
        self._clock = clock
        self._owners = [_owner(owner)] if owner and (owner.get("metadata") or {}).get("uid") else []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._is_ours = False
        self._is_lost = False
        self._asked_at = 0.0
        self._wanted_at: float | None = None
        self._seen: Any = None
        self._seen_at = 0.0
        self._holder = ""

    def try_acquire(self) -> bool:
        """Once held, renewal goes on by itself and this only looks what it found: the caller never waits for the API.

        Raises:
            ApiUnavailable: it is not known whether the lease is free.
        """
        self._asked_at = self._clock.monotonic_ms()
        if self._is_ours or self._is_lost:
            self._is_lost = False
            return self._is_ours
        if self._wanted_at is None:
            self._wanted_at = self._asked_at
        over = threading.Event()
        if self._round(over):
            self._over = over
            keep = threading.Thread(target=self._keep, args=(over,), name=f"lease {self._name}", daemon=True)
            keep.start()
        return self._is_ours

    def is_held(self) -> bool:
        """Whether the Lease is this process's, as far as it knows without asking."""
        return self._is_ours

    def release(self) -> None:
        """Empty the holder, so that a standby need not wait for the end of the lease."""
        self._over.set()
        with self._lock, suppress(RetryableError, ObjectChanged):
            if self._is_ours:
                self._is_ours = False
                lease = self._leases.read()
                if lease is not None and _spec(lease).get("holderIdentity") == self._identity:
                    self._leases.replace(self._written(lease, ""))

    @property
    def holder(self) -> str:
        """The identity that the Lease named when it was read last; "" if nobody was known."""
        return self._holder

    def peek(self) -> str:
        """The identity that the Lease names now; "" if it names none, or is not there.

        Raises:
            ApiUnavailable: the API server gave no answer.
        """
        lease = self._leases.read()
        return str(_spec(lease or {}).get("holderIdentity") or "")

    def stand_by(self) -> None:
        """Its pod shows it."""

    def tell(self, engine: str, spark_ui: str) -> None:
        """The lease of the store says it (`ShownLease`)."""

    # --- rounds ------------------------------------------------------------------------------------------------------

    def _keep(self, over: threading.Event) -> None:
        """Renew until the lease is released or somebody else has it."""
        while not self._clock.wait(over, RENEW_MS):
            if self._clock.monotonic_ms() - self._asked_at < SILENT_MS:
                with suppress(RetryableError):
                    if not self._round(over):
                        self._is_lost = not over.is_set()
                        return

    def _round(self, over: threading.Event) -> bool:
        """Take or renew the lease if it may be; whether it is ours now. Not after a release: `over` is set then."""
        with self._lock:
            is_ours, tries = False, 0
            while not (is_ours or over.is_set() or tries == _TRIES):
                tries += 1
                with suppress(ObjectChanged):
                    is_ours = self._try()
                    break
            self._is_ours = is_ours
            return is_ours

    def _try(self) -> bool:
        lease = self._leases.read()
        if lease is None:
            self._leases.create(self._written({}, self._identity))
            return True
        self._note(lease)
        if self._is_free(lease) or self._is_gone():
            self._leases.replace(self._written(lease, self._identity))
            self._holder = self._identity
            return True
        return False

    def _is_free(self, lease: Document) -> bool:
        is_ours = self._holder in (self._identity, "")
        return is_ours or self._is_expired(lease) or self._is_overdue(lease)

    def _is_gone(self) -> bool:
        """Whether the holder's pod is not there any more: killed, it could not let go."""
        pod, _, uid = self._holder.rpartition("_")
        is_quiet = self._clock.monotonic_ms() - self._seen_at >= QUIET_MS
        return is_quiet and bool(pod) and self._leases.is_pod_gone(pod, uid)

    def _note(self, lease: Document) -> None:
        spec = _spec(lease)
        self._holder = str(spec.get("holderIdentity") or "")
        seen = (self._holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock.monotonic_ms()

    def _is_expired(self, lease: Document) -> bool:
        duration_ms = 1000 * float(_spec(lease).get("leaseDurationSeconds") or DURATION_SECONDS)
        return self._clock.monotonic_ms() - self._seen_at >= duration_ms

    def _is_overdue(self, lease: Document) -> bool:
        """Whether the holder's definition was replaced and it had its time to let go."""
        theirs = (lease["metadata"].get("annotations") or {}).get(DEFINITION, "")
        is_older = theirs.isdigit() and int(theirs) < self._definition
        wanted_at = self._wanted_at if self._wanted_at is not None else self._clock.monotonic_ms()
        return is_older and self._clock.monotonic_ms() - wanted_at >= HAND_OVER_MS

    def _written(self, lease: Document, holder: str) -> Document:
        """The lease as it is to be; what others put into its metadata stays."""
        metadata = dict(lease.get("metadata") or {})
        metadata.pop("managedFields", None)
        if self._owners:
            metadata["ownerReferences"] = self._owners
        annotations = {**(metadata.get("annotations") or {}), DEFINITION: str(self._definition)}
        before = _spec(lease)
        now = datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000, datetime.UTC)
        time = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_same = before.get("holderIdentity") == holder
        spec = {
            **before,
            "holderIdentity": holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": time,
            "acquireTime": before.get("acquireTime", time) if is_same or not holder else time,
            "leaseTransitions": int(before.get("leaseTransitions") or 0)
            + (bool(before) and bool(holder) and not is_same),
        }
        return {"metadata": {**metadata, "name": self._name, "annotations": annotations}, "spec": spec}


def _owner(topology: Document) -> Document:
    metadata = topology["metadata"]
    kind = {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Topology"}
    return {**kind, "name": metadata["name"], "uid": metadata["uid"]}


def _spec(lease: Document) -> Document:
    return lease.get("spec") or {}
