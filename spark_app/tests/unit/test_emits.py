"""Operations tested alone, and generated names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidemill import BadInput, Depot, Helpers, MockOutputCollector, emit_stream, operation


@operation
def pairs(text: str) -> Iterator[tuple[str, int]]:
    for word in text.split():
        yield word, len(word)


@operation
def by_length(text: str) -> Iterator[Any]:
    for word in text.split():
        yield word if len(word) == 1 else emit_stream("long", word, len(word))


def test_emits_are_captured_in_order_when_an_operation_runs_alone() -> None:
    collector = MockOutputCollector().run(pairs, "a bcd").run(len, "four")
    assert collector.get_emits() == [["a", 1], ["bcd", 3], [4]]
    assert [emit.values for emit in collector.get_emits()] == collector.get_emits()
    assert collector.get_emits_by_stream()[None] == [emit for emit in collector.get_emits() if emit.name is None]
    assert [(emit.name, emit.values) for emit in collector.get_emits_by_stream()[None]] == [
        (None, ["a", 1]), (None, ["bcd", 3]), (None, [4]),
    ]  # fmt: skip


def test_nothing_is_captured_when_nothing_is_emitted() -> None:
    collector = MockOutputCollector().run(pairs, "")
    assert (collector.get_emits(), collector.get_emits_by_stream()) == ([], {})


def test_emits_are_told_apart_when_they_go_to_named_streams() -> None:
    collector = MockOutputCollector().run(by_length, "a bcd ef")
    assert collector.get_emits() == [["a"], ["bcd", 3], ["ef", 2]]
    named = {name: [emit.values for emit in emits] for name, emits in collector.get_emits_by_stream().items()}
    assert named == {None: [["a"]], "long": [["bcd", 3], ["ef", 2]]}


def test_generated_names_differ_when_they_are_asked_for_twice() -> None:
    names = [Helpers.gen_pstate_var("t") for _ in range(2)]
    assert len(set(names)) == 2 and all(name.startswith("$$t~") for name in names)
    assert isinstance(Depot.TOMBSTONE, str)


def test_prefix_of_a_generated_name_is_known_when_a_macro_asks() -> None:
    name = Helpers.gen_var("first")
    assert Helpers.is_generated_var(name) and Helpers.get_generated_var_prefix(name) == "first"
    assert not Helpers.is_generated_var("*first")
    with pytest.raises(BadInput, match="no name that gen_var"):
        Helpers.get_generated_var_prefix("*first")
