"""Each navigator is declared once: `api.Path` records it, and its record says the rest to all that read paths."""

from __future__ import annotations

import inspect
import runpy
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import pytest
from faulty import faults_of

from tidemill import Depot, Ops, Path, PState
from tidemill.client.paths import path_to_json
from tidemill.language.dataflow import Const, Function, Nav, RecordedPath
from tidemill.language.schema import Leaf
from tidemill.paths.arguments import PATHS
from tidemill.paths.budget import STEPS_MAX, Budget
from tidemill.paths.compiled import compile_path
from tidemill.paths.json import path_from_json
from tidemill.paths.navigators import NAVIGATORS
from tidemill.paths.nodes import RootValue
from tidemill.paths.schema_fit import SchemaFaults, stays, unknown
from tidemill.values.errors import BadInput, BadPath

ROOT = File(__file__).resolve().parents[3]
BUILDERS = sorted(name for name in vars(Path) if not name.startswith("_"))
IN_JSON = [name for name in BUILDERS if not NAVIGATORS[name].is_code]


class Everywhere:
    """A navigator of a user that stays."""

    def select(self, value: Any, next_: Any) -> Any:
        return next_(value)

    def transform(self, value: Any, next_: Any) -> Any:
        return next_(value)


def needed(name: str) -> list[inspect.Parameter]:
    """The parameters of the builder that have no default."""
    parameters = list(inspect.signature(vars(Path)[name].function).parameters.values())[1:]
    return [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]


def recorded(name: str) -> Nav:
    """The navigator with the fewest arguments; with two more where there may be any number."""
    parameters = inspect.signature(vars(Path)[name].function).parameters.values()
    more = [_guess(p) for p in parameters if p.kind is p.VAR_POSITIONAL] * 2
    path = getattr(Path, name)(*[_guess(p) for p in needed(name)], *more)
    assert path.faults == ()
    nav: Nav = path.path.navs[0]
    return nav


def _guess(parameter: inspect.Parameter) -> Any:
    if parameter.annotation == "Path":
        return Path.stay()
    if parameter.name == "navigator":
        return Everywhere()
    return Ops.TUPLE if "function" in parameter.name else 1


def test_each_builder_has_a_record_and_each_record_a_builder() -> None:
    assert sorted(NAVIGATORS) == BUILDERS
    assert all(navigator.name == name for name, navigator in NAVIGATORS.items())


@pytest.mark.parametrize("name", BUILDERS)
def test_the_record_has_the_arguments_of_the_builder(name: str) -> None:
    nav, record = recorded(name), NAVIGATORS[name]

    for index, arg in enumerate(nav.args):
        kind = record.arguments.kind(index)
        assert kind == "function" if isinstance(arg, Function) else (kind in PATHS) is isinstance(arg, RecordedPath)
    assert {option for option, _ in nav.options} <= record.options
    least = len(record.arguments.kinds) - record.arguments.optional
    assert least == len(needed(name))


@pytest.mark.parametrize("name", IN_JSON)
def test_json_reads_as_what_python_records(name: str) -> None:
    nav = recorded(name)
    if any(isinstance(arg, Function) for arg in nav.args) and not NAVIGATORS[name].arguments.more:
        nav = Nav(name, (Function("IS_NULL", "builtin", Ops.IS_NULL),))
    given = tuple((option, value) for option, value in nav.options if value is not None)
    path = RecordedPath((nav,))

    assert path_from_json(path_to_json(path)).path == RecordedPath((Nav(name, nav.args, given),))


@pytest.mark.parametrize("name", BUILDERS)
def test_refused_when_an_argument_is_missing(name: str) -> None:
    if needed(name):
        mode: Any = "transform" if NAVIGATORS[name].terminal else "select"
        with pytest.raises(BadPath, match=f"{name} needs"):
            compile_path(RecordedPath((Nav(name),)), None, mode)


@pytest.mark.parametrize("name", [name for name in BUILDERS if NAVIGATORS[name].arguments.more == ()])
def test_refused_when_there_is_an_argument_too_many(name: str) -> None:
    nav = recorded(name)
    mode: Any = "transform" if NAVIGATORS[name].terminal else "select"
    many = (*nav.args, *[Const(1)] * (len(NAVIGATORS[name].arguments.kinds) + 1))
    with pytest.raises(BadPath, match=rf"{name} takes \d"):
        compile_path(RecordedPath((Nav(name, many, nav.options),)), None, mode)


@pytest.mark.parametrize(
    ("nav", "text"),
    [
        (Nav("view", (Const(1),)), "view got Const.*argument 1"),
        (Nav("key", (RecordedPath(),)), "key got RecordedPath.*argument 1"),
        (Nav("with_page_size", (RecordedPath(), Const(1))), "with_page_size got RecordedPath.*argument 1"),
        (Nav("stay", (Function("INC", "builtin", Ops.INC),)), "stay got Function.*argument 1"),
        (Nav("map_key", ("a",)), "map_key got 'a'.*argument 1"),
    ],
)
def test_refused_when_an_argument_is_of_another_kind(nav: Nav, text: str) -> None:
    with pytest.raises(BadPath, match=text):
        compile_path(RecordedPath((nav,)), None, "select")


