"""How far the depots of a topology reach: those of its module, and those that it mirrors."""

from __future__ import annotations

from tidemill.definition.definition import StoredDefinition
from tidemill.depot.end import DepotEnd
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import store_at
from tidemill.values.errors import Deleted


class SourceEnd:
    """The end of one depot that a topology reads; `ends` looks at it anew."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, depot: str) -> None:
        self._definition, self._name = definition, depot
        place = store_at(store, definition.store_of(depot))
        self._depot = DepotEnd(place, definition.depot_prefix(depot), definition.partitions(depot))

    def ends(self) -> tuple[int, ...]:
        """The end offset of each partition by now.

        Raises:
            Deleted: the depot is gone; of a mirrored one the text says whose it was, and what to do.
            StoreUnavailable: its store does not answer.
        """
        try:
            self._depot.follow()
        except Deleted as error:
            mirror = self._definition.mirrors.get(self._name)
            if mirror is None:
                raise
            advice = f"What is not processed of it never will be: update {self._definition.module}, so that it mirrors"
            raise Deleted(f"'{self._name}' mirrors {mirror}, which is gone: {error} {advice} what is there.") from error
        return self._depot.ends()
