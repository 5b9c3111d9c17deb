"""Epochs of producers: whoever opens a producer anew shuts out all who opened it before.

The number of an append begins with its epoch. A depot takes from a producer only numbers above its last one, and of
lower ones only repeats. So an append without records, whose number begins a new epoch, refuses all that others append
under the epochs before; what they had appended stays, and is known when it is repeated.

A depot that forgot a producer, or lost its last numbers in a restore, begins an epoch a second time. So the numbers of
who opens one begin anywhere in it: those of two never meet, and no append of one is taken for a repeat of the other's.
"""

from __future__ import annotations

from typing import Final

from tidemill.depot.append_identity import Producer
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import KEY_PREFIX
from tidemill.depot.rows import PartitionedRows
from tidemill.values.errors import BadInput, KeyReused, SequenceUnknown, StoreUnavailable
from tidemill.values.ids import nonce
from tidemill.values.numbers import EPOCH_APPENDS

_RACES_MAX: Final = 50


def open_epoch(log: DepotLog, producer: str, number_max: int) -> int:
    """Begin a producer's next epoch; a number in its first half, above which appends go on, up to `number_max`.

    Raises:
        BadInput: no epoch is left; nothing was begun.
        Deleted: the depot was deleted.
        StoreUnavailable: nothing was begun; or others open it all the time.
        OutcomeUnknown: the epoch may have begun; open it again.
    """
    shown = producer.removeprefix(KEY_PREFIX)
    for _ in range(_RACES_MAX):
        last = log.last_of(producer)
        number = ((0 if last is None else last.sequence) // EPOCH_APPENDS + 1) * EPOCH_APPENDS
        if last is not None and number + EPOCH_APPENDS - 1 > number_max:
            text = f"The last append of the producer '{shown}' has the number {last.sequence}"
            raise BadInput(f"{text}: no epoch is left above it. Open another name.")
        try:
            # The nonce tells this opening from one of the same number by another process.
            log.append(PartitionedRows([], ()), Producer(producer, number, nonce()))
        except (KeyReused, SequenceUnknown):
            continue
        return number + int(nonce(), 16) % (EPOCH_APPENDS // 2)
    raise StoreUnavailable(f"Others opened the producer '{shown}' {_RACES_MAX} times meanwhile: try again.")
