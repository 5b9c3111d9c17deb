"""Each mistake in the chains of a topology is reported at its line: scopes, arities, places, batch blocks, loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, faults_of

from tidemill import (
    Agg,
    Block,
    Case,
    CompoundAgg,
    Constant,
    Depot,
    Expr,
    LoopVars,
    Ops,
    Path,
    PState,
    operation,
)

cases = Cases()
expect = cases.expect


@operation
def pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    yield value, value


def unmarked(value: Any) -> Iterator[Any]:
    yield value


def source(setup: Any, topologies: Any) -> Any:
    """A topology with a counter, and the chain of its source."""
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$counts", PState.map_schema(str, int))
    mb.pstate("$$total", int).global_().initial_value(0)
    return mb.source("*d").out("*mb")


def records(setup: Any, topologies: Any) -> Any:
    """A chain that has exploded its records as `*v`."""
    return source(setup, topologies).explode_microbatch("*mb").out("*v")


# --- variables and arities -------------------------------------------------------------------------------------------


@expect("The variable '*vv' is not bound here.")
def unknown_variable(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*vv")  # <- fault


@expect("sample takes a fraction above 0 and up to 1, not 10.")
def sample_of_a_percentage(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sample(10)  # <- fault


@expect("sample takes a fraction above 0 and up to 1, not '*v'.")
def sample_of_a_variable(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sample("*v")  # <- fault


@expect("sample takes a fraction above 0 and up to 1, not True.")
def sample_of_a_truth(setup: Any, topologies: Any) -> None:
    records(setup, topologies).sample(True)  # <- fault


@expect("The variable '*y' is not bound here.")
def unknown_variable_in_an_expression(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true(Expr(Ops.EQUAL, Expr(Ops.INC, "*y"), 1))  # <- fault


@expect("The variable '*k' is not bound here.")
def unknown_variable_in_a_path(setup: Any, topologies: Any) -> None:
    records(setup, topologies).local_select("$$counts", Path.filter_selected(Path.key("*k"))).out("*c")  # <- fault


@expect("The variable '*k' is not bound here.")
def unknown_variable_as_a_key_of_an_aggregation(setup: Any, topologies: Any) -> None:
    records(setup, topologies).compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))  # <- fault


@expect("'*d' is a depot, not a variable.")
def depot_as_an_argument(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*d")  # <- fault


@expect("The PState '$$counts' cannot be an argument.")
def pstate_as_an_argument(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.IDENTITY, "$$counts").out("*x")  # <- fault


@expect("'*mb' is a microbatch and can only be exploded.")
def microbatch_as_an_argument(setup: Any, topologies: Any) -> None:
    source(setup, topologies).each(Ops.SIZE, "*mb").out("*n")  # <- fault


@expect("'*v' is no microbatch here.")
def explode_of_a_record(setup: Any, topologies: Any) -> None:
    records(setup, topologies).explode_microbatch("*v").out("*w")  # <- fault


@expect("explode_microbatch binds one variable.")
def explode_into_two_variables(setup: Any, topologies: Any) -> None:
    source(setup, topologies).explode_microbatch("*mb").out("*a", "*b")  # <- fault


@expect("'*mb' is the microbatch and cannot be bound again.")
def microbatch_bound_again(setup: Any, topologies: Any) -> None:
    source(setup, topologies).each(Ops.IDENTITY, 1).out("*mb")  # <- fault


@expect("The unground variable '**w' stands where nothing is joined.")
def unground_variable(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*v").out("**w")  # <- fault


@expect("An out variable is a string that begins with '*', not 'w'.")
def out_without_sigil(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*v").out("w")  # <- fault


@expect(".out(…) names a variable twice.")
def out_with_a_name_twice(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.EXPAND, "*v").out("*a", "*a")  # <- fault


@expect(".out(…) stands twice after one node.")
def out_twice(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*v").out("*a").out("*b")  # <- fault


@expect("keep_true emits no values, so .out(…) cannot follow it")
def out_after_a_filter(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true("*v").out("*w")  # <- fault


@expect(".out(…) has nothing before it.")
def out_at_the_start_of_a_block(setup: Any, topologies: Any) -> None:
    block = Block().out("*w")  # <- fault
    source(setup, topologies).macro(block)


@expect("'INC' takes 1 argument, not 2.")
def operation_with_too_many_arguments(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*v", 1).out("*w")  # <- fault


@expect("takes the arguments (a, b), not 1.")
def function_with_too_few_arguments(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(lambda a, b: a, "*v").out("*w")  # <- fault


@expect("'INC' emits 1 value, which cannot be bound to 2 variables.")
def operation_with_too_many_outs(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*v").out("*a", "*b")  # <- fault


@expect("'EXPLODE_MAP' emits 2 values, which cannot be bound to 1 variable.")
def operation_with_too_few_outs(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.EXPLODE_MAP, "*v").out("*a")  # <- fault


@expect("'EXPAND' binds one variable for each element.")
def expand_without_outs(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.EXPAND, "*v")  # <- fault


@expect("'unmarked' is a generator.")
def generator_without_mark(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(unmarked, "*v").out("*w")  # <- fault


class Yields:
    def __call__(self, value: Any) -> Iterator[Any]:
        yield value


@expect("'Yields' is a generator.")
def generator_object_without_mark(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Yields(), "*v").out("*w")  # <- fault


async def later(value: Any) -> Any:
    return value


@expect("'later' is a coroutine.")
def coroutine(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(later, "*v").out("*w")  # <- fault


@expect("'pairs' does not return one value and cannot be used here.")
def operation_as_a_partitioner(setup: Any, topologies: Any) -> None:
    records(setup, topologies).custom_partition(pairs)  # <- fault


@expect("'INC' is not a function.")
def each_of_no_function(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each("INC", "*v").out("*w")  # <- fault


@expect("'pairs' does not return one value and cannot be used in an Expr.")
def expression_of_an_operation(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true(Expr(pairs, "*v"))  # <- fault


# --- conditions, loops, graph ----------------------------------------------------------------------------------------


@expect("The variable '*a' is not bound here.")
def variable_of_one_branch(setup: Any, topologies: Any) -> None:
    both = Block.each(Ops.INC, "*v").out("*b")
    chain = records(setup, topologies).if_true("*v", both.each(Ops.INC, "*v").out("*a"), both)
    chain.each(Ops.PLUS, "*b", "*a").out("*c")  # <- fault


@expect("The variable '*a' is not bound here.")
def variable_of_a_branch_without_else(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies).if_true("*v", Block.each(Ops.INC, "*v").out("*a"))
    chain.each(Ops.INC, "*a").out("*b")  # <- fault


@expect("The variable '*a' is not bound here.")
def variable_of_one_case(setup: Any, topologies: Any) -> None:
    one = Case.create(Expr(Ops.EQUAL, "*v", 1)).each(Ops.INC, "*v").out("*a")
    chain = records(setup, topologies).cond(one, Case.create(True).each(Ops.INC, "*v").out("*b"))
    chain.each(Ops.INC, "*a").out("*c")  # <- fault


@expect("The condition is the constant False, which is false for every row.")
def condition_that_python_decided(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true("*v" == 3)  # type: ignore[comparison-overlap]  # <- fault


@expect("The condition is the constant 5, which is true for every row.")
def condition_of_a_number(setup: Any, topologies: Any) -> None:
    records(setup, topologies).if_true(5, Block.each(Ops.INC, "*v"))  # <- fault


@expect("The condition is the constant True, which is true for every row.")
def condition_true(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true(True)  # <- fault


@expect("A case of cond has the condition True, so that no case after it can run.")
def case_that_takes_all_rows_before_the_last(setup: Any, topologies: Any) -> None:
    records(setup, topologies).cond(Case.create(True).each(Ops.INC, "*v"), Case.create("*v"))  # <- fault


@expect("A case of cond has the condition True, so that no case after it can run.")
def case_that_python_decided(setup: Any, topologies: Any) -> None:
    records(setup, topologies).cond(Case.create("*v" != 3).each(Ops.INC, "*v"))  # type: ignore[comparison-overlap]  # <- fault


@expect("The condition is the constant False, which is false for every row.")
def case_that_python_refused(setup: Any, topologies: Any) -> None:
    records(setup, topologies).cond(Case.create("*v" == 3))  # type: ignore[comparison-overlap]  # <- fault


@expect("The condition is the function 'condition_of_a_function.<lambda>' itself, which is true for every row.")
def condition_of_a_function(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true(lambda v: v > 3)  # <- fault


@expect("The condition is the class 'int' itself")
def condition_of_a_class(setup: Any, topologies: Any) -> None:
    records(setup, topologies).if_true(int, Block.each(Ops.INC, "*v"))  # <- fault


@expect("The condition is the function 'IS_EVEN' itself")
def condition_of_an_operation(setup: Any, topologies: Any) -> None:
    records(setup, topologies).keep_true(Ops.IS_EVEN)  # <- fault


@expect("The function 'IS_EVEN' is passed itself; nothing calls it.")
def argument_that_is_an_operation(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.AND, Ops.IS_EVEN, "*v").out("*w")  # <- fault


@expect("The class 'int' is passed itself")
def argument_that_is_a_class(setup: Any, topologies: Any) -> None:
    records(setup, topologies).hash_partition(int)  # <- fault


@expect("A Path cannot be an argument.")
def argument_that_is_a_path(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.IDENTITY, Path.key("a")).out("*w")  # <- fault


@expect("The function 'unmarked' is passed itself")
def loop_variable_that_is_a_function(setup: Any, topologies: Any) -> None:
    variables = LoopVars.var("*i", unmarked)  # <- fault
    records(setup, topologies).loop_with_vars(variables, Block.emit_loop("*i")).out("*o")


@expect("cond takes cases, not")
def cond_of_blocks(setup: Any, topologies: Any) -> None:
    records(setup, topologies).cond(Block.each(Ops.INC, "*v").out("*a"))  # <- fault


@expect("cond(…) has no case.")
def cond_without_cases(setup: Any, topologies: Any) -> None:
    records(setup, topologies).cond()  # <- fault


@expect("A block is expected here, not 'then'.")
def condition_without_block(setup: Any, topologies: Any) -> None:
    records(setup, topologies).if_true("*v", "then")  # <- fault


@expect("continue_loop stands outside a loop.")
def continue_outside_a_loop(setup: Any, topologies: Any) -> None:
    records(setup, topologies).continue_loop()  # <- fault


@expect("emit_loop stands outside a loop.")
def emit_outside_a_loop(setup: Any, topologies: Any) -> None:
    records(setup, topologies).emit_loop("*v")  # <- fault


@expect("continue_loop has 2 values, but the loop has 1 variable.")
def continue_with_too_many_values(setup: Any, topologies: Any) -> None:
    again = Block.emit_loop("*i").continue_loop("*i", 1)  # <- fault
    records(setup, topologies).loop_with_vars(LoopVars.var("*i", 0), again).out("*o")


@expect("emit_loop has 1 value, but the loop's .out(…) names 2 variables.")
def emit_with_too_few_values(setup: Any, topologies: Any) -> None:
    body = Block.emit_loop("*i")  # <- fault
    records(setup, topologies).loop_with_vars(LoopVars.var("*i", 0), body).out("*o", "*p")


@expect("This loop has out variables, but emits nothing.")
def loop_that_emits_nothing(setup: Any, topologies: Any) -> None:
    body = Block.continue_loop(1)
    records(setup, topologies).loop_with_vars(LoopVars.var("*i", 0), body).out("*o")  # <- fault


@expect("The variable '*i' is not bound here.")
def loop_variable_after_the_loop(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies).loop_with_vars(LoopVars.var("*i", 0), Block.emit_loop("*i")).out("*o")
    chain.each(Ops.INC, "*i").out("*p")  # <- fault


@expect("loop_with_vars begins with its variables, not with 3.")
def loop_without_variables(setup: Any, topologies: Any) -> None:
    records(setup, topologies).loop_with_vars(3, Block.emit_loop("*v")).out("*o")  # <- fault


@expect("There is no anchor 'rot' here.")
def hook_to_an_unknown_anchor(setup: Any, topologies: Any) -> None:
    records(setup, topologies).anchor("root").hook("rot")  # <- fault


@expect("The anchor 'root' stands twice.")
def anchor_twice(setup: Any, topologies: Any) -> None:
    records(setup, topologies).anchor("root").anchor("root")  # <- fault


@expect("There is no anchor 'root' here.")
def hook_out_of_a_loop(setup: Any, topologies: Any) -> None:
    body = Block.emit_loop("*v").hook("root")  # <- fault
    records(setup, topologies).anchor("root").loop_with_vars(LoopVars.var("*i", 0), body).out("*o")


@expect("unify names no anchor.")
def unify_of_nothing(setup: Any, topologies: Any) -> None:
    records(setup, topologies).unify()  # <- fault


@expect("The variable '*a' is not bound here.")
def variable_of_one_unified_branch(setup: Any, topologies: Any) -> None:
    chain = records(setup, topologies).anchor("root").each(Ops.INC, "*v").out("*a").anchor("x")
    chain.hook("root").each(Ops.INC, "*v").out("*b").anchor("y")
    chain.unify("x", "y").each(Ops.INC, "*a").out("*c")  # <- fault


# --- partitioners ----------------------------------------------------------------------------------------------------


@expect("hash_partition takes 1 argument (and a PState or depot before it), not 0.")
def hash_partition_of_nothing(setup: Any, topologies: Any) -> None:
    records(setup, topologies).hash_partition()  # <- fault


@expect("There is no depot '*k'.")
def hash_partition_of_two_variables(setup: Any, topologies: Any) -> None:
    records(setup, topologies).hash_partition("*k", "*v")  # <- fault


@expect("There is no PState '$$count'.")
def partition_by_an_unknown_pstate(setup: Any, topologies: Any) -> None:
    records(setup, topologies).hash_partition("$$count", "*v")  # <- fault


@expect("The tick depot '*t' has no partitions to go to.")
def partition_by_a_tick_depot(setup: Any, topologies: Any) -> None:
    setup.declare_tick_depot("*t", 100)
    records(setup, topologies).hash_partition("*t", "*v")  # <- fault


@expect("takes the arguments (partitions), not 2.")
def custom_partition_of_one_argument(setup: Any, topologies: Any) -> None:
    records(setup, topologies).custom_partition(lambda partitions: 0, "*v")  # <- fault


@expect("custom_partition needs a function.")
def custom_partition_of_nothing(setup: Any, topologies: Any) -> None:
    records(setup, topologies).custom_partition()  # <- fault


@expect("origin_partition exists only in query topologies.")
def origin_partition(setup: Any, topologies: Any) -> None:
    records(setup, topologies).origin_partition()  # <- fault


@expect("The path into '$$counts' does not begin with a key")
def path_partition_without_key(setup: Any, topologies: Any) -> None:
    records(setup, topologies).path_partition("$$counts", Path.map_vals())  # <- fault


@expect("The path into '$$counts' does not begin with a key")
def select_without_key(setup: Any, topologies: Any) -> None:
    records(setup, topologies).select("$$counts", Path.all()).out("*c")  # <- fault


# --- batch blocks ----------------------------------------------------------------------------------------------------

ROWS = Block.explode_microbatch("*mb").out("*v")


@expect("A batch block begins on task 0, but rows may be on other tasks here.")
def batch_block_after_an_explode(setup: Any, topologies: Any) -> None:
    records(setup, topologies).batch_block(Block.each(Ops.INC, "*v").out("*w"))  # <- fault


@expect("A batch block begins on task 0")
def batch_block_in_a_loop_that_moves(setup: Any, topologies: Any) -> None:
    body = Block.batch_block(ROWS)  # <- fault
    body = body.emit_loop("*i").hash_partition("*i").continue_loop("*i")
    source(setup, topologies).loop_with_vars(LoopVars.var("*i", 0), body).out("*o")


@expect("A batch block stands inside another one.")
def batch_block_in_a_batch_block(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(Block.batch_block(ROWS))  # <- fault


@expect("The variable '*v' is bound already; a batch block cannot bind it again.")
def rebinding_before_an_aggregation(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.each(Ops.INC, "*v").out("*v"))  # <- fault


@expect("What comes before the aggregators of a batch block does not end in a partitioner.")
def aggregation_without_partitioner(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.agg("$$total", Agg.sum("*v")))  # <- fault


@expect("hash_partition stands after an aggregation: partitioning is not allowed in post-agg.")
def partitioner_after_an_aggregation(setup: Any, topologies: Any) -> None:
    block = ROWS.global_partition().agg(Agg.count()).out("*n")
    source(setup, topologies).batch_block(block.hash_partition("*n"))  # <- fault


@expect("path_partition stands after an aggregation: partitioning is not allowed in post-agg.")
def select_after_an_aggregation(setup: Any, topologies: Any) -> None:
    block = ROWS.hash_partition("*v").agg(Agg.count()).out("*n")
    source(setup, topologies).batch_block(block.select("$$counts", Path.key("a")).out("*c"))  # <- fault


@expect("The variable '*v' is not bound after the aggregation.")
def row_variable_after_an_aggregation(setup: Any, topologies: Any) -> None:
    block = ROWS.global_partition().agg(Agg.count()).out("*n")
    source(setup, topologies).batch_block(block.each(Ops.PLUS, "*n", "*v").out("*m"))  # <- fault


@expect("An aggregation into variables stands after the aggregation of a batch block.")
def aggregators_with_rows_between(setup: Any, topologies: Any) -> None:
    block = ROWS.global_partition().agg(Agg.count()).out("*n").each(Ops.INC, "*n").out("*m")
    source(setup, topologies).batch_block(block.agg(Agg.sum("*m")).out("*s"))  # <- fault


@expect("An aggregator stands inside another node before the aggregation of a batch block.")
def aggregator_in_a_condition(setup: Any, topologies: Any) -> None:
    inside = Block.agg("$$total", Agg.count())  # <- fault
    source(setup, topologies).batch_block(ROWS.if_true("*v", inside))


@expect("An aggregation into variables stands outside a batch block.")
def aggregation_into_variables_without_batch_block(setup: Any, topologies: Any) -> None:
    records(setup, topologies).agg(Agg.count()).out("*n")  # <- fault


@expect("Agg.count gives one value, which is bound to one variable, not to 0.")
def aggregation_without_out(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.global_partition().agg(Agg.count()))  # <- fault


@expect("Two aggregators bind '*n'.")
def two_aggregators_with_one_out(setup: Any, topologies: Any) -> None:
    block = ROWS.global_partition().agg(Agg.count()).out("*n")
    source(setup, topologies).batch_block(block.agg(Agg.sum("*v")).out("*n"))  # <- fault


@expect("compound_agg gives one value, which is bound to one variable, not to 2.")
def compound_agg_into_variables(setup: Any, topologies: Any) -> None:
    tree = CompoundAgg.map("*v", Agg.count())
    source(setup, topologies).batch_block(ROWS.global_partition().compound_agg(tree).out("*m", "*n"))  # <- fault


@expect("Agg.avg cannot stand in CompoundAgg: a mean is not enough to go on from.")
def mean_in_a_compound_variable(setup: Any, topologies: Any) -> None:
    tree = CompoundAgg.map("*v", Agg.avg("*v"))
    source(setup, topologies).batch_block(ROWS.global_partition().compound_agg(tree).out("*m"))  # <- fault


@expect("An aggregation into '$$total' emits nothing, so .out(…) cannot follow it.")
def aggregation_into_a_pstate_with_out(setup: Any, topologies: Any) -> None:
    records(setup, topologies).global_partition().agg("$$total", Agg.count()).out("*n")  # <- fault


@expect("group_by stands outside a batch block.")
def group_by_without_batch_block(setup: Any, topologies: Any) -> None:
    records(setup, topologies).group_by("*v", Block.agg(Agg.count()).out("*n"))  # <- fault


@expect("The block of group_by holds something else than aggregators into variables.")
def group_by_with_other_nodes(setup: Any, topologies: Any) -> None:
    inner = Block.each(Ops.INC, "*v").out("*w")  # <- fault
    source(setup, topologies).batch_block(ROWS.group_by("*v", inner.agg(Agg.sum("*v")).out("*s")))


@expect("The block of group_by has no aggregator.")
def group_by_without_aggregator(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.group_by("*v", Block()))  # <- fault


@expect("group_by takes one or more keys and a block.")
def group_by_without_keys(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.group_by(Block.agg(Agg.count()).out("*n")))  # <- fault


@expect("An aggregator stands beside group_by.")
def aggregator_beside_group_by(setup: Any, topologies: Any) -> None:
    block = ROWS.group_by("*v", Block.agg(Agg.count()).out("*n"))
    source(setup, topologies).batch_block(block.agg(Agg.count()).out("*all"))  # <- fault


@expect("Expected single tail, found multiple - missing join fields? 2 branches of this batch block are never brought")
def two_sources_in_a_batch_block(setup: Any, topologies: Any) -> None:
    block = ROWS.explode_microbatch("*mb").out("*w")  # <- fault
    source(setup, topologies).batch_block(block.global_partition().agg("$$total", Agg.sum("*w")))


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_a_chain_is_wrong(define: Define, text: str) -> None:
    assert_one_fault(define, text)


def every_construct(setup: Any, topologies: Any) -> None:
    setup.declare_tick_depot("*t", 100)
    chain = source(setup, topologies)
    loop = Block.if_true(
        Expr(Ops.LESS_THAN, "*i", 3),
        Block.batch_block(ROWS.global_partition().agg("$$total", Agg.count())).continue_loop(Expr(Ops.INC, "*i")),
        Block.emit_loop("*i"),
    )
    chain.loop_with_vars(LoopVars.var("*i", 0), loop).out("*rounds").batch_block(
        ROWS.anchor("a")
        .explode_microbatch("*mb").out("*w")
        .each(Ops.IDENTITY, "*w").out("*v")
        .anchor("b")
        .unify("a", "b")
        .group_by("*v", Block.agg(Agg.count()).out("*n").agg(Agg.avg("*v")).out("*mean"))
        .local_transform("$$counts", Path.key("*v").term(Ops.PLUS, "*n"))
        .compound_agg("$$counts", CompoundAgg.map("*v", Agg.sum("*n")))
    ).each(Ops.PRINTLN, "*rounds", Constant("*"))  # fmt: skip
    chain = chain.explode_microbatch("*mb").out("*v").each(partial(pairs), "*v").out("*v", "*w")
    around = Block.anchor("x").emit_loop("*i").hook("x").hash_partition("*i").continue_loop("*i")
    chain.loop_with_vars(LoopVars.var("*i", 0), around).out("*i")
    chain.anchor("root").select("$$counts", Path.key("*v")).out("*c").branch("root", Block.keep_true("*w"))
    chain.hook("root").all_partition().local_clear("$$counts").select("$$total").out("*all")
    chain.cond(Case.create("*w").each(Ops.INC, "*w").out("*x"), Case.create(True).each(Ops.DEC, "*w").out("*x"))
    chain.each(Ops.PLUS, "*x", "*all").out("*y").hash_partition("$$counts", "*y").direct_partition(0)


def test_no_fault_is_found_when_every_construct_is_used_as_meant() -> None:
    assert faults_of(every_construct) == []


def test_a_tuple_is_advised_when_a_partitioner_is_given_two_variables() -> None:
    def define(setup: Any, topologies: Any) -> None:
        records(setup, topologies).each(Ops.INC, "*v").out("*k").hash_partition("*k", "*v")

    assert (
        faults_of(define)[0].advice == 'It takes one value: for several write hash_partition(Expr(Ops.TUPLE, "*k", …)).'
    )
