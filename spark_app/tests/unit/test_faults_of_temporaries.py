"""Each mistake with temporary PStates is reported at its line: where they are made, and who may read them."""

from __future__ import annotations

from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, faults_of
from test_faults_of_dataflow import ROWS, records, source

from tidemill import Agg, Block, CompoundAgg, Constant, Depot, Expr, LimitAgg, Ops, Path, PState

cases = Cases()
expect = cases.expect

KEPT = ROWS.materialize("*v").out("$$rows")


@expect("materialize stands outside a batch block.")
def materialize_in_plain_code(setup: Any, topologies: Any) -> None:
    records(setup, topologies).materialize("*v").out("$$rows")  # <- fault


@expect("materialize names no temporary PState.")
def materialize_without_out(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.materialize("*v"))  # <- fault


@expect("materialize names one temporary PState.")
def materialize_into_two(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.materialize("*v").out("$$a").out("$$b"))  # <- fault


@expect("The name of a temporary PState begins with '$$'; '*rows' does not.")
def materialize_into_a_variable(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.materialize("*v").out("*rows"))  # <- fault


@expect("The variable '*w' is not bound here.")
def materialize_of_an_unknown_variable(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.materialize("*w").out("$$rows"))  # <- fault


@expect("'$$counts' is a declared PState, so no temporary one can have its name.")
def materialize_into_a_declared_pstate(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.materialize("*v").out("$$counts"))  # <- fault


