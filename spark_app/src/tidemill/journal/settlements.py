"""What was decided on quarantined records: `<topology>/settled/<n>.json`, each entry one decision and all before it.

A decision is made when its entry is in the log. To retry records is to append them to their depots again, by an
idempotent append whose number is that of the entry; so whoever finds the newest entry finishes it, however often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal

from tidemill.depot.producer_names import producer_of
from tidemill.journal.entries import QUARANTINE
from tidemill.store.entry_log import EntryLog
from tidemill.store.json_codec import SUFFIX, JsonCodec
from tidemill.store.log import PATIENCE, Log
from tidemill.store.objects import ObjectStore
from tidemill.values.ids import nonce
from tidemill.values.stored import Stored

SETTLED_FOLDER: Final = "settled"

Action = Literal["retry", "drop"]
Span = tuple[int, int]
"""The records `first` to `end` - 1 of a quarantine, by their offsets."""


@dataclass(frozen=True)
class Settlement(Stored):
    """One decision: `chosen` are the records that it settles, `settled` all that were settled by now.

    Both are spans in ascending order, with gaps between them. `by` is who decided, for people; empty where that is not
    known.
    """

    nonce: str = ""
    number: int = 0
    written_ms: int = 0
    action: Action = "drop"
    chosen: tuple[Span, ...] = ()
    settled: tuple[Span, ...] = ()
    by: str = ""

    @property
    def start(self) -> int:
        """All records below it are settled."""
        return self.settled[0][1] if self.settled and self.settled[0][0] == 0 else 0

    @property
    def count(self) -> int:
        """How many records are settled."""
        return _count(self.settled)

    @property
    def chosen_count(self) -> int:
        """How many records this decision settles."""
        return _count(self.chosen)

    def open(self, first: int, end: int) -> Iterator[Span]:
        """The records of a span that are not settled."""
        for low, high in self.settled:
            if first < min(low, end):
                yield first, min(low, end)
            first = max(first, high)
        if first < end:
            yield first, end


JSON: Final[JsonCodec[Settlement]] = JsonCodec(Settlement)


def quarantine_prefix(topology_prefix: str) -> str:
    """Where the quarantine of a topology lives: a depot of one partition."""
    return f"{topology_prefix}/{QUARANTINE}"


def retries_of(topology_prefix: str) -> str:
    """The producer under whose name retried records are appended to their depots."""
    return f"{producer_of(topology_prefix)}/{QUARANTINE}"


class SettlementLog(EntryLog[Settlement]):
    """The decisions on the quarantine of the topology below `prefix`."""

    def __init__(self, store: ObjectStore, prefix: str, patience: tuple[float, ...] = PATIENCE) -> None:
        log = Log(store, f"{prefix}/{SETTLED_FOLDER}", SUFFIX, JSON.read_nonce, patience)
        super().__init__(log, JSON.decode, attrgetter("number"))

    def newest(self) -> Settlement:
        """The newest decision; the one before the first has number 0. Raises as `head`."""
        head = self.head()
        return head[1] if head is not None else Settlement()

    def append(
        self, before: Settlement, action: Action, numbers: Iterable[int], now_ms: int, by: str = ""
    ) -> Settlement:
        """Settle records by their offsets, after `before`; `by` decided it.

        Raises:
            Lost: somebody else decided meanwhile; look at it first.
            StoreUnavailable, OutcomeUnknown: perhaps it was decided; look again.
        """
        chosen = spans(numbers)
        settled = joined((*before.settled, *chosen))
        made = Settlement(nonce(), before.number + 1, now_ms, action, chosen, settled, by)
        self.put(made.number, made, JSON.sealed(made, self.log.key(made.number)))
        return made


def spans(numbers: Iterable[int]) -> tuple[Span, ...]:
    """Numbers as spans."""
    return joined((number, number + 1) for number in set(numbers))


def _count(given: Iterable[Span]) -> int:
    return sum(end - first for first, end in given)


def joined(given: Iterable[Span]) -> tuple[Span, ...]:
    """Spans in ascending order, those that touch made one."""
    found: list[Span] = []
    for first, end in sorted(given):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return tuple(found)
