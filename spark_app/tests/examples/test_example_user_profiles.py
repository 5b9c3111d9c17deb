"""examples/user_profiles: a name has one owner, whoever else wants it; only a profile that exists is edited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from examples.user_profiles.module import UserProfiles
from running import Running


def registration(user: str, name: str, email: str = "") -> dict[str, Any]:
    return {"user": user, "name": name, "email": email or f"{user}@example.org"}


def edit(user: str, **edits: Any) -> dict[str, Any]:
    return {"user": user, "edits": edits}


@pytest.fixture
def profiles() -> Iterator[Running]:
    with Running(UserProfiles()) as running:
        yield running


def test_exactly_one_wins_when_many_want_a_name_in_one_microbatch(engine: str) -> None:
    with Running(UserProfiles(), engine) as profiles:
        profiles.pause("profiles")
        profiles.append("*registrations", *[registration(f"u{n}", f"name{n % 3}") for n in range(30)])
        profiles.resume("profiles")
        profiles.settle()

        owners = [profiles.get("$$names", f"name{n}") for n in range(3)]
        assert owners == ["u0", "u1", "u2"]
        found = {f"u{n}": profiles.get("$$profiles", f"u{n}") for n in range(30)}
        assert {user: profile for user, profile in found.items() if profile} == {
            f"u{n}": {"name": f"name{n}", "email": f"u{n}@example.org"} for n in range(3)
        }


def test_the_owner_stays_when_a_name_is_wanted_later(profiles: Running) -> None:
    profiles.send("*registrations", registration("u1", "ann"))
    profiles.send("*registrations", registration("u2", "ann"), registration("u1", "ann", "other@example.org"))

    assert profiles.get("$$names", "ann") == "u1"
    assert profiles.get("$$profiles", "u1", "email") == "u1@example.org"
    assert profiles.get("$$profiles", "u2") is None


def test_the_last_edit_of_a_field_stays_when_edits_follow_each_other(profiles: Running) -> None:
    profiles.send("*registrations", registration("u1", "ann"))
    profiles.send("*edits", edit("u1", city="Oslo"), edit("u1", city="Rome", about="hello"), edit("u1", about=None))

    assert profiles.get("$$profiles", "u1") == {
        "name": "ann", "email": "u1@example.org", "city": "Rome", "about": None,
    }  # fmt: skip


def test_nothing_changes_when_an_edit_is_not_allowed(profiles: Running) -> None:
    profiles.send("*registrations", registration("u1", "ann"), {"user": None, "name": "bob"}, {"name": "cid"})
    profiles.send(
        "*edits", edit("u1", name="bob"), edit("u2", city="Oslo"), {"user": "u1"}, {"user": None, "edits": {}}
    )

    assert profiles.get("$$profiles", "u1") == {"name": "ann", "email": "u1@example.org"}
    assert [profiles.get("$$names", name) for name in ("bob", "cid")] == [None, None]
    assert profiles.get("$$profiles", "u2") is None
