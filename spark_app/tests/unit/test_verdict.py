"""`describe --against`: every reason at once, as the operator reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidemill import Depot, Module, Ops, PState
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.cli.verdict import Candidate, needs_code
from tidemill.definition import definition as definitions
from tidemill.journal.definition_log import DefinitionLog
from tidemill.store.urls import open_store
from tidemill.values.ids import Ids


class Shop(Module):
    """What the store holds."""

    pstates: dict[str, Any] = {"$$a": PState.map_schema(str, int), "$$b": PState.map_schema(str, int)}
    depots: tuple[str, ...] = ("*d",)
    partitioning: Any = Depot.random()

    def module_name(self) -> str:
        return "Shop"

    def define(self, setup: Any, topologies: Any) -> None:
        for depot in self.depots:
            setup.declare_depot(depot, self.partitioning)
        mb = topologies.microbatch("mb")
        for name, schema in self.pstates.items():
            mb.pstate(name, schema)
        mb.source("*d").out("*microbatch")


class Next(Shop):
    """One PState gone, one of another schema, a new depot."""

    pstates = {"$$a": PState.map_schema(str, str)}
    depots = ("*d", "*e")


class Added(Shop):
    """One PState more."""

    pstates = {**Shop.pstates, "$$added": PState.map_schema(str, int)}


class Hashed(Shop):
    """The same depot, hashed."""

    partitioning = Depot.hash_by(Ops.FIRST)


class Custom(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(lambda record: record))


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = tmp_path.as_uri()
    DefinitionLog(open_store(url), "Shop").append(definitions.launch(record_module(Shop()), 2, 1, Ids(1)))
    return url


def verdict(entry: str, store: str, tasks: int = 2, delete: tuple[str, ...] = (), conf: str = "") -> dict[str, Any]:
    return Candidate(f"test_verdict:{entry}", store, tasks, 1, delete, conf).verdict()


def test_module_may_lead_when_the_store_has_none(tmp_path: Path) -> None:
    found = verdict("Shop", tmp_path.as_uri())
    assert (found["is_valid"], found["base"], found["module"], found["faults"]) == (True, 0, "Shop", [])
    assert [p["name"] for p in found["definition"]["pstates"]] == ["$$a", "$$b"]


def test_every_name_is_in_snake_case_when_a_verdict_is_json(store: str) -> None:
    def names(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(names, value.values()))
        return set[str]().union(*map(names, value)) if isinstance(value, list) else set()

    assert [name for name in sorted(names(verdict("Shop", store))) if name != name.lower()] == []


def test_equal_module_may_follow_when_the_store_has_it(store: str) -> None:
    found = verdict("Shop", store)
    assert (found["is_valid"], found["base"]) == (True, 1)


def test_what_may_be_there_goes_only_if_it_is_when_a_rollback_names_it(store: str) -> None:
    assert verdict("Shop", store, delete=("$$added?",))["is_valid"]
    DefinitionLog(open_store(store), "Shop").append(
        definitions.update(DefinitionLog(open_store(store), "Shop").read(1), record_module(Added()), (), Ids(2))
    )
    assert not verdict("Shop", store)["is_valid"]
    found = verdict("Shop", store, delete=("$$added?", "$$other?"))
    assert (found["is_valid"], found["base"]) == (True, 2)


def test_all_reasons_are_told_at_once_when_an_update_can_not_be(store: str) -> None:
    found = verdict("Next", store, delete=("$$c",))
    assert (found["is_valid"], found["base"], found["definition"]) == (False, 1, None)
    assert sorted(fault["subject"] for fault in found["faults"]) == ["$$a", "$$b", "$$c"]


def test_change_of_tasks_is_refused_when_the_store_has_the_module(store: str) -> None:
    (fault,) = verdict("Shop", store, tasks=4)["faults"]
    assert (fault["subject"], fault["text"]) == ("tasks", "changes from 2 to 4.")


def test_setting_is_refused_beside_all_other_reasons_when_a_conf_is_given(store: str, tmp_path: Path) -> None:
    conf = tmp_path / "spark.json"
    conf.write_text(json.dumps({"conf": {"spark.speculation": "true"}}))
    subjects = [fault["subject"] for fault in verdict("Next", store, conf=str(conf))["faults"]]
    assert subjects == ["$$b", "$$a", "spark.conf"]


def test_gateway_needs_the_module_when_a_partitioner_is_its_own() -> None:
    own, stock = (definitions.launch(record_module(module), 2, 1, Ids(1)) for module in (Custom(), Shop()))
    assert (needs_code(own), needs_code(stock)) == (True, False)


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_exit_code_tells_a_refusal_when_nobody_asks_for_the_verdict_alone(store: str, words: list[str]) -> None:
    against = ["--against", store, "--tasks", "2", "--threads", "1", *words]
    run = CliRunner().invoke
    assert run(app, ["describe", "test_verdict:Shop", *against]).exit_code == 0
    refused = run(app, ["describe", "test_verdict:Next", *against])
    assert (refused.exit_code, "$$b" in refused.output) == (1, True)
    assert run(app, ["describe", "test_verdict:Next", *against, "--exit-zero"]).exit_code == 0


def test_change_of_a_partitioner_is_refused_when_the_store_has_records_by_the_old_one(store: str) -> None:
    (fault,) = verdict("Hashed", store)["faults"]
    assert (fault["subject"], fault["text"]) == ("*d", "changes its partitioner from random to hash_by(FIRST).")


def test_last_line_is_a_verdict_when_the_module_can_not_be_imported(tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text("import nothing_of_this_name\n")
    command = [str(Path(sys.executable).with_name("tidemill")), "describe", "broken_module:M", "--json", "--exit-zero"]
    done = subprocess.run(
        [*command, "--against", str(tmp_path / "store")], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "80"}, timeout=60, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, found["is_valid"]) == (0, False)
    assert "nothing_of_this_name" in found["faults"][0]["text"]
