"""Each mistake in declaring a migration is reported at its line, all of them at once, with what to do."""

from __future__ import annotations

from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault, fault_places, faults_of

from tidemill import Depot, Ops, Path, PState, SubindexOptions, vectorized

cases = Cases()
expect = cases.expect
MAP = PState.map_schema


def same(value: Any) -> Any:
    return value


@vectorized
def columns(series: Any) -> Any:
    return series


@expect("The ID of a migration is a string that is not empty, not 5.")
def id_that_is_no_text(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.migrated(int, 5, same)))  # <- fault


@expect("The ID of a migration is a string that is not empty, not ''.")
def id_that_is_empty(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.migrated(int, "", same)))  # <- fault


@expect("'soon' is not a function.")
def function_that_is_none(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.migrated(int, "m", "soon")))  # <- fault


@expect("not 1.")
def function_of_two_values(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.migrated(int, "m", lambda a, b: a)))  # <- fault


@expect("and cannot be used here.")
def function_of_columns(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.migrated(int, "m", columns)))  # <- fault


@expect("is not a type that a PState can hold.")
def schema_that_is_none(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.migrated("int", "m", same)))  # <- fault


RECORD = PState.fixed_keys_schema("age", int, "score", int)


@expect("add_fixed_keys names 'points', which the new schema lacks.")
def added_key_that_is_not_there(setup: Any, topologies: Any) -> None:
    record = PState.migrated(RECORD, "m", same)
    record = record.add_fixed_keys("score", "points")  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, record))


@expect("remove_fixed_keys names 'age', which the new schema has.")
def removed_key_that_is_there(setup: Any, topologies: Any) -> None:
    record = PState.migrated(RECORD, "m", same)
    record = record.remove_fixed_keys("job", "age")  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, record))


@expect("add_fixed_keys stands behind something else than a migration of records.")
def added_key_without_a_migration(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(str, RECORD.add_fixed_keys("score")))  # <- fault


NOTHING_SUBINDEXED = "migrate_to_subindexed stands behind something else than a migration to a subindexed structure."


@expect(NOTHING_SUBINDEXED)
def migration_to_nothing_subindexed(setup: Any, topologies: Any) -> None:
    values = PState.migrated(PState.map_schema(str, int), "m", same)
    values = values.migrate_to_subindexed()  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, values))


@expect(NOTHING_SUBINDEXED)
def subindexing_without_a_migration(setup: Any, topologies: Any) -> None:
    values = MAP(str, int).subindexed().migrate_to_subindexed()  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, values))


@expect("The migration 'm' of '$$p' subindexes values in several levels.")
def subindexing_of_two_levels(setup: Any, topologies: Any) -> None:
    values = PState.migrated(MAP(str, MAP(str, int).subindexed()).subindexed(), "m", same)  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, values.migrate_to_subindexed()))


@expect("The migration 'm' of '$$p' subindexes values.values.")
def subindexing_below_something_subindexed(setup: Any, topologies: Any) -> None:
    inner = PState.migrated(MAP(str, int).subindexed(), "m", same)  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, MAP(str, inner.migrate_to_subindexed()).subindexed()))


@expect("The migration 'm' of '$$p' subindexes values, whose schema was changed behind it.")
def subindexing_whose_options_come_later(setup: Any, topologies: Any) -> None:
    values = PState.migrated(MAP(str, int).subindexed(), "m", same)  # <- fault
    values = values.migrate_to_subindexed().subindexed(SubindexOptions.without_size_tracking())
    topologies.microbatch("mb").pstate("$$p", MAP(str, values))


@expect("The migration 'm' of '$$p' is of values, whose elements are stored one by one.")
def migration_behind_a_subindexing_one(setup: Any, topologies: Any) -> None:
    values = PState.migrated(MAP(str, int).subindexed(), "m", same).migrate_to_subindexed()  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, values.migrated(int, "n", len)))


@expect("The migration 'm' of '$$p' is declared twice; the first time at ")
def id_that_stands_twice(setup: Any, topologies: Any) -> None:
    values = PState.migrated(int, "m", same)
    values = values.migrated(str, "m", same)  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, values))


@expect("The migration 'm' of '$$p' is of values.name, which is stored within another value.")
def field_of_a_record_that_is_one_row(setup: Any, topologies: Any) -> None:
    name = PState.migrated(str, "m", same)  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.fixed_keys_schema("name", name, "age", int)))


@expect("The migration 'm' of '$$p' is of values.elements, which is stored within another value.")
def elements_of_a_plain_list(setup: Any, topologies: Any) -> None:
    element = PState.migrated(str, "m", same)  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.list_schema(element)))


