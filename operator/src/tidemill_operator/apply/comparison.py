"""Whether an object in the cluster is as we want it, so that nothing need be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator.observe.object_cache import Ref, ref_of
from tidemill_operator.resources import names
from tidemill_operator.resources.names import Json


class Applied:
    """Remembers what was applied, and the resourceVersion that this gave.

    Same wish and same version: as we left it. Otherwise the object is compared field by field, as far as we set fields.
    A fresh process knows nothing, and applies what differs by as little as the way a quantity is written, once.
    """

    def __init__(self) -> None:
        self._known: dict[Ref, tuple[str, str]] = {}

    def is_as_wanted(self, wanted: Json, live: Mapping[str, Any] | None) -> bool:
        """Whether `live` needs no write: it exists, is not being deleted, and holds every field of `wanted`.

        A wish that differs from the one applied last is always written, because a field may have to be removed.
        """
        if live is None or live["metadata"].get("deletionTimestamp"):
            return False
        digest = names.digest(wanted, 32)
        known = self._known.get(ref_of(wanted))
        if known is not None and known[0] != digest:
            return False
        if known == (digest, live["metadata"].get("resourceVersion")):
            return True
        return covers(live, wanted)

    def was_known(self, wanted: Json) -> bool:
        """Whether exactly this was applied before: then a difference is somebody else's doing."""
        known = self._known.get(ref_of(wanted))
        return known is not None and known[0] == names.digest(wanted, 32)

    def remember(self, wanted: Json, live: Mapping[str, Any]) -> None:
        """Remember that `wanted` was applied; `live` is the object that the API server returned."""
        version = live["metadata"].get("resourceVersion", "")
        self._known[ref_of(wanted)] = (names.digest(wanted, 32), version)

    def forget(self, obj: Mapping[str, Any]) -> None:
        """Drop all memory of `obj`, for example because it was deleted."""
        self._known.pop(ref_of(obj), None)


def covers(live: Any, wanted: Any) -> bool:
    """Whether `live` has every field of `wanted`; lists element by element, of one length."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and covers(live[key], value) for key, value in wanted.items() if key not in _WRITE_ONLY
        )
    if isinstance(wanted, list):
        if not isinstance(live, list) or len(live) != len(wanted):
            return False
        return all(covers(mine, theirs) for mine, theirs in zip(live, wanted, strict=True))
    return bool(live == wanted)


_WRITE_ONLY = {"stringData"}
