"""What the operator asks of the API server, as a small protocol, and the errors it answers with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemill_operator.resources.names import Json


class ApiFailure(Exception):
    """The API server said no, or nothing. `code` is its HTTP status, 0 if it did not answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Conflict(ApiFailure):
    """The object has changed, is another one, or exists: read again, decide again."""


class Missing(ApiFailure):
    """There is no such object, or no such kind."""


class Invalid(ApiFailure):
    """The object can not be as described; only a change of the spec (or of a policy) helps."""


class Going(Invalid):
    """The namespace is being deleted: nothing can be made in it any more."""


class Api(Protocol):
    """Objects are dicts with apiVersion and kind. Every write carries the field manager `tidemill-operator`."""

    async def apply(self, obj: Json) -> Json:
        """Server-side apply with force: what we own is as we say. Returns the object as stored."""

    async def apply_status(self, obj: Json) -> Json:
        """The same for the status subresource."""

    async def clear_status(self, obj: Json, fields: Sequence[str]) -> Json:
        """Remove fields of a status, whoever wrote them; Conflict if the object has changed. Returns it as stored."""

    async def create(self, obj: Json) -> Json:
        """Create; Conflict if it exists."""

    async def replace(self, obj: Json) -> Json:
        """Update; Conflict if its resourceVersion is not the newest."""

    async def get(self, kind: str, namespace: str, name: str) -> Json:
        """Read one object; Missing if there is none."""

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete, and what it owns in the background. Gone already is fine."""

    async def log(self, namespace: str, pod: str, container: str) -> str:
        """The end of a container's log."""

    async def cluster(self) -> str:
        """An ID that no other cluster has: the uid of the namespace kube-system."""

    async def list(self, kind: str, namespace: str | None) -> list[Json]:
        """All watched objects of a kind; of all namespaces if None."""
