from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.engine.schedule import SUPERSTEPS_MAX
from tidemill.language import options
from tidemill.values.errors import OptionError

PACKAGE = Path(options.__file__).parent.parent
CONTRACT = {
    "depot.microbatch.max.records": 100_000,
    "depot.max.fetch": 10_000,
    "topology.microbatch.phase.timeout.seconds": 300,
    "topology.microbatch.empty.sleep.time.millis": 10_000,
    "topology.microbatch.pstate.flush.path.count": 100_000,
    "worker.combined.transfer.limit": 65_536,
    "topology.combiner.limit": 100_000,
    "topology.microbatch.ack.branching.factor": 16,
    "topology.microbatch.ack.delay.base.millis": 5,
    "topology.microbatch.ack.delay.step.millis": 5,
}


def test_defaults_are_those_of_the_contract_when_nothing_is_set() -> None:
    assert {name: options.resolve(name, {}, "x") for name in CONTRACT} == CONTRACT


def test_nearest_value_wins_when_set_on_object_and_module() -> None:
    name = "depot.max.fetch"
    values = options.with_value({}, "module", "", name, 5)
    assert options.resolve(name, values, "*d") == 5
    values = options.with_value(values, "depot", "*d", name, 7)
    assert (options.resolve(name, values, "*d"), options.resolve(name, values, "*e")) == (7, 5)
    assert options.resolve(name, options.with_value(values, "depot", "*d", name, None), "*d") == 5


def test_near_names_are_suggested_when_an_option_is_unknown() -> None:
    with pytest.raises(OptionError, match=r"depot\.max\.fetch"):
        options.find_option("depot.max.fetsch")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("depot.max.fetch", 0),
        ("depot.max.fetch", "ten"),
        ("depot.max.fetch", True),
        ("depot.max.fetch", 1.5),
        ("depot.max.fetch", float("nan")),
        ("depot.max.fetch", float("inf")),
        ("topology.microbatch.placement", "somewhere"),
        ("topology.on.record.error", "skip"),
        ("topology.microbatch.phase.timeout.seconds", -1),
    ],
)
def test_value_is_refused_when_it_does_not_fit(name: str, value: Any) -> None:
    with pytest.raises(OptionError):
        options.check_value(name, value)


@pytest.mark.parametrize(("scope", "target"), [("depot", "*d"), ("cluster", ""), ("module", "M"), ("topology", "")])
def test_place_is_refused_when_the_option_does_not_belong_there(scope: str, target: str) -> None:
    with pytest.raises(OptionError):
        options.check_scope("topology.combiner.limit", scope, target)


@pytest.mark.parametrize("engine", options.ENGINES)
@pytest.mark.parametrize("name", [name for name in CONTRACT if ".ack." in name])
def test_option_says_that_it_has_no_effect_on_any_engine_when_nothing_reads_it(name: str, engine: str) -> None:
    option = options.find_option(name)
    assert option.meaning_on(engine) == ""
    assert option.help.startswith("Accepted and without effect: ")


def texts_of_code(folder: Path = PACKAGE) -> Iterator[str]:
    """Texts that product code handles: no comments, no docstrings, which only speak of an option, and no constants that
    nobody asks for.
    """
    trees = [
        ast.parse(path.read_text())
        for path in folder.rglob("*.py")
        if path != Path(options.__file__) and "testing" not in path.parts
    ]
    asked = {name for tree in trees for node in ast.walk(tree) for name in _asked(node)}
    for tree in trees:
        dead = {id(node.value) for node in tree.body if _constant(node) and _constant(node) not in asked}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in dead:
                yield node.value


def _asked(node: ast.AST) -> Iterator[str]:
    """The names that a node reads."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr


def _constant(node: Any) -> str:
    """The name of a constant that a statement of a file makes of one text; empty for any other statement."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    is_text = isinstance(getattr(node, "value", None), ast.Constant)
    return target.id if is_text and isinstance(target, ast.Name) else ""


def test_a_constant_that_nobody_asks_for_reads_no_option(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('DEAD = "a.b"\nREAD: str = "c.d"\nOTHER = "e.f"\nprint(READ, "g.h")\n')
    (tmp_path / "two.py").write_text("import one\nprint(one.OTHER)\n")
    assert set(texts_of_code(tmp_path)) == {"c.d", "e.f", "g.h"}


def test_every_option_is_read_by_code_or_says_that_it_has_no_effect() -> None:
    read = set(texts_of_code()) & set(options.OPTIONS)
    silent = {name for name, option in options.OPTIONS.items() if option.meaning == options.NO_EFFECT}
    assert set(options.OPTIONS) - read - silent == set()
    assert not read & silent, "an option that is read has an effect"


def test_options_that_the_engine_reads_are_in_the_registry() -> None:
    named = {text for text in texts_of_code() if re.fullmatch(r"(?:topology|depot|worker|store)\.[a-z.]+", text)}
    assert len(named) > 10
    assert named - set(options.OPTIONS) == set()
    assert options.resolve("topology.microbatch.superstep.limit", {}, "mb") == SUPERSTEPS_MAX
