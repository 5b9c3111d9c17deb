"""Joins, merges and sub-batches of batch blocks on tasks and threads, in one process and as bytes (trace T8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, Block, Depot, Expr, LoopVars, Module, Ops, Path, PState, SubBatch
from tidemill.engine import joins
from tidemill.engine.thread import ThreadRun
from tidemill.plan import program as pg
from tidemill.plan.check.module import check
from tidemill.plan.traced import traced
from tidemill.values.errors import UserCodeError

PLACES = [(1, 1, False), (4, 1, False), (4, 2, True), (8, 3, True)]
places = pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)

LEFT = [["a", 1], ["b", 2], ["c", 3]]
RIGHT = [["a", 10], ["a", 11], ["c", 30]]


def module_of(build: Callable[[Any], None]) -> Module:
    """A module with a depot of records, and PStates for what its blocks give."""

    class Joined(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$rows", list).global_().initial_value([])
            mb.pstate("$$log", PState.map_schema(int, list))
            mb.pstate("$$counts", PState.map_schema(int, int))
            build(mb)

    return Joined()


def kept(*names: str) -> Block:
    """The end of a batch block: all rows, as lists of these variables, on task 0."""
    rows = Block.each(Ops.TUPLE, *names).out("*row").global_partition().agg(Agg.list("*row")).out("*rows")
    return rows.local_transform("$$rows", Path.term_val("*rows"))


def constants(rows: list[Any], *names: str) -> Block:
    """A source of constant rows."""
    return Block.each(Ops.EXPLODE, rows).out("*r").each(Ops.EXPAND, "*r").out(*names)


def given(rows: list[Any], *names: str) -> Any:
    return SubBatch(constants(rows, *names), *names)


def tagged(tag: str, *names: str) -> Block:
    """The records of this microbatch that begin with a tag, taken apart."""
    rows = Block.explode_microbatch("*mb").out(f"*{tag}").keep_true(Expr(Ops.EQUAL, Expr(Ops.FIRST, f"*{tag}"), tag))
    return rows.each(Ops.EXPAND, f"*{tag}").out(f"*tag of {tag}", *names)


class Ran:
    """One attempt of a module whose block is `block`."""

    def __init__(self, tmp_path: Any, block: Block, place: tuple[int, int, bool], records: Any = ()) -> None:
        tasks, threads, as_bytes = place
        module = module_of(lambda mb: mb.source("*d").out("*mb").batch_block(block))
        self.attempts = Attempts(tmp_path, module, tasks, threads, as_bytes=as_bytes)
        assert check(self.attempts.declaration) == []
        self.attempts.feed("*d", list(records))
        self.attempts.attempt()

    @property
    def rows(self) -> list[Any]:
        (found,) = self.attempts.select("$$rows", Path.stay(), 0)
        return sorted(found, key=repr)


def ran(tmp_path: Any, block: Block, place: tuple[int, int, bool], records: Any = ()) -> list[Any]:
    return Ran(tmp_path, block, place, records).rows


@pytest.mark.parametrize("place", PLACES)
def test_rows_that_agree_are_paired_when_a_step_needs_both_branches(tmp_path: Any, place: Any) -> None:
    left, right = given(LEFT, "*k", "*v1"), given(RIGHT, "*k", "*v2")
    block = Block.sub_batch(left).out("*k", "*v1").sub_batch(right).out("*k", "*v2").macro(kept("*k", "*v1", "*v2"))

    assert ran(tmp_path, block, place) == [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]


@pytest.mark.parametrize("place", PLACES)
def test_rows_without_a_partner_stay_when_the_other_side_is_unground(tmp_path: Any, place: Any) -> None:
    left, right = given(LEFT, "*k", "*v1"), given([["a", 10], ["b", 20], ["d", 40]], "*k", "*v2")
    block = Block.sub_batch(left).out("*k", "*v1").sub_batch(right).out("*k", "**v2").macro(kept("*k", "*v1", "**v2"))

    assert ran(tmp_path, block, place) == [["a", 1, 10], ["b", 2, 20], ["c", 3, None]]


@pytest.mark.parametrize("place", PLACES)
def test_keys_of_both_sides_stay_when_both_are_unground(tmp_path: Any, place: Any) -> None:
    left, right = given(LEFT, "*k", "*v1"), given([["a", 10], ["b", 20], ["d", 40]], "*k", "*v2")
    block = Block.sub_batch(left).out("*k", "**v1").sub_batch(right).out("*k", "**v2").macro(kept("*k", "**v1", "**v2"))

    assert ran(tmp_path, block, place) == [["a", 1, 10], ["b", 2, 20], ["c", 3, None], ["d", None, 40]]


@pytest.mark.parametrize("place", PLACES)
def test_records_are_joined_when_a_microbatch_is_exploded_twice(tmp_path: Any, place: Any) -> None:
    block = tagged("left", "*k", "*v1").macro(tagged("right", "*k", "*v2")).macro(kept("*k", "*v1", "*v2"))
    records = [["left", *row] for row in LEFT] + [["right", *row] for row in RIGHT]

    assert ran(tmp_path, block, place, records) == [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]


@pytest.mark.parametrize("place", PLACES)
def test_aggregates_are_aggregated_when_sub_batches_nest(tmp_path: Any, place: Any) -> None:
    """How many keys have each count; and how many such counts there are."""
    counted = Block.explode_microbatch("*mb").out("*v").group_by("*v", Block.agg(Agg.count()).out("*n"))
    inner = SubBatch(counted, "*v", "*n")
    by_count = Block.sub_batch(inner).out("*key", "*count").group_by("*count", Block.agg(Agg.count()).out("*keys"))
    block = Block.sub_batch(SubBatch(by_count, "*count", "*keys")).out("*count", "*keys").macro(kept("*count", "*keys"))

    assert ran(tmp_path, block, place, "aaabbccd") == [[1, 1], [2, 2], [3, 1]]


@pytest.mark.parametrize("place", PLACES)
def test_each_row_has_the_total_when_a_sub_batch_aggregates_what_the_block_reads(tmp_path: Any, place: Any) -> None:
    total = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
    total = total.group_by("*k", Block.agg(Agg.sum("*v")).out("*sum"))
    rows = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
    block = rows.sub_batch(SubBatch(total, "*k", "*sum")).out("*k", "*sum").macro(kept("*k", "*v", "*sum"))
    records = [["a", 1], ["b", 5], ["a", 2], ["b", 7], ["c", 0]]

    expected = [["a", 1, 3], ["a", 2, 3], ["b", 5, 12], ["b", 7, 12], ["c", 0, 0]]
    assert ran(tmp_path, block, place, records) == expected


def branch(rows: list[Any], *names: str) -> Block:
    """A branch of constant rows."""
    return Block.sub_batch(given(rows, *(name.replace("**", "*") for name in names))).out(*names)


@pytest.mark.parametrize("place", PLACES)
def test_three_branches_are_joined_when_a_step_needs_all(tmp_path: Any, place: Any) -> None:
    """The first two have nothing in common but through the third."""
    block = branch(LEFT, "*k", "*v1").macro(branch([["x", 7], ["y", 8]], "*j", "*v2"))
    block = block.macro(branch([["a", "x"], ["c", "y"], ["c", "z"]], "*k", "*j"))

    assert ran(tmp_path, block.macro(kept("*k", "*j", "*v1", "*v2")), place) == [["a", "x", 1, 7], ["c", "y", 3, 8]]


@pytest.mark.parametrize("place", PLACES)
def test_rows_agree_in_all_variables_that_branches_share(tmp_path: Any, place: Any) -> None:
    block = branch([["a", 1, "l"], ["a", 2, "m"]], "*k", "*v", "*x")
    block = block.macro(branch([["a", 1, "r"], ["a", 3, "s"], ["a", 1, "t"]], "*k", "*v", "*y"))

    assert ran(tmp_path, block.macro(kept("*k", "*v", "*x", "*y")), place) == [["a", 1, "l", "r"], ["a", 1, "l", "t"]]


@pytest.mark.parametrize("place", PLACES)
def test_a_step_belongs_to_the_branch_that_has_its_variables_when_the_last_one_has_not(
    tmp_path: Any, place: Any
) -> None:
    """`*w` is made, and counted, before the join: once for each row of the first branch."""
    counted = Path.key("*v1").null_to_val(0).term(Ops.INC)
    block = branch(LEFT, "*k", "*v1").macro(branch(RIGHT, "*k", "*v2"))
    block = block.each(Ops.TIMES, "*v1", 100).out("*w").local_transform("$$counts", counted)
    found = Ran(tmp_path, block.macro(kept("*k", "*w", "*v2")), place)

    assert found.rows == [["a", 100, 10], ["a", 100, 11], ["c", 300, 30]]
    assert dict(found.attempts.everywhere("$$counts", Path.all())) == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("place", PLACES)
def test_several_outer_branches_keep_what_they_have_when_a_ground_one_is_there(tmp_path: Any, place: Any) -> None:
    block = branch(LEFT, "*k", "*v1").macro(branch([["a", 10]], "*k", "**v2"))
    block = block.macro(branch([["b", 20], ["z", 1]], "*k", "**v3"))

    assert ran(tmp_path, block.macro(kept("*k", "*v1", "**v2", "**v3")), place) == [
        ["a", 1, 10, None], ["b", 2, None, 20], ["c", 3, None, None],
    ]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_keys_of_three_branches_stay_when_all_are_outer(tmp_path: Any, place: Any) -> None:
    block = branch([["a", 1]], "*k", "**v1").macro(branch([["b", 2]], "*k", "**v2"))
    block = block.macro(branch([["a", 3], ["c", 4]], "*k", "**v3"))

    assert ran(tmp_path, block.macro(kept("*k", "**v1", "**v2", "**v3")), place) == [
        ["a", 1, None, 3], ["b", None, 2, None], ["c", None, None, 4],
    ]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_delayed_variable_is_none_when_its_row_has_no_partner(tmp_path: Any, place: Any) -> None:
    """`*___v` can be used in its own branch, and turns unground with the first `**`."""
    outer = branch([["a", 1], ["z", 2]], "*k", "*___v").each(Ops.INC, "*___v").out("**w")
    block = branch(LEFT, "*k", "*v1").macro(outer)

    found = ran(tmp_path, block.macro(kept("*k", "*v1", "*___v", "**w")), place)
    assert found == [["a", 1, 1, 2], ["b", 2, None, None], ["c", 3, None, None]]


@pytest.mark.parametrize("place", PLACES)
def test_null_and_numbers_are_keys_when_both_sides_have_them(tmp_path: Any, place: Any) -> None:
    """None is one key, 1 is 1.0, and True is neither."""
    block = branch([[None, 1], [1, 2], [True, 3], [[1], 4]], "*k", "*v1")
    block = block.macro(branch([[None, 5], [1.0, 6], [[1.0], 7], [0, 8]], "*k", "*v2"))

    assert ran(tmp_path, block.macro(kept("*v1", "*v2")), place) == [[1, 5], [2, 6], [4, 7]]


@pytest.mark.parametrize("place", PLACES)
def test_fresh_sources_are_merged_by_unify(tmp_path: Any, place: Any) -> None:
    block = Block.each(Ops.EXPLODE, [1, 2]).out("*v").anchor("a")
    block = block.fresh_batch_source().each(Ops.EXPLODE, [2, 3]).out("*v").anchor("b").unify("a", "b")

    assert ran(tmp_path, block.macro(kept("*v")), place) == [[1], [2], [2], [3]]


@pytest.mark.parametrize("place", PLACES)
def test_a_merge_is_joined_when_another_branch_shares_a_variable(tmp_path: Any, place: Any) -> None:
    block = branch([["a", 1]], "*k", "*v1").anchor("a")
    block = block.macro(branch([["b", 2], ["c", 3]], "*k", "*v1")).anchor("b").unify("a", "b")
    block = block.macro(branch(RIGHT, "*k", "*v2"))

    assert ran(tmp_path, block.macro(kept("*k", "*v1", "*v2")), place) == [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]


@pytest.mark.parametrize("place", PLACES)
def test_variables_from_outside_are_no_keys_when_branches_are_joined(tmp_path: Any, place: Any) -> None:
    """A full join, so that each side's rows have them without the other one."""
    rows = branch([["a", 1]], "*k", "**v1").macro(branch([["b", 2]], "*k", "**v2"))
    module = module_of(
        lambda mb: (
            mb.source("*d")
            .out("*mb")
            .each(Ops.IDENTITY, "out")
            .out("*o")
            .batch_block(rows.macro(kept("*k", "**v1", "**v2", "*o")))
        )
    )
    tasks, threads, as_bytes = place
    attempts = Attempts(tmp_path, module, tasks, threads, as_bytes=as_bytes)
    attempts.attempt()

    assert sorted(attempts.select("$$rows", Path.stay(), 0)[0]) == [["a", 1, None, "out"], ["b", None, 2, "out"]]


