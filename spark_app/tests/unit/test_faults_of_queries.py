"""Each mistake in a query, or in a call of one, is reported at its line, with what to do."""

from __future__ import annotations

from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, faults_of

from tidemill import Agg, Block, CompoundAgg, Depot, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.plan.warn import warnings_of

cases = Cases()
expect = cases.expect


def counts(setup: Any, topologies: Any) -> Any:
    """A topology with a PState, and the chain of its records."""
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$counts", PState.map_schema(str, int))
    chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*k").hash_partition("*k")
    return chain.compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))


def query(topologies: Any) -> Any:
    return topologies.query("q", "*k").out("*result")


@expect("The query 'q' does not end with origin_partition().")
def no_origin_partition(setup: Any, topologies: Any) -> None:
    counts(setup, topologies)
    chain = topologies.query("q", "*k").out("*result")  # <- fault
    chain.select("$$counts", Path.key("*k")).out("*result")


@expect("The query 'q' does not end with origin_partition().")
def another_partitioner_at_the_end(setup: Any, topologies: Any) -> None:
    chain = topologies.query("q", "*k").out("*result")  # <- fault
    chain.origin_partition().global_partition().each(Ops.INC, "*k").out("*result")


@expect("The aggregation of the query 'q' does not follow origin_partition().")
def an_aggregation_elsewhere(setup: Any, topologies: Any) -> None:
    chain = query(topologies).global_partition()
    chain.agg(Agg.count()).out("*result")  # <- fault


@expect("The query 'q' ends with group_by, whose rows stay on the tasks of their keys.")
def group_by_at_the_end(setup: Any, topologies: Any) -> None:
    chain = query(topologies).origin_partition()
    chain.group_by("*k", Block.agg(Agg.count()).out("*result"))  # <- fault


@expect("The query 'q' names no result.")
def no_result(setup: Any, topologies: Any) -> None:
    topologies.query("q", "*k").each(Ops.PRINTLN, "*k").origin_partition()  # <- fault


@expect("The query 'q' names 2 results.")
def two_results_at_the_end(setup: Any, topologies: Any) -> None:
    chain = topologies.query("q", "*k")  # <- fault
    chain.origin_partition().each(Ops.EXPAND, "*k").out("*a", "*b")


@expect("A query has one result.")
def two_results(setup: Any, topologies: Any) -> None:
    chain = topologies.query("q", "*k").out("*a", "*b")  # <- fault
    chain.each(Ops.INC, "*k").out("*a").origin_partition()


@expect("The variable '*result' is not bound here.")
def a_result_that_nothing_binds(setup: Any, topologies: Any) -> None:
    chain = topologies.query("q", "*k").out("*result")  # <- fault
    chain.each(Ops.INC, "*k").out("*other").origin_partition()


@expect("The variable '*result' is not bound after the aggregation.")
def a_result_that_the_aggregation_hides(setup: Any, topologies: Any) -> None:
    chain = topologies.query("q", "*k").out("*result")  # <- fault
    chain.each(Ops.INC, "*k").out("*result").origin_partition().agg(Agg.count()).out("*n")


@expect("The query 'q' names an input twice.")
def an_input_twice(setup: Any, topologies: Any) -> None:
    chain = topologies.query("q", "*k", "*k").out("*result")  # <- fault
    chain.each(Ops.INC, "*k").out("*result").origin_partition()


@expect("An input of a query is a string that begins with '*', not 'k'.")
def an_input_without_sigil(setup: Any, topologies: Any) -> None:
    chain = topologies.query("q", "k").out("*result")  # <- fault
    chain.each(Ops.INC, "*k").out("*result").origin_partition()


@expect("The name of a query is a string without '*' or '$$', not '*q'.")
def a_name_with_sigil(setup: Any, topologies: Any) -> None:
    chain = topologies.query("*q", "*k").out("*result")  # <- fault
    chain.each(Ops.INC, "*k").out("*result").origin_partition()


