"""The end of a depot: how far it reaches, without its records."""

from __future__ import annotations

import threading

from tidemill.depot.files import DepotFiles
from tidemill.depot.header import Header, SegmentSummary
from tidemill.store.log import PATIENCE
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import CorruptState, InvariantViolation


class DepotEnd:
    """The newest segment of the depot below `prefix` that this instance saw; `follow` looks for newer ones."""

    def __init__(
        self, store: ObjectStore, prefix: str, partitions: int, patience: tuple[float, ...] = PATIENCE
    ) -> None:
        self.files = DepotFiles(store, prefix, patience)
        self.partitions = partitions
        self._newest: Header | None = None
        self._state_lock = threading.RLock()

    def follow(self) -> bool:
        """Look for newer segments; whether there are any. Two cheap probes where nothing is new.

        Raises:
            StoreUnavailable: others delete segments faster than they can be read, too.
        """
        with self._state_lock:
            known = self._newest or self._empty()
            found = self.files.log.read_newest(known.number, self.files.header)
            _, self._newest = found or (known.number, known)
            self._check_partitions(self._newest)
            return found is not None

    def seems_longer(self) -> bool:
        """Whether there is a newer segment, by one probe where there is none. It does not see deletions, nor a log that
        others trimmed beyond what this instance saw: `follow` does.

        Raises:
            StoreUnavailable: ask again.
        """
        with self._state_lock:
            number = self._newest.number if self._newest is not None else 0
        return self.files.log.has(number + 1) and self.follow()

    def newest(self) -> Header:
        """The header of the newest segment seen; looks for it the first time."""
        if self._newest is None:
            self.follow()
        if self._newest is None:
            raise InvariantViolation("a depot that was followed knows its newest segment")
        return self._newest

    def ends(self) -> tuple[int, ...]:
        """The end offset of each partition, as of the newest segment seen."""
        return self.newest().ends

    def starts(self) -> tuple[int, ...]:
        """The logical start of each partition: what retention left."""
        return self.newest().starts

    def _empty(self) -> Header:
        zeros = (0,) * self.partitions
        return Header(entries=(SegmentSummary(0, "", 0, zeros),), first_ends=zeros, starts=zeros)  # full, of nobody

    def _check_partitions(self, header: Header) -> None:
        if len(header.starts) != self.partitions:
            text = f"The depot {self.files.prefix} has {len(header.starts)} partitions, not {self.partitions}."
            raise CorruptState(text, prefix=self.files.prefix)
