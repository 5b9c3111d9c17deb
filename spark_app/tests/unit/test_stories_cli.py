"""A story of the command line: a module, records from three kinds of files, and a look at everything."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest

MODULE = """
from tidemill import Agg, CompoundAgg, Depot, Module, Ops, PState


class Words(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        setup.declare_depot("*people", Depot.hash_by("name"))
        mb = topologies.microbatch("mb")
        mb.pstate("$$lengths", PState.map_schema(str, PState.map_schema(int, int).subindexed()))
        mb.pstate("$$ages", PState.map_schema(str, int))
        (mb.source("*words").out("*m").explode_microbatch("*m").out("*w").each(Ops.SIZE, "*w").out("*n")
           .compound_agg("$$lengths", CompoundAgg.map("*w", CompoundAgg.map("*n", Agg.count()))))
        (mb.source("*people").out("*m").explode_microbatch("*m").out("*p")
           .each(Ops.GET, "*p", "name").out("*name").each(Ops.GET, "*p", "age").out("*age")
           .hash_partition("*name").compound_agg("$$ages", CompoundAgg.map("*name", Agg.sum("*age"))))
"""


class Shell:
    """A folder with a module in it, and the command as a person calls it there."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        (folder / "words.py").write_text(MODULE)
        self._environment = os.environ | {"TIDEMILL_STORE": "./store", "TIDEMILL_ENGINE": "local"}
        self._command = str(Folder(sys.executable).with_name("tidemill"))

    def __call__(self, *words: str, text: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [self._command, *words], cwd=self.folder, env=self._environment, input=text, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def json(self, *words: str, text: str = "") -> Any:
        return json.loads(self(*words, "--json", text=text).splitlines()[-1])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A store on which the module ran, and which has five people and three words."""
    shell = Shell(tmp_path_factory.mktemp("story"))
    shell("run", "words:Words", "--tasks", "4", "--threads", "2", "--until-idle", "--json")
    (shell.folder / "words.jsonl").write_text('"a"\n"bb"\n"a"\n')
    (shell.folder / "people.csv").write_text("name,age\nann,3\nbob,4\n")
    pl.DataFrame({"name": ["ann", "eve"], "age": [10, 20]}).write_parquet(shell.folder / "people.parquet")
    assert shell.json("append", "Words", "*words", "words.jsonl")["appended"] == 3
    assert shell.json("append", "Words", "*people", "people.csv")["appended"] == 2
    assert shell.json("append", "Words", "*people", "people.parquet")["appended"] == 2
    assert shell.json("append", "Words", "*people", "-", text='{"name": "zed", "age": 1}\n')["appended"] == 1
    assert shell.json("run", "words:Words", "--until-idle")["processed"] == 8
    return shell


@pytest.mark.parametrize(
    ("pstate", "path", "expected"),
    [
        ("$$lengths", '["a", ["all"]]', [[1, 2]]),
        ("$$lengths", '[["key", "a"], "#__L1"]', [2]),
        ("$$lengths", '["a", ["sortedMapRange", 0, 1, {"inclusive-end?": true}], ["mapVals"]]', [2]),
        ("$$lengths", '["bb", ["mapKeys"], ["filterPred", "#__fOps.IS_EVEN"]]', [2]),
        ("$$ages", '[["pkey", "ann"], ["must", "ann"]]', [13]),
        ("$$ages", '["nobody"]', [None]),
        ("$$ages", '[["must", "nobody"]]', []),
    ],
)
def test_paths_of_the_rest_form_select_what_they_say(shell: Shell, pstate: str, path: str, expected: list[Any]) -> None:
    assert shell.json("select", "Words", pstate, path) == expected


def test_a_stopped_module_answers_everything(shell: Shell) -> None:
    assert shell.json("select", "Words", "$$ages", '["zed"]', "--one") == 1
    [status] = shell.json("status")
    assert (status["module"], status["topology"], status["processed"]) == ("Words", "mb", 8)
    kinds = [entry["kind"] for entry in shell.json("log", "Words", "mb")]
    assert kinds[0] == "claim"
    assert kinds[-1] == "commit"
    assert shell.json("check") == {"modules": ["Words"], "datasets": 0, "findings": []}
    assert "0 faults" in shell("check", "Words")
    [file] = shell.json("export", "Words", "$$ages", "--out", "out")["files"]
    exported = pl.read_parquet(shell.folder / file["file"])
    assert sorted(row[1:] for row in exported.rows()) == [("ann", 13), ("bob", 4), ("eve", 20), ("zed", 1)]


def test_options_and_pauses_are_kept_when_nothing_runs(shell: Shell) -> None:
    name = "depot.microbatch.max.records"
    assert shell.json("options", "set", "Words", name, "7", "--depot", "*words")["value"] == 7
    assert "*words=7" in shell("options", "get", "Words", name)
    assert shell.json("options", "get", "Words", name, "--depot", "*words")["value"] == 7
    shell("options", "unset", "Words", name, "--depot", "*words")
    assert shell.json("options", "get", "Words", name, "--depot", "*words")["value"] == 100_000
    assert name in [row["name"] for row in shell.json("options", "list")]
    assert shell.json("pause", "Words", "mb")["state"] == "paused"
    assert shell.json("status")[0]["is_paused"] is True
    assert shell.json("resume", "Words", "mb")["state"] == "resumed"


def test_mistakes_are_named_and_fail(shell: Shell) -> None:
    assert "*words" in shell("append", "Words", "*word", "words.jsonl", code=1)
    assert "whole" in shell("select", "Words", "$$lengths", '["a"]', code=1)
    assert "1..100000000 records" in shell("options", "set", "Words", "depot.max.fetch", "0", code=1)
    error = json.loads(shell("select", "Nope", "$$x", "[]", "--json", code=1).splitlines()[-1])
    assert "Words" in error["error"]["message"]


def test_the_command_runs_when_python_runs_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tidemill", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tidemill", run_name="__main__")
    assert ended.value.code in (None, 0) and capsys.readouterr().out.startswith("tidemill ")
