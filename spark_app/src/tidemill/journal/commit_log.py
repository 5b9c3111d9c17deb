"""A topology's commit log: which entry is the newest, what an entry says, and the one way to add to it.

Fencing is a collision: entries are created at the next number only if it is free, so of two leaders one loses,
learns it at once and stops (invariant S4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemill.journal import entries
from tidemill.journal.entries import ENTRY_BYTES_MAX, Entry
from tidemill.store.entry_log import EntryLog
from tidemill.store.log import PATIENCE, Log, wait_for
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import invariant

LOG_FOLDER = "log"


class CommitLog(EntryLog[Entry]):
    """The commit log of the topology below `prefix`."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        patience: tuple[float, ...] = PATIENCE,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        log = Log(store, f"{prefix}/{LOG_FOLDER}", ".zip", entries.read_nonce, patience, wait or wait_for)
        super().__init__(log, entries.from_bytes)

    def append(self, number: int, entry: Entry, parts: Mapping[str, bytes]) -> None:
        """Make this the entry `number`, with these small deltas beside it.

        Raises:
            Lost: another leader was first; this one is fenced.
            StoreUnavailable, OutcomeUnknown: call again with the same entry before anything else.
        """
        invariant(not self.known or number <= self.known + 1, "S4: an entry follows the last one", number=number)
        content = entries.to_bytes(entry, parts, self.log.key(number))
        size = len(content) - sum(len(part) for part in parts.values())
        invariant(size <= 4 * ENTRY_BYTES_MAX, "entries of the commit log stay small", bytes=size, number=number)
        self.put(number, entry, content)