@pytest.mark.parametrize("place", PLACES)
def test_a_branch_beside_the_rows_needs_no_join(tmp_path: Any, place: Any) -> None:
    aside = Block.hash_partition("*k").local_transform("$$counts", Path.key("*v1").term_val("*v1"))
    block = branch(LEFT, "*k", "*v1").branch(aside).macro(branch(RIGHT, "*k", "*v2"))
    found = Ran(tmp_path, block.macro(kept("*k", "*v1", "*v2")), place)

    assert found.rows == [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]
    assert dict(found.attempts.everywhere("$$counts", Path.all())) == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("place", PLACES)
def test_hooks_go_on_from_one_source_when_their_ends_are_joined(tmp_path: Any, place: Any) -> None:
    """Both ends know the record, so they join on it, too."""
    block = Block.explode_microbatch("*mb").out("*v").anchor("all").each(Ops.TIMES, "*v", 10).out("*tens")
    block = block.hook("all").keep_true(Expr(Ops.IS_ODD, "*v")).each(Ops.TO_STRING, "*v").out("*text")

    assert ran(tmp_path, block.macro(kept("*v", "*tens", "*text")), place, [1, 2, 3]) == [[1, 10, "1"], [3, 30, "3"]]


@pytest.mark.parametrize("place", PLACES)
def test_each_block_is_whole_when_blocks_with_joins_run_in_a_loop(tmp_path: Any, place: Any) -> None:
    """Only the data say how often, so the driver decides when each join is finished."""
    sums = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
    sums = sums.group_by("*k", Block.agg(Agg.sum("*v")).out("*n"))
    rows = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
    rows = rows.sub_batch(SubBatch(sums, "*k", "*n")).out("*k", "*n")
    rows = rows.each(Ops.TUPLE, "*k", "*v", "*n", "*i").out("*row").global_partition().agg(Agg.list("*row"))
    rows = rows.out("*rows").local_transform("$$rows", Path.term(lambda old, new: [*old, *new], "*rows"))
    again = Block.batch_block(rows).each(Ops.INC, "*i").out("*next")
    again = again.if_true(Expr(Ops.LESS_THAN, "*next", 3), Block.continue_loop("*next"), Block.emit_loop("*next"))
    module = module_of(lambda mb: mb.source("*d").out("*mb").loop_with_vars(LoopVars.var("*i", 0), again).out("*end"))
    tasks, threads, as_bytes = place
    attempts = Attempts(tmp_path, module, tasks, threads, as_bytes=as_bytes)
    assert check(attempts.declaration) == []
    assert attempts.program.schedule is None
    attempts.feed("*d", [["a", 1], ["a", 2], ["b", 5]])
    attempts.attempt()

    (found,) = attempts.select("$$rows", Path.stay(), 0)
    assert sorted(found) == sorted(
        [[k, v, n, i] for k, v, n in (("a", 1, 3), ("a", 2, 3), ("b", 5, 5)) for i in range(3)]
    )


