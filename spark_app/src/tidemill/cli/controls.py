"""Control characters of stored texts, which could steer a terminal, as signs."""

from __future__ import annotations

from typing import Final

_SIGNS: Final = str.maketrans(
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
    | dict.fromkeys(range(0x7F, 0xA0), "\N{REPLACEMENT CHARACTER}")
)

_ESCAPED: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def without_controls(text: str) -> str:
    """A text in which signs stand for control characters, such as ␛ for the escape; tabs and line feeds stay."""
    return text.translate(_SIGNS)


def escaped(text: str) -> str:
    """JSON of the same value, in which control characters that JSON takes as they are are escaped, too."""
    return text.translate(_ESCAPED)
