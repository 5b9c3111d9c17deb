"""examples/word_count: counts, the most frequent words, and the share of a word of all."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from examples.word_count.module import TOP, WordCount
from running import Running

from tidemill import Path


def top(count: Running) -> list[list[Any]]:
    [found] = count.select("$$top", Path.stay())
    return list(found)


def test_words_are_counted_over_microbatches(engine: str) -> None:
    with Running(WordCount(), engine) as count:
        count.send("*lines", "Apple, plum: apple!", "", "42 apple_plum banana")
        assert top(count)[0] == ["apple", 3]
        assert sorted(top(count)) == [["apple", 3], ["banana", 1], ["plum", 2]]
        count.send("*lines", "plum plum", "Ünïcode")

        assert top(count)[:2] == [["plum", 4], ["apple", 3]]
        assert [count.get("$$counts", word) for word in ("apple", "plum", "ünïcode", "pear")] == [3, 4, 1, None]
        assert [count.ask("share", word) for word in ("plum", "pear")] == [4 / 9, 0.0]


def test_the_share_is_zero_when_nothing_was_counted() -> None:
    with Running(WordCount(), tasks=1) as count:
        assert count.ask("share", "plum") == 0.0


@pytest.mark.parametrize("tasks", [1, 4])
def test_the_top_equals_that_of_all_words_when_lines_are_random(tasks: int) -> None:
    drawn = random.Random(tasks)
    vocabulary = [f"{a}{b}" for a in "abcdefgh" for b in "xyz"]
    truth: Counter[str] = Counter()
    with Running(WordCount(), tasks=tasks) as count:
        for _ in range(5):
            lines = [" ".join(drawn.choices(vocabulary, range(1, 25), k=20)) for _ in range(10)]
            count.send("*lines", *lines)
            truth.update(" ".join(lines).split())
            counts = [found for _, found in top(count)]
            assert counts == [n for _, n in truth.most_common(TOP)]
            assert all(truth[word] == found for word, found in top(count))
