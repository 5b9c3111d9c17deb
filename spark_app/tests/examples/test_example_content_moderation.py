"""examples/content_moderation: a reader sees the newest posts that no mute of theirs hides, page by page."""

from __future__ import annotations

import random
from typing import Any

import pytest
from examples.content_moderation.module import ContentModeration
from running import Running


def post(author: str, text: str, wall: str = "town") -> dict[str, Any]:
    return {"wall": wall, "author": author, "text": text}


def mute(reader: str, kind: str, what: str, muted: bool = True) -> dict[str, Any]:
    return {"reader": reader, "kind": kind, "what": what, "muted": muted}


def wall(running: Running, reader: str, limit: int = 10, before: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = running.ask("wall", reader, "town", before, limit)
    return found


def texts(running: Running, reader: str) -> list[str]:
    return [each["text"] for each in wall(running, reader)["posts"]]


def test_a_reader_sees_what_is_not_muted(engine: str) -> None:
    with Running(ContentModeration(page=2), engine) as town:
        town.send("*posts", post("ann", "Good morning"), post("bob", "Buy now!"), post("cid", "Spoilers, all of them"))
        town.send("*posts", post("ann", "SPOILER: he did it"), post("dot", "elsewhere", "other"))
        town.send("*mutes", mute("eve", "user", "bob"), mute("eve", "word", "Spoiler"), mute("fay", "user", "ann"))

        assert texts(town, "eve") == ["Spoilers, all of them", "Good morning"]
        assert texts(town, "fay") == ["Spoilers, all of them", "Buy now!"]
        assert texts(town, "gus") == [
            "SPOILER: he did it", "Spoilers, all of them", "Buy now!", "Good morning",
        ]  # fmt: skip
        assert wall(town, "gus", limit=1) == {
            "posts": [{"index": 3, "author": "ann", "text": "SPOILER: he did it"}], "next": 3,
        }  # fmt: skip

        town.send("*mutes", mute("eve", "user", "bob", False), mute("eve", "word", "SPOILER", False))
        assert texts(town, "eve") == texts(town, "gus")


def test_the_answer_is_empty_when_everything_is_muted_or_nothing_was_posted() -> None:
    with Running(ContentModeration(page=2)) as town:
        assert wall(town, "eve") == {"posts": [], "next": None}
        town.send("*posts", *[post("bob", f"post {n}") for n in range(7)])
        town.send("*mutes", mute("eve", "user", "bob"), mute("eve", "colour", "red"), {"reader": "eve"})
        assert wall(town, "eve") == {"posts": [], "next": None}


def test_odd_questions_are_answered_when_somebody_asks_them() -> None:
    with Running(ContentModeration(page=2)) as town:
        town.send("*posts", *[post("bob", f"post {n}") for n in range(3)])
        half = {"reader": "eve", "kind": "user", "what": "bob"}
        town.send("*mutes", half)

        assert wall(town, "eve", limit=0) == wall(town, "eve", limit=1)
        assert wall(town, "eve", before=99) == wall(town, "eve")
        assert wall(town, "eve", before=0) == wall(town, "eve", before=-5) == {"posts": [], "next": None}


@pytest.mark.parametrize("tasks, page", [(1, 1), (4, 3), (4, 50)])
def test_pages_together_are_the_wall_when_mutes_are_random(tasks: int, page: int) -> None:
    drawn = random.Random(page)
    names, words = [f"u{n}" for n in range(5)], [f"w{n}" for n in range(8)]
    posts = [(drawn.choice(names), " ".join(drawn.choices(words, k=2))) for _ in range(60)]
    hidden = {"user": set(drawn.sample(names, 1)), "word": set(drawn.sample(words, 2))}
    visible = [
        {"index": index, "author": author, "text": text}
        for index, (author, text) in enumerate(posts)
        if author not in hidden["user"] and not hidden["word"] & set(text.split())
    ]
    with Running(ContentModeration(page), tasks=tasks) as town:
        town.append("*mutes", *[mute("eve", kind, what) for kind in hidden for what in hidden[kind]])
        town.send("*posts", *[post(*each) for each in posts])

        found: list[dict[str, Any]] = []
        before: int | None = None
        while True:
            answer = wall(town, "eve", 4, before)
            found += answer["posts"]
            before = answer["next"]
            if before is None:
                break
            assert len(answer["posts"]) == 4
        assert found == visible[::-1]
