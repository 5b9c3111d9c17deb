"""What several viewers of one module ask for at once: one look at the store for all who ask within a second."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

from tidemill.journal.clock import Clock

FRESH_MS: Final = 1_000.0
"""How old an answer may be that is given again."""

ANSWERS_MAX: Final = 32
"""Answers of one module that are kept; with more of them the oldest is asked for anew, and so are those too old."""

T = TypeVar("T")


class SharedAnswers:
    """Answers by what was asked, for several threads; who asks while one looks waits for the same look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: OrderedDict[Hashable, tuple[float, Future[Any]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._asked)

    def get(self, what: Hashable, look: Callable[[], T]) -> T:
        """What `look` returns or raises, or did for another one within the last second; an error is not kept."""
        with self._lock:
            now = self._clock.monotonic_ms()
            began, found = self._asked.get(what, (float("-inf"), None))
            if found is not None and (now - began < FRESH_MS or not found.done()):
                is_mine = False
            else:
                is_mine, found = True, Future()
                self._asked.pop(what, None)
                self._asked[what] = now, found
                self._forget_old(now)
        if is_mine:
            self._run(what, found, look)
        return cast(T, found.result())

    def _forget_old(self, now: float) -> None:
        """Those that are too old to be given again are not held in memory until there are too many."""
        for what, (began, found) in list(self._asked.items()):
            if len(self._asked) <= ANSWERS_MAX and (now - began < FRESH_MS or not found.done()):
                return
            del self._asked[what]

    def _run(self, what: Hashable, asked: Future[Any], look: Callable[[], Any]) -> None:
        try:
            asked.set_result(look())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            with self._lock:
                if self._asked.get(what, (0.0, None))[1] is asked:
                    del self._asked[what]
            asked.set_exception(error)

    def drop(self) -> None:
        """Something of the module changed: whoever asks from now on is not given what was seen before."""
        with self._lock:
            self._asked.clear()
