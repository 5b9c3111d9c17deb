"""The quarantine of a topology: records at which the module's code raised, and what is decided on them.

The records are a depot of one partition in the topology's folder; a record is known by its offset there. What was
decided is in `journal.settlements`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

import numpy as np

from tidemill.clients.depot_target import reopen
from tidemill.clients.quarantined import PAGE_RECORDS, QuarantinedRecord
from tidemill.definition.definition import StoredDefinition
from tidemill.definition.mirrors import check_copies
from tidemill.depot.append_identity import Producer
from tidemill.depot.log import DepotLog
from tidemill.depot.rows import PartitionedRows, split_by_partition
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.settlements import Action, Settlement, SettlementLog, Span, quarantine_prefix, retries_of
from tidemill.store.log import PATIENCE, Lost
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import store_at
from tidemill.values import columns
from tidemill.values.call_checks import checked_whole, listed_numbers
from tidemill.values.errors import (
    BadInput,
    CorruptState,
    Deleted,
    DepotClosed,
    SequenceUnknown,
    StoreUnavailable,
    UnknownName,
)
from tidemill.values.message_pack import pack

DECIDED_MAX: Final = 100
"""Records of one decision."""

RETRIED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the records of one retry, which holds them in memory; a single one may be of any size."""

_TRIES: Final = 20


