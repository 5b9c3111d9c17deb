"""Waiting for conditions, with a bound on each wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.2


class WaitedInVain(AssertionError):
    """A condition did not hold in time; the text says which, and what was seen last."""


def until(what: str, look: Callable[[], T | None], seconds: float, pause: float = LOOK_SECONDS) -> T:
    """The first true value of `look`.

    A look that raises counts as not yet: the system under test may be away for a while, that is what stories are about.

    Raises:
        WaitedInVain: there was none within `seconds`.
    """
    end = time.monotonic() + seconds
    seen: object = None
    while True:
        try:
            found = look()
            if found:
                return found
            seen = found
        except WaitedInVain:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told if the time is over
            seen = f"{type(error).__name__}: {error}"
        if time.monotonic() > end:
            raise WaitedInVain(f"Waited {seconds:g} s in vain until {what}. Last seen: {seen}")
        pause_for(pause)


def holds_for(what: str, condition: Callable[[], bool], seconds: float, pause: float = LOOK_SECONDS) -> None:
    """Checks again and again that something stays true.

    Raises:
        WaitedInVain: it did not.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            raise WaitedInVain(f"Not true any more: {what}")
        pause_for(pause)


def pause_for(seconds: float) -> None:
    """Lets time pass between two looks; never in place of a look."""
    threading.Event().wait(seconds)
