from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tidemill.engine.superstep import SUPERSTEPS_MAX
from tidemill.model import options
from tidemill.model.errors import OptionError

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
        ("topology.on.record.error", "quarantine"),
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


def test_option_says_nothing_when_it_does_not_matter_on_an_engine() -> None:
    option = options.find_option("topology.microbatch.ack.branching.factor")
    assert option.meaning_on("local") == ""
    assert option.meaning_on("spark") == option.help


def test_options_that_the_engine_reads_are_in_the_registry() -> None:
    folder = Path(options.__file__).parent.parent
    texts = [path.read_text() for path in folder.rglob("*.py") if path.name != "options.py"]
    named = {name for text in texts for name in re.findall(r'"((?:topology|depot|worker|store)\.[a-z.]+)"', text)}
    assert named - set(options.OPTIONS) == set()
    assert options.resolve("topology.microbatch.superstep.limit", {}, "mb") == SUPERSTEPS_MAX
