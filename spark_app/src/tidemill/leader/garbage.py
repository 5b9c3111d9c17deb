"""Deleting the folders of depots and topologies that nothing can bring back.

Safe without any lease, as ids are never used again: what a definition names as garbage no later one can name as its
own, and what it retired none can bring back once the deletions are done (`leader.deletions`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.leader.closing import empty_folders, held
from tidemill.leader.topology_store import TopologyStore
from tidemill.values.errors import invariant


def remove_garbage(world: TopologyStore, retention_ms: int) -> int:
    """Delete what is in those folders, a while after they became garbage; how many objects.

    Readers that do not know of it yet finish in that time. One topology of the module looks after it.

    Raises:
        StoreUnavailable: the next collection goes on.
    """
    definition = world.definition
    if world.topology != min(definition.topologies):
        return 0
    live = {
        *(definition.depot_prefix(name) for name in definition.depots),
        *(definition.topology_prefix(name) for name in definition.topologies),
    }
    count = 0
    for folder in _folders(world, world.clock.now_ms() - retention_ms):
        invariant(folder not in live, "S6: what a definition has is no garbage", folder=folder)
        if folder not in world.emptied:
            count += _empty(world, folder)
    return count


def _folders(world: TopologyStore, cutoff_ms: int) -> Iterator[str]:
    definition = world.definition
    if definition.garbage and definition.written_ms <= cutoff_ms:
        yield from definition.garbage
    fate = world.fate()
    if fate is not None and fate.is_done and fate.written_ms <= cutoff_ms:
        folders = (gone.folder(definition.module) for gone in definition.retired)
        yield from (folder for folder in folders if folder is not None)


def _empty(world: TopologyStore, folder: str) -> int:
    keys = held(world.store, folder)
    empty_folders(world.store, [folder], keys)
    if not keys:
        world.emptied.add(folder)
    return len(keys)
