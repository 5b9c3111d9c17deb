"""Which records of a depot are meant: a range of offsets in each of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.values.stored import Stored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class OffsetRanges(Stored):
    """[start, end) of each partition, the starts beside the ends: so thousands of partitions are looked at at once."""

    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> OffsetRanges:
        """From a pair for each partition."""
        starts, ends = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
        return cls(starts, ends)

    @classmethod
    def only(cls, partitions: int, partition: int, start: int, end: int) -> OffsetRanges:
        """A range of one of `partitions`, nothing of the others."""
        before, after = (0,) * partition, (0,) * (partitions - partition - 1)
        return cls((*before, start, *after), (*before, end, *after))

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """The starts in the first row and the ends in the second."""
        import numpy as np  # who only reads what a log says does without

        return np.array([self.starts, self.ends], dtype=np.int64)

    @cached_property
    def records(self) -> int:
        """How many records these are."""
        return 0 if self.starts == self.ends else int((self.bounds[1] - self.bounds[0]).clip(min=0).sum())

    def filled(self) -> list[int]:
        """The partitions that have records, in order."""
        if self.starts == self.ends:
            return []
        found: list[int] = (self.bounds[1] > self.bounds[0]).nonzero()[0].tolist()
        return found

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.ends, strict=True)

    def __str__(self) -> str:
        return str(list(self))
