"""`QuarantineClient`: the records that a topology left out, through a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.client.connection import Connection, Request, in_url, packed
from tidemill.clients.quarantined import PAGE_RECORDS, QuarantinedRecord
from tidemill.clients.status import TopologyStatus
from tidemill.values.call_checks import checked_whole, listed_numbers
from tidemill.values.errors import UnknownName


class QuarantineClient:
    """The quarantine of one topology; safe for several threads."""

    def __init__(self, connection: Connection, module: str, topology: str) -> None:
        self._connection, self._topology = connection, topology
        self._at = f"/modules/{in_url('module', module)}/topologies/{in_url('topology', topology)}"
        self._status()

    def __repr__(self) -> str:
        return f"<quarantine of {self._topology!r}>"

    @property
    def count(self) -> int:
        """How many records wait for a decision."""
        return self._status().in_quarantine or 0

    def records(self, limit: int = PAGE_RECORDS, after: int = -1) -> list[QuarantinedRecord]:
        """The records that wait for a decision, oldest first: at most `limit` (1 to 100), behind the number `after`.

        Raises:
            BadInput: `limit` or `after` is no such number.
        """
        found = self._send("page", {"limit": limit, "after": after})
        return [QuarantinedRecord(**record) for record in found]

    def record(self, number: int) -> QuarantinedRecord:
        """One record that waits for a decision. Raises UnknownName where there is none of this number."""
        checked_whole("The number of a record", number)
        found = self.records(1, number - 1) if number >= 0 else []
        if not found or found[0].number != number:
            text = f"Topology {self._topology} has no record {number} in quarantine; `records()` gives those that are"
            raise UnknownName(f"{text} there.", number=number)
        return found[0]

    def retry(self, numbers: Sequence[int] | None = None) -> int:
        """Append records to their depots again, each to its partition, where they come last; how many. None: all.

        They leave the quarantine; each topology that reads the depot gets them as new records.

        Raises:
            UnknownName: one of them is not in the quarantine.
            BadInput: the depot of one of them was deleted, or these are more than 100; nothing was done.
            StoreUnavailable, OutcomeUnknown: call it again; what was done already is not done again, and is not in the
                quarantine any more.
        """
        count: int = self._decide("retry", numbers)["retried"]
        return count

    def drop(self, numbers: Sequence[int] | None = None) -> int:
        """Forget records; how many. None: all. Raises: as `retry`."""
        count: int = self._decide("drop", numbers)["dropped"]
        return count

    def _decide(self, verb: str, numbers: Sequence[int] | None) -> Any:
        return self._send(verb, {} if numbers is None else {"numbers": listed_numbers(numbers)}, is_once=True)

    def _send(self, verb: str, asked: dict[str, Any], *, is_once: bool = False) -> Any:
        path = f"{self._at}/quarantine/{verb}"
        return self._connection.send(Request("POST", path, packed(asked), is_write=is_once, is_once=is_once))

    def _status(self) -> TopologyStatus:
        return TopologyStatus.from_json(self._connection.send(Request("GET", self._at)))
