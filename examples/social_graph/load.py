"""Posts for a load, and what must come out of them, whoever is killed meanwhile."""

from __future__ import annotations

import random
from typing import Any

from examples.social_graph.module import SocialGraph

PEOPLE = [f"p{n}" for n in range(20)]
STAR = PEOPLE[0]
PAGE, PAGES = 2, 3


class SmallPages(SocialGraph):
    """Delivers a post to six followers a microbatch, so that one of the star takes four microbatches."""

    def __init__(self) -> None:
        super().__init__(page=PAGE, pages=PAGES, kept=100_000)


class Posts:
    """A star whom everybody follows, and others with a few followers; now and then a post is sent again."""

    def __init__(self, seed: int = 6) -> None:
        self._random = random.Random(seed)
        self.followers = {name: set(self._random.sample(PEOPLE, 3)) - {name} for name in PEOPLE}
        self.followers[STAR] = set(PEOPLE) - {STAR}
        self.made: list[dict[str, Any]] = []

    def first(self) -> list[dict[str, Any]]:
        """Who follows whom, to be processed before any post."""
        pairs = [(fan, star) for star in PEOPLE for fan in sorted(self.followers[star])]
        return [{"from": fan, "to": star, "follows": True} for fan, star in pairs]

    def more(self, count: int) -> list[dict[str, Any]]:
        """So many new posts, every other one of the star, and one that was made before."""
        self.made += [self._one(len(self.made) + number + 1) for number in range(count)]
        return [*self.made[-count:], self._random.choice(self.made)]

    def _one(self, number: int) -> dict[str, Any]:
        author = STAR if number % 2 else self._random.choice(PEOPLE)
        return {"id": number, "author": author, "text": f"{author} says {number}"}

    def timelines(self) -> dict[str, dict[int, str]]:
        """What the timeline of each person must hold: the author of each post."""
        expected: dict[str, dict[int, str]] = {name: {} for name in PEOPLE}
        for post in self.made:
            for fan in self.followers[post["author"]]:
                expected[fan][post["id"]] = post["author"]
        return expected

    def pages_left(self) -> int:
        """How often `SmallPages` leaves followers to a later microbatch."""
        return sum(len(self.followers[post["author"]]) // (PAGE * PAGES) for post in self.made)
