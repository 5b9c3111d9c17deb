from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidemill.definition import definition as definitions
from tidemill.definition.difference import difference
from tidemill.definition.stored_json import JSON
from tidemill.language.dataflow import (
    DepotDeclaration,
    Function,
    Location,
    ModuleDeclaration,
    PStateDeclaration,
    SourceDeclaration,
    StartFrom,
    TopologyDeclaration,
)
from tidemill.language.operations import Ops
from tidemill.language.schema import FixedKeysSchema, Leaf, MapSchema, Schema, SetSchema
from tidemill.language.widening import is_widening
from tidemill.values.errors import DefinitionError
from tidemill.values.ids import Ids

AT = Location()
COUNTS = MapSchema("str", Leaf("int"))


def module(
    depots: tuple[DepotDeclaration, ...], pstates: tuple[PStateDeclaration, ...], sources: tuple[str, ...] = ("*d",)
) -> ModuleDeclaration:
    declared = tuple(SourceDeclaration(name, name, "*m", StartFrom("beginning"), (), AT) for name in sources)
    return ModuleDeclaration("M", depots, (TopologyDeclaration("mb", pstates, declared, AT),))


def depot(name: str = "*d", **more: object) -> DepotDeclaration:
    return DepotDeclaration(name, "random", AT, **more)  # type: ignore[arg-type]


def pstate(schema: Schema = COUNTS, name: str = "$$p", **more: object) -> PStateDeclaration:
    return PStateDeclaration(name, schema, AT, **more)  # type: ignore[arg-type]


OLD = definitions.launch(module((depot(),), (pstate(initial_value=[1, b"2"]),)), 4, 2, Ids(1))


def test_definition_is_equal_when_it_went_through_json() -> None:
    assert JSON.decode(JSON.encode(OLD, "M/definition/1"), "M/definition/1") == OLD


def test_definition_is_equal_when_it_went_through_json_with_all_that_it_deleted() -> None:
    big = module((depot(), depot("*e")), (pstate(),), sources=("*d", "*e"))
    other = TopologyDeclaration("other", (pstate(name="$$o"),), (), AT)
    first = definitions.launch(replace(big, topologies=(*big.topologies, other)), 4, 2, Ids(1))
    small = definitions.update(first, module((depot(),), ()), ["$$p", "$$o", "*e"], Ids(2))
    assert sorted(gone.name for gone in small.retired) == ["$$p", "*e", "*e", "other"]
    again = definitions.update(small, big, [], Ids(3), are_deletions_done=True)
    assert [source.since for source in again.topology("mb").sources] == [0, 2]
    assert sorted(folder.split("-")[0] for folder in again.garbage) == ["M/depots/e", "M/topologies/other"]
    for definition in (small, again):
        assert JSON.decode(JSON.encode(definition, "M/definition/1"), "M/definition/1") == definition


def test_source_that_is_declared_again_is_not_retired_any_more() -> None:
    both = module((depot(), depot("*e")), (), sources=("*d", "*e"))
    one = module((depot(), depot("*e")), (), sources=("*d",))
    first = definitions.launch(both, 4, 2, Ids(1))
    without = definitions.update(first, one, [], Ids(2))
    assert [gone.name for gone in without.retired] == ["*e"]
    assert definitions.update(without, both, [], Ids(3)).retired == ()
    back = definitions.update(without, both, [], Ids(3), restores=True)
    assert (back.retired, back.topology("mb").sources[1].since) == ((), 0)


def test_rollback_is_refused_when_a_schema_was_widened_before_it_was_deleted() -> None:
    wide = definitions.update(OLD, module((depot(),), (pstate(MapSchema("str", Leaf("object"))),)), [], Ids(2))
    without = definitions.update(wide, module((depot(),), ()), ["$$p"], Ids(3))
    with pytest.raises(DefinitionError, match="schema"):
        definitions.update(without, module((depot(),), (pstate(),)), [], Ids(4), restores=True)


def test_topology_comes_back_without_what_the_rollback_does_not_declare() -> None:
    first = definitions.launch(module((depot(),), (pstate(), pstate(name="$$q"))), 4, 2, Ids(1))
    without = definitions.update(first, replace(module((depot(),), ()), topologies=()), ["$$p", "$$q"], Ids(2))
    back = definitions.update(without, module((depot(),), (pstate(),)), [], Ids(3), restores=True)
    assert back.pstate("$$p") == (back.topology("mb"), first.pstate("$$p")[1])
    assert [(gone.name, gone.by, gone.topology) for gone in back.retired] == [("$$q", 1, first.topology("mb").id)]


def test_ids_stay_when_updated_and_are_new_when_added_again() -> None:
    without = definitions.update(OLD, module((depot(),), ()), ["$$p"], Ids(2))
    again = definitions.update(without, module((depot(),), (pstate(),)), [], Ids(3))
    assert again.depot("*d").id == OLD.depot("*d").id
    assert again.topology("mb").id == OLD.topology("mb").id
    assert again.pstate("$$p")[1].id != OLD.pstate("$$p")[1].id
    assert (again.tasks, again.threads, again.number) == (4, 2, OLD.number + 2)


def test_all_reasons_are_listed_when_an_update_breaks_several_rules() -> None:
    new = module((depot(tick_millis=5), depot("*e")), (pstate(MapSchema("int", Leaf("int")), is_global=True),))
    with pytest.raises(DefinitionError) as caught:
        definitions.update(OLD, new, ["*e", "*never"], Ids(2))
    text = str(caught.value)
    for reason in ("tick depot", "global", "schema", "*e", "*never"):
        assert reason in text
    assert len(caught.value.faults) == 5


def by_function(name: str = "f") -> Function:
    return Function(name, "function", len)


