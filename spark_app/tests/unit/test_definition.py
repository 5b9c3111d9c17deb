from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidemill.model import definition as definitions
from tidemill.model.dataflow import (
    DepotDeclaration,
    Location,
    ModuleDeclaration,
    PStateDeclaration,
    SourceDeclaration,
    StartFrom,
    TopologyDeclaration,
)
from tidemill.model.definition import is_widening
from tidemill.model.errors import DefinitionError
from tidemill.model.ids import Ids
from tidemill.model.schema import FixedKeysSchema, Leaf, MapSchema, Schema, SetSchema

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
    assert definitions.from_json(json.loads(json.dumps(definitions.to_json(OLD)))) == OLD


def test_definition_is_equal_when_it_went_through_json_with_all_that_it_deleted() -> None:
    big = module((depot(), depot("*e")), (pstate(),), sources=("*d", "*e"))
    other = TopologyDeclaration("other", (pstate(name="$$o"),), (), AT)
    first = definitions.launch(replace(big, topologies=(*big.topologies, other)), 4, 2, Ids(1))
    small = definitions.update(first, module((depot(),), ()), ["$$p", "$$o", "*e"], Ids(2))
    assert sorted(gone.name for gone in small.retired) == ["$$p", "*e", "*e", "other"]
    again = definitions.update(small, big, [], Ids(3), is_settled=True)
    assert [source.since for source in again.topology("mb").sources] == [0, 2]
    assert sorted(folder.split("-")[0] for folder in again.garbage) == ["M/depots/e", "M/topologies/other"]
    for definition in (small, again):
        assert definitions.from_json(json.loads(json.dumps(definitions.to_json(definition)))) == definition
    assert definitions.to_json(OLD).keys().isdisjoint({"retired", "garbage"}), "what has nothing to say is as before"


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
