"""Channels stay with the share that has their state, and move where a wave gains by it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill.graphs.channel_homes import ChannelHomes
from tidemill.graphs.messages import ChannelId, StepResult, StepWork


def works(*channels: int) -> list[StepWork]:
    return [StepWork((1, number)) for number in channels]


def dealt(homes: ChannelHomes, *channels: int, count: int = 2) -> list[list[int]]:
    return [[work.channel[1] for work in share] for share in homes.deal(works(*channels), count)]


def took(homes: ChannelHomes, seconds: dict[int, float]) -> None:
    homes.learn(StepResult((1, number), None, False, seconds=each) for number, each in seconds.items())


def test_channels_stay_when_others_have_no_work() -> None:
    homes = ChannelHomes()
    assert dealt(homes, 0, 1, 2, 3) == [[0, 2], [1, 3]]
    took(homes, dict.fromkeys(range(4), 0.001))
    assert dealt(homes, 1, 2, 3) == [[2], [1, 3]]
    assert dealt(homes, 0, 1, 2, 3) == [[0, 2], [1, 3]]


def test_a_channel_moves_when_the_longest_share_gets_much_shorter_by_it() -> None:
    homes = ChannelHomes()
    dealt(homes, 0, 1, 2, 3)
    took(homes, {0: 0.4, 1: 0.1, 2: 0.3, 3: 0.1})
    assert dealt(homes, 0, 1, 2, 3) == [[0], [1, 3, 2]]
    assert (homes.left(0), homes.left(1)) == (((1, 2),), ())


def test_a_channel_is_left_by_nobody_when_it_came_back() -> None:
    homes = ChannelHomes()
    dealt(homes, 0, 1, 2, 3)
    took(homes, {0: 0.4, 1: 0.1, 2: 0.3, 3: 0.1})
    dealt(homes, 0, 1, 2, 3)
    for _ in range(12):
        took(homes, {0: 0.0, 1: 0.05, 2: 0.42, 3: 0.4})
    assert dealt(homes, 0, 1, 2, 3) == [[0, 2], [1, 3]]
    assert (homes.left(0), homes.left(1)) == ((), ((1, 2),))


def test_channels_stay_when_little_would_be_gained() -> None:
    homes = ChannelHomes()
    dealt(homes, 0, 1, 2, 3)
    took(homes, {0: 0.3, 1: 0.2, 2: 0.3, 3: 0.3})
    assert dealt(homes, 0, 1, 2, 3) == [[0, 2], [1, 3]]
    assert homes.left(0) == homes.left(1) == ()


def test_channels_are_dealt_anew_when_there_are_fewer_shares() -> None:
    homes = ChannelHomes()
    dealt(homes, 0, 1, 2, count=3)
    assert sorted(map(sorted, dealt(homes, 0, 1, 2, count=2))) in ([[0], [1, 2]], [[0, 2], [1]])


CHANNELS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), unique=True, min_size=1, max_size=12)
WAVES = st.lists(st.tuples(CHANNELS, st.integers(1, 5), st.floats(0, 1)), max_size=8)


@given(waves=WAVES)
def test_each_work_is_dealt_once_and_left_nowhere_that_it_is_done(
    waves: list[tuple[list[ChannelId], int, float]],
) -> None:
    homes = ChannelHomes()
    for channels, count, seconds in waves:
        shares = homes.deal([StepWork(channel) for channel in channels], count)
        assert len(shares) == count
        assert sorted(work.channel for share in shares for work in share) == sorted(channels)
        for number, share in enumerate(shares):
            assert not {work.channel for work in share} & {*homes.left(number)}
        homes.learn(StepResult(channel, None, False, seconds=seconds * channel[1]) for channel in channels)