def moves_of(tmp_path: Any, rows: Block) -> int:
    """How many partitioners a batch block has."""
    attempts = Attempts(tmp_path, module_of(lambda mb: mb.source("*d").out("*mb").batch_block(rows)))
    return sum(isinstance(operator, pg.Move) for operator in attempts.program.operators)


def test_rows_stay_where_they_are_when_both_sides_are_on_the_task_of_the_key(tmp_path: Any) -> None:
    sums = Block.explode_microbatch("*mb").out("*v").group_by("*v", Block.agg(Agg.count()).out("*n"))
    grouped = Block.sub_batch(SubBatch(sums, "*v", "*n")).out("*k", "*n")
    hashed = branch(LEFT, "*k", "*v1").hash_partition("*k")
    moved = branch(LEFT, "*k", "*v1")
    end = kept("*k", "*v1", "*n")

    own = {"group_by": 1, "global": 1}
    assert moves_of(tmp_path, grouped.macro(hashed).macro(end)) == len(own) + 1
    assert moves_of(tmp_path, grouped.macro(moved).macro(end)) == len(own) + 1
    assert moves_of(tmp_path, moved.macro(branch(RIGHT, "*k", "*n")).macro(end)) == 2 + 1


def test_a_join_that_multiplies_holds_a_slice_when_its_rows_are_combined(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 records of one key joined with themselves are nine million rows; a sum for each slice is sent on."""
    posted: list[int] = []
    post = ThreadRun.post

    def counting(run: Any, point: int, frame: Any, *rest: Any, **options: Any) -> None:
        posted.append(frame.rows)
        post(run, point, frame, *rest, **options)

    monkeypatch.setattr(ThreadRun, "post", counting)
    one = Block.explode_microbatch("*mb").out("*a").each(Ops.IDENTITY, "k").out("*k")
    other = Block.explode_microbatch("*mb").out("*b").each(Ops.IDENTITY, "k").out("*k")
    rows = one.macro(other).each(Ops.PLUS, "*a", "*b").out("*c").global_partition().agg(Agg.sum("*c")).out("*s")
    rows = rows.local_transform("$$rows", Path.term_val(Expr(Ops.TUPLE, "*s")))
    found = Ran(tmp_path, rows, (4, 1, False), range(3_000))

    assert found.rows == [2 * 3_000 * sum(range(3_000))]
    assert sum(posted) < 2 * 3_000 + 3_000 * 3_000 / joins.SLICE_ROWS + 10


def changed(tmp_path: Any, block: Block, place: tuple[int, int, bool], records: Any, change: Any) -> list[Any]:
    """The rows that a block keeps where its program was changed."""
    tasks, threads, as_bytes = place
    module = module_of(lambda mb: mb.source("*d").out("*mb").batch_block(block))
    attempts = Attempts(tmp_path, module, tasks, threads, as_bytes=as_bytes)
    attempts.program = change(attempts.program)
    attempts.feed("*d", list(records))
    attempts.attempt()
    return sorted(attempts.select("$$rows", Path.stay(), 0)[0], key=repr)


def by_rows(program: pg.Program) -> pg.Program:
    segments = {number: replace(segment, mode="rows") for number, segment in program.segments.items()}
    return replace(program, segments=segments, key=program.key + "r")


def with_sums() -> Block:
    """Each record with the sum of its key."""
    pairs = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
    sums = SubBatch(pairs.group_by("*k", Block.agg(Agg.sum("*v")).out("*n")), "*k", "*n")
    return pairs.sub_batch(sums).out("*k", "*n")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", [by_rows, traced])
def test_rows_are_the_same_when_a_program_runs_row_by_row_or_keeps_records(
    tmp_path: Any, place: Any, change: Any
) -> None:
    block = with_sums().keep_true(Expr(Ops.IS_NOT_NULL, "*v")).each(Ops.PLUS, "*n", "*v").out("*s")
    found = changed(tmp_path, block.macro(kept("*k", "*v", "*s")), place, [["a", 1], ["a", 2], ["b", 5]], change)

    assert found == [["a", 1, 4], ["a", 2, 5], ["b", 5, 10]]


def test_a_failure_names_its_record_when_it_happens_behind_a_join(tmp_path: Any) -> None:
    def refuse(*values: Any) -> Any:
        raise ValueError("not this one")

    block = with_sums().each(refuse, "*v", "*n").out("*s")
    with pytest.raises(UserCodeError, match="offset 0 of partition 0 of \\*d"):
        changed(tmp_path, block.macro(kept("*s")), (4, 2, False), [["a", 1]], traced)


@pytest.mark.parametrize("place", PLACES)
def test_a_join_waits_for_rows_that_go_round_in_a_loop(tmp_path: Any, place: Any) -> None:
    again = Block.continue_loop(Expr(Ops.INC, "*i"))
    loop = Block.hash_partition("*i").if_true(Expr(Ops.LESS_THAN, "*i", 3), again, Block.emit_loop("*i"))
    rows = Block.each(Ops.EXPLODE, [0, 1]).out("*x").loop_with_vars(LoopVars.var("*i", "*x"), loop).out("*k")
    rows = rows.macro(branch([[3, "three"]], "*k", "*v"))

    assert ran(tmp_path, rows.macro(kept("*x", "*k", "*v")), place) == [[0, 3, "three"], [1, 3, "three"]]


@pytest.mark.parametrize("place", PLACES)
def test_one_task_has_the_zero_value_when_a_sub_batch_has_no_rows(tmp_path: Any, place: Any) -> None:
    counted = Block.explode_microbatch("*mb").out("*r").global_partition().agg(Agg.count()).out("*n")

    assert ran(tmp_path, Block.sub_batch(SubBatch(counted, "*n")).out("*n").macro(kept("*n")), place) == [[0]]
