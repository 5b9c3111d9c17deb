"""A mistake is reported at the user's own line, with the name that was meant."""

from __future__ import annotations

import inspect
import json
from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill import Agg, BadInput, Block, Depot, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.cli.loader import load_module


class Parsing(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        json.loads("{")  # <- here


class Short(Module):
    def define(self, setup: Any) -> None:  # type: ignore[override]  # the mistake that is tested
        pass


class Misspelled(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        topologies.microbatch("mb").source("*d").out("*m").filter("*m")  # <- here


def line_of(module: type[Module]) -> str:
    lines, first = inspect.getsourcelines(module)
    marked = [i for i, line in enumerate(lines) if "# <- here" in line or "define(self, setup: Any) " in line]
    return f"{__file__}:{first + marked[0]}"


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (Parsing, "define raised JSONDecodeError"),
        (Short, "takes 2 positional arguments but 3 were given"),
        (Misspelled, "define raised AttributeError: Block has no 'filter'. Did you mean Block.keep_true?"),
    ],
)
def test_fault_is_at_the_line_of_the_module_when_a_library_raised(module: type[Module], text: str) -> None:
    (fault,) = record_module(module()).faults
    assert fault.location == line_of(module)
    assert text in fault.text


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (Ops, "SUBTRACT", "Ops.MINUS"),
        (Agg, "average", "Agg.avg"),
        (Agg, "cuont", "Agg.count"),
        (Block, "hash_partiton", "Block.hash_partition"),
        (Block.each(Ops.INC, "*v"), "eech", "Block.each"),
        (Path.key("a"), "map_values", "Path.map_vals"),
        (PState, "mapschema", "PState.map_schema"),
        (Depot, "hashby", "Depot.hash_by"),
    ],
)
def test_name_that_was_meant_is_told_when_an_attribute_is_not_there(owner: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert f"has no '{name}'. Did you mean {meant}?" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "entry", "text"),
    [
        ("import tidemill\nclass Visits(tidemill.Module): pass\n", "Visit", "has no class 'Visit'; it has Visits."),
        ("x = 1\n", "Visit", "it has no class that derives from tidemill.Module"),
        ("import json\n\njson.loads('{')\n", "Visit", "{file}, line 3)"),
        ("x = 1\nimport nowhere_at_all\n", "Visit", "there is no Python module 'nowhere_at_all' ({file}, line 2)"),
    ],
)
def test_import_error_names_the_own_line_when_a_module_cannot_be_loaded(
    source: str, entry: str, text: str, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    file = tmp_path / f"loaded_{abs(hash(request.node.name))}.py"
    file.write_text(source)
    with pytest.raises(BadInput) as caught:
        load_module(f"{file}:{entry}")
    assert text.format(file=file) in str(caught.value)