@expect("The topology 'mb' is declared twice")
def the_name_of_a_topology(setup: Any, topologies: Any) -> None:
    counts(setup, topologies)
    chain = topologies.query("mb", "*k").out("*result")  # <- fault
    chain.each(Ops.INC, "*k").out("*result").origin_partition()


def _answering(chain: Any) -> None:
    chain.each(Ops.INC, "*k").out("*result").origin_partition()


@expect("The query 'q' cannot write '$$counts': a query only reads.")
def a_transform(setup: Any, topologies: Any) -> None:
    counts(setup, topologies)
    _answering(query(topologies).local_transform("$$counts", Path.key("*k").term_val(1)))  # <- fault


@expect("The query 'q' cannot write '$$counts': a query only reads.")
def a_clear(setup: Any, topologies: Any) -> None:
    counts(setup, topologies)
    _answering(query(topologies).local_clear("$$counts"))  # <- fault


@expect("The query 'q' cannot write '$$counts': a query only reads.")
def an_aggregation_into_a_pstate(setup: Any, topologies: Any) -> None:
    counts(setup, topologies)
    chain = query(topologies).each(Ops.INC, "*k").out("*result").origin_partition()
    chain = chain.compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))  # <- fault
    chain.agg(Agg.count()).out("*result")


@expect("The query 'q' cannot append to '*d': a query only reads.")
def an_append(setup: Any, topologies: Any) -> None:
    counts(setup, topologies)
    _answering(query(topologies).depot_partition_append("*d", "*k"))  # <- fault


@expect("A query is one batch block, and materialize keeps rows for later ones.")
def rows_for_later(setup: Any, topologies: Any) -> None:
    _answering(query(topologies).materialize("*k").out("$$rows"))  # <- fault


@expect("A query has no microbatch to explode.")
def a_microbatch(setup: Any, topologies: Any) -> None:
    _answering(query(topologies).explode_microbatch("*mb").out("*r"))  # <- fault


@expect("A batch block stands inside a query, which is one itself.")
def a_batch_block(setup: Any, topologies: Any) -> None:
    _answering(query(topologies).batch_block(Block.each(Ops.INC, 1).out("*x")))  # <- fault


@expect("ack_return belongs to stream topologies")
def an_ack(setup: Any, topologies: Any) -> None:
    _answering(query(topologies).ack_return("*k"))  # <- fault


@expect("There is no query 'r'.")
def an_unknown_query(setup: Any, topologies: Any) -> None:
    chain = query(topologies).invoke_query("r", "*k").out("*x")  # <- fault
    _answering(chain)


@expect("There is no query 'q'.")
def an_unknown_query_in_a_topology(setup: Any, topologies: Any) -> None:
    counts(setup, topologies).invoke_query("q", "*k").out("*x")  # <- fault


@expect("The query 'q' takes 1 argument (*k), not 2.")
def too_many_arguments(setup: Any, topologies: Any) -> None:
    _answering(query(topologies))
    counts(setup, topologies).invoke_query("q", "*k", 1).out("*x")  # <- fault


@expect("A query has one result, which cannot be bound to 2 variables.")
def two_variables_for_a_result(setup: Any, topologies: Any) -> None:
    _answering(query(topologies))
    counts(setup, topologies).invoke_query("q", "*k").out("*x", "*y")  # <- fault


@expect("invoke_query begins with the name of a query, not with '*k'.")
def no_name_of_a_query(setup: Any, topologies: Any) -> None:
    _answering(query(topologies))
    counts(setup, topologies).invoke_query("*k").out("*x")  # <- fault


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_a_query_is_wrong(define: Define, text: str) -> None:
    if define is no_name_of_a_query:
        assert text in [fault.text for fault in faults_of(define)]
        return
    assert_one_fault(define, text)


def test_a_warning_names_the_line_when_a_query_reads_a_key_on_another_task() -> None:
    class Astray(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            counts(setup, topologies)
            chain = query(topologies).global_partition()
            chain.local_select("$$counts", Path.key("*k")).out("*result").origin_partition()

    (found,) = warnings_of(record_module(Astray()))
    assert "perhaps not on the key's task" in found.text
