"""examples/top_users: the list is that of all users, sorted by what they spent, after each microbatch."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from examples.top_users.module import TOP, TopUsers
from running import Running

from tidemill import Path


def purchase(user: str, cents: int) -> dict[str, Any]:
    return {"user": user, "cents": cents}


def top(users: Running) -> list[list[Any]]:
    [found] = users.select("$$top", Path.stay())
    return list(found)


def test_users_rise_when_they_spend_more(engine: str) -> None:
    with Running(TopUsers(), engine) as users:
        users.send("*purchases", purchase("ann", 500), purchase("bob", 300), purchase("ann", 100))
        assert top(users) == [["ann", 600], ["bob", 300]]

        users.send(
            "*purchases", purchase("cid", 450), purchase("bob", 400), {"user": "dot"}, {"user": None, "cents": 9}
        )
        assert top(users) == [["bob", 700], ["ann", 600], ["cid", 450]]


@pytest.mark.parametrize("tasks", [1, 4])
def test_the_list_equals_all_users_sorted_when_many_spend_at_random(tasks: int) -> None:
    drawn = random.Random(tasks)
    spent: Counter[str] = Counter()
    with Running(TopUsers(), tasks=tasks) as users:
        for _ in range(6):
            bought = [(f"u{drawn.randrange(40)}", drawn.randrange(1, 10**9)) for _ in range(50)]
            users.send("*purchases", *[purchase(*each) for each in bought])
            for user, cents in bought:
                spent[user] += cents
            assert top(users) == [list(each) for each in spent.most_common(TOP)]
        assert {user: users.get("$$spent", user) for user in spent} == spent
