"""`Seats`: jobs of one task that follow each other run in the same Python worker of one executor, while it lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Seat:
    """A place for one task: `location` is its executor as Spark names it, None for any; `worker` a number there."""

    location: str | None
    worker: int


class Seats:
    """Who sits where; only a wish, which Spark meets where that place is free."""

    def __init__(self) -> None:
        self._seats: dict[int, Seat] = {}

    def seat(self, sitter: int, locations: Collection[str], slots: int) -> Seat:
        """The seat of one of many sitters, the same as long as its executor is there. `locations` are the executors
        that there are, each with `slots` seats; who finds none has no certain place.
        """
        # First, so that an executor that comes again is empty: who sat there knows nothing any more.
        self._seats = {each: seat for each, seat in self._seats.items() if seat.location in locations}
        kept = self._seats.get(sitter)
        if kept is not None:
            return kept
        taken = Counter(seat.location for seat in self._seats.values())
        emptiest = min(sorted(locations), key=lambda location: taken[location], default=None)
        if emptiest is None or taken[emptiest] >= slots:
            return Seat(None, sitter % slots)
        workers = {seat.worker for seat in self._seats.values() if seat.location == emptiest}
        found = self._seats[sitter] = Seat(emptiest, min({*range(slots)} - workers))
        return found
