"""What the command line shows of records and messages: text, never what steers the terminal of who reads it."""

from __future__ import annotations

import io
import json
import unicodedata
from typing import Any

import pytest
from rich.live import Live
from typer.testing import CliRunner
from waiting import eventually

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module
from tidemill.cli.backup import _progress
from tidemill.cli.consoles import PlainConsole
from tidemill.cli.main import app as command
from tidemill.cli.output import say, show_line, show_table, to_json
from tidemill.leader.backup import Copied

EVIL = "a\x1b[2J\x1b]0;title\x9b2Jb"
SHOWN = "a␛[2J␛]0;title\N{REPLACEMENT CHARACTER}2Jb"


def test_signs_stand_for_control_characters_when_a_text_has_some(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    show_line(EVIL)
    show_table(EVIL, ["name"], [[EVIL]])
    out, err = capsys.readouterr()
    assert err == f"{SHOWN}\n" and out.count(SHOWN) == 3 and "\x1b" not in out


def test_wide_columns_share_the_width_when_several_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("", ["topology", "operators", "reason"], [["match", "apply " * 30, "no row can see what others wrote"]])
    lines = capsys.readouterr().out.splitlines()
    assert any("no row can see what others wrote" in line for line in lines) and len(lines) < 10


def test_names_are_shown_as_they_are_when_they_look_like_tags(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("M[/d]", ["a[b]", EVIL, "c[/e]"], [["[red]", 1, "[/x]"]])
    with _progress("saved") as tell:
        tell("M[/depots/d]-1/log/1.arrow", Copied(1, 9))
    out = capsys.readouterr().out
    assert all(name in out for name in ("M[/d]", "a[b]", SHOWN, "c[/e]", "[red]", "[/x]")) and "\x1b" not in out


def test_json_has_no_control_characters_and_the_same_value_when_it_is_printed() -> None:
    value = {"".join(map(chr, range(0xB0))): ["é\u2028", EVIL]}
    printed = to_json(value)
    assert json.loads(printed) == value
    assert not any(unicodedata.category(letter) == "Cc" for letter in printed) and "é" in printed


def test_styles_and_cursors_stay_when_the_console_is_a_terminal() -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, color_system="standard", width=80, highlight=False)
    console.print(EVIL, style="bold red", markup=False)
    assert file.getvalue() == f"\x1b[1;31m{SHOWN}\x1b[0m\n"
    with Live(console=console, auto_refresh=False) as live:
        live.update(EVIL, refresh=True)
    assert "\x1b[?25l" in file.getvalue() and "\x1b[2J" not in file.getvalue()


def fail(record: str) -> str:
    raise ValueError(record)


class Failing(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*texts", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$count", int).global_().initial_value(0)
        (mb.source("*texts").out("*batch").explode_microbatch("*batch").out("*text").each(fail, "*text").out("*never")
           .global_partition().agg("$$count", Agg.count()))  # fmt: skip


def test_a_record_steers_no_terminal_when_its_failure_is_shown() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Failing(), LaunchConfig(1, 1))
        cluster.cluster_depot("Failing", "*texts").append(EVIL)
        for args in (["status"], ["log", "Failing", "mb"]):
            said = ""

            def is_told(ask: tuple[str, ...] = (*args, "--store", cluster.store.url)) -> bool:
                nonlocal said
                said = CliRunner().invoke(command, ask).output
                return "␛]0;title" in said.replace("\n", "")

            eventually(is_told, 60)
            assert all(letter.isprintable() or letter in "\t\n" for letter in said)
