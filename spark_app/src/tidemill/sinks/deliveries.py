"""What a sink found in its system of the deliveries before, and what that means for the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tidemill.language.external import Delivery
from tidemill.values.errors import CorruptState

KNOWN_MAX: Final = 32
"""So many deliveries are known by their digests: more than ever wait, so more than are ever repeated."""


class Progress(NamedTuple):
    """What stands in another system beside the rows: the newest microbatch of a topology that is there, and `ID=digest`
    of the newest ones. A person who lets another copy of the store go on leaves the digests empty.
    """

    store: str
    microbatch_id: int = 0
    digests: str = ""

    @property
    def known(self) -> dict[int, str]:
        """The digests of the newest deliveries, in their order."""
        pairs = (pair.partition("=") for pair in self.digests.split())
        return {int(number): digest for number, equals, digest in pairs if equals}

    def after(self, delivery: Delivery) -> Progress:
        """What stands there once it is written."""
        known = [*self.known.items(), (delivery.microbatch_id, delivery.digest)][-KNOWN_MAX:]
        digests = " ".join(f"{number}={digest}" for number, digest in known)
        return Progress(delivery.store, delivery.microbatch_id, digests)


def is_delivered(found: Progress, delivery: Delivery, advice: Callable[[int], str]) -> bool:
    """Whether this delivery is there. `advice` says how a person lets this copy of the store go on behind a microbatch.

    Raises:
        CorruptState: another copy of the store, or other records of the same microbatch, were delivered.
    """
    if found.store != delivery.store:
        text = f"{_of_another(found, delivery)} To go on with this one, {advice(delivery.restored_at)}."
        raise CorruptState(text)
    if delivery.microbatch_id > found.microbatch_id:
        return False
    if not _is_same(found.known, delivery):
        number = delivery.microbatch_id
        text = f"Other records of microbatch {number} are there than the topology committed: an older copy of the store"
        text = f"{text} was put back by hand, or the mark changed. To go on, delete what microbatches {number} to"
        text = f"{text} {found.microbatch_id} brought there, unless rows take the places of those with their key;"
        raise CorruptState(f"{text} then {advice(number - 1)}.")
    return True


def _is_same(known: dict[int, str], delivery: Delivery) -> bool:
    """Whether this delivery was made before, as far as is known: all are made in their order."""
    number = delivery.microbatch_id
    if number in known:
        return known[number] == delivery.digest
    return len(known) < KNOWN_MAX and number < min(known, default=number + 1)


def _of_another(found: Progress, delivery: Delivery) -> str:
    """What a person must know before this copy of the store may go on."""
    last, at = found.microbatch_id, delivery.restored_at
    text = f"Another copy of the store (id {found.store}) has delivered up to microbatch {last};"
    text = f"{text} this one (id {delivery.store})"
    if not at:
        return (
            f"{text} is none of its copies. Modules of one name cannot share a sink: rename one, or stop the other one."
        )
    if last <= at:
        return f"{text} was restored at microbatch {at}, so all that is there is its own."
    brought = f"What microbatches {at + 1} to {last} brought there is not"
    advice = "delete it first, unless rows take the places of those with their key"
    return f"{text} was restored at microbatch {at}. {brought} its own: {advice}."
