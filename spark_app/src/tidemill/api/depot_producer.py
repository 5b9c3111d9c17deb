"""`DepotProducer`: appends under a name that belongs to one process at a time, the one that opened it last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tidemill.values.errors import BadInput, Fenced, KeyReused, OutcomeUnknown, SequenceUnknown, StoreUnavailable
from tidemill.values.numbers import EPOCH_APPENDS


class NumberedAppends(Protocol):
    """A depot's handle, in the process or through a gateway."""

    name: str

    def append(self, record: Any, *, producer: str, sequence: int) -> dict[str, Any]: ...

    def append_many(self, records: Iterable[Any], *, producer: str, sequence: int) -> None: ...


class DepotProducer:
    """Appends that are numbered by themselves, from `open_producer(name)` of a depot's handle.

    A process that opens the name again, as one that takes over after a crash does, shuts the others out: from then on
    their appends raise Fenced, and nothing of them is appended. Safe for several threads, whose appends go one after
    the other.
    """

    def __init__(self, depot: NumberedAppends, name: str, number: int) -> None:
        self.name = name
        self._depot = depot
        self._number = number
        self._lock = threading.Lock()
        self._unanswered: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"DepotProducer({self._depot.name!r}, {self.name!r}, epoch={self.epoch})"

    @property
    def epoch(self) -> int:
        """How often the name was opened, this time included."""
        return self._number // EPOCH_APPENDS

    def append(self, record: Any) -> None:
        """Append one record.

        Raises:
            Fenced: another process opened the producer; nothing was appended, and nothing will be.
            OutcomeUnknown, StoreUnavailable: call `repeat` before the next append; then it is there once.
            RecordRefused, UnknownName: as `append` of the depot.
        """
        self._next(lambda number: self._depot.append(record, producer=self.name, sequence=number))

    def append_many(self, records: Iterable[Any]) -> None:
        """Append many records as one, whole or not at all. Raises: as `append`."""
        self._next(lambda number: self._depot.append_many(records, producer=self.name, sequence=number))

    def repeat(self) -> None:
        """Append what had no answer once more, under its number, so that it is there once.

        Raises:
            BadInput: every append had an answer.
            Fenced, OutcomeUnknown, StoreUnavailable: as `append`. After Fenced the records may be there, or not.
        """
        with self._lock:
            if self._unanswered is None:
                raise BadInput(f"Every append of the producer '{self.name}' had an answer; there is none to repeat.")
            self._answered(self._unanswered)

    def _next(self, append: Callable[[int], object]) -> None:
        with self._lock:
            self._number += 1
            number = self._number

            def numbered() -> None:
                append(number)

            self._answered(numbered)

    def _answered(self, append: Callable[[], None]) -> None:
        self._unanswered = None
        try:
            append()
        except (OutcomeUnknown, StoreUnavailable):
            self._unanswered = append
            raise
        except (KeyReused, SequenceUnknown) as error:
            text = f"Another process opened the producer '{self.name}' of {self._depot.name}: this one appends no more."
            raise Fenced(text, producer=self.name, epoch=self.epoch) from error
