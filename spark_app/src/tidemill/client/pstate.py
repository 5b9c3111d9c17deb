"""`PStateClient`: selects from a PState through a gateway."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, overload

from tidemill.api.path import Path
from tidemill.client.connection import Connection, Request, in_url, packed
from tidemill.client.paths import path_to_json, value_to_json
from tidemill.clients.pages import PAGE_KEYS, ChangesPage, KeyChange, Page, PagedReads, check_pin
from tidemill.language import dataflow
from tidemill.values.call_checks import checked_time, listed_paths
from tidemill.values.errors import BadPath
from tidemill.values.notebook import ShownInNotebooks
from tidemill.values.object_info import ObjectInfo

_UNGIVEN: Any = object()


class PStateClient(PagedReads, ShownInNotebooks):
    """One PState of one module; safe for several threads. `entry` pins it to one entry of the commit log."""

    def __init__(self, connection: Connection, module: str, name: str, entry: int | None = None) -> None:
        self.name = "$$" + name.removeprefix("$$") if isinstance(name, str) else name
        self.entry = entry
        self._module = module
        self._connection = connection
        self._path = f"/modules/{in_url('module', module)}/pstates/{in_url('PState', self.name, safe='$')}"
        if entry is None:
            self.get_object_info()

    def __repr__(self) -> str:
        return f"PStateClient({self._path!r})"

    def _facts(self) -> dict[str, Any]:
        info = self.get_object_info()
        return {"module": info.module_name, "PState": info.name, "partitions": info.num_partitions}

    def select(
        self, path: Path | dataflow.RecordedPath | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> list[Any]:
        """What the path navigates to, in order.

        Raises:
            BadPath: the path cannot be followed, says no partition, or calls a function of the caller's.
            NotSelectable: it selects a subindexed structure whole, or the PState is private.
            SnapshotExpired: the pinned entry was collected.
            StoreUnavailable: the gateway or its store did not answer for too long.
        """
        found: list[Any] = self._asked("select", path, pkey, max_staleness_ms)
        return found

    def select_one(
        self, path: Path | dataflow.RecordedPath | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> Any:
        """The one value that the path navigates to. Raises NotOneValue on none or several, and as `select`."""
        return self._asked("selectOne", path, pkey, max_staleness_ms)

    def select_many(
        self, paths: Iterable[Path | dataflow.RecordedPath], *, max_staleness_ms: float = 0
    ) -> list[list[Any]]:
        """What each of the paths navigates to, all as of one entry; each begins with `key`. Raises: as `select`."""
        asked = [path_to_json(path) for path in listed_paths(paths)]
        found: list[list[Any]] = []
        if asked:
            found = self._sent(
                "selectMany", {"paths": asked, "maxStalenessMs": checked_time("max_staleness_ms", max_staleness_ms)}
            )
        return found

    def page(
        self, limit: int = PAGE_KEYS, *, path: Path | dataflow.RecordedPath | None = None, after: str | None = None
    ) -> Page:
        """The first `limit` keys of all partitions with their values, or, with the cursor `after`, the next ones.

        With `path`, which begins below a key, each item is `[key, list of what it navigates to]`. All pages of one
        walk are as of one entry.

        Raises:
            BadPath: the PState is no map, or its values are subindexed and no path is given.
            BadInput: `limit` or `after` is not possible.
            SnapshotExpired: the walk took so long that its entry was collected.
        """
        body: dict[str, Any] = {"limit": limit, "after": after}
        if path is not None:
            body["path"] = path_to_json(path)
        return Page(**self._sent("page", body))

    def select_async(
        self, path: Path | dataflow.RecordedPath | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> Future[list[Any]]:
        """`select` without waiting."""
        return self._connection.later(lambda: self.select(path, pkey=pkey, max_staleness_ms=max_staleness_ms))

    def select_one_async(
        self, path: Path | dataflow.RecordedPath | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> Future[Any]:
        """`select_one` without waiting."""
        return self._connection.later(lambda: self.select_one(path, pkey=pkey, max_staleness_ms=max_staleness_ms))

    def get_object_info(self) -> ObjectInfo:
        """Whose the PState is, its name and its number of partitions."""
        found = self._connection.send(Request("GET", self._path))
        return ObjectInfo(found["module_name"], found["name"], found["num_partitions"])

    @overload
    def at(self, entry: int) -> PStateClient: ...

    @overload
    def at(self, *, microbatch: int) -> PStateClient: ...

    def at(self, entry: int | None = None, *, microbatch: int | None = None) -> PStateClient:
        """A handle on the state as of an entry of the commit log, or of a microbatch, for as long as it is kept.

        Microbatch 0 is the state before the first.

        Raises:
            BadInput: it is no whole number, both are given or none, or the microbatch is not committed yet.
            SnapshotExpired: the microbatch is kept no more. Selects raise it where the entry is not.
        """
        check_pin(entry, microbatch)
        if microbatch is not None:
            entry = int(self._connection.send(Request("GET", self._path, params={"microbatch": microbatch}))["entry"])
        return PStateClient(self._connection, self._module, self.name, entry)

    def diff_page(
        self,
        before: int,
        after: int,
        limit: int = PAGE_KEYS,
        *,
        path: Path | dataflow.RecordedPath | None = None,
        cursor: str | None = None,
    ) -> ChangesPage:
        """At most `limit` changes of `diff`, from the first one on, or behind those of the page whose cursor is given.

        A page may hold fewer, or none, though there are more: its `after` tells.
        """
        body: dict[str, Any] = {"before": before, "after": after, "limit": limit, "cursor": cursor}
        if path is not None:
            body["path"] = path_to_json(path)
        found = self._sent("diff", body, is_pinned=False)
        return ChangesPage([KeyChange(*item) for item in found["items"]], found["after"])

    def current_entry(self) -> int:
        """The entry that a select would read now, for `at`; 0 before the topology's first."""
        return int(self._connection.send(Request("GET", self._path))["entry"])

    def _asked(self, verb: str, path: Path | dataflow.RecordedPath | None, pkey: Any, max_staleness_ms: float) -> Any:
        body: dict[str, Any] = {
            "path": path_to_json(path),
            "maxStalenessMs": checked_time("max_staleness_ms", max_staleness_ms),
        }
        if pkey is not _UNGIVEN:
            body["pkey"] = value_to_json(pkey)
        return self._sent(verb, body)

    def _sent(self, verb: str, body: dict[str, Any], is_pinned: bool = True) -> Any:
        pin = {} if self.entry is None or not is_pinned else {"at": self.entry}
        asked = packed({**body, **pin}, f"{self.name}: the path", BadPath)
        return self._connection.send(Request("POST", f"{self._path}/{verb}", asked))
