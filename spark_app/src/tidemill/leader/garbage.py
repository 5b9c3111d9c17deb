"""Deleting the folders of depots and topologies that nothing can bring back.

Safe without any lease, as ids are never used again: what a definition names as garbage no later one can name as its
own, and what it retired none can bring back once the deletions are done (`leader.deletions`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.leader.log_closure import empty_folders, held
from tidemill.leader.topology_store import TopologyStore
from tidemill.values.errors import invariant


def remove_garbage(topology_store: TopologyStore, retention_ms: int) -> int:
    """Delete what is in those folders, a while after they became garbage; how many objects.

    Readers that do not know of it yet finish in that time. One topology of the module looks after it.

    Raises:
        StoreUnavailable: the next collection goes on.
    """
    definition = topology_store.definition
    if topology_store.topology != min(definition.topologies):
        return 0
    live = {
        *(definition.depot_prefix(name) for name in definition.depots),
        *(definition.topology_prefix(name) for name in definition.topologies),
    }
    count = 0
    for folder in _folders(topology_store, topology_store.clock.now_ms() - retention_ms):
        invariant(folder not in live, "S6: what a definition has is no garbage", folder=folder)
        if folder not in topology_store.emptied:
            count += _empty(topology_store, folder)
    return count


def _folders(topology_store: TopologyStore, cutoff_ms: int) -> Iterator[str]:
    definition = topology_store.definition
    if definition.garbage and definition.written_ms <= cutoff_ms:
        yield from definition.garbage
    decided = topology_store.decision()
    if decided is not None and decided.is_done and decided.written_ms <= cutoff_ms:
        folders = (gone.folder(definition.module) for gone in definition.retired)
        yield from (folder for folder in folders if folder is not None)


def _empty(topology_store: TopologyStore, folder: str) -> int:
    keys = held(topology_store.store, folder)
    empty_folders(topology_store.store, [folder], keys)
    if not keys:
        topology_store.emptied.add(folder)
    return len(keys)
