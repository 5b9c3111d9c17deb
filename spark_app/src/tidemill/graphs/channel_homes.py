"""`ChannelHomes`: a channel's work is given to the share that had it before, whose worker has its state in memory.

A channel that moves is read from the store by its next worker. So it moves only where a wave gains much by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from tidemill.graphs.messages import ChannelId, StepResult, StepWork

GAIN: Final = 0.25
GAIN_SECONDS: Final = 0.005
"""A channel moves where the longest share of its wave gets shorter by at least this part of it, and this time."""
UNKNOWN_SECONDS: Final = 0.001
"""How long the first step of a channel is expected to last where no step of any is known."""
NEWEST: Final = 0.5
"""The weight of a channel's newest step in how long its next one is expected to last."""


class ChannelHomes:
    """Deals the works of each wave to shares; `left` says which channels a share had and has no more."""

    def __init__(self) -> None:
        self._homes: dict[ChannelId, int] = {}
        self._seconds: dict[ChannelId, float] = {}
        self._left: dict[int, set[ChannelId]] = {}
        self._usual_seconds = UNKNOWN_SECONDS

    def deal(self, works: Sequence[StepWork], count: int) -> list[tuple[StepWork, ...]]:
        """The works of each of `count` shares, some of which may have none."""
        shares: list[list[StepWork]] = [[] for _ in range(count)]
        new = []
        for work in works:
            home = self._homes.get(work.channel, count)
            if home < count:
                shares[home].append(work)
            else:
                new.append(work)
        for work in new:
            self._assign(work, min(range(count), key=lambda share: self._load(shares[share])), shares)
        while self._is_moved(shares):
            pass
        return [tuple(share) for share in shares]

    def left(self, share: int) -> tuple[ChannelId, ...]:
        """Channels that this share had, and another one has now."""
        return tuple(sorted(self._left.get(share, ())))

    def learn(self, results: Iterable[StepResult]) -> None:
        """How long the steps took: the next ones are expected to last as long."""
        for result in results:
            before = self._seconds.get(result.channel, result.seconds)
            self._seconds[result.channel] = before + NEWEST * (result.seconds - before)
        self._usual_seconds = max(UNKNOWN_SECONDS, fmean(self._seconds.values()))

    def _is_moved(self, shares: list[list[StepWork]]) -> bool:
        """Whether a work of the longest share went to the shortest one."""
        longest, shortest = (pick(shares, key=self._load) for pick in (max, min))
        load, spare = self._load(longest), self._load(shortest)
        if len(longest) < 2:
            return False

        def length_after(work: StepWork) -> float:
            return max(load - self._expected(work), spare + self._expected(work))

        best = min(longest, key=length_after)
        if load - length_after(best) < max(GAIN * load, GAIN_SECONDS):
            return False
        longest.remove(best)
        self._assign(best, shares.index(shortest), shares)
        return True

    def _assign(self, work: StepWork, share: int, shares: list[list[StepWork]]) -> None:
        before = self._homes.get(work.channel)
        if before is not None:
            self._left.setdefault(before, set()).add(work.channel)
        self._homes[work.channel] = share
        self._left.get(share, set()).discard(work.channel)
        shares[share].append(work)

    def _load(self, share: Iterable[StepWork]) -> float:
        return sum(map(self._expected, share))

    def _expected(self, work: StepWork) -> float:
        return self._seconds.get(work.channel, self._usual_seconds)