class Quarantine:
    """The quarantine of one topology, in this process; safe for several threads."""

    def __init__(
        self,
        store: ObjectStore,
        definition: Callable[[], StoredDefinition],
        topology: str,
        clock: Clock | None = None,
        tell: Callable[[str], None] = lambda prefix: None,
        patience: tuple[float, ...] = PATIENCE,
        by: str = "",
    ) -> None:
        """`tell` hears of the prefix of each depot to which records are appended; `by` is who decides through this, for
        people. Raises UnknownName.
        """
        self._store, self._definition, self._topology = store, definition, topology
        self._clock = clock or SystemClock()
        self._tell = tell
        self._patience = patience
        self._by = by
        self._prefix = definition().topology_prefix(topology)
        self._log = SettlementLog(store, self._prefix, patience)
        self._depot = DepotLog(store, quarantine_prefix(self._prefix), 1, self._clock.now_ms, patience)
        self._finished = 0

    def __repr__(self) -> str:
        return f"<quarantine of {self._topology!r}>"

    @property
    def count(self) -> int:
        """How many records wait for a decision."""
        return sum(end - first for first, end in self._open())

    def records(self, limit: int = PAGE_RECORDS, after: int = -1) -> list[QuarantinedRecord]:
        """The records that wait for a decision, oldest first: at most `limit`, behind the number `after`."""
        checked_whole("limit=", limit)
        checked_whole("after=", after)
        found: list[QuarantinedRecord] = []
        for first, end in self._open():
            first = max(first, after + 1)
            end = min(end, first + limit - len(found))
            if first < end:
                found += self._read(first, end)
        return found

    def record(self, number: int) -> QuarantinedRecord:
        """One record that waits for a decision. Raises UnknownName where there is none of this number."""
        self._check([checked_whole("The number of a record", number)])
        return self._read(number, number + 1)[0]

    def retry(self, numbers: Sequence[int] | None = None) -> int:
        """Append records to their depots again, each to its partition, where they come last; how many. None: all.

        They leave the quarantine; each topology that reads the depot gets them as new records.

        Raises:
            UnknownName: one of them is not in the quarantine.
            BadInput: the depot of one of them was deleted; nothing was done.
            StoreUnavailable, OutcomeUnknown: call it again; what was done already is not done again.
        """
        return self._settle_all("retry", numbers)

    def drop(self, numbers: Sequence[int] | None = None) -> int:
        """Forget records; how many. None: all. Raises: as `retry`."""
        return self._settle_all("drop", numbers)

    def finish(self) -> Settlement:
        """Finish the newest decision, whoever made it; returns it.

        Raises:
            CorruptState: there was a newer one, and it is lost.
            StoreUnavailable, OutcomeUnknown: call it again.
        """
        newest = self._log.newest()
        self._check_newest(newest)
        if newest.number > self._finished:
            self._note(newest)
            if newest.action == "retry":
                self._append_again(newest, self._read_all(newest.chosen))
        self._finished = newest.number
        return newest

    def _check_newest(self, newest: Settlement) -> None:
        """A decision that took the number of a lost one could never be finished."""
        noted = self._depot.last_of(retries_of(self._prefix))
        if noted is None or noted.sequence <= newest.number or noted.sequence <= self._log.newest_number():
            return
        text = (
            f"Decision {noted.sequence} on the quarantine of {self._topology} was made, but the last one that is there"
        )
        advice = "run `tidemill check`, and bring its object back"
        raise CorruptState(f"{text} is {newest.number}: {advice}.", key=self._log.log.key(noted.sequence))

    def _note(self, settlement: Settlement) -> None:
        """Say beside the records that it was made, so that it is missed where it is lost."""
        producer = Producer(retries_of(self._prefix), settlement.number, settlement.nonce)
        with suppress(SequenceUnknown):  # a later decision is noted already
            self._depot.append(PartitionedRows([], ()), producer)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _open(self) -> list[Span]:
        settled = self._log.newest()  # first: what is settled there is published already
        self._depot.follow()
        return list(settled.open(0, self._depot.ends()[0]))

    def _read(self, first: int, end: int) -> list[QuarantinedRecord]:
        rows = columns.to_values(self._depot.read_columns(0, first, end))
        return [QuarantinedRecord(first + index, **row) for index, row in enumerate(rows)]

    def _read_all(self, spans: Iterable[Span]) -> list[QuarantinedRecord]:
        self._depot.follow()
        return [held for first, end in spans for held in self._read(first, end)]

    def _check(self, numbers: Sequence[int]) -> None:
        spans = self._open()
        for number in numbers:
            if not any(first <= number < end for first, end in spans):
                text = f"Topology {self._topology} has no record {number} in quarantine; `tidemill quarantine list`"
                raise UnknownName(f"{text} shows those that are there.", number=number)

    # --- deciding ----------------------------------------------------------------------------------------------------

    def _settle_all(self, action: Action, numbers: Sequence[int] | None) -> int:
        if numbers is not None:
            return self._settle(action, lambda: self._named(action, numbers))
        end = self._end()  # what is retried now may come back under a higher number
        done = 0
        while made := self._settle(action, lambda: self._oldest(action, end)):
            done += made
        return done

    def _settle(self, action: Action, choose: Callable[[], Sequence[int]]) -> int:
        for _ in range(_TRIES):
            before = self.finish()
            wanted = choose()
            if not wanted:
                return 0
            try:
                self._log.append(before, action, wanted, self._clock.now_ms(), self._by)
            except Lost:
                continue
            self.finish()
            return len(wanted)
        raise StoreUnavailable(f"{_TRIES} decisions in a row met other ones in {self._log.log.prefix}: try again.")

    def _named(self, action: Action, numbers: Sequence[int]) -> Sequence[int]:
        numbers = listed_numbers(numbers)
        if len(numbers) > DECIDED_MAX:
            raise BadInput(f"Decide on at most {DECIDED_MAX:,} records at once, not on {len(numbers):,}.")
        wanted = sorted(set(numbers))
        self._check(wanted)
        if action == "retry" and len(self._fitting(wanted)) < len(wanted):
            raise BadInput(f"These records take more than {RETRIED_BYTES_MAX:,} bytes; retry fewer at once.")
        return wanted

    def _oldest(self, action: Action, end: int) -> Sequence[int]:
        numbers = (number for first, last in self._open() for number in range(first, min(last, end)))
        wanted = list(islice(numbers, DECIDED_MAX))
        return self._fitting(wanted) if action == "retry" else wanted

    def _end(self) -> int:
        self._depot.follow()
        return self._depot.ends()[0]

    def _fitting(self, numbers: Sequence[int]) -> Sequence[int]:
        """The first of these records, as many as one retry takes; their depots are there."""
        found: list[int] = []
        places: set[tuple[str, str]] = set()
        size = 0
        for number in numbers:
            (held,) = self._read(number, number + 1)
            size += len(pack(held.record))
            if found and size > RETRIED_BYTES_MAX:
                break
            if held.depot_place not in places:
                self._check_depot(held)
            places.add(held.depot_place)
            found.append(number)
        return found

    def _check_depot(self, held: QuarantinedRecord) -> None:
        if not self._takes_records(held):
            text = f"The depot {held.depot} of record {held.number} was deleted, or is outside the store"
            advice = "so it cannot be retried; `tidemill quarantine drop` forgets it"
            raise BadInput(f"{text}, {advice}.", number=held.number)

    def _takes_records(self, held: QuarantinedRecord) -> bool:
        """Whether the depot of the record is there; what another module deleted, our definition does not know."""
        depot = self._depot_of(held)
        if depot is None:
            return False
        try:
            depot.follow()
            if depot.newest().gate.is_closed:
                reopen(depot)
        except (Deleted, DepotClosed):
            return False
        return True

    def _depot_of(self, held: QuarantinedRecord) -> DepotLog | None:
        """The depot that the record came from; None where it is gone, though another one may have its name, or is
        outside the store.
        """
        definition, name = self._definition(), held.depot
        is_known = name in definition.depots or name in definition.mirrors
        if not is_known or definition.depot_identity(name) != held.depot_id:
            return None
        if not definition.source_depot(name).has_log:
            return None
        check_copies(mirror for mirror in (definition.mirrors.get(name),) if mirror is not None)
        store = store_at(self._store, definition.store_of(name))
        prefix, partitions = definition.depot_prefix(name), definition.partitions(name)
        return DepotLog(store, prefix, partitions, self._clock.now_ms, self._patience)

    def _append_again(self, settlement: Settlement, records: Sequence[QuarantinedRecord]) -> None:
        """One append a depot; whose depot is gone meanwhile went with it."""
        for one in _one_each(records):
            mine = [held for held in records if held.depot_place == one.depot_place]
            depot = self._depot_of(one)
            if depot is None:
                continue
            column = columns.from_values([held.record for held in mine])
            rows = split_by_partition(column, np.array([held.partition for held in mine]))
            producer = Producer(retries_of(self._prefix), settlement.number, settlement.nonce)
            try:
                depot.append(rows, producer)
            except (SequenceUnknown, Deleted, DepotClosed):
                continue  # a later decision is there already, so this one is; or there is no such depot any more
            self._tell(depot.files.prefix)


def _one_each(records: Sequence[QuarantinedRecord]) -> list[QuarantinedRecord]:
    """The first record of each depot."""
    return list({held.depot_place: held for held in reversed(records)}.values())
