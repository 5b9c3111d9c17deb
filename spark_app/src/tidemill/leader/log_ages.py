"""How old the numbers of a log are, as far as this process saw them come, on a clock that never jumps.

Times in a log never go back. So a writer whose wall clock was a day ahead dates all that follows a day ahead, and by
time alone nothing would be old for a day. What somebody saw so long ago is that old, whatever its date says.
"""

from __future__ import annotations

from typing import Final

SEEN_MAX: Final = 64
"""More are thinned out: what is forgotten only counts as younger than it is."""


class LogAges:
    """The newest numbers of one log that this process saw, and when; made anew it knows nothing."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def note(self, number: int, at_ms: float) -> None:
        """The log ended with this number at this time."""
        if len(self._seen) >= SEEN_MAX:
            del self._seen[1::2]
        self._seen.append((at_ms, number))

    def old(self, millis: float, at_ms: float) -> int:
        """Numbers up to this one were there `millis` ago; 0 is none for certain."""
        return max((number for seen_ms, number in self._seen if at_ms - seen_ms >= millis), default=0)
