"""Who launched, updated and destroyed a module: each definition is signed, and the module's log says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidemill import Depot, InProcessCluster, LaunchConfig, Module
from tidemill.cli import module_log
from tidemill.cli.caller import caller
from tidemill.cli.main import app
from tidemill.clients import module_history
from tidemill.journal.options_log import OptionsLog

MODULE = """
from tidemill import Agg, CompoundAgg, Depot, Module, PState


class Signed(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        (mb.source("*d").out("*m").explode_microbatch("*m").out("*text").each(int, "*text").out("*n")
           .hash_partition("*text").compound_agg("$$p", CompoundAgg.map("*text", Agg.sum("*n"))))
"""


class Many(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        for name in ("one", "other", "third"):
            topologies.microbatch(name).source("*d").out("*m").explode_microbatch("*m").out("*v")


def test_all_lines_that_were_asked_for_come_when_they_are_more_than_one_look_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_history, "READ_MAX", 3)
    with InProcessCluster.create("local", store=tmp_path) as cluster:
        cluster.launch_module(Many(), LaunchConfig(1, 1))
        for value in range(60, 70):
            OptionsLog(cluster.store, "Many").set("module", "", "store.collection.period.seconds", value)
    store = str(tmp_path)
    lines = json.loads(told("log", "Many", "--store", store, "--json", "-n", "100").splitlines()[-1])
    assert [line["value"] for line in lines if line["kind"] == "option"] == list(range(60, 70))
    assert lines[0]["kind"] == "definition"
    assert len(json.loads(told("log", "Many", "--store", store, "--json", "-n", "5").splitlines()[-1])) == 5
    for most, words in ((1, "none of other and 1 more: name one"), (2, "none of third: name one")):
        monkeypatch.setattr(module_log, "LOGS_MAX", most)
        assert words in " ".join(told("log", "Many", "--store", store).split())


def told(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_the_log_of_a_module_says_who_did_what_when_commands_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "signed_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", "ann")
    store, entry = str(tmp_path / "data"), f"{tmp_path / 'signed_module.py'}:Signed"
    told("run", entry, "--until-idle", "--store", store)
    (tmp_path / "texts.jsonl").write_text('"no number"\n')
    told("append", "Signed", "d", "texts.jsonl", "--store", store)
    told("run", entry, "--until-idle", "--store", store, code=1)
    table = told("log", "Signed", "--store", store)
    assert all(word in table for word in ("claim", "begin 1/2, 1 record", "1/1 failed in process: UserCodeFailed"))
    told("options", "set", "Signed", "topology.on.record.error", "quarantine", "--store", store)
    (tmp_path / "texts.jsonl").write_text('"none"\n"neither"\n')
    told("append", "Signed", "d", "texts.jsonl", "--store", store)
    told("run", entry, "--until-idle", "--store", store)
    told("quarantine", "retry", "Signed", "mb", "0", "--store", store)
    told("quarantine", "drop", "Signed", "mb", "--all", "--store", store)
    decided = json.loads(told("log", "Signed", "--store", store, "--json").splitlines()[-1])
    assert [(line["action"], line["records"], line["by"]) for line in decided if line["kind"] == "decision"] == [
        ("retry", 1, caller()), ("drop", 2, caller()),
    ]  # fmt: skip
    table = told("log", "Signed", "--store", store)
    assert all(word in table for word in ("mb, decision 1", "drop 2 records in quarantine", caller()))
    told("update", entry, "--store", store)
    told("options", "set", "Signed", "depot.max.fetch", "7", "--store", store)
    told("destroy", "Signed", "--yes", "--store", store)

    lines: list[dict[str, Any]] = json.loads(told("log", "Signed", "--store", store, "--json").splitlines()[-1])
    kinds = [(line["kind"], line.get("is_destroyed"), line["by"]) for line in lines]
    me = caller()
    assert me.startswith("ann@")
    assert [entry for entry in kinds if entry[0] == "definition"] == [
        ("definition", False, me), ("definition", False, me), ("definition", True, me),
    ]  # fmt: skip
    assert ("option", None, me) in kinds
    table = told("log", "Signed", "--store", store)
    assert all(word in table for word in ("launched", "defined anew", "destroyed", "set depot.max.fetch = 7", me))
    assert "name one" in told("log", "Signed", "--follow", "--store", store, code=1)
    assert "There is no module 'Sigend'" in told("log", "Sigend", "--store", store, code=1)
