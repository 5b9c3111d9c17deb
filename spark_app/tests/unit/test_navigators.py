"""Each navigator is declared once: `api.Path` records it, and its record says the rest to all that read paths."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path as File
from typing import Any

import pytest
from faulty import faults_of

from tidemill import Depot, Ops, Path, PState
from tidemill.client.paths import path_to_json
from tidemill.language.dataflow import Const, Function, Nav, RecordedPath
from tidemill.paths.arguments import PATHS
from tidemill.paths.compiled import compile_path
from tidemill.paths.json import path_from_json
from tidemill.paths.navigators import NAVIGATORS
from tidemill.values.errors import BadPath

ROOT = File(__file__).resolve().parents[3]
BUILDERS = sorted(name for name in vars(Path) if not name.startswith("_"))
LATER = sorted(name for name, navigator in NAVIGATORS.items() if navigator.steps is None)
HERE = [name for name in BUILDERS if name not in LATER]


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
    return Ops.TUPLE if parameter.name == "function" else 1


def test_each_builder_has_a_record_and_each_record_a_builder() -> None:
    assert sorted(NAVIGATORS) == BUILDERS
    assert all(navigator.name == name for name, navigator in NAVIGATORS.items())


@pytest.mark.parametrize("name", HERE)
def test_the_record_has_the_arguments_of_the_builder(name: str) -> None:
    nav, record = recorded(name), NAVIGATORS[name]

    for index, arg in enumerate(nav.args):
        kind = record.arguments.kind(index)
        assert kind == "function" if isinstance(arg, Function) else (kind in PATHS) is isinstance(arg, RecordedPath)
    assert {option for option, _ in nav.options} <= record.options
    least = len(record.arguments.kinds) - record.arguments.optional
    assert least == len(needed(name))


@pytest.mark.parametrize("name", HERE)
def test_json_reads_as_what_python_records(name: str) -> None:
    nav = recorded(name)
    if any(isinstance(arg, Function) for arg in nav.args) and not NAVIGATORS[name].arguments.more:
        nav = Nav(name, (Function("IS_NULL", "builtin", Ops.IS_NULL),))
    given = tuple((option, value) for option, value in nav.options if value is not None)
    path = RecordedPath((nav,))

    assert path_from_json(path_to_json(path)).path == RecordedPath((Nav(name, nav.args, given),))


@pytest.mark.parametrize("name", HERE)
def test_refused_when_an_argument_is_missing(name: str) -> None:
    if needed(name):
        mode: Any = "transform" if NAVIGATORS[name].terminal else "select"
        with pytest.raises(BadPath, match=f"{name} needs"):
            compile_path(RecordedPath((Nav(name),)), None, mode)


@pytest.mark.parametrize("name", [name for name in HERE if NAVIGATORS[name].arguments.more is None])
def test_refused_when_there_is_an_argument_too_many(name: str) -> None:
    nav = recorded(name)
    mode: Any = "transform" if NAVIGATORS[name].terminal else "select"
    many = (*nav.args, *[Const(1)] * (len(NAVIGATORS[name].arguments.kinds) + 1))
    with pytest.raises(BadPath, match=rf"{name} takes \d"):
        compile_path(RecordedPath((Nav(name, many, nav.options),)), None, mode)


@pytest.mark.parametrize("name", LATER)
def test_the_same_navigators_are_refused_in_topologies_as_for_clients(name: str) -> None:
    path = RecordedPath((Nav(name),))

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, list))
        chain = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*k")
        chain.local_select("$$p", Path(path.navs)).out("*v")

    assert [fault.text for fault in faults_of(define)] == [f"Path.{name}: not supported by this version of Tidemill."]
    with pytest.raises(BadPath, match=f"no navigator {name}"):
        compile_path(path, None, "select")
    with pytest.raises(BadPath, match="is not in this version"):
        path_from_json([[name]])


def test_the_reference_of_paths_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts/generate_paths.py"))["page"]()

    assert (ROOT / "docs/reference/paths.md").read_text(encoding="utf-8") == page
