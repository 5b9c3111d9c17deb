"""State that only grows, as few frames: what `serialize` gives is the frames themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from tidemill.graphs.columns import stacked

SEALED_ROWS = 1 << 20
"""A frame of so many rows is merged no more, so a checkpoint that has it never writes its rows again."""


Merge = Callable[[Sequence[pl.DataFrame]], pl.DataFrame]
"""Makes one frame of several."""


def concatenated(frames: Sequence[pl.DataFrame], called: Mapping[str, str] | None = None) -> pl.DataFrame:
    """One frame in one piece; types that differ between batches (ints and floats, nulls only) are widened. Values that
    would change are refused with what columns are `called`.
    """
    return stacked(frames, rechunk=True, called=called)


class Levels:
    """Frames of falling size. A new one is merged with those before it that are not much bigger.

    So there are at most about log2 of the rows below `SEALED_ROWS`, and each row is moved about as often.
    """

    def __init__(self) -> None:
        self._frames: list[pl.DataFrame] = []

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return iter(self._frames)

    @property
    def rows(self) -> int:
        """The rows of all frames."""
        return sum(frame.height for frame in self._frames)

    @property
    def bytes(self) -> int:
        """About how much memory they hold."""
        return int(sum(frame.estimated_size() for frame in self._frames))

    def add(self, frame: pl.DataFrame, merge: Merge = concatenated) -> None:
        """Put a frame in; `merge` makes one frame of several."""
        if frame.is_empty():
            return
        while self._frames and self._frames[-1].height < min(2 * frame.height, SEALED_ROWS):
            frame = merge([self._frames.pop(), frame])
        self._frames.append(frame)

    def settle(self, merge: Merge = concatenated) -> None:
        """No frame will follow: make one of all that may still be merged, for each costs its readers a pass."""
        small = [frame for frame in self._frames if frame.height < SEALED_ROWS]
        if len(small) > 1:
            self._frames = [*(frame for frame in self._frames if frame.height >= SEALED_ROWS), merge(small)]

    def take_where(self, is_taken: pl.Expr, merge: Merge = concatenated) -> list[pl.DataFrame]:
        """The rows of which an expression is true, by frames, of which some may be empty; the others stay."""
        frames = self.take()
        for frame in frames:
            self.add(frame.filter(~is_taken), merge)
        return [frame.filter(is_taken) for frame in frames]

    def take(self) -> list[pl.DataFrame]:
        """All frames; none are left."""
        frames, self._frames = self._frames, []
        return frames
