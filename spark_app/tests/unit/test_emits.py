"""Operations tested alone, and the names of the reference that a later version fills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill import BadInput, Block, Depot, Helpers, MockOutputCollector, operation


@operation
def pairs(text: str) -> Iterator[tuple[str, int]]:
    for word in text.split():
        yield word, len(word)


def test_emits_are_captured_in_order_when_an_operation_runs_alone() -> None:
    collector = MockOutputCollector().run(pairs, "a bcd").run(len, "four")
    assert collector.get_emits() == [["a", 1], ["bcd", 3], [4]]
    assert [(emit.name, emit.values) for emit in collector.get_emits_by_stream()[None]] == [
        (None, ["a", 1]), (None, ["bcd", 3]), (None, [4]),
    ]  # fmt: skip


def test_nothing_is_captured_when_nothing_is_emitted() -> None:
    collector = MockOutputCollector().run(pairs, "")
    assert (collector.get_emits(), collector.get_emits_by_stream()) == ([], {})


def test_named_stream_is_refused_when_it_is_emitted_to() -> None:
    with pytest.raises(BadInput, match="Named output streams"):
        MockOutputCollector().emit_stream("other", 1)


def test_block_is_refused_when_it_is_executed_without_a_module() -> None:
    with pytest.raises(BadInput, match="InProcessCluster"):
        Block.each(len, "x").out("*n").execute()


def test_generated_names_differ_when_they_are_asked_for_twice() -> None:
    names = [Helpers.gen_pstate_var("t") for _ in range(2)]
    assert len(set(names)) == 2 and all(name.startswith("$$t~") for name in names)
    assert isinstance(Depot.TOMBSTONE, str)
