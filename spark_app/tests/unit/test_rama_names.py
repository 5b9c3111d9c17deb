"""The table of Rama's names is up to date, what it names exists, and no public name is left out."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path as File
from types import ModuleType
from typing import Any

import pytest

import tidemill
from tidemill import Agg, Block, CompoundAgg, Helpers, MicrobatchSourceOptions, Ops, Path, TestPState

SCRIPT = File(__file__).resolve().parents[3] / "scripts/generate_rama_names.py"
OWN = {
    Block: {"sample", "faults", "nodes", "fields"},
    Ops: {"FLOOR_DIV", "MAX", "MIN", "MINUS_LONG", "MOD", "MUST_GET", "TIMES_LONG"},
    Agg: {"median"}, CompoundAgg: set(),
    Path: {"continuous_subseqs", "sublist_to_end", "cond_path", "continue_then_stay", "with_fresh_collected"},
    Helpers: set(), MicrobatchSourceOptions: {"create"}, TestPState: {"lend", "schema", "take"},
}  # fmt: skip
"""Names that Rama's Java API does not have."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_rama_names", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def test_page_is_what_the_code_says(script: ModuleType) -> None:
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run scripts/generate_rama_names.py"


def test_each_name_on_the_right_exists(script: ModuleType) -> None:
    shown = [
        row for group in script.GROUPS for row in script.rows(group) if row.here and row.rama not in script.INSTEAD
    ]

    assert len(shown) > 250
    assert [row.rama for row in shown if row.value is None] == []
    exported = {row.here.strip("`").partition(".")[0] for row in shown if "(" not in row.here}
    handles = {"depot", "pstate", "query", "schema", "MicrobatchTopology"}
    assert exported - handles - set(tidemill.__all__) == set()


def test_each_difference_is_of_a_name_that_is_listed(script: ModuleType) -> None:
    listed = {row.rama for group in script.GROUPS for row in script.rows(group)}

    assert {*script.DIFFERENCES, *script.HERE, *script.INSTEAD} - listed == set()


@pytest.mark.parametrize("kind", OWN, ids=[kind.__name__ for kind in OWN])
def test_each_public_name_of_a_class_is_listed(script: ModuleType, kind: Any) -> None:
    rows = [row for group in script.GROUPS for row in script.rows(group)]
    listed = {row.here.strip("`").rpartition(".")[2] for row in rows if row.here.startswith(f"`{kind.__name__}.")}
    public = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    named = {row.rama.rpartition(".")[2] for row in rows if not row.here}

    assert public - listed - {script.python_name(name) for name in named} - OWN[kind] == set()
