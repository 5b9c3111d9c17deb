"""A clock that stores are given as a function, and that tests move on."""

from __future__ import annotations


class Clock:
    """Milliseconds, as long as a test leaves `millis` alone."""

    def __init__(self, millis: int = 0) -> None:
        self.millis = millis

    def __call__(self) -> int:
        return self.millis
