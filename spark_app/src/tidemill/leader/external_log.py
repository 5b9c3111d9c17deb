"""A depot outside the store as the runner of a topology sees it: where it ends, and where a source begins in it."""

from __future__ import annotations

from typing import Final

from tidemill.journal.clock import Clock
from tidemill.language.dataflow import StartFrom
from tidemill.language.external import ExternalDepot
from tidemill.language.objects import DeclaredObject
from tidemill.leader.events import DepotEnds
from tidemill.values.errors import ExternalUnavailable, TidemillError, message_of

POLL_MILLIS: Final = 100
"""How often another system is asked for its ends, at most."""


class ExternalLog:
    """Follows one external depot; for one thread at a time."""

    def __init__(self, declared: DeclaredObject, clock: Clock) -> None:
        self._declared = declared
        self._clock = clock
        self._bounds: tuple[tuple[int, int], ...] | None = None
        self._asked_at = float("-inf")

    def follow(self) -> bool:
        """Whether there is more than before; asks at most every `POLL_MILLIS`.

        Raises:
            ExternalUnavailable: the other system does not answer.
        """
        now = self._clock.monotonic_ms()
        if self._bounds is not None and 0 <= now - self._asked_at < POLL_MILLIS:
            return False
        before, self._bounds = self._bounds, self._ask()
        self._asked_at = now
        return before != self._bounds

    def ends(self) -> DepotEnds:
        """Where it ends. Its begin counts as 0: what it has lost before it was read is not skipped, but fails the
        attempt that reads it.
        """
        assert self._bounds is not None, "it was followed"
        return DepotEnds((0,) * len(self._bounds), tuple(end for _, end in self._bounds))

    def resolve_start(self, start_from: StartFrom, now_millis: int) -> tuple[int, ...]:
        """The offset in each partition at which a source begins that meets this depot for the first time.

        Raises:
            ExternalUnavailable: the other system does not answer.
        """
        bounds = self._ask()
        if start_from.kind == "end":
            return tuple(end for _, end in bounds)
        if start_from.kind == "beginning":
            return tuple(start for start, _ in bounds)
        if start_from.kind == "ago_records":
            found = [end - start_from.amount for _, end in bounds]
        else:
            millis = start_from.amount if start_from.kind == "after_timestamp" else now_millis - start_from.amount
            found = [self._offset_after(partition, millis) for partition in range(len(bounds))]
        return tuple(min(max(start, at), end) for (start, end), at in zip(bounds, found, strict=True))

    def _ask(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((int(start), int(end)) for start, end in self._depot().bounds())
        except Exception as error:
            raise self._unavailable(error) from error

    def _offset_after(self, partition: int, millis: int) -> int:
        try:
            return int(self._depot().offset_after_timestamp_millis(partition, millis))
        except Exception as error:
            raise self._unavailable(error) from error

    def _depot(self) -> ExternalDepot:
        depot = self._declared()
        assert isinstance(depot, ExternalDepot)
        return depot

    def _unavailable(self, error: Exception) -> ExternalUnavailable:
        said = str(error) if isinstance(error, TidemillError) else f"{type(error).__name__}: {message_of(error)}"
        return ExternalUnavailable(f"The external depot '{self._declared.name}' does not answer: {said}")
