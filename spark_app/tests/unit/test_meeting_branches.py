"""Where branches of a batch block meet: in front of partitioners, in cases, and beside streams and `branch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_joins import LEFT, RIGHT, branch

from tidemill import (
    Agg,
    Block,
    Constant,
    DefinitionError,
    Ops,
    Path,
    PState,
    SubSource,
    emit_stream,
    operation,
)

PLACED = [[key, number] for number, key in enumerate("abcdefgh")]
FLAGS = [[number, 10 * number] for number in range(8)]
PSTATES = {"$$p": PState.map_schema(str, int), "$$q": PState.map_schema(str, int)}


def stored(block: Block) -> list[dict[str, Any]]:
    """The rows of a batch block, before which each key of `$$p` was written on its own task."""
    write = branch(PLACED, "*k", "*v").hash_partition("*k").local_transform("$$p", Path.key("*k").term_val("*v"))
    return Block.batch_block(write).batch_block(block).execute(tasks=8, pstates=PSTATES)


def two_branches() -> Block:
    return branch(PLACED, "*k", "*j").macro(branch(FLAGS, "*j", "*other"))


def _selected(rows: Block) -> Block:
    return rows.select("$$p", Path.key("*k").view(Ops.PLUS, "*other")).out("*n")


def _hashed(rows: Block) -> Block:
    return rows.hash_partition("*k").local_select("$$p", Path.key("*k").view(Ops.PLUS, "*other")).out("*n")


def _computed(rows: Block) -> Block:
    rows = rows.hash_partition("*k").each(Ops.IDENTITY, "*k").out("*key")
    return rows.local_select("$$p", Path.key("*key").view(Ops.PLUS, "*other")).out("*n")


def _in_a_case(rows: Block) -> Block:
    found = Block.local_select("$$p", Path.key("*k").view(Ops.PLUS, "*other")).out("*n")
    return rows.hash_partition("*k").if_true(Constant(True), found, Block.each(Ops.IDENTITY, -1).out("*n"))


@pytest.mark.parametrize("read", [_selected, _hashed, _computed, _in_a_case], ids=lambda read: read.__name__)
def test_a_key_is_read_on_its_own_task_when_the_rest_of_the_step_needs_another_branch(read: Any) -> None:
    rows = stored(read(two_branches()))
    assert sorted((row["*k"], row["*n"]) for row in rows) == [(key, 11 * number) for key, number in PLACED]


def test_a_key_is_written_on_its_own_task_when_the_value_is_of_another_branch() -> None:
    rows = two_branches().hash_partition("*k").local_transform("$$q", Path.key("*k").term_val("*other"))
    rows = rows.local_select("$$q", Path.key("*k")).out("*n")
    wrong = [row for row in stored(rows.select("$$q", Path.key("*k")).out("*again")) if row["*n"] != row["*again"]]
    assert wrong == []


@operation
def _parsed(text: str) -> Iterator[Any]:
    yield int(text) if text.isdigit() else emit_stream("errors", text)


def parsed() -> Block:
    rows = Block.each(Ops.EXPLODE, ["1", "x", "3", "y"]).out("*text")
    return rows.each(_parsed, "*text").out_stream("errors", "failed", "*bad").out("*n")


def test_rows_of_a_stream_come_together_with_the_others_when_a_hook_goes_on_with_them() -> None:
    block = (
        parsed().each(Ops.IDENTITY, "*n").out("*m").anchor("fine").hook("failed").each(Ops.IDENTITY, "*bad").out("*m")
    )
    block = block.anchor("wrong").unify("fine", "wrong").global_partition().agg(Agg.set("*m")).out("*found")
    (row,) = Block.batch_block(block).execute()
    assert row["*found"] == {1, 3, "x", "y"}


def test_a_hook_into_a_stream_is_refused_when_its_rows_never_come_together_with_the_others() -> None:
    rows = branch([["x"]], "*text").branch(Block.each(Ops.IDENTITY, 1).out("*one").anchor("inside"))
    rows = branch([[1]], "*alone").macro(rows).hook("inside").each(Ops.INC, "*one").out("*two").global_partition()
    with pytest.raises(DefinitionError, match="Expected single tail"):
        Block.batch_block(rows.agg(Agg.count()).out("*n")).execute()


def test_variables_of_a_branch_beside_are_not_bound_when_a_step_behind_asks_for_them() -> None:
    rows = branch(LEFT, "*k", "*v1").atomic_block(Block.each(Ops.INC, "*v1").out("*inner"))
    with pytest.raises(DefinitionError, match=r"The variable '\*inner' is not bound here. Bound are: \*k, \*v1;"):
        Block.batch_block(rows.each(Ops.IDENTITY, "*inner").out("*again")).execute()


def test_rows_are_never_dropped_when_a_step_goes_on_with_a_stream_alone() -> None:
    with pytest.raises(DefinitionError, match="Expected single tail"):
        Block.batch_block(parsed().each(Ops.IDENTITY, "*bad").out("*again")).execute()


def test_a_step_belongs_to_the_rows_when_a_stream_beside_them_has_the_same_variables() -> None:
    """Though the stream is the later of the two branches that bind `*text`."""
    rows = parsed().macro(branch([[1, "one"], [3, "three"]], "*n", "*name")).each(Ops.IDENTITY, "*text").out("*again")
    rows = rows.each(Ops.TUPLE, "*again", "*n", "*name").out("*row")
    assert sorted(row["*row"] for row in Block.batch_block(rows).execute()) == [["1", 1, "one"], ["3", 3, "three"]]


def test_a_branch_beside_takes_up_an_anchor_of_the_rows_when_it_unifies_with_it() -> None:
    """The rows themselves go on and are joined all the same."""
    beside = Block.each(Ops.INC, "*v1").out("*w").anchor("more").unify("rows", "more").hash_partition("*k")
    beside = beside.local_transform("$$q", Path.key("*k").null_to_val(0).term(Ops.INC))
    block = branch(LEFT, "*k", "*v1").anchor("rows").branch(beside).macro(branch(RIGHT, "*k", "*v2"))
    block = block.each(Ops.TUPLE, "*k", "*v1", "*v2").out("*row")
    assert sorted(row["*row"] for row in stored(block)) == [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]


def test_a_case_of_sub_source_takes_the_joined_row_when_it_needs_another_branch() -> None:
    block = two_branches().sub_source(
        "*k",
        SubSource.create("a").each(Ops.PLUS, "*other", 1).out("*n"),
        SubSource.create(str).each(Ops.PLUS, "*j", "*other").out("*n"),
    )
    rows = sorted((row["*k"], row["*n"]) for row in Block.batch_block(block).execute())
    assert rows == [(key, 11 * number or 1) for key, number in PLACED]


def test_sub_source_names_its_variables_when_no_join_gives_what_its_cases_need() -> None:
    block = branch(PLACED, "*k", "*j").macro(branch(FLAGS, "*i", "*other"))
    block = block.sub_source("*k", SubSource.create(str).each(Ops.PLUS, "*j", "*other").out("*n"))
    with pytest.raises(DefinitionError, match=r"this step needs '\*j' and '\*k' and '\*other'"):
        Block.batch_block(block).execute()