@expect("The migration 'm' of '$$p' is of values, whose elements are stored one by one.")
def values_that_become_subindexed(setup: Any, topologies: Any) -> None:
    values = MAP(str, int).subindexed()
    topologies.microbatch("mb").pstate("$$p", MAP(str, PState.migrated(values, "m", same)))  # <- fault


@expect("The migration 'm' of '$$p' is of values, whose elements are stored one by one.")
def migrated_values_that_are_subindexed(setup: Any, topologies: Any) -> None:
    values = PState.migrated(MAP(str, int), "m", same).subindexed()  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, values))


@expect("The migration 'm' of '$$p' is of the value, whose elements are stored one by one.")
def map_at_the_top(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", PState.migrated(MAP(str, int), "m", same))  # <- fault


@expect("The key type of a map is a plain type, not the schema str.")
def keys_of_a_map(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate("$$p", MAP(PState.migrated(str, "m", same), int))  # <- fault


@expect("The element type of a set is a plain type, not the schema str.")
def elements_of_a_set(setup: Any, topologies: Any) -> None:
    elements = PState.set_schema(PState.migrated(str, "m", same)).subindexed()  # <- fault
    topologies.microbatch("mb").pstate("$$p", MAP(str, elements))


@expect("The migration 'm' stands in a schema that is none of a stored PState.")
def schema_of_a_depot(setup: Any, topologies: Any) -> None:
    record = PState.migrated(str, "m", same)  # <- fault
    setup.declare_depot("*d", Depot.random()).schema(record)


@expect("The ID of a migration is a string that is not empty, not None.")
def depot_migration_without_an_id(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random()).migration(None, same)  # <- fault


@expect("5 is not a function.")
def depot_migration_without_a_function(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random()).migration("m", 5)  # <- fault


@expect("not 1.")
def depot_migration_of_two_records(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random()).migration("m", lambda a, b: a)  # <- fault


@expect("The depot '*d' has two migrations; the first at ")
def two_migrations_of_one_depot(setup: Any, topologies: Any) -> None:
    depot = setup.declare_depot("*d", Depot.random()).migration("m", same)
    depot.migration("n", same)  # <- fault


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_line_is_reported_when_a_migration_is_wrong(define: Define, text: str) -> None:
    assert_one_fault(define, text)


def several(setup: Any, topologies: Any) -> None:
    topologies.microbatch("mb").pstate(
        "$$p",
        PState.fixed_keys_schema(
            "a", PState.migrated(int, "", same),  # <- fault
            "b", MAP(str, PState.list_schema(PState.migrated(int, "m", same))),  # <- fault
            "c", PState.migrated(int, "m", 5),  # <- fault
        ),
    )  # fmt: skip


def test_all_faults_are_reported_at_once_when_several_migrations_are_wrong() -> None:
    assert sorted(fault.location for fault in faults_of(several)) == sorted(fault_places(several))


def every_place(setup: Any, topologies: Any) -> None:
    mb = topologies.microbatch("mb")
    mb.pstate("$$whole", PState.migrated(str, "m", same))
    mb.pstate("$$top", PState.fixed_keys_schema("a", PState.migrated(str, "m", same), "b", int))
    inner = PState.fixed_keys_schema(
        "name", str,
        "likes", MAP(str, PState.migrated(int, "m", same)).subindexed(),
        "log", PState.list_schema(PState.migrated(PState.list_schema(int), "m", Ops.IDENTITY)).subindexed(),
    )  # fmt: skip
    mb.pstate("$$nested", MAP(str, inner))
    mb.pstate("$$chain", MAP(str, PState.migrated(int, "m", same).migrated(str, "n", str)))


def test_no_fault_is_found_when_values_are_rows_of_their_own() -> None:
    assert faults_of(every_place) == []


def test_unpicklable_function_is_reported_at_its_line_when_the_module_is_launched() -> None:
    import threading

    from tidemill import DefinitionError, InProcessCluster, LaunchConfig, Module

    lock = threading.Lock()

    def locked(value: Any) -> Any:
        with lock:
            return value

    class Locked(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            values = PState.migrated(int, "m", locked)  # <- fault
            mb.pstate("$$p", MAP(str, values))
            rows = mb.source("*d").out("*m").explode_microbatch("*m").out("*k")
            rows.local_transform("$$p", Path.key("*k").term_val(1))

    (place,) = fault_places(Locked.define)
    with InProcessCluster.create() as cluster, pytest.raises(DefinitionError) as caught:
        cluster.launch_module(Locked(), LaunchConfig(1, 1))
    assert [fault.location for fault in caught.value.faults] == [place]
    assert "the migration 'm' cannot be sent to workers" in caught.value.faults[0].text
