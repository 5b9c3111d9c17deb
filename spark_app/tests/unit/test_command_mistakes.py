"""The command line when it is used wrongly: a sentence and an exit code, and nothing left behind."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, PState
from tidemill.cli.commands import COMMANDS
from tidemill.cli.main import app
from tidemill.values.errors import InvariantViolation

PROGRAM = """
from tidemill import Depot, Module

class Visits(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*visits", Depot.random())
"""


class Names(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*names", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$kept", PState.map_schema(object, int))
        (mb.source("*names").out("*m").explode_microbatch("*m").out("*v").hash_partition("*v")
           .compound_agg("$$kept", CompoundAgg.map("*v", Agg.count())))  # fmt: skip


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit), done.exception
    return done.output


@pytest.fixture
def store(tmp_path: Folder) -> str:
    with InProcessCluster.create(engine="local", store=tmp_path / "store") as cluster:
        cluster.launch_module(Names(), LaunchConfig(1, 1))
    return str(tmp_path / "store")


@pytest.fixture
def program(tmp_path: Folder) -> str:
    (tmp_path / "program_of_visits.py").write_text(PROGRAM)
    return f"{tmp_path}/program_of_visits.py:Visits"


def test_a_sentence_is_said_when_a_file_lies_where_a_folder_is_needed(
    tmp_path: Folder, store: str, program: str
) -> None:
    (tmp_path / "file").touch()
    file = str(tmp_path / "file")
    for words in (("run", program, "--store", file), ("export", "Names", "kept", "--store", store, "--out", file)):
        assert "file: A folder is needed here" in refused(*words).replace("\n", "")


@pytest.mark.parametrize("wrong", [("nowhere_at_all:X",), ("PROGRAM", "--engine", "bogus")], ids=["module", "engine"])
def test_no_store_is_made_when_a_run_names_what_is_not_there(
    tmp_path: Folder, program: str, wrong: tuple[str, ...]
) -> None:
    refused("run", *(program if word == "PROGRAM" else word for word in wrong), "--store", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("flag", "name"), [("--depot", "*names"), ("--pstate", "$$kept")])
@pytest.mark.parametrize("has_sigil", [True, False])
def test_an_object_is_found_when_it_is_named_with_or_without_its_sigil(
    store: str, flag: str, name: str, has_sigil: bool
) -> None:
    given = name if has_sigil else name.lstrip("*$")
    edits = [["set", "7"], ["unset"]] if flag == "--depot" else []  # no option is of a PState
    for verb, *value in (*edits, ["get"]):
        words = ["options", verb, "Names", "depot.max.fetch", *value, flag, given, "--store", store]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output


def test_the_sigil_is_asked_for_when_an_update_deletes_a_name_without_it(tmp_path: Folder, store: str) -> None:
    (tmp_path / "program_of_names.py").write_text(PROGRAM.replace("Visits", "Names").replace("visits", "names"))
    program = f"{tmp_path}/program_of_names.py:Names"
    assert "Write it with its sigil: $$kept." in refused("update", program, "--delete", "kept", "--store", store)


def commands() -> Iterator[Any]:
    for entry in COMMANDS.values():
        found = entry.load()
        yield from (
            (inner.callback for inner in found.registered_commands) if isinstance(found, typer.Typer) else (found,)
        )


def test_no_word_of_the_help_is_taken_for_markup() -> None:
    texts = [inspect.getdoc(command) or "" for command in commands()]
    assert all(texts)
    for command in commands():
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            notes = getattr(parameter.annotation, "__metadata__", ())
            texts += [note.help for note in notes if getattr(note, "help", None)]
    assert len(texts) > 2 * len(COMMANDS), "the help of parameters was not found"
    assert [text for text in texts if re.search(r"\[[a-z@#/]", text)] == []


def test_the_stack_and_a_code_of_its_own_are_shown_when_a_command_meets_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise InvariantViolation("two and two are five")

    monkeypatch.setattr(typer.Typer, "__call__", fail)
    with pytest.raises(SystemExit) as ended:
        app()
    assert ended.value.code == 70
    assert "Traceback" in (said := capsys.readouterr().err)
    assert "two and two are five" in said


def test_a_name_of_an_emoji_stays_as_it_is_when_a_sentence_repeats_it(tmp_path: Folder) -> None:
    output = refused("status", "[red]:smile:", "--store", str(tmp_path))

    assert "[red]:smile:" in output
