"""Epochs of producers: whoever opens a producer anew shuts out all who opened it before.

The number of an append begins with its epoch. A depot takes from a producer only numbers above its last one, and of
lower ones only repeats. So an append without records, whose number begins a new epoch, refuses all that others append
under the epochs before; what they had appended stays, and is known when it is repeated.
"""

from __future__ import annotations

from typing import Final

from tidemill.depot.append_identity import Producer
from tidemill.depot.log import DepotLog
from tidemill.depot.rows import PartitionedRows
from tidemill.values.errors import KeyReused, SequenceUnknown, StoreUnavailable
from tidemill.values.ids import nonce
from tidemill.values.numbers import EPOCH_APPENDS

_RACES_MAX: Final = 50


def open_epoch(log: DepotLog, producer: str) -> int:
    """Begin a producer's next epoch; the number that stands for it. Appends go on above it.

    Raises:
        Deleted: the depot was deleted.
        StoreUnavailable: nothing was begun; or others open it all the time.
        OutcomeUnknown: the epoch may have begun; open it again.
    """
    for _ in range(_RACES_MAX):
        last = log.last_of(producer)
        number = ((0 if last is None else last.sequence) // EPOCH_APPENDS + 1) * EPOCH_APPENDS
        try:
            # The nonce tells this opening from one of the same number by another process.
            log.append(PartitionedRows([], ()), Producer(producer, number, nonce()))
        except (KeyReused, SequenceUnknown):
            continue
        return number
    raise StoreUnavailable(f"Others opened the producer '{producer}' {_RACES_MAX} times meanwhile: try again.")
