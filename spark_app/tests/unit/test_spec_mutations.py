"""Each mistake in the protocol that a simulation makes on purpose is also made in a model, and each model has it."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
SIMULATIONS = ROOT / "spark_app" / "tests" / "sim"
SPEC = ROOT / "docs" / "spec"
MODELLED = {
    "collects too early": ("CommitLog", "collected too early"),
    "forgets the previous state": ("CommitLog", "the previous state is forgotten"),
    "claim drops the attempt": ("CommitLog", "a claim drops the attempt"),
    "counts a retry twice": ("CommitLog", "a retry is counted twice"),
    "compaction not registered": ("CommitLog", "a compaction is not registered"),
    "collision not noticed": ("CommitLog", "a collision is not noticed"),
    "claim forgets appends": ("Publication", "a claim forgets appends"),
    "producer not known again": ("Publication", "a producer is not known again"),
    "another digest each time": ("Publication", "another digest each time"),
    "an entry leaves out what is not published": ("Publication", "an entry leaves out what is not published"),
    "claim forgets poison": ("Quarantine", "a claim forgets poison"),
    "retry not known again": ("Quarantine", "a retry is not known again"),
    "another record is left out": ("Quarantine", "another record is left out"),
    "settled records come back": ("Quarantine", "settled records come back"),
    "collection asks nobody": ("Mirrors", "collection asks nobody"),
    "a reader leaves no mark": ("Mirrors", "a reader leaves no mark"),
    "a reader counts as done": ("Mirrors", "a reader counts as done"),
}
DAMAGED_READS = {"quarrel", "bad disk", "parts", "entries", "options"}
"""Names of cases that make no mistake in the protocol."""


@pytest.fixture(scope="module")
def check_spec() -> ModuleType:
    described = importlib.util.spec_from_file_location("check_spec", ROOT / "scripts" / "check_spec.py")
    assert described is not None and described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules["check_spec"] = module  # its dataclass asks for it
    described.loader.exec_module(module)
    return module


def mistakes() -> set[str]:
    """The names of all cases of the simulations."""
    found = set()
    for path in SIMULATIONS.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "ids" and isinstance(node.value, ast.List):
                found |= {ast.literal_eval(each) for each in node.value.elts}
    return found


def test_each_mistake_of_a_simulation_is_made_in_a_model(check_spec: ModuleType) -> None:
    checked = {(run.model, run.mutation) for run in check_spec.RUNS if run.violates}
    assert mistakes() - DAMAGED_READS == set(MODELLED)
    assert set(MODELLED.values()) <= checked


def test_each_mutation_is_one_of_its_model_and_violates_what_is_checked(check_spec: ModuleType) -> None:
    for model in {run.model for run in check_spec.RUNS}:
        text = (SPEC / f"{model}.tla").read_text(encoding="utf-8")
        config = (SPEC / f"{model}.cfg").read_text(encoding="utf-8")
        runs = [run for run in check_spec.RUNS if run.model == model]
        assert [run.mutation for run in runs if not run.violates] == ["none"]
        assert {run.mutation for run in runs if run.violates} == set(re.findall(r'"([a-z]+ [a-z ]+)"', code_of(text)))
        checked = set(re.findall(r"\w+", config.split("INVARIANTS")[1].split("SYMMETRY")[0])) - {"PROPERTY"}
        assert {name for run in runs for name in run.violates} <= checked
        assert checked <= set(re.findall(r"^(\w+) ==", text, re.MULTILINE))


def code_of(text: str) -> str:
    """A model without its comments."""
    return re.sub(r"\(\*.*?\*\)|\\\*[^\n]*", "", text, flags=re.DOTALL)
