"""examples/social_graph: each post reaches each follower's timeline once, also in pages over several microbatches."""

from __future__ import annotations

import random
from typing import Any

import pytest
from examples.social_graph.module import SocialGraph
from running import Running

from tidemill import Path

NEWEST = 10**9


def follow(giver: str, taker: str, follows: bool = True) -> dict[str, Any]:
    return {"from": giver, "to": taker, "follows": follows}


def post(number: int, author: str) -> dict[str, Any]:
    return {"id": number, "author": author, "text": f"{author} says {number}"}


def deliver(graph: Running) -> int:
    """Until nothing is left to be delivered; how many pages were left for later microbatches."""
    depot = graph.cluster.cluster_depot(graph.name, "*deliveries")
    pages = -1
    while True:
        graph.settle()
        found = sum(depot.get_partition_info(p).end_offset for p in range(depot.get_object_info().num_partitions))
        if found == pages:
            return found
        pages = found


def ids(graph: Running, user: str, before: int = NEWEST, limit: int = 100) -> list[int]:
    return [each["id"] for each in graph.ask("timeline", user, before, limit)]


def test_posts_reach_followers_and_unfollowing_hides_them(engine: str) -> None:
    with Running(SocialGraph(page=2, pages=1), engine) as graph:
        graph.send(
            "*follows", *[follow(f"fan{n}", "ann") for n in range(5)], follow("fan0", "bob"), follow("ann", "ann")
        )
        graph.send("*follows", {"from": "fan0", "to": "ann"}, {"from": "fan0", "to": None, "follows": False})
        graph.append("*posts", post(1, "ann"), post(2, "bob"), post(2, "bob"))
        assert deliver(graph) == 2  # of five followers two at a time, so two pages are left for later

        assert graph.ask("timeline", "fan0", NEWEST, 10) == [
            {"id": 2, "author": "bob", "text": "bob says 2"},
            {"id": 1, "author": "ann", "text": "ann says 1"},
        ]
        assert [ids(graph, f"fan{n}") for n in range(1, 6)] == [[1], [1], [1], [1], []]
        assert ids(graph, "fan0", before=2) == [1]
        assert ids(graph, "fan0", limit=1) == [2]

        graph.send("*follows", follow("fan0", "ann", False), follow("fan1", "bob"), follow("fan1", "bob", False))
        graph.append("*posts", post(3, "ann"), post(4, "bob"))
        deliver(graph)
        assert [ids(graph, f"fan{n}") for n in range(3)] == [[4, 2], [3, 1], [3, 1]]


def test_suggestions_are_those_whom_most_friends_follow() -> None:
    with Running(SocialGraph()) as graph:
        pairs = ["ab", "ac", "ad", "be", "ce", "bf", "cb", "da", "dg", "df", "df", "xy"]
        graph.send("*follows", *[follow(*pair) for pair in pairs])

        assert graph.ask("suggestions", "a") == ["e", "f", "g"]
        assert graph.ask("suggestions", "nobody") == []


def test_a_timeline_keeps_the_newest_posts_when_there_are_many() -> None:
    with Running(SocialGraph(kept=3)) as graph:
        graph.send("*follows", follow("fan", "ann"))
        graph.append("*posts", *[post(number, "ann") for number in (5, 1, 9, 3, 7)])
        deliver(graph)

        assert graph.entries("$$timelines", "fan") == {5: "ann", 7: "ann", 9: "ann"}


@pytest.mark.parametrize("tasks, page, pages", [(1, 1, 1), (4, 2, 3), (4, 100, 10)])
def test_timelines_equal_a_model_when_people_follow_and_post_at_random(tasks: int, page: int, pages: int) -> None:
    drawn = random.Random(page)
    people = [f"p{n}" for n in range(12)]
    following: dict[str, set[str]] = {name: set() for name in people}
    timelines: dict[str, dict[int, str]] = {name: {} for name in people}
    with Running(SocialGraph(page, pages), tasks=tasks) as graph:
        number = 0
        for _ in range(4):
            changes = [(*drawn.sample(people, 2), drawn.random() < 0.7) for _ in range(60)]
            for giver, taker, follows in changes:
                (following[giver].add if follows else following[giver].discard)(taker)
            graph.send("*follows", *[follow(*change) for change in changes])
            posts = [(number := number + 1, drawn.choice(people)) for _ in range(10)]
            for each, author in posts:
                for name in people:
                    if author in following[name]:
                        timelines[name][each] = author
            graph.append("*posts", *[post(*each) for each in posts])
            deliver(graph)

        assert {name: graph.entries("$$timelines", name) for name in people} == timelines
        for name in people:
            assert set(graph.select("$$following", Path.key(name).all())) == following[name]
            followers = {other for other in people if name in following[other]}
            assert set(graph.select("$$followers", Path.key(name).all())) == followers
            shown = [each for each, author in timelines[name].items() if author in following[name]]
            assert ids(graph, name) == sorted(shown, reverse=True)
