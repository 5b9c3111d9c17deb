"""Mistakes in joins, merges and sub-batches: each is reported at its line, with the branches that there are."""

from __future__ import annotations

from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, faults_of

from tidemill import Agg, Block, Depot, LoopVars, Ops, Path, PState, SubBatch

cases = Cases()
expect = cases.expect


def block(setup: Any, topologies: Any, rows: Any) -> None:
    """A topology whose source runs this batch block."""
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$total", int).global_().initial_value(0)
    mb.pstate("$$p", PState.map_schema(str, int))
    mb.source("*d").out("*mb").batch_block(rows)


def pairs(*names: str) -> Block:
    """A source of constant pairs."""
    row = f"*of {names[-1].lstrip('*')}"
    return Block.fresh_batch_source().each(Ops.EXPLODE, [[1, 2]]).out(row).each(Ops.EXPAND, row).out(*names)


COUNTED = SubBatch(
    Block.explode_microbatch("*mb").out("*v").group_by("*v", Block.agg(Agg.count()).out("*n")), "*v", "*n"
)
NO_CONFIGURATION = "Could not produce valid preagg configuration: this step needs '*a' and '*b'"


@expect(NO_CONFIGURATION)
def branches_without_a_common_variable(setup: Any, topologies: Any) -> None:
    rows = pairs("*k", "*a").macro(pairs("*j", "*b"))
    rows = rows.each(Ops.PLUS, "*a", "*b").out("*c")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*c")))


@expect("Expected single tail, found multiple - missing join fields? 2 branches")
def tails_without_a_common_variable(setup: Any, topologies: Any) -> None:
    rows = Block.explode_microbatch("*mb").out("*a")
    rows = rows.explode_microbatch("*mb").out("*b")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*b")))


@expect("Expected single tail, found multiple - missing join fields? 2 branches")
def tails_that_no_step_joins(setup: Any, topologies: Any) -> None:
    rows = pairs("*k", "*a").explode_microbatch("*mb").out("*k")  # <- fault
    block(setup, topologies, rows.local_transform("$$total", Path.term_val(1)))


@expect("The variable '*k' is bound already; a batch block cannot bind it again.")
def variable_bound_again_in_its_branch(setup: Any, topologies: Any) -> None:
    rows = pairs("*k", "*a").macro(pairs("*k", "*b"))
    rows = rows.each(Ops.PLUS, "*a", "*b").out("*k")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*k")))


@expect("Only a join can follow the unground variable '**a'.")
def step_behind_an_unground_variable(setup: Any, topologies: Any) -> None:
    rows = pairs("*k", "**a")
    rows = rows.each(Ops.INC, "*k").out("*c")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*c")))


@expect("Only a join can follow the unground variable '**a'.")
def unground_variable_in_the_only_branch(setup: Any, topologies: Any) -> None:
    rows = pairs("*k", "**a")
    rows = rows.global_partition()  # <- fault
    block(setup, topologies, rows.agg("$$total", Agg.sum("*k")))


@expect("Could not produce valid preagg configuration: this step needs '**b' and '*a'")
def outer_side_with_a_key_that_the_other_lacks(setup: Any, topologies: Any) -> None:
    rows = pairs("*k", "*a").macro(pairs("*j", "**b"))
    rows = rows.each(Ops.PLUS, "*a", "**b").out("*c")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*c")))


@expect("Could not produce valid preagg configuration: this step needs '**a' and '**b'")
def outer_sides_on_different_keys(setup: Any, topologies: Any) -> None:
    rows = pairs("*k", "**a").macro(pairs("*j", "**b"))
    rows = rows.each(Ops.PLUS, "**a", "**b").out("*c")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*c")))


@expect("Only a join can follow the unground variable '**b'.")
def unify_of_an_unground_branch(setup: Any, topologies: Any) -> None:
    rows = Block.each(Ops.EXPLODE, [1]).out("*k").anchor("x")
    rows = rows.fresh_batch_source().each(Ops.EXPLODE, [[1, 2]]).out("*r").each(Ops.EXPAND, "*r").out("*k", "**b")
    rows = rows.anchor("y").unify("x", "y")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*k")))


