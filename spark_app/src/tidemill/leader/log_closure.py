"""What is deleted takes no more appends, however late they come: logs are closed, and marked before they are emptied.

An update closes the depots that it deletes by an entry in their logs, so each append is before it, or is refused; who
is refused looks at the newest definition. A rollback that brings one back opens it with the first append. What nothing
can bring back is emptied, but for a mark that stays: a writer may have slept through all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tidemill.definition.definition import StoredDefinition, StoredDepot
from tidemill.depot.log import DepotLog
from tidemill.journal.commit_log import LOG_FOLDER
from tidemill.store.log import PATIENCE, Log, is_deletion_mark
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import CorruptState, Deleted


def close_deleted(store: ObjectStore, definition: StoredDefinition, patience: tuple[float, ...] = PATIENCE) -> None:
    """Close the depots that this definition and those before it deleted, and that a rollback may bring back.

    Raises:
        StoreUnavailable, OutcomeUnknown: ask again.
    """
    for gone in definition.retired:
        folder = gone.folder(definition.module)
        if folder is not None and isinstance(gone.item, StoredDepot):
            partitions = 1 if gone.item.is_global else definition.tasks
            # Nobody opens a log that cannot be read, and what goes may be broken; a mark refuses all the more.
            with suppress(CorruptState, Deleted):
                DepotLog(store, folder, partitions, patience=patience).close(gone.by)


def folders_of(definition: StoredDefinition) -> set[str]:
    """The folders of all depots and topologies of a definition, and of those that went and may not be empty yet."""
    retired = (gone.folder(definition.module) for gone in definition.retired)
    return {
        *(definition.depot_prefix(name) for name, depot in definition.depots.items() if depot.has_log),
        *(definition.topology_prefix(name) for name in definition.topologies),
        *(folder for folder in retired if folder is not None),
        *definition.garbage,
    }


def held(store: ObjectStore, folder: str) -> list[str]:
    """What is in the folder of a depot or a topology, but for the mark that it was deleted."""
    return [key for key in store.list(folder) if not is_deletion_mark(key)]


def empty_folders(store: ObjectStore, folders: Iterable[str], keys: Iterable[str]) -> None:
    """Delete these objects of deleted depots and topologies, and let nobody write into their folders any more.

    The marks come first, all of them: an append that does not meet one was acknowledged before anything was deleted.

    Raises:
        StoreUnavailable, OutcomeUnknown: repeat it.
    """
    known = {key: "/".join(key.split("/")[:3]) for key in keys}
    marked = {folder for key, folder in known.items() if is_deletion_mark(key)}
    for folder in sorted({*folders, *known.values()} - marked):
        Log(store, f"{folder}/{LOG_FOLDER}", "").mark_deleted()
    # Newest first, so that a log that is looked at meanwhile is shorter, but has no hole.
    for key in reversed([*known]):
        if not is_deletion_mark(key):
            store.delete(key)