@expect("'$$rows' holds rows of 2 values here, but it holds rows of 1 value at")
def materialize_of_another_width(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(KEPT)
    chain.batch_block(ROWS.materialize("*v", "*v").out("$$rows"))  # <- fault


@expect("The source of '*d' makes the temporary PState '$$rows' too, at")
def materialize_in_two_sources(setup: Any, topologies: Any) -> None:
    mb = topologies.microbatch("mb")
    for name in ("*d", "*e"):
        setup.declare_depot(name, Depot.random())
    mb.source("*d").out("*mb").batch_block(KEPT)
    mb.source("*e").out("*mb").batch_block(ROWS.materialize("*v").out("$$rows"))  # <- fault


@expect("No code before this materializes '$$rows'.")
def explode_of_rows_that_come_later(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(Block.explode_materialized("$$rows").out("*w"))  # <- fault
    chain.batch_block(KEPT)


@expect("No code before this materializes '$$rows'.")
def explode_of_rows_of_another_branch(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).anchor("root").batch_block(KEPT).hook("root")
    chain.explode_materialized("$$rows").out("*w")  # <- fault


@expect("No code before this materializes '$$rows'.")
def explode_of_rows_of_another_source(setup: Any, topologies: Any) -> None:
    mb = topologies.microbatch("mb")
    for name in ("*d", "*e"):
        setup.declare_depot(name, Depot.random())
    mb.source("*d").out("*mb").batch_block(KEPT)
    mb.source("*e").out("*mb").explode_materialized("$$rows").out("*w")  # <- fault


@expect("'$$rows' is made by the batch block that reads it here, so it is not complete yet.")
def explode_in_the_same_batch_block(setup: Any, topologies: Any) -> None:
    block = KEPT.anchor("a").explode_materialized("$$rows").out("*w")  # <- fault
    source(setup, topologies).batch_block(block.each(Ops.IDENTITY, "*w").out("*v").anchor("b").unify("a", "b"))


@expect("This batch block explodes '$$rows', and adds rows to it.")
def explode_where_rows_are_added(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(KEPT)
    chain.batch_block(Block.explode_materialized("$$rows").out("*w").materialize("*w").out("$$rows"))  # <- fault


@expect("explode_materialized stands after an aggregation: partitioning is not allowed in post-agg.")
def explode_in_post_agg(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(KEPT)
    block = ROWS.global_partition().agg(Agg.count()).out("*n").explode_materialized("$$rows").out("*w")  # <- fault
    chain.batch_block(block)


@expect("The rows of '$$rows' have 1 value, which cannot be bound to 2 variables.")
def explode_into_too_many_variables(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(KEPT)
    chain.batch_block(Block.explode_materialized("$$rows").out("*a", "*b"))  # <- fault


@expect("'$$counts' holds no materialized rows.")
def explode_of_a_declared_pstate(setup: Any, topologies: Any) -> None:
    source(setup, topologies).explode_materialized("$$counts").out("*w")  # <- fault


@expect("Expected single tail, found multiple - missing join fields? 2 branches of this batch block are never brought")
def two_sources_of_which_one_is_materialized(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(KEPT)
    block = ROWS.explode_materialized("$$rows").out("*w")  # <- fault
    chain.batch_block(block.global_partition().agg("$$total", Agg.count()))


# --- aggregations ----------------------------------------------------------------------------------------------------


AT_HOME = ROWS.hash_partition("*v")
COUNTS = AT_HOME.compound_agg(CompoundAgg.map("*v", Agg.count())).out("$$t")
READ = Block.all_partition().local_select("$$t", Path.all()).out("*pair")


@expect("An aggregation into the temporary PState '$$t' stands outside a batch block.")
def aggregation_in_plain_code(setup: Any, topologies: Any) -> None:
    records(setup, topologies).agg(Agg.count()).out("$$t")  # <- fault


@expect("An aggregation into the temporary PState '$$t' stands after the aggregation of a batch block.")
def aggregation_in_post_agg(setup: Any, topologies: Any) -> None:
    block = AT_HOME.agg(Agg.count()).out("*n").local_clear("$$counts")
    source(setup, topologies).batch_block(block.agg(Agg.count()).out("$$t"))  # <- fault


@expect("The block of group_by holds something else than aggregators into variables.")
def aggregation_in_group_by(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.group_by("*v", Block.agg(Agg.count()).out("$$t")))  # <- fault


@expect("This aggregates into '$$total' already, so it cannot go into '$$t' too.")
def aggregation_into_a_declared_and_a_temporary_pstate(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.agg("$$total", Agg.count()).out("$$t"))  # <- fault


@expect("An aggregation makes one temporary PState, not 2 of '$$t', '*n'.")
def aggregation_into_two(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.agg(Agg.count()).out("$$t", "*n"))  # <- fault


@expect("The name of a temporary PState begins with '$$'; '$$' does not.")
def aggregation_into_a_pstate_without_a_name(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.agg(Agg.count()).out("$$"))  # <- fault


@expect("An out variable begins with '*', but '$$t' is the name of a PState.")
def variable_that_is_a_pstate(setup: Any, topologies: Any) -> None:
    records(setup, topologies).each(Ops.INC, "*v").out("$$t")  # <- fault


@expect("Agg.avg cannot aggregate into '$$t'")
def aggregation_of_a_mean(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.agg(Agg.avg("*v")).out("$$t"))  # <- fault


@expect("'$$counts' is a declared PState, so no temporary one can have its name.")
def aggregation_under_the_name_of_a_declared_pstate(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.agg(Agg.count()).out("$$counts"))  # <- fault


@expect("'$$t' holds int here, but it holds")
def aggregation_of_another_shape(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(COUNTS)
    chain.batch_block(AT_HOME.agg(Agg.count()).out("$$t"))  # <- fault


@expect("'$$t' holds int here, but it holds rows of 1 value at")
def aggregation_into_materialized_rows(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(ROWS.materialize("*v").out("$$t"))
    chain.batch_block(AT_HOME.agg(Agg.count()).out("$$t"))  # <- fault


@expect("There is no PState '$$t'.")
def read_before_it_is_made(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).batch_block(Block.all_partition().local_select("$$t").out("*x"))  # <- fault
    chain.batch_block(COUNTS)


@expect("No code before this makes '$$t'.")
def read_on_another_branch(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).anchor("root").batch_block(COUNTS).hook("root")
    chain.local_select("$$t", Path.key("a")).out("*n")  # <- fault


@expect("No code before this makes '$$t'.")
def read_in_the_same_batch_block(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).anchor("root").batch_block(COUNTS).hook("root")
    rows = AT_HOME.local_select("$$t", Path.key("a")).out("*n")  # <- fault
    chain.batch_block(rows.global_partition().compound_agg(CompoundAgg.map("*v", Agg.count())).out("$$t"))


@expect("'$$rows' holds materialized rows, and is no PState to navigate.")
def select_of_materialized_rows(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(KEPT).local_select("$$rows").out("*x")  # <- fault


@expect("'$$t' holds no materialized rows.")
def explode_of_an_aggregated_pstate(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(COUNTS).explode_materialized("$$t").out("*x")  # <- fault


@expect("The path into '$$t' does not begin with a key, so it belongs to no one task.")
def select_that_belongs_to_no_task(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(COUNTS).select("$$t", Path.all()).out("*x")  # <- fault


# --- captures --------------------------------------------------------------------------------------------------------


COUNT = Agg.count().capture_new_val_into("*n")


@expect("capture_new_val_into stands outside the aggregation of a batch block.")
def capture_in_plain_code(setup: Any, topologies: Any) -> None:
    records(setup, topologies).agg("$$total", COUNT)  # <- fault


@expect("capture_new_val_into stands outside the aggregation of a batch block.")
def capture_in_post_agg(setup: Any, topologies: Any) -> None:
    block = AT_HOME.agg(Agg.count()).out("*all").local_clear("$$total")
    source(setup, topologies).batch_block(block.agg("$$total", COUNT))  # <- fault


@expect("capture_new_val_into stands in group_by, which keeps no value.")
def capture_in_group_by(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.group_by("*v", Block.agg(COUNT).out("*all")))  # <- fault


@expect("'*n' captures a value that is kept nowhere.")
def capture_of_a_variable(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.agg(COUNT).out("*all"))  # <- fault


@expect("The captured values of this batch block are not on one way from the top: their keys differ.")
def capture_below_several_keys_of_one_map(setup: Any, topologies: Any) -> None:
    other = Agg.sum(1).capture_new_val_into("*m")
    tree = CompoundAgg.map("*v", COUNT, "*w", other)
    rows = ROWS.each(Ops.IDENTITY, "*v").out("*w").hash_partition("*v")
    source(setup, topologies).batch_block(rows.compound_agg(tree).out("$$t"))  # <- fault


@expect("The captured values of this batch block are not on one way from the top: their keys differ.")
def capture_in_different_maps(setup: Any, topologies: Any) -> None:
    other = Agg.sum(1).capture_new_val_into("*m")
    tree = CompoundAgg.map(Constant("a"), CompoundAgg.map("*v", COUNT), Constant("b"), CompoundAgg.map("*w", other))
    rows = ROWS.each(Ops.IDENTITY, "*v").out("*w").hash_partition("*v")
    source(setup, topologies).batch_block(rows.compound_agg(tree).out("$$t"))  # <- fault


@expect("Two aggregators bind '*n'.")
def capture_into_an_output(setup: Any, topologies: Any) -> None:
    block = AT_HOME.agg(Agg.count()).out("*n").compound_agg("$$counts", CompoundAgg.map("*v", COUNT))  # <- fault
    source(setup, topologies).batch_block(block)


@expect("Two aggregators bind '*v'.")
def capture_into_its_key(setup: Any, topologies: Any) -> None:
    tree = CompoundAgg.map("*v", Agg.count().capture_new_val_into("*v"))
    source(setup, topologies).batch_block(AT_HOME.compound_agg("$$counts", tree))  # <- fault


@expect("The new value is captured twice, into '*a' and '*b'.")
def capture_into_two(setup: Any, topologies: Any) -> None:
    twice = Agg.count().capture_new_val_into("*a").capture_new_val_into("*b")  # <- fault
    source(setup, topologies).batch_block(AT_HOME.compound_agg("$$counts", CompoundAgg.map("*v", twice)))


@expect("'*w' captures a structure of '$$sets' whose elements are stored one by one.")
def capture_of_an_indexed_structure(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$sets", PState.map_schema(str, PState.set_schema(str).subindexed()))
    tree = CompoundAgg.map("*v", Agg.set("*v").capture_new_val_into("*w"))
    mb.source("*d").out("*mb").batch_block(AT_HOME.compound_agg("$$sets", tree))  # <- fault


@expect("'*w' captures a structure of '$$counts' whose elements are stored one by one.")
def capture_of_a_whole_partition(setup: Any, topologies: Any) -> None:
    tree = Agg.multi_set("*v").capture_new_val_into("*w")
    source(setup, topologies).batch_block(AT_HOME.agg("$$counts", tree))  # <- fault


@expect("The variable '*v' is not bound after the aggregation.")
def rows_behind_a_capture_without_keys(setup: Any, topologies: Any) -> None:
    block = AT_HOME.agg("$$total", COUNT)
    source(setup, topologies).batch_block(block.each(Ops.PRINTLN, "*v", "*n"))  # <- fault


# --- limits ----------------------------------------------------------------------------------------------------------


LIMIT = LimitAgg.create(3, "*v").sort("*v")


@expect("limit_agg stands outside a batch block.")
def limit_in_plain_code(setup: Any, topologies: Any) -> None:
    records(setup, topologies).limit_agg(LIMIT)  # <- fault


@expect("limit_agg stands inside another node of a batch block.")
def limit_in_a_condition(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.if_true("*v", Block.limit_agg(LIMIT)))  # <- fault


@expect("limit_agg stands after the aggregation of a batch block.")
def limit_in_post_agg(setup: Any, topologies: Any) -> None:
    block = AT_HOME.agg(Agg.count()).out("*n").local_clear("$$total")
    source(setup, topologies).batch_block(block.limit_agg(LIMIT))  # <- fault


@expect("What comes before the aggregators of a batch block does not end in a partitioner.")
def limit_without_a_partitioner(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.limit_agg(LIMIT))  # <- fault


@expect("A second limit_agg stands in this batch block.")
def two_limits(setup: Any, topologies: Any) -> None:
    other = LimitAgg.create(1, "*w")
    rows = ROWS.each(Ops.IDENTITY, "*v").out("*w").global_partition()
    source(setup, topologies).batch_block(rows.limit_agg(LIMIT).limit_agg(other))  # <- fault


@expect("limit_agg and capture_new_val_into stand in one batch block: both say which rows post-agg gets.")
def limit_beside_a_capture(setup: Any, topologies: Any) -> None:
    block = AT_HOME.agg("$$total", COUNT).limit_agg(LIMIT)  # <- fault
    source(setup, topologies).batch_block(block)


@expect("The variable '*w' is not bound here.")
def limit_by_an_unknown_variable(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.limit_agg(LimitAgg.create(3, "*v").sort("*w")))  # <- fault


@expect("limit_agg binds '*n', which is bound already.")
def limit_of_an_output(setup: Any, topologies: Any) -> None:
    block = AT_HOME.agg(Agg.count()).out("*n").limit_agg(LimitAgg.create(3, "*v").index_var("*n"))  # <- fault
    source(setup, topologies).batch_block(block)


@expect("limit_agg binds '*v', which is bound already.")
def limit_of_its_key(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(ROWS.group_by("*v", Block.limit_agg(LIMIT)))  # <- fault


@expect("LimitAgg.create begins with the number of rows to keep, not with '*v'.")
def limit_without_an_amount(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.limit_agg(LimitAgg.create("*v", "*v")))  # <- fault


@expect("LimitAgg.create names no variable to keep.")
def limit_that_keeps_nothing(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.limit_agg(LimitAgg.create(3)))  # <- fault


@expect("LimitAgg.sort names all variables to sort by, and stands once.")
def limit_sorted_twice(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.limit_agg(LIMIT.sort("*v")))  # <- fault


@expect("limit_agg takes a LimitAgg, not 3.")
def limit_of_a_number(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.limit_agg(3).local_clear("$$total"))  # <- fault


@expect("limit_agg emits no values, so .out(…) cannot follow it")
def limit_with_out(setup: Any, topologies: Any) -> None:
    source(setup, topologies).batch_block(AT_HOME.limit_agg(LIMIT).out("*w"))  # <- fault


@expect("The variable '*w' is not bound after the aggregation.")
def variable_that_a_limit_does_not_keep(setup: Any, topologies: Any) -> None:
    rows = ROWS.each(Ops.IDENTITY, "*v").out("*w").global_partition().limit_agg(LIMIT)
    source(setup, topologies).batch_block(rows.each(Ops.PRINTLN, "*w"))  # <- fault


def every_use(setup: Any, topologies: Any) -> None:
    chain = source(setup, topologies).if_true(
        Expr(Ops.IDENTITY, Constant(1)), Block.batch_block(COUNTS).batch_block(KEPT)
    )
    chain = chain.batch_block(COUNTS.local_select("$$t", Path.key("a")).out("*n")).batch_block(READ)
    chain = chain.batch_block(Block.explode_materialized("$$rows").out("*v").select("$$t", Path.key("*v")).out("*n"))
    tree = CompoundAgg.map("*v", COUNT)
    chain = chain.batch_block(AT_HOME.compound_agg("$$counts", tree).each(Ops.PRINTLN, "*v", "*n"))
    chain = chain.batch_block(AT_HOME.limit_agg(LIMIT.reverse().index_var("*i")).each(Ops.PRINTLN, "*v", "*i"))
    chain.hash_partition("$$t", Constant("a")).local_transform("$$t", Path.key("a").term_val(1)).local_clear("$$t")


def test_no_fault_is_found_when_temporary_pstates_are_used_as_meant() -> None:
    assert faults_of(every_use) == []


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_a_temporary_pstate_is_wrong(define: Define, text: str) -> None:
    assert_one_fault(define, text)