@expect("hash_partition stands after an aggregation: partitioning is not allowed in post-agg.")
def partitioner_after_the_aggregators_of_a_sub_batch(setup: Any, topologies: Any) -> None:
    inner = Block.explode_microbatch("*mb").out("*v").group_by("*v", Block.agg(Agg.count()).out("*n"))
    rows = Block.sub_batch(SubBatch(inner.hash_partition("*n"), "*v", "*n")).out("*v", "*n")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*n")))


@expect("What comes before the aggregators of a batch block does not end in a partitioner.")
def aggregator_of_a_sub_batch_without_a_partitioner(setup: Any, topologies: Any) -> None:
    inner = SubBatch(Block.explode_microbatch("*mb").out("*v").agg(Agg.count()).out("*n"), "*n")  # <- fault
    rows = Block.sub_batch(inner).out("*n")
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*n")))


@expect("The SubBatch gives 2 variables, which cannot be bound to 1 variable.")
def sub_batch_with_too_few_outs(setup: Any, topologies: Any) -> None:
    rows = Block.sub_batch(COUNTED).out("*v")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*v")))


@expect("The variable '*w' is not bound here.")
def sub_batch_that_gives_what_it_does_not_bind(setup: Any, topologies: Any) -> None:
    inner = SubBatch(Block.explode_microbatch("*mb").out("*v"), "*w")
    rows = Block.sub_batch(inner).out("*x")  # <- fault
    block(setup, topologies, rows.global_partition().agg("$$total", Agg.sum("*x")))


@expect("sub_batch takes a SubBatch, not 5.")
def sub_batch_of_something_else(setup: Any, topologies: Any) -> None:
    block(setup, topologies, Block.sub_batch(5))  # <- fault


@expect("sub_batch stands where no source of a batch block can be.")
def sub_batch_outside_a_batch_block(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    topologies.microbatch("mb").source("*d").out("*mb").sub_batch(COUNTED).out("*v", "*n")  # <- fault


@expect("sub_batch stands where no source of a batch block can be.")
def sub_batch_in_a_loop_of_a_batch_block(setup: Any, topologies: Any) -> None:
    inside = Block.sub_batch(COUNTED).out("*v", "*n").emit_loop("*n")  # <- fault
    block(setup, topologies, Block.loop_with_vars(LoopVars.var("*i", 0), inside).out("*m"))


@expect("fresh_batch_source stands where no source of a batch block can be.")
def source_in_post_agg(setup: Any, topologies: Any) -> None:
    rows = Block.explode_microbatch("*mb").out("*v").global_partition().agg(Agg.count()).out("*n")
    block(setup, topologies, rows.fresh_batch_source())  # <- fault


@expect("fresh_batch_source emits no values, so .out(…) cannot follow it")
def source_that_binds(setup: Any, topologies: Any) -> None:
    rows = Block.fresh_batch_source().out("*v")  # <- fault
    block(setup, topologies, rows.explode_microbatch("*mb").out("*w"))


def test_a_fault_lists_the_branches_and_what_was_tried_when_no_join_is_possible() -> None:
    (fault,) = faults_of(branches_without_a_common_variable)

    assert "'*a', '*k', '*of a'" in fault.advice
    assert "'*b', '*j', '*of b'" in fault.advice
    assert "has no variable in common with" in fault.advice


def test_all_faults_are_found_when_several_branches_are_wrong() -> None:
    def several(setup: Any, topologies: Any) -> None:
        first = pairs("*k", "*a").macro(pairs("*j", "*b")).each(Ops.PLUS, "*a", "*b").out("*c")
        block(setup, topologies, first.batch_block(Block()).sub_batch(5).each(Ops.INC, "*nothing").out("*d"))

    texts = [fault.text for fault in faults_of(several)]

    assert len(texts) == 4
    assert "The variable '*nothing' is not bound here." in texts


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_branches_are_wrong(define: Define, text: str) -> None:
    assert_one_fault(define, text)
