"""A store whose requests fail where a plan says so: for simulations and property tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.store.objects import Buffer, ObjectStore


class Crash(SystemExit):
    """The process dies here, ended from outside. No code may catch it but the simulation, which starts a new process on
    the same store.
    """


def _nothing(verb: str, key: str) -> None:
    pass


def _as_it_is(verb: str, key: str, answer: Any) -> Any:
    return answer


@dataclass
class FaultPlan:
    """What happens before a request reaches the store and after the store did it; both may raise.

    `before` raising means the store never saw the request. `after` raising means it did it and the answer is lost:
    raise `OutcomeUnknown` for a create, `StoreUnavailable` for a read, `Crash` for a process that dies just then.
    `spoil` makes another answer of a read (`get`: bytes, `exists`: whether, `list`: keys), as a bad disk or cache does.
    """

    before: Callable[[str, str], None] = _nothing
    after: Callable[[str, str], None] = _nothing
    spoil: Callable[[str, str, Any], Any] = _as_it_is


class FaultyObjectStore:
    """Every request of `inner` passes `plan.before(verb, key)` and `plan.after(verb, key)`.

    Verbs: get, create, exists, delete, list. Objects are never local paths here, so that no read escapes the plan.
    """

    def __init__(self, inner: ObjectStore, plan: FaultPlan | None = None) -> None:
        self.inner = inner
        self.plan = plan or FaultPlan()
        self.url = inner.url
        self.counts = inner.counts

    def get(self, key: str) -> bytes:
        self.plan.before("get", key)
        data = self.inner.get(key)
        self.plan.after("get", key)
        return bytes(self.plan.spoil("get", key, data))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.plan.before("get", key)
        data = self.inner.get(key)
        self.plan.after("get", key)
        return bytes(self.plan.spoil("get", key, data)[start : start + length])

    def create(self, key: str, data: Buffer) -> None:
        self.plan.before("create", key)
        self.inner.create(key, data)
        self.plan.after("create", key)

    def exists(self, key: str) -> bool:
        self.plan.before("exists", key)
        found = self.inner.exists(key)
        self.plan.after("exists", key)
        return bool(self.plan.spoil("exists", key, found))

    def delete(self, key: str) -> None:
        self.plan.before("delete", key)
        self.inner.delete(key)
        self.plan.after("delete", key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        self.plan.before("list", prefix)
        keys = list(self.inner.list(prefix, after))
        self.plan.after("list", prefix)
        return iter(self.plan.spoil("list", prefix, keys))

    def local_path(self, key: str) -> Path | None:
        return None
