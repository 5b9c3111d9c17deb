"""Whether another module still has its depots read as this one's definition says.

An update of that module which migrates records, and breaks the mirrors, holds for all readers from then on. A reader
that does not know the function would take records as they were appended, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredMirror
from tidemill.journal.definition_log import DefinitionLog
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import store_at
from tidemill.values.errors import SchemaOutdated


class MirroredDepots:
    """The mirrored depots of one definition; for one thread at a time."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition) -> None:
        self._mirrors = definition.mirrors
        modules = {(mirror.store, mirror.module) for mirror in definition.mirrors.values()}
        self._logs = {(url, module): DefinitionLog(store_at(store, url), module) for url, module in modules}
        self._checked: dict[str, int] = {}

    def check(self, names: Iterable[str]) -> None:
        """One look at the definition of each module whose depots these are; others of the names are passed over.

        Raises:
            SchemaOutdated: its records are read otherwise now; this module is to be updated.
            StoreUnavailable: a store does not answer.
        """
        for name in names:
            mirror = self._mirrors.get(name)
            if mirror is None or not isinstance(mirror.item, StoredDepot):
                continue
            log = self._logs[mirror.store, mirror.module]
            number = log.newest_number()
            if number and self._checked.get(name) != number:
                _check_one(mirror, mirror.item, log.read(number))
                self._checked[name] = number


def _check_one(mirror: StoredMirror, known: StoredDepot, newest: StoredDefinition) -> None:
    depot = newest.depots.get(known.name)
    if depot is not None and depot.id == known.id and depot.migration != known.migration:
        text = f"Since definition {newest.number} of module {mirror.module} the records of '{known.name}' go through "
        text += f"the migration '{depot.migration}'" if depot.migration else "no migration"
        raise SchemaOutdated(f"{text}: update this module, so that '{mirror.name}' is read so.", depot=mirror.name)
