"""examples/collaborative_document: whatever others did meanwhile, an edit adds its text once, where its author meant
it, and removes those characters that its author saw, and no others.

The model gives each character an identity of its own, so that it can say of each which edit brought or took it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from examples.collaborative_document.module import CollaborativeDocument, made, transformed
from hypothesis import given
from hypothesis import strategies as st
from running import Running


def add(number: str, version: int, at: int, text: str, doc: str = "d") -> dict[str, Any]:
    return {"id": number, "doc": doc, "version": version, "at": at, "add": text}


def remove(number: str, version: int, at: int, count: int, doc: str = "d") -> dict[str, Any]:
    return {"id": number, "doc": doc, "version": version, "at": at, "remove": count}


def test_edits_of_the_same_version_are_all_made(engine: str) -> None:
    with Running(CollaborativeDocument(), engine) as documents:
        documents.send("*edits", add("e1", 0, 0, "Hello world"))
        documents.send(
            "*edits", add("e2", 1, 5, ","), add("e3", 1, 11, "!"), add("e4", 1, 6, "my "), remove("e5", 1, 0, 11)
        )

        # The author of e5 saw none of the three texts, so they stay; the three parts around them go.
        assert documents.ask("document", "d") == {"text": ",my !", "version": 7}
        changes = documents.ask("since", "d", 1)
        assert made("Hello world", changes) == ",my !"
        assert [change["id"] for change in changes] == ["e2", "e3", "e4", "e5", "e5", "e5"]
        assert documents.ask("document", "none") == {"text": "", "version": 0}


def test_an_edit_is_made_once_when_it_is_sent_again() -> None:
    with Running(CollaborativeDocument()) as documents:
        documents.send("*edits", add("e1", 0, 0, "abc"), add("e1", 0, 0, "abc"))
        documents.send("*edits", remove("e2", 1, 1, 1), add("e1", 0, 0, "abc"))
        documents.send("*edits", remove("e2", 1, 1, 1))

        assert documents.ask("document", "d") == {"text": "ac", "version": 2}


def test_nothing_changes_when_an_edit_makes_no_sense() -> None:
    with Running(CollaborativeDocument()) as documents:
        documents.send("*edits", add("e1", 0, 0, "abc"))
        both = {**add("e2", 1, 0, "x"), "remove": 1}
        documents.send("*edits", add("e3", 9, 0, "x"), add("e4", 1, -1, "x"), remove("e5", 1, 0, 0), both, {"doc": "d"})
        documents.send("*edits", add("e6", 1, 99, "!"), remove("e7", 1, 2, 99))

        assert documents.ask("document", "d") == {"text": "ab!", "version": 3}


class Text:
    """The model: a text of characters with identities, in all its versions, and the edits that people make of them."""

    def __init__(self) -> None:
        self.versions: list[list[int]] = [[]]
        self.letters: dict[int, str] = {}
        self.changes: list[dict[str, Any]] = []

    def take(self, edit: dict[str, Any]) -> None:
        """Make the edit as the module does, and hold it against what its author saw."""
        seen, now = self.versions[edit["version"]], self.versions[-1]
        changes = transformed(edit, self.changes[edit["version"] :], len(now))
        for change in changes:
            self._make(change)
        after = self.versions[-1]
        if edit.get("add"):
            self._check_added(edit, seen, now, after)
        else:
            gone = set(seen[edit["at"] : edit["at"] + edit["remove"]])
            assert after == [letter for letter in now if letter not in gone]

    def _make(self, change: dict[str, Any]) -> None:
        text, at = self.versions[-1], change["at"]
        new = range(len(self.letters), len(self.letters) + len(change["add"]))
        self.letters.update(zip(new, change["add"], strict=True))
        self.versions.append(text[:at] + list(new) + text[at + change["remove"] :])
        self.changes.append(change)

    def _check_added(self, edit: dict[str, Any], seen: list[int], now: list[int], after: list[int]) -> None:
        new = [letter for letter in after if letter not in set(now)]
        assert "".join(self.letters[letter] for letter in new) == edit["add"]
        assert [letter for letter in after if letter not in set(new)] == now
        place = after.index(new[0])
        assert after[place : place + len(new)] == new
        assert not set(after[:place]) & set(seen[edit["at"] :])
        assert not set(after[place:]) & set(seen[: edit["at"]])


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[bool, int, int, int]]:
    """(whether it adds, how many versions it is behind, where, how much), with numbers to be cut to what there is."""
    some = st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 12), st.integers(1, 6))
    return draw(st.lists(some, max_size=25))


def edit_of(text: Text, number: int, drawn: tuple[bool, int, int, int]) -> dict[str, Any]:
    adds, behind, at, count = drawn
    version = max(0, len(text.versions) - 1 - behind)
    length = len(text.versions[version])
    at = min(at, length)
    if adds or at == length:
        return add(f"e{number}", version, at, f"{number:03}"[:count])
    return remove(f"e{number}", version, at, min(count, length - at))


@given(edits())
def test_each_edit_does_what_its_author_meant_when_others_wrote_meanwhile(
    drawn: list[tuple[bool, int, int, int]],
) -> None:
    text = Text()
    for number, each in enumerate(drawn):
        text.take(edit_of(text, number, each))


@pytest.mark.parametrize("tasks", [1, 4])
def test_documents_equal_the_model_when_many_write_at_once(tasks: int) -> None:
    drawn = random.Random(tasks)
    texts = {f"doc{n}": Text() for n in range(3)}
    sent = []
    for number in range(150):
        name = drawn.choice(list(texts))
        shape = (drawn.random() < 0.6, drawn.randrange(6), drawn.randrange(12), drawn.randrange(1, 6))
        edit = {**edit_of(texts[name], number, shape), "doc": name}
        texts[name].take(edit)
        sent.append(edit)
    with Running(CollaborativeDocument(), tasks=tasks) as documents:
        for start in range(0, 150, 40):
            documents.append("*edits", *sent[start : start + 40])
        documents.settle()

        for name, text in texts.items():
            expected = "".join(text.letters[letter] for letter in text.versions[-1])
            assert documents.ask("document", name) == {"text": expected, "version": len(text.changes)}
            assert documents.ask("since", name, 0) == text.changes
