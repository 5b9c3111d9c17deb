"""`Block.execute` on a `TestPState`: the block reads what it holds and leaves there what it wrote."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill import Agg, Block, CompoundAgg, Constant, Ops, Path, PState, TestPState, UserCodeError
from tidemill.values.errors import BadInput

NESTED = PState.map_schema(str, PState.map_schema(int, str).subindexed())
FILLED: dict[str, tuple[Any, Path, Path]] = {
    "map": (PState.map_schema(str, int), Path.key("a").term_val(1), Path.all()),
    "map of maps": (NESTED, Path.key("a").multi_path(Path.key(1), Path.key(2)).term_val("x"), Path.key("a").all()),
    "set": (PState.map_schema(str, PState.set_schema(int).subindexed()), Path.key("a").void_set_elem().term_val(1),
            Path.key("a").all()),
    "list": (PState.map_schema(str, PState.list_schema(int).subindexed()), Path.key("a").after_elem().term_val(1),
             Path.key("a").all()),
    "record": (PState.fixed_keys_schema("n", int, "m", NESTED), Path.multi_path(
        Path.key("n").term_val(4), Path.key("m", "a", 1).term_val("x")), Path.key("m", "a").all()),
    "value": (int, Path.term_val(5), Path.stay()),
    "list as a value": (list, Path.term_val([1, {"a": 2}]), Path.stay()),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "fill", "look"), FILLED.values(), ids=FILLED)
def test_a_block_finds_what_a_test_pstate_holds_and_leaves_it_there_when_it_only_reads(
    schema: Any, fill: Path, look: Path
) -> None:
    pstate = TestPState.create(schema)
    pstate.transform(fill)
    held = pstate.select(look)

    rows = Block.local_select("$$p", look).out("*v").execute(pstates={"$$p": pstate})

    assert [row["*v"] for row in rows] == held != []
    assert pstate.select(look) == held


@pytest.mark.parametrize("runs", [1, 3])
def test_a_test_pstate_holds_what_blocks_wrote_when_they_ran_one_after_the_other(runs: int) -> None:
    counts = TestPState.create(PState.map_schema(str, int))
    block = Block.each(Ops.EXPLODE, ["a", "b", "a"]).out("*k").agg("$$n", CompoundAgg.map("*k", Agg.count()))

    for _ in range(runs):
        block.execute(pstates={"$$n": counts})

    assert counts.select(Path.all()) == [["a", 2 * runs], ["b", runs]]


def test_an_initial_value_is_read_when_nothing_was_written_before() -> None:
    total = TestPState.create(int, 7)

    Block.agg("$$n", Agg.sum(3)).execute(pstates={"$$n": total})

    assert total.select_one() == 10


def test_a_key_is_gone_when_a_block_removed_it() -> None:
    pstate = TestPState.create(NESTED)
    pstate.transform(Path.key("a").multi_path(Path.key(1), Path.key(2)).term_val("x"))

    Block.local_transform("$$p", Path.key("a", 1).term_void()).execute(pstates={"$$p": pstate})

    assert pstate.select(Path.key("a").all()) == [[2, "x"]]


def test_a_test_pstate_is_as_it_was_when_the_block_fails() -> None:
    total = TestPState.create(int, 1)
    block = Block.agg("$$n", Agg.sum(1)).each(lambda divisor: 1 / divisor, Constant(0))

    with pytest.raises(UserCodeError):
        block.execute(pstates={"$$n": total})

    assert total.select_one() == 1


def test_several_tasks_are_refused_when_a_test_pstate_is_given() -> None:
    with pytest.raises(BadInput, match="one partition"):
        Block.agg("$$n", Agg.sum(1)).execute(tasks=2, pstates={"$$n": TestPState.create(int)})
