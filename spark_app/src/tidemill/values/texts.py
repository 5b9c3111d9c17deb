"""Texts for people that may not be too long."""

from __future__ import annotations

from typing import Final

VALUE_CHARS: Final = 200
"""Of a value in a message: enough to know it by."""


def shortened(text: str, chars: int = VALUE_CHARS) -> str:
    """The text, or where it is longer its first `chars` characters and what says so."""
    return text if len(text) <= chars else f"{text[:chars]}…"
