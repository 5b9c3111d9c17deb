"""`DepotProducer`: appends under a name that belongs to one process at a time, the one that opened it last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, NamedTuple, Protocol

from tidemill.values.errors import BadInput, Fenced, KeyReused, OutcomeUnknown, SequenceUnknown, StoreUnavailable
from tidemill.values.numbers import EPOCH_APPENDS


class NumberedAppends(Protocol):
    """A depot's handle, in the process or through a gateway."""

    name: str

    def append(self, record: Any, *, producer: str, sequence: int) -> dict[str, Any]: ...

    def append_many(self, records: Iterable[Any], *, producer: str, sequence: int) -> None: ...


class _Numbered(NamedTuple):
    """An append of this producer: how it is made, of what, and under which number."""

    append: Callable[..., object]
    given: Any
    number: int


class DepotProducer:
    """Appends that are numbered by themselves, from `open_producer(name)` of a depot's handle.

    A process that opens the name again, as one that takes over after a crash does, shuts the others out: from then on
    their appends raise Fenced, and nothing of them is appended. Safe for several threads, whose appends go one after
    the other: while one has no answer, those of all threads are refused until somebody calls `repeat`.
    """

    def __init__(self, depot: NumberedAppends, name: str, number: int) -> None:
        self.name = name
        self._depot = depot
        self._number = number
        self._epoch = number // EPOCH_APPENDS
        self._lock = threading.Lock()
        self._unanswered: _Numbered | None = None

    def __repr__(self) -> str:
        return f"DepotProducer({self._depot.name!r}, {self.name!r}, epoch={self.epoch})"

    @property
    def epoch(self) -> int:
        """How often the name was opened, this time included, as far as the depot remembers it."""
        return self._epoch

    def append(self, record: Any) -> None:
        """Append one record.

        Raises:
            Fenced: another process opened the producer; nothing was appended, and nothing will be.
            OutcomeUnknown, StoreUnavailable: call `repeat` before the next append; then it is there once.
            BadInput: the append before had no answer, so nothing was appended: call `repeat` first, or open the
                producer anew where its record shall be given up.
            RecordRefused, UnknownName: as `append` of the depot.
        """
        self._next(self._depot.append, record)

    def append_many(self, records: Iterable[Any]) -> None:
        """Append many records as one, whole or not at all. Raises: as `append`."""
        self._next(self._depot.append_many, _repeatable(records))

    def repeat(self) -> None:
        """Append what had no answer once more, as it was and under its number, so that it is there once.

        Raises:
            BadInput: every append had an answer.
            Fenced, OutcomeUnknown, StoreUnavailable: as `append`. After Fenced the records may be there, or not.
        """
        with self._lock:
            if self._unanswered is None:
                raise BadInput(f"Every append of the producer '{self.name}' had an answer; there is none to repeat.")
            self._send(self._unanswered)

    def _next(self, append: Callable[..., object], given: Any) -> None:
        with self._lock:
            if self._unanswered is not None:
                # A higher number would shut that append out, and its caller's repeat would be of this one.
                text = f"An append of the producer '{self.name}' had no answer: call repeat() before the next one."
                raise BadInput(f"{text} Nothing of this one was appended.")
            self._number += 1
            self._send(_Numbered(append, given, self._number))

    def _send(self, numbered: _Numbered) -> None:
        """Try an append; it stays unanswered until it is known what became of it, whatever else goes wrong."""
        try:
            numbered.append(numbered.given, producer=self.name, sequence=numbered.number)
        except (OutcomeUnknown, StoreUnavailable, KeyboardInterrupt):
            # The caller may fill the same dict anew, which is then another append under this number.
            self._unanswered = numbered._replace(given=deepcopy(numbered.given))
            raise
        except (KeyReused, SequenceUnknown) as error:
            self._unanswered = None
            text = f"Another process opened the producer '{self.name}' of {self._depot.name}: this one appends no more."
            raise Fenced(text, producer=self.name, epoch=self.epoch) from error
        self._unanswered = None


def _repeatable(records: Any) -> Any:
    """The records of what may be walked through only once, as a generator, in a list: a repeat needs them again."""
    is_table = hasattr(records, "__arrow_c_stream__")
    if is_table or isinstance(records, (list, str, bytes, dict)) or not isinstance(records, Iterable):
        return records  # also what the depot refuses
    return list(records)