# --- what a record says ----------------------------------------------------------------------------------------------

NUMBERS, NAMES = PState.map_schema(str, int).subindexed(), PState.set_schema(str).subindexed()
WORDS = PState.list_schema(str)
ANYWHERE = ("view", "custom_nav", "custom_nav_builder")
"""They lead on from any value, by functions of users."""

PLAIN_NUMBERS, PLAIN_NAMES = (replace(structure.schema, subindexed=False) for structure in (NUMBERS, NAMES))
"""Parts of structures are taken out of them as plain values."""

AFTER: list[tuple[Path, Any, Any]] = [
    (Path.key("a"), NUMBERS, Leaf("int")), (Path.must("a"), NUMBERS, Leaf("int")), (Path.key(1), WORDS, Leaf("str")),
    (Path.map_vals(), NUMBERS, Leaf("int")), (Path.map_keys(), NUMBERS, Leaf("str")),
    (Path.map_key("a"), NUMBERS, Leaf("str")), (Path.sub_map("a"), NUMBERS, PLAIN_NUMBERS),
    (Path.all(), NAMES, Leaf("str")), (Path.all(), WORDS, Leaf("str")), (Path.all(), NUMBERS, Leaf("list")),
    (Path.subselect(Path.all()), NUMBERS, Leaf("list")),
    (Path.set_elem("a"), NAMES, Leaf("str")), (Path.void_set_elem(), NAMES, Leaf("str")),
    (Path.subset("a"), NAMES, PLAIN_NAMES), (Path.first(), WORDS, Leaf("str")), (Path.last(), WORDS, Leaf("str")),
    (Path.nth(0), WORDS, Leaf("str")), (Path.index(0), WORDS, Leaf("int")), (Path.indexed_vals(), WORDS, Leaf("list")),
    *((path, WORDS, Leaf("str")) for path in (Path.before_elem(), Path.after_elem(), Path.before_index(0))),
    *((path, WORDS, WORDS.schema) for path in (
        Path.sublist(0, 1), Path.sublist_to_end(1), Path.beginning(), Path.end(),
        Path.sublist_dynamic(Ops.SIZE, Ops.TUPLE), Path.filtered_list(Path.stop()),
        Path.continuous_subseqs(Ops.IS_NULL),
    )),
    (Path.view(Ops.SIZE), NUMBERS, None), (Path.stop(), NUMBERS, None),
    (Path.custom_nav(Everywhere()), WORDS, None),
    (Path.custom_nav_builder(Everywhere), WORDS, None),
    *((path, NUMBERS, PLAIN_NUMBERS) for path in (
        Path.sorted_map_range("a", "b"), Path.sorted_map_range_from("a"), Path.sorted_map_range_from_start(1),
        Path.sorted_map_range_to("a"), Path.sorted_map_range_to_end(1),
    )),
    *((path, NAMES, PLAIN_NAMES) for path in (
        Path.sorted_set_range("a", "b"), Path.sorted_set_range_from("a"), Path.sorted_set_range_from_start(1),
        Path.sorted_set_range_to("a"), Path.sorted_set_range_to_end(1),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("path", "start", "expected"), AFTER, ids=lambda value: repr(value)[:40])
def test_the_schema_after_a_navigator_is_known(path: Path, start: Any, expected: Any) -> None:
    (nav,) = path.path.navs
    found: list[str] = []
    faults = SchemaFaults("$$p", start.schema, lambda text, advice: found.append(text))

    assert NAVIGATORS[nav.name].after(faults, nav, start.schema) == expected
    assert found == []


@pytest.mark.parametrize("name", BUILDERS)
def test_a_navigator_that_needs_a_structure_says_so_when_it_meets_a_number(name: str) -> None:
    found: list[str] = []
    faults = SchemaFaults("$$p", Leaf("int"), lambda text, advice: found.append(text))
    after = NAVIGATORS[name].after(faults, recorded(name), Leaf("int"))

    needs = {path.path.navs[0].name for path, _, _ in AFTER} - {*ANYWHERE, "stop", "subselect"}
    assert [text.split("'")[0] for text in found] == ([f"{name} meets an int in "] if name in needs else [])
    assert (after == Leaf("int")) is NAVIGATORS[name].is_staying


LONG = list(range(4_000))
COSTLY: list[tuple[Any, Path]] = [
    *((LONG, path) for path in (
        Path.all(), Path.indexed_vals(), Path.sublist(0, 1), Path.sublist_to_end(1), Path.filtered_list(Path.stop()),
        Path.continuous_subseqs(Ops.IS_NULL), Path.sublist_dynamic(Ops.SIZE, lambda items, start: start),
        Path.view(Ops.SIZE), Path.filter_pred(Ops.IS_NOT_NULL), Path.transformed(Path.stop()),
        Path.is_collected(Ops.IS_NOT_NULL), Path.custom_nav(Everywhere()), Path.custom_nav_builder(Everywhere),
    )),
    *((dict.fromkeys(LONG), path) for path in (
        Path.map_vals(), Path.map_keys(), Path.sub_map(1), Path.sorted_map_range(1, 2),
        Path.sorted_map_range_from(1, 1), Path.sorted_map_range_to(1, 1), Path.sorted_map_range_from_start(1),
        Path.sorted_map_range_to_end(1),
    )),
    *((set(LONG), path) for path in (
        Path.subset(1), Path.sorted_set_range(1, 2), Path.sorted_set_range_from(1, 1), Path.sorted_set_range_to(1, 1),
        Path.sorted_set_range_from_start(1), Path.sorted_set_range_to_end(1),
    )),
]  # fmt: skip


def test_each_navigator_has_its_cases_when_its_record_has_a_rule_or_a_cost() -> None:
    """A rule of its own for schemas asks for a case in `AFTER`, looking through or copying for one in `COSTLY`."""
    ruled = {name for name, record in NAVIGATORS.items() if record.after not in (stays, unknown)}
    costly = {name for name, record in NAVIGATORS.items() if record.looks_through or record.copies}

    assert {path.path.navs[0].name for path, _, _ in AFTER} - {"view", "stop"} == ruled
    assert {path.path.navs[0].name for _, path in COSTLY} == costly - {"term"}  # which ends a transform


def outcome(path: Path, value: Any) -> Any:
    """What a path makes of a value: what is left, where that is nothing an empty place, or that it is refused."""
    whole = RootOf(value)
    try:
        if NAVIGATORS[path.path.navs[-1].name].terminal:
            compiled = compile_path(path.path, None, "transform")
            compiled.transform(
                whole, [argument.value for argument in compiled.arguments if isinstance(argument, Const)]
            )
            return whole.value or None
        compiled = compile_path(path.path, None, "select")
        return compiled.select(
            whole, [argument.value for argument in compiled.arguments if isinstance(argument, Const)]
        )
    except BadInput:
        return "refused"


class RootOf(RootValue):
    """A PState that is one plain value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def get_value(self) -> Any:
        return self.value

    def put_value(self, value: Any) -> None:
        self.value = value


COLLECTIONS = [
    case[:2] for case in AFTER
    if case[0].path.navs[0].name not in (*ANYWHERE, "stop") and case[0].path != Path.key(1).path
]  # fmt: skip
"""None is no list where a key leads, but a map."""


@pytest.mark.parametrize(("path", "start"), COLLECTIONS, ids=lambda value: repr(value)[:40])
def test_none_is_like_an_empty_collection_when_a_navigator_meets_it(path: Path, start: Any) -> None:
    empty: Any = {"map": {}, "set": set()}.get(repr(start)[:3], [])
    made = [Path.term_val(value) for value in (1, None, {"a": 1}, {"a"}, [1, 2], ["a", 1])]

    assert outcome(path, None) == outcome(path, empty)
    for terminal in [*made, Path.term_void(), Path.term(Ops.IDENTITY)]:
        ended = Path((*path.path.navs, *terminal.path.navs))
        assert outcome(ended, None) == outcome(ended, empty)


@pytest.mark.parametrize(("value", "path"), COSTLY, ids=lambda value: repr(value)[:40])
def test_a_navigator_that_looks_through_a_value_or_copies_it_costs_by_its_size(value: Any, path: Path) -> None:
    budget = Budget()
    compiled = compile_path(Path(path.path.navs).stop().path, None, "select", budget=budget)
    compiled.select(value, [argument.value for argument in compiled.arguments if isinstance(argument, Const)])

    assert STEPS_MAX - budget.steps >= len(LONG) // 8


@pytest.mark.parametrize("path", [Path.must("a", "b"), Path.key("a", "b"), Path.must("a").must("b")])
def test_keys_lead_into_each_other_when_a_navigator_has_several(path: Path) -> None:
    compiled = compile_path(path.path, None, "select")
    assert compiled.select({"a": {"b": 1}, "b": 2}, ["a", "b"]) == [1]


def test_indexes_lead_into_each_other_when_nth_has_several() -> None:
    compiled = compile_path(Path.nth(1, 0).path, None, "select")
    assert compiled.select([1, [2, 3]], [1, 0]) == [2]


@pytest.mark.parametrize("path", [Path.map_keys(), Path.map_key("a"), Path.set_elem("a"), Path.void_set_elem()])
def test_a_key_that_is_none_is_a_fault_when_a_terminal_writes_it(path: Path) -> None:
    is_set = "set" in path.path.navs[0].name

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, PState.set_schema(str) if is_set else PState.map_schema(str, int)))
        chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*k")
        chain.local_transform("$$p", Path(Path.key("*k").path.navs + path.term_val(None).path.navs))

    (fault,) = faults_of(define)
    assert "None is none" in fault.text


def test_the_reference_of_paths_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts/generate_paths.py"))["page"]()

    assert (ROOT / "docs/reference/paths.md").read_text(encoding="utf-8") == page
