"""The name of a segment of a depot, as positions of readers keep it: only the segment itself has it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SegmentMark:
    """A segment of a depot, and the nonce of the group commit that wrote it: another one in its place has another."""

    number: int
    nonce: str
