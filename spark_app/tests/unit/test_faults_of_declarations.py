"""Each mistake in declaring depots, PStates, sources and options is reported at its line, with what to do."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, fault_places, faults_of

from tidemill import Agg, Block, DefinitionError, Depot, MicrobatchSourceOptions, Module, OffsetAgo, Ops, PState
from tidemill.api.declaration import record_module
from tidemill.plan.check.module import checked

cases = Cases()
expect = cases.expect


@expect("The name of a depot begins with '*'; 'events' does not.")
def depot_without_sigil(setup: Any, topologies: Any) -> None:
    setup.declare_depot("events", Depot.random())  # <- fault


@expect("The depot '*d' is declared twice")
def depot_declared_twice(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    setup.declare_depot("*d", Depot.disallow())  # <- fault


@expect("'random' is not a way to partition a depot.")
def depot_with_unknown_partitioning(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", "random")  # <- fault


@expect("5 is not a function.")
def hash_by_of_no_function(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by(5))  # <- fault


@expect("'*user' is written like a variable")
def hash_by_of_a_variable(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by("*user"))  # <- fault


@expect("The name of a field is a string, not 5.")
def hash_by_of_a_field_that_is_no_text(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by(["user", 5]))  # <- fault


@expect("hash_by names no field.")
def hash_by_of_no_field(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by([]))  # <- fault


@expect("'GET' takes 2 to 3 arguments, not 1.")
def hash_by_of_a_function_with_more_arguments(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by(Ops.GET))  # <- fault


@expect("takes the arguments (record), not 2.")
def custom_partitioner_of_one_argument(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", lambda record: 0)  # <- fault


@expect("The period of the tick depot '*t' is a number of milliseconds from 1 on, not 0.")
def tick_depot_without_period(setup: Any, topologies: Any) -> None:
    setup.declare_tick_depot("*t", 0)  # <- fault


@expect("Tidemill has no stream topologies.")
def stream_topology(setup: Any, topologies: Any) -> None:
    topology = topologies.stream("s")  # <- fault
    topology.pstate("$$p", int).global_()
    topology.source("*d").out("*record").each(Ops.INC, "*record").out("*x")


@expect("The topology 'mb' is declared twice")
def topology_declared_twice(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb")
    topologies.microbatch("mb")  # <- fault


@expect("The name of a topology is a string that is not empty, not ''.")
def topology_without_name(setup: Any, topologies: Any) -> None:
    topologies.microbatch("")  # <- fault


@expect("The name of a PState begins with '$$'; '*p' does not.")
def pstate_without_sigil(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("*p", int)  # <- fault


@expect("The PState '$$p' is declared twice")
def pstate_in_two_topologies(setup: Any, topologies: Any) -> None:
    topologies.microbatch("a").pstate("$$p", int)
    topologies.microbatch("b").pstate("$$p", int)  # <- fault


@expect("complex is not a type that a PState can hold.")
def pstate_of_a_foreign_type(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", complex)  # <- fault


@expect("date is not a type that a PState can hold.")
def pstate_of_dates(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(str, datetime.date))  # <- fault


@expect("The key type of a map is a plain type, not the schema set(str).")
def map_with_a_schema_as_key(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(PState.set_schema(str), int))  # <- fault


@expect("list cannot be the key type of a map.")
def map_with_lists_as_keys(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(list, int))  # <- fault


@expect("The element type of a set is a plain type, not the schema list(int).")
def set_of_schemas(setup: Any, topologies: Any) -> None:
    schema = PState.set_schema(PState.list_schema(int))  # <- fault
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(str, schema))


@expect("fixed_keys_schema takes pairs of a key and a schema.")
def fixed_keys_without_a_schema(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.fixed_keys_schema("a", int, "b"))  # <- fault


@expect("fixed_keys_schema takes pairs of a key and a schema, not a dict of them.")
def fixed_keys_as_a_dict(setup: Any, topologies: Any) -> None:
    fields: Any = {"a": int, "b": PState.list_schema(str)}
    record = PState.fixed_keys_schema(fields)  # <- fault
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(str, record))


@expect(r"The key '\ud800' of a fixed-keys schema has a lone surrogate")
def fixed_key_that_cannot_be_stored(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.fixed_keys_schema("\ud800", int))  # <- fault


@expect(r"The key '\ud800' of a fixed-keys schema has a lone surrogate")
def field_of_a_record_that_cannot_be_stored(setup: Any, topologies: Any) -> None:
    schema = PState.fixed_keys_schema("\ud800", int)  # <- fault
    setup.declare_depot("*d", Depot.random()).schema(schema)


@expect(r"The name of a field '\ud800' has a lone surrogate")
def hash_by_of_a_field_that_cannot_be_stored(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.hash_by("\ud800"))  # <- fault


@expect(r"The name '*\ud800' has a lone surrogate")
def depot_whose_name_cannot_be_stored(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*\ud800", Depot.random())  # <- fault


@expect(r"The name '$$\ud800' has a lone surrogate")
def pstate_whose_name_cannot_be_stored(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$\ud800", int)  # <- fault


@expect(r"The name 'mb\ud800' has a lone surrogate")
def topology_whose_name_cannot_be_stored(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb\ud800")  # <- fault


@expect("The name '*a/b' has a '/'")
def depot_that_no_path_of_http_can_name(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*a/b", Depot.random())  # <- fault


@expect("The name '$$..' stands for a folder in paths")
def pstate_that_a_browser_takes_for_the_folder_above(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$..", int)  # <- fault


@expect("The name '../mb' has a '/'")
def topology_that_leaves_its_folder(setup: Any, topologies: Any) -> None:
    topologies.microbatch("../mb")  # <- fault


@expect(r"The name 'q\n' has a control character")
def query_with_a_line_feed_in_its_name(setup: Any, topologies: Any) -> None:
    topologies.query("q\n", "*n").out("*n").origin_partition()  # <- fault


@expect("takes more than 200 bytes")
def depot_whose_folder_would_have_too_long_a_name(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*" + "é" * 101, Depot.random())  # <- fault


@expect(r"The name '\ud800' has a lone surrogate")
def source_whose_id_cannot_be_stored(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.source("*d", MicrobatchSourceOptions.source_id("\ud800")).out("*mb")  # <- fault


@expect("The initial value of '$$p' cannot be stored: Not data: the value is a str with a lone surrogate")
def initial_value_that_cannot_be_stored(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", str).global_().initial_value("\ud800")  # <- fault


@expect("The initial value of '$$p' cannot be stored: Not data: the part [0] of the value is a str with a lone")
def initial_value_with_a_text_inside_that_cannot_be_stored(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", object).global_().initial_value(["\ud800"])  # <- fault


@expect(r"not '\ud800'")
def option_value_that_cannot_be_stored(setup: Any, topologies: Any) -> None:
    setup.set_launch_module_dynamic_option("topology.microbatch.placement", "\ud800")  # <- fault


@expect("The key 'a' stands twice in a fixed-keys schema.")
def fixed_keys_with_a_key_twice(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.fixed_keys_schema("a", int, "a", str))  # <- fault


@expect("The key '1' stands twice in a fixed-keys schema.")
def fixed_keys_that_are_written_alike(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.fixed_keys_schema("1", int, 1, str))  # <- fault


@expect("The key 2.5 of a fixed-keys schema is no text.")
def fixed_keys_of_another_type(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.fixed_keys_schema(2.5, int))  # <- fault


@expect("fixed_keys(a: int) cannot be subindexed.")
def fixed_keys_subindexed(setup: Any, topologies: Any) -> None:
    inner = PState.fixed_keys_schema("a", int).subindexed()  # <- fault
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(str, inner))


@expect("'$$p' is a set at the top level.")
def set_at_the_top_level(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.set_schema(str))  # <- fault


@expect("'$$p' is a list at the top level.")
def list_at_the_top_level(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.list_schema(str))  # <- fault


@expect("The top-level map of '$$p' is subindexed.")
def top_level_map_subindexed(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(str, int).subindexed())  # <- fault


@expect("'$$p' has an initial value, but its schema is no plain type.")
def initial_value_of_a_map(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(str, int)).initial_value({})  # <- fault


@expect("The initial value 'none' of '$$p' is no int.")
def initial_value_of_another_type(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", int).global_().initial_value("none")  # <- fault


@expect("takes the arguments (key), not 2.")
def key_partitioner_of_one_argument(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.map_schema(str, int)).key_partitioner(lambda key: 0)  # <- fault


@expect("There is no depot '*numbres'.")
def source_of_an_unknown_depot(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*numbers", Depot.random())
    topologies.microbatch("mb").source("*numbres").out("*mb")  # <- fault


@expect("Two sources of 'mb' have the id '*d'")
def two_sources_with_one_id(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.source("*d").out("*a")
    mb.source("*d", MicrobatchSourceOptions.start_from_beginning()).out("*b")  # <- fault


@expect("A source begins at one place, but two are given.")
def source_with_two_starts(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    options = MicrobatchSourceOptions.start_from_beginning().start_from_offset_after_timestamp(1)  # <- fault
    topologies.microbatch("mb").source("*d", options).out("*mb")


@expect("A start_from option takes a whole number of 0 or more, not -1.")
def source_from_a_negative_offset(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    options = MicrobatchSourceOptions.start_from_offset_ago(-1, OffsetAgo.RECORDS)  # <- fault
    topologies.microbatch("mb").source("*d", options).out("*mb")


@expect("'days' is no unit.")
def source_with_an_unknown_unit(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    options = MicrobatchSourceOptions.start_from_offset_ago(1, "days")  # type: ignore[arg-type] # <- fault
    topologies.microbatch("mb").source("*d", options).out("*mb")


@expect("'beginning' are no options of a source.")
def source_with_foreign_options(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    topologies.microbatch("mb").source("*d", "beginning").out("*mb")  # <- fault


@expect("The tick depot '*t' holds no records, so it has no place to start from.")
def start_of_a_tick_depot(setup: Any, topologies: Any) -> None:
    setup.declare_tick_depot("*t", 100)
    mb = topologies.microbatch("mb")
    mb.source("*t", MicrobatchSourceOptions.start_from_beginning()).out("*mb")  # <- fault


@expect("A source binds one variable, its microbatch.")
def source_with_two_variables(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    topologies.microbatch("mb").source("*d").out("*a", "*b")  # <- fault


@expect("there is no option 'depot.microbatch.max.record'.")
def unknown_option(setup: Any, topologies: Any) -> None:
    setup.set_launch_module_dynamic_option("depot.microbatch.max.record", 5)  # <- fault


@expect("depot.microbatch.max.records must be in")
def option_out_of_bounds(setup: Any, topologies: Any) -> None:
    setup.set_launch_module_dynamic_option("depot.microbatch.max.records", 0)  # <- fault


@expect("can be set on a topology or the module, not on a depot")
def option_of_another_kind_of_object(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    setup.set_launch_depot_dynamic_option("*d", "topology.combiner.limit", 5)  # <- fault


@expect("There is no topology 'md' to set an option of.")
def option_of_an_unknown_topology(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb")
    setup.set_launch_topology_dynamic_option("md", "topology.combiner.limit", 5)  # <- fault


@expect("define raised ZeroDivisionError: division by zero")
def define_that_raises(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").source("*unknown").out("*mb")
    1 / 0  # noqa: B018 # <- fault


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_a_declaration_is_wrong(define: Define, text: str) -> None:
    assert_one_fault(define, text)


def many_faults(setup: Any, topologies: Any) -> None:
    setup.declare_depot("events", Depot.random())  # <- fault
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(list, int))  # <- fault
    (mb.source("*evnts").out("*mb")  # <- fault
       .explode_microbatch("*mb").out("*e")
       .each(Ops.INC, "*f").out("*g")  # <- fault
       .agg("$$q", Agg.count()))  # fmt: skip # <- fault
    mb.source("*events").out("*mb").batch_block(Block.keep_true(True).agg("$$q", Agg.count()))  # <- fault
    topologies.stream("s")  # <- fault


def test_all_faults_are_reported_at_once_and_in_order_when_several_lines_are_wrong() -> None:
    places = fault_places(many_faults)

    found = faults_of(many_faults)

    assert list(dict.fromkeys(fault.location for fault in found)) == places


def test_checked_raises_with_every_fault_when_a_module_is_wrong() -> None:
    class Wrong(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("one", Depot.random())
            setup.declare_depot("two", Depot.random())

    with pytest.raises(DefinitionError) as raised:
        checked(record_module(Wrong))

    assert len(raised.value.faults) == 2
    assert "'one'" in str(raised.value) and "'two'" in str(raised.value)


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "_system", "a\ud800", "a\n", "a" * 201])
def test_module_name_is_refused_when_it_cannot_be_a_folder(name: str) -> None:
    class Named(Module):
        def module_name(self) -> str:
            return name

        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())

    with pytest.raises(DefinitionError, match="cannot be a folder's name"):
        checked(record_module(Named()))


def test_record_module_refuses_what_is_no_module() -> None:
    with pytest.raises(DefinitionError, match="is no module"):
        record_module(42)


def test_record_module_refuses_a_name_that_is_no_string() -> None:
    class Numbered(Module):
        def module_name(self) -> Any:
            return 7

        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())

    with pytest.raises(DefinitionError, match="returns 7, which is no string"):
        record_module(Numbered())
