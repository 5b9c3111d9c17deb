"""Each mistake with objects of other modules is reported at its line, with what to do."""

from __future__ import annotations

from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, fault_places
from mirrored import BEGINNING, bank
from stories import module_of

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    MicrobatchSourceOptions,
    Ops,
    Path,
    PState,
)
from tidemill.values.errors import DefinitionError

alone, beside = Cases(), Cases()
OWN: list[str] = []
"""The URL of the store, once there is one."""


def rows(setup: Any, topologies: Any) -> Any:
    setup.declare_depot("*in", Depot.random())
    return topologies.microbatch("mb").source("*in").out("*b").explode_microbatch("*b").out("*k")


# --- what the code alone shows ---


@alone.expect("The name of a depot begins with '*'")
def a_depot_named_as_a_pstate(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("$$m", "Bank", "*moves")  # <- fault


@alone.expect("is no module.")
def no_module(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", 7, "*moves")  # <- fault


@alone.expect("store= is the URL of a store or a folder, not 7.")
def no_store(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Bank", "*moves", store=7)  # <- fault


@alone.expect("The depot '*in' is declared twice")
def a_name_twice(setup: Any, topologies: Any) -> None:
    rows(setup, topologies)
    setup.cluster_depot("*in", "Bank", "*moves")  # <- fault


@alone.expect("'$$m' is a mirror of '$$sums' of module 'Bank', so nothing here can write it.")
def a_write(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    rows(setup, topologies).local_transform("$$m", Path.key("*k").term_val(1))  # <- fault


@alone.expect("'$$m' is a mirror of '$$sums' of module 'Bank', so nothing here can write it.")
def an_aggregation(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    rows(setup, topologies).compound_agg("$$m", CompoundAgg.map("*k", Agg.count()))  # <- fault


@alone.expect("'$$m' is a mirror of '$$sums' of module 'Bank', so nothing here can write it.")
def an_aggregation_of_a_batch_block(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    setup.declare_depot("*in", Depot.random())
    block = Block.explode_microbatch("*b").out("*k").global_partition()
    block = block.compound_agg("$$m", CompoundAgg.map("*k", Agg.count()))  # <- fault
    topologies.microbatch("mb").source("*in").out("*b").batch_block(block)


# --- what the other module shows ---


@beside.expect("There is no module 'Bnk'")
def an_unknown_module(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Bnk", "*moves")  # <- fault


@beside.expect("module Bank has no depot *move; did you mean *moves?")
def an_unknown_depot(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Bank", "*move")  # <- fault


@beside.expect("module Bank has no PState $$sum; did you mean $$sums?")
def an_unknown_pstate(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sum")  # <- fault


@beside.expect("of this very module.")
def a_mirror_of_itself(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Faulty", "*in")  # <- fault
    setup.declare_depot("*in", Depot.random())


@beside.expect("is itself a mirror, of '*moves' of module 'Bank'.")
def a_mirror_of_a_mirror(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Between", "*theirs")  # <- fault


@beside.expect("is a tick depot, which holds nothing to read.")
def a_tick_depot(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Between", "*tick")  # <- fault


@beside.expect("is private: only that module reads it.")
def a_private_pstate(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Between", "$$own")  # <- fault


@beside.expect("has a key partitioner, which is code of that module.")
def a_key_partitioner_without_code(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Between", "$$placed")  # <- fault


@beside.expect("no partition of it is chosen here.")
def a_read_without_a_partition(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    rows(setup, topologies).hash_partition("*k").local_select("$$m", Path.key("*k")).out("*v")  # <- fault


@beside.expect("no partition of it is chosen here.")
def a_read_behind_another_partitioner(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    chain = rows(setup, topologies).hash_partition("$$m", "*k").shuffle_partition()
    chain.local_select("$$m", Path.key("*k")).out("*v")  # <- fault


@beside.expect("no partition of it is chosen here.")
def an_append_without_a_partition(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Bank", "*moves")
    rows(setup, topologies).depot_partition_append("*m", "*k")  # <- fault


@beside.expect("no partition of it is chosen here.")
def a_read_in_a_loop_behind_a_partitioner_outside(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    again = Block.local_select("$$m", Path.key("*k")).out("*v")  # <- fault
    again = again.shuffle_partition().continue_loop(Expr(Ops.INC, "*i"))
    rows(setup, topologies).hash_partition("$$m", "*k").loop_with_vars(LoopVars.var("*i", 0), again)


@beside.expect("of this very module.")
def a_mirror_of_itself_by_the_url_of_its_store(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*m", "Faulty", "*in", store=OWN[0])  # <- fault


@beside.expect("shuffle_partition chooses no partition of '$$m'")
def a_partitioner_that_chooses_none(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    rows(setup, topologies).shuffle_partition("$$m")  # <- fault


@beside.expect("nth meets a map in '$$m', but needs a list.")
def a_path_that_does_not_fit(setup: Any, topologies: Any) -> None:
    setup.cluster_pstate("$$m", "Bank", "$$sums")
    chain = rows(setup, topologies).hash_partition("$$m", "*k")
    chain.local_select("$$m", Path.nth(1)).out("*v")  # <- fault


@beside.expect("is code of that module, and runs in the processes of this one.")
def a_query_without_code(setup: Any, topologies: Any) -> None:
    setup.cluster_query("*q", "Between", "own")  # <- fault


@beside.expect("module Between has no query owm; did you mean own?")
def an_unknown_query(setup: Any, topologies: Any) -> None:
    setup.cluster_query("*q", module_of("Between", between), "owm")  # <- fault


@beside.expect("uses '$$sums', which that module mirrors itself.")
def a_query_that_reads_a_mirror(setup: Any, topologies: Any) -> None:
    setup.cluster_query("*q", module_of("Between", between), "borrowed")  # <- fault


@beside.expect("has the query 'own' otherwise than the module that runs.")
def a_query_of_another_version(setup: Any, topologies: Any) -> None:
    def other(setup: Any, topologies: Any) -> None:
        topologies.query("own", "*x", "*y").out("*r").origin_partition().agg(Agg.first("*x")).out("*r")

    setup.cluster_query("*q", module_of("Between", other), "own")  # <- fault


@beside.expect("that is given here is faulty.")
def a_query_of_a_faulty_class(setup: Any, topologies: Any) -> None:
    def other(setup: Any, topologies: Any) -> None:
        topologies.query("own", "*x").out("*r")

    setup.cluster_query("*q", module_of("Between", other), "own")  # <- fault


@beside.expect("The query '*q' takes 1 argument (*x), not 2.")
def a_call_with_more_arguments(setup: Any, topologies: Any) -> None:
    setup.cluster_query("*q", module_of("Between", between), "own")
    rows(setup, topologies).invoke_query("*q", "*k", "*k").out("*v")  # <- fault


@alone.expect("The name of a query is a string without '*' or '$$', not '*q'.")
def a_query_named_as_a_variable(setup: Any, topologies: Any) -> None:
    setup.cluster_query("*q", "Between", "*q")  # <- fault


@alone.expect("invoke_query begins with the name of a query, not with '*q'.")
def a_query_that_nothing_mirrors(setup: Any, topologies: Any) -> None:
    rows(setup, topologies).invoke_query("*q", "*k").out("*v")  # <- fault


def between(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*theirs", "Bank", "*moves")
    setup.declare_tick_depot("*tick", 1_000)
    mb = topologies.microbatch("mb")
    mb.pstate("$$own", PState.map_schema(str, int)).make_private()
    mb.pstate("$$placed", PState.map_schema(str, int)).key_partitioner(lambda partitions, key: 0)
    mb.source("*theirs", MicrobatchSourceOptions.start_from_beginning())
    setup.cluster_pstate("$$sums", "Bank", "$$sums")
    own = topologies.query("own", "*x").out("*r").select("$$own", Path.key("*x")).out("*v")
    own.origin_partition().agg(Agg.first("*v")).out("*r")
    borrowed = topologies.query("borrowed", "*x").out("*r").select("$$sums", Path.key("*x")).out("*v")
    borrowed.origin_partition().agg(Agg.first("*v")).out("*r")


@pytest.mark.parametrize(("define", "text"), alone.all, ids=alone.ids)
def test_a_mistake_with_a_mirror_is_reported_at_its_line_when_the_code_alone_shows_it(
    define: Define, text: str
) -> None:
    assert_one_fault(define, text)


@pytest.fixture(scope="module")
def cluster() -> Any:
    with InProcessCluster.create() as made:
        OWN[:] = [made.store_url]
        made.launch_module(module_of("Bank", bank), LaunchConfig(2, 1))
        made.launch_module(module_of("Between", between), LaunchConfig(2, 1))
        yield made


@pytest.mark.parametrize(("define", "text"), beside.all, ids=beside.ids)
def test_a_mistake_with_a_mirror_is_reported_at_its_line_when_the_other_module_shows_it(
    cluster: InProcessCluster, define: Define, text: str
) -> None:
    before = set(cluster.store.list(""))

    with pytest.raises(DefinitionError) as raised:
        cluster.launch_module(module_of("Faulty", define), LaunchConfig(2, 1))

    assert [fault.location for fault in raised.value.faults] == fault_places(define), str(raised.value)
    assert text in raised.value.faults[0].text, str(raised.value)
    assert not [key for key in set(cluster.store.list("")) - before if "Faulty" in key or "readers" in key]


def test_a_client_is_sent_to_the_other_module_when_it_asks_for_a_mirror(cluster: InProcessCluster) -> None:
    with pytest.raises(Exception, match=r"\*theirs of module Between is a mirror of '\*moves' of module 'Bank'"):
        cluster.cluster_depot("Between", "*theirs")
    with pytest.raises(Exception, match=r"has no PState"):
        cluster.cluster_pstate("Between", "$$theirs")


def test_a_warning_shows_when_rows_of_another_modules_depot_are_aggregated_where_they_are() -> None:
    from tidemill.api.declaration import record_module
    from tidemill.plan.warn import warnings_of

    def define(setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*m", "Bank", "*moves")
        mb = topologies.microbatch("mb")
        mb.pstate("$$own", PState.map_schema(str, int))
        chain = mb.source("*m", BEGINNING).out("*b").explode_microbatch("*b").out("*r").each(Ops.FIRST, "*r").out("*k")
        chain.compound_agg("$$own", CompoundAgg.map("*k", Agg.count()))

    (warning,) = warnings_of(record_module(module_of("Warned", define)))
    assert "'*m' has the partitions of another module" in str(warning)