HASHED = {"partitioner": "hash_by", "function": Function("FIRST", "builtin", Ops.FIRST)}
OWN = {"partitioner": "hash_by", "function": by_function()}
BY_USER = {"partitioner": "hash_by", "fields": ("user",)}
CHOSEN = {"partitioner": "custom", "function": by_function()}
CLOSED = {"partitioner": "disallow"}


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ({}, HASHED, ("random", "hash_by(FIRST)")),
        (HASHED, {}, ("hash_by(FIRST)", "random")),
        (HASHED, OWN, ("hash_by(FIRST)", "hash_by(a function)")),
        (HASHED, BY_USER, ("hash_by(FIRST)", "hash_by('user')")),
        (BY_USER, {**BY_USER, "fields": ("user", "page")}, ("hash_by('user')", "hash_by('user', 'page')")),
        (OWN, CHOSEN, ("hash_by(a function)", "custom(a function)")),
        ({}, CLOSED, ("random", "disallow")),
        (OWN, {**OWN, "function": by_function("g")}, None),  # bodies are not stored, so nobody can tell
        ({**HASHED, "is_global": True}, {"is_global": True}, None),
    ],
)
def test_update_is_refused_when_it_changes_a_partitioner(
    before: dict[str, Any], after: dict[str, Any], texts: tuple[str, str] | None
) -> None:
    old, new = (definitions.launch(module((replace(depot(), **facts),), ()), 4, 2, Ids(1)) for facts in (before, after))
    declared = module((replace(depot(), **after),), ())
    if texts is None:
        definitions.update(old, declared, [], Ids(2))
        return
    with pytest.raises(DefinitionError) as caught:
        definitions.update(old, declared, [], Ids(2))
    assert f"*d: changes its partitioner from {texts[0]} to {texts[1]}." in str(caught.value)
    assert difference(old, new) == f"depot *d has the partitioner {texts[0]} in the store and {texts[1]} in the code"


@pytest.mark.parametrize(("before", "after"), [(None, by_function()), (by_function(), None)])
def test_update_is_refused_when_a_key_partitioner_comes_or_goes(before: Any, after: Any) -> None:
    old = definitions.launch(module((depot(),), (pstate(key_partitioner=before),)), 4, 2, Ids(1))
    with pytest.raises(DefinitionError, match=r"\$\$p: (gets a|loses its) key partitioner"):
        definitions.update(old, module((depot(),), (pstate(key_partitioner=after),)), [], Ids(2))


def test_difference_names_what_changed_when_the_names_are_the_same() -> None:
    later = MapSchema("str", Leaf("str"))
    declared = module((depot(tick_millis=5),), (pstate(later, is_private=True, initial_value=[1, b"2"]),), ("*d", "*e"))
    told = difference(OLD, definitions.launch(declared, 4, 2, Ids(1)))
    assert told == (
        "depot *d has the partitioner random in the store and a tick each 5 ms in the code; "
        "PState $$p has the schema map(str, int) in the store and map(str, str) in the code; "
        "PState $$p has readers: everybody in the store and the module only in the code; "
        "in topology mb the source *e is only in the code"
    )
    assert difference(OLD, replace(OLD, tasks=8)) == "it has 4 tasks, which never change, not 8"


@pytest.mark.parametrize("listed", [[], ["$$p", "*d"]])
def test_update_is_refused_when_the_deletions_are_not_listed_exactly(listed: list[str]) -> None:
    with pytest.raises(DefinitionError):
        definitions.update(OLD, module((depot(),), ()), listed, Ids(2))


@pytest.mark.parametrize(
    ("old", "new", "widens"),
    [
        (Leaf("int"), Leaf("object"), True),
        (Leaf("object"), Leaf("int"), False),
        (COUNTS, MapSchema("str", Leaf("object")), True),
        (COUNTS, MapSchema("object", Leaf("int")), False),
        (COUNTS, MapSchema("str", Leaf("int"), subindexed=True), False),
        (COUNTS, MapSchema("str", Leaf("int"), nullable=True), True),
        (MapSchema("str", Leaf("int"), nullable=True), COUNTS, False),
        (MapSchema("str", SetSchema("int")), MapSchema("str", SetSchema("int", nullable=True)), True),
        (MapSchema("str", SetSchema("int", nullable=True)), MapSchema("str", SetSchema("int")), False),
        (MapSchema("str", SetSchema("int", True)), MapSchema("str", SetSchema("int", True, nullable=True)), True),
        (MapSchema("str", SetSchema("int", True, nullable=True)), MapSchema("str", SetSchema("int", True)), False),
        (MapSchema("str", COUNTS), MapSchema("str", MapSchema("str", Leaf("int"), nullable=True)), True),
        (MapSchema("str", MapSchema("str", Leaf("int"), nullable=True)), MapSchema("str", COUNTS), False),
        (SetSchema("int"), Leaf("object"), True),
        (SetSchema("int", subindexed=True), Leaf("object"), False),
        (FixedKeysSchema((("a", Leaf("int")),)), FixedKeysSchema((("b", Leaf("str")), ("a", Leaf("int")))), True),
        (FixedKeysSchema((("a", Leaf("int")),)), FixedKeysSchema(()), False),
    ],
)
def test_schema_change_is_allowed_only_when_it_widens(old: Schema, new: Schema, widens: bool) -> None:
    assert is_widening(old, new) is widens


@pytest.mark.parametrize(("tasks", "threads"), [(3, 1), (4, 8), (0, 0), (4, 3)])
def test_launch_is_refused_when_the_size_is_impossible(tasks: int, threads: int) -> None:
    with pytest.raises(DefinitionError):
        definitions.launch(module((depot(),), ()), tasks, threads, Ids(1))
