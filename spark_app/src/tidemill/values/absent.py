"""The mark for an element that is not there, which is not the same as one that is None."""

from __future__ import annotations

from typing import Final


class _Absent:
    """The type of `ABSENT`: no element here, which is not the same as an element that is None."""

    def __repr__(self) -> str:
        return "VOID"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()

VOID: Final = ABSENT
"""How users call it, who meet it in navigators of their own."""
