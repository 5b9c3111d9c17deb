"""Whether other modules still have what a module mirrors as its definition says.

An update that breaks mirrors holds for all readers from then on. A reader that went on would take records as they were
appended, and values that are not migrated or not kept any more, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredMirror, StoredPState, StoredQuery
from tidemill.definition.mirrored_changes import Change, change_of, items_of
from tidemill.journal.definition_log import DefinitionLog
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import store_at

_IS: Final[dict[Change, str]] = {
    "gone": "is gone",
    "private": "is private",
    "schema": "has another schema, or is migrated",
    "records": "has its records migrated",
}


class MirroredObjects:
    """What one definition mirrors of other modules; safe for several threads."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition) -> None:
        mirrors: dict[tuple[str, str], list[StoredMirror]] = {}
        for mirror in definition.mirrors.values():
            mirrors.setdefault((mirror.store, mirror.module), []).append(mirror)
        self._modules = [(DefinitionLog(store_at(store, url), name), mine) for (url, name), mine in mirrors.items()]
        self._checked: dict[str, int] = {}

    def broken(self, names: Iterable[str]) -> str:
        """Why one of these mirrors may not be read any more as this module knows it; empty if all may.

        Looks at the definitions of the modules that have them: two requests each.

        Raises:
            StoreUnavailable: a store does not answer.
        """
        wanted = {*names}
        for log, mirrors in self._modules:
            mine = [mirror for mirror in mirrors if mirror.name in wanted]
            head = log.head() if mine else None
            if head is not None and (text := self._first_broken(mine, *head)):
                return text
        return ""

    def _first_broken(self, mirrors: Iterable[StoredMirror], number: int, newest: StoredDefinition) -> str:
        for mirror in mirrors:
            if self._checked.get(mirror.name) != number:
                if text := _broken(mirror, newest):
                    return text
                self._checked[mirror.name] = number
        return ""


def _broken(mirror: StoredMirror, newest: StoredDefinition) -> str:
    what = f"What {mirror} reads" if isinstance(mirror.item, StoredQuery) else str(mirror)
    for change in _changes(mirror, {} if newest.is_destroyed else items_of(newest)):
        if change:
            text = f"{what} {_IS[change]} since definition {newest.number} of that module"
            return f"{text}: update this module, so that it mirrors what is there."
    return ""


def _changes(mirror: StoredMirror, there: Mapping[str, StoredDepot | StoredPState | StoredQuery]) -> Iterator[Change]:
    item = mirror.item
    if isinstance(item, StoredQuery):  # its code is here; it reads PStates without migrations
        for identity, _ in mirror.reads.values():
            now = there.get(identity)
            yield "schema" if isinstance(now, StoredPState) and now.migrations else "" if now is not None else "gone"
    elif isinstance(item, StoredPState) or item.id in there:  # the log of a depot says itself that it is deleted
        yield change_of(item, there.get(item.id))
