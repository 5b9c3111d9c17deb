from __future__ import annotations

import json

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


def module(depots: tuple[DepotDeclaration, ...], pstates: tuple[PStateDeclaration, ...]) -> ModuleDeclaration:
    source = SourceDeclaration("*d", "*d", "*m", StartFrom("beginning"), (), AT)
    return ModuleDeclaration("M", depots, (TopologyDeclaration("mb", pstates, (source,), AT),))


def depot(name: str = "*d", **more: object) -> DepotDeclaration:
    return DepotDeclaration(name, "random", AT, **more)  # type: ignore[arg-type]


def pstate(schema: Schema = COUNTS, name: str = "$$p", **more: object) -> PStateDeclaration:
    return PStateDeclaration(name, schema, AT, **more)  # type: ignore[arg-type]


OLD = definitions.launch(module((depot(),), (pstate(initial_value=[1, b"2"]),)), 4, 2, Ids(1))


def test_definition_is_equal_when_it_went_through_json() -> None:
    assert definitions.from_json(json.loads(json.dumps(definitions.to_json(OLD)))) == OLD


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
