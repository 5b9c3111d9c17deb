"""Each aggregator is declared once: the code around the records asks them, and knows no aggregator by name."""

from __future__ import annotations

import ast
import keyword
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidemill
from tidemill import Agg
from tidemill.language.combiners import ACCUMULATORS, COMBINERS, RESULTS, Combiner, combiner_named
from tidemill.values.errors import InvariantViolation

SOURCES = Path(tidemill.__file__).parent
ASKING = [path for package in ("tables", "pstate", "plan", "engine") for path in (SOURCES / package).rglob("*.py")]
SHARED = {"first", "last", "list", "set", "map"}
"""Names of navigators and structures as well."""
NAMES = (COMBINERS.keys() | ACCUMULATORS.keys() | RESULTS.keys()) - SHARED


def names_in_choices(tree: ast.AST) -> Iterator[str]:
    """The names of aggregators that code compares with, or holds several of."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Compare, ast.Set, ast.Tuple, ast.List, ast.Dict)):
            keys = node.keys if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
            found = {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)} & NAMES
            if len(found) > 1 or isinstance(node, ast.Compare):
                yield from found


@pytest.mark.parametrize("path", ASKING, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_aggregator_is_chosen_by_name_when_code_is_read(path: Path) -> None:
    assert list(names_in_choices(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("text", ['x == "sum"', 'x in ("count", "sum")', 'y = {"min": 1, "max": 2}'])
def test_a_choice_is_noticed_when_it_is_there(text: str) -> None:
    assert list(names_in_choices(ast.parse(text)))


@pytest.mark.parametrize("name", [*COMBINERS, *ACCUMULATORS, "top_monotonic"])
def test_each_record_has_a_builder_when_a_user_looks_for_it(name: str) -> None:
    builder = getattr(Agg, f"{name}_" if keyword.iskeyword(name) else name)

    assert builder.__doc__


@pytest.mark.parametrize("name", COMBINERS)
def test_a_record_is_whole_when_it_is_declared(name: str) -> None:
    combiner = COMBINERS[name]

    assert combiner.name == combiner.key == name
    assert not combiner.is_stored or (combiner_named(name) is combiner and not combiner.has_finish)
    assert combiner.merged_by is None or combiner.merged_by in COMBINERS
    assert not combiner.rounds or combiner.is_sum


@pytest.mark.parametrize("stored_name", [None, "product"])
def test_a_record_is_refused_when_stored_operands_could_leave_their_schema(stored_name: str | None) -> None:
    def record(**traits: Any) -> Combiner:
        return Combiner("product", stored_name, lambda: 1, lambda value: value, operator.mul, **traits)

    assert record(is_closed=True).is_closed and record(is_sum=True).is_sum
    if stored_name is None:
        assert not record().is_stored
    else:
        with pytest.raises(InvariantViolation, match="stored operands stay in their schema"):
            record()
