"""The command line in real processes: on a stopped and on a running module, and after `kill -9` of the runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from tidemill.cli.main import app

SECONDS = 30.0
ENVIRONMENT = {"TIDEMILL_STORE": "./store", "TIDEMILL_ENGINE": "local"}
MODULE = """
import os

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, Ops, PState


def check(word):
    if word == "poison" and not os.environ.get("IS_FIXED"):
        raise ValueError("cannot count this word")
    return word


class Words(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        setup.declare_depot("*rows", Depot.hash_by(lambda row: row["word"]))
        mb = topologies.microbatch("count")
        mb.pstate("$$counts", PState.map_schema(str, int))
        start = MicrobatchSourceOptions.start_from_beginning()
        (mb.source("*words", start).out("*microbatch")
           .explode_microbatch("*microbatch").out("*raw")
           .each(check, "*raw").out("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))
        (mb.source("*rows", start).out("*microbatch")
           .explode_microbatch("*microbatch").out("*row")
           .each(Ops.GET, "*row", "word").out("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))


class Faulty(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("count")
        mb.source("*nowhere").out("*m").explode_microbatch("*m").out("*w").each(Ops.IDENTITY, "*unbound").out("*x")
"""


class Shell:
    """Runs `tidemill` in a folder that holds `words.py` and a store.

    Runners are processes of their own. Other commands run in this process (a start costs most of a second), and in
    one of their own where a test says so; both see the runner through the store only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "words.py").write_text(MODULE)

    def start(self, *args: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from tidemill.cli.main import app; app()", *args],
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def run_alone(self, *args: str, given: str = "") -> str:
        """The output of a command in a process of its own."""
        out, err = self.start(*args).communicate(given, timeout=SECONDS)
        assert self.processes[-1].returncode == 0, err
        return out + err

    def run(self, *args: str, given: str = "", code: int = 0) -> Any:
        """The command's output, as JSON if it asked for it; `code` is the exit code that it must have."""
        result = CliRunner().invoke(app, args, input=given, env=ENVIRONMENT)
        assert result.exit_code == code, result.output
        return json.loads(result.output) if "--json" in args else result.output

    def start_runner(self, *more: str, **environment: str) -> subprocess.Popen[str]:
        runner = self.start("run", "words:Words", "--json", *more, **environment)
        threading.Thread(target=runner.stderr.read, daemon=True).start()  # type: ignore[union-attr]
        return runner

    def status(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.run("status", "--json")
        return rows[0]

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first status that meets the condition."""
        end, pace = time.monotonic() + SECONDS, threading.Event()
        while time.monotonic() < end:
            result = CliRunner().invoke(app, ["status", "--json"], env=ENVIRONMENT)
            rows = json.loads(result.output) if result.exit_code == 0 else []
            if rows and condition(rows[0]):
                return dict(rows[0])
            pace.wait(0.05)
        raise AssertionError(f"not in time: {result.output}")

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    yield from _in_its_folder(Shell(tmp_path), monkeypatch)


def _in_its_folder(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(shell.folder)
    monkeypatch.syspath_prepend(str(shell.folder))
    yield shell
    shell.close()
    sys.modules.pop("words", None)


def test_commands_answer_alike_when_the_module_runs_and_when_it_is_stopped(shell: Shell) -> None:
    runner = shell.start_runner()
    shell.until(lambda status: status["is_running"])
    shell.run_alone("append", "Words", "*words", "-", given='"a"\n"b"\n\n"a"\n')
    shell.until(lambda status: status["processed"] == 3 and status["waiting"] == 0)
    running = _answers(shell)
    shell.run_alone("pause", "Words", "count")
    assert shell.status()["state"] == "paused"
    assert "paused" in shell.run_alone("status")
    shell.run("append", "Words", "*words", "-", given='"a"\n')
    assert shell.status()["waiting"] == 1
    shell.run("resume", "Words", "count")
    shell.until(lambda status: status["processed"] == 4)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(SECONDS) == 0
    assert shell.status()["state"] == "stopped"
    assert running == [2, [2], 3]
    assert _answers(shell) == [3, [3], 4]
    shell.run("pause", "Words", "count")
    assert shell.status()["state"] == "stopped, paused"
    shell.run("resume", "Words", "count")
    kinds = [line["kind"] for line in shell.run("log", "Words", "count", "--json")]
    assert kinds[0] == "claim"
    assert kinds.count("commit") == 2


def _answers(shell: Shell) -> list[Any]:
    one = shell.run("select", "Words", "$$counts", '["a"]', "--one", "--json")
    several = shell.run("select", "Words", "$$counts", '[["pkey", "a"], "a"]', "--json")
    return [one, several, shell.status()["processed"]]


def test_every_record_counts_once_when_the_runner_is_killed(shell: Shell) -> None:
    lines = "".join(f'"{"abc"[i % 3]}{i % 7}"\n' for i in range(3000))
    runner = shell.start_runner()
    shell.until(lambda status: status["is_running"])
    shell.run("options", "set", "Words", "depot.microbatch.max.records", "40")
    for round_ in range(3):
        shell.run("append", "Words", "*words", "-", given=lines)
        shell.until(lambda status: status["processed"] > 3000 * round_)  # noqa: B023
        runner.kill()
        runner.wait(SECONDS)
        runner = shell.start_runner()
    shell.until(lambda status: status["processed"] == 9000 and status["waiting"] == 0)
    counts = [
        shell.run("select", "Words", "$$counts", f'["{a}{b}"]', "--one", "--json") for a in "abc" for b in range(7)
    ]
    assert sum(counts) == 9000
    expected = [sum(1 for i in range(3000) if i % 3 == a and i % 7 == b) * 3 for a in range(3) for b in range(7)]
    assert counts == expected
    assert "0 faults" in shell.run("check")


def test_a_second_runner_stands_by_when_one_leads_and_takes_over_when_it_is_killed(shell: Shell) -> None:
    leader = shell.start_runner()
    first = shell.until(lambda status: status["is_running"])["leader"]
    shell.start_runner()
    shell.run("append", "Words", "*words", "-", given='"a"\n')
    assert shell.until(lambda status: status["processed"] == 1)["leader"] == first
    leader.kill()
    shell.until(lambda status: status["is_running"] and status["leader"] != first)
    shell.run("append", "Words", "*words", "-", given='"a"\n')
    shell.until(lambda status: status["processed"] == 2)
    assert shell.run("select", "Words", "$$counts", '["a"]', "--one", "--json") == 2


def test_status_and_log_show_the_users_error_when_a_record_is_poison_until_fixed_code_runs(shell: Shell) -> None:
    runner = shell.start_runner()
    shell.until(lambda status: status["is_running"])
    shell.run("append", "Words", "*words", "-", given='"a"\n"poison"\n')
    failing = shell.until(lambda status: status["failure"])
    assert failing["processed"] == 0
    assert failing["failure"]["code"] == "UserCodeFailed"
    assert "cannot count this word" in failing["failure"]["message"]
    assert "in check" in failing["failure"]["trace"]
    assert "poison" in failing["failure"]["sample"]
    assert "cannot count this word" in shell.run("status")
    assert "in check" in shell.run("log", "Words", "count")
    runner.kill()
    runner.wait(SECONDS)
    fixed = shell.start("run", "words:Words", "--until-idle", IS_FIXED="yes")
    fixed.communicate(timeout=SECONDS)
    assert fixed.returncode == 0
    done = shell.status()
    assert (done["processed"], done["failure"], done["microbatch_id"]) == (2, None, 1)
    assert done["version"] >= 2


def test_files_are_appended_when_they_are_json_csv_or_parquet(shell: Shell) -> None:
    frame = pl.DataFrame({"word": ["x", "y", "x"], "n": [1, 2, 3]})
    frame.write_parquet(shell.folder / "rows.parquet")
    frame.write_csv(shell.folder / "rows.csv")
    (shell.folder / "rows.jsonl").write_text('{"word": "x", "n": 1}\n')
    assert shell.start("run", "words:Words", "--until-idle").wait(SECONDS) == 0
    for name, count in (("rows.parquet", 3), ("rows.csv", 3), ("rows.jsonl", 1)):
        done = shell.run("append", "Words", "*rows", name, "--module", "words:Words", "--json")
        assert done["appended"] == count
    assert shell.start("run", "words:Words", "--until-idle").wait(SECONDS) == 0
    assert shell.run("select", "Words", "$$counts", '["x"]', "--one", "--json") == 5
    files = shell.run("export", "Words", "$$counts", "--out", "out", "--json")["files"]
    exported = pl.read_parquet(shell.folder / files[0]["file"])
    assert dict(zip(exported["k0"], exported["value"], strict=True)) == {"x": 5, "y": 2}


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("append", "Words", "*rows", "-"), "--module MODULE:CLASS"),
        (("append", "Words", "*nothing", "-"), "*words"),
        (("append", "Nobody", "*words", "-"), "Words"),
        (("append", "Words", "*words", "absent.jsonl"), "absent.jsonl"),
        (("select", "Words", "$$counts", "[["), "not JSON"),
        (("select", "Words", "$$counts", '[["all"]]'), "partitions"),
        (("select", "Words", "$$counts", '["a", ["termVal", 1]]'), "term_val"),
        (("options", "set", "Words", "depot.max.fetsh", "1"), "depot.max.fetch"),
        (("options", "set", "Words", "depot.max.fetch", "0"), "1.."),
        (("log", "Words", "nothing"), "count"),
        (("describe", "words:Nothing"), "Nothing"),
        (("describe", "nowhere:Words"), "nowhere"),
        (("describe", "words:Faulty"), "*nowhere"),
        (("run", "words:Faulty"), "*unbound"),
        (("run", "words:Words", "--tasks", "3"), "power of two"),
        (("run", "words:Words", "--tasks", "8"), "tasks"),
    ],
)
def test_one_clear_sentence_is_printed_when_a_command_is_refused(
    stopped: Shell, args: tuple[str, ...], text: str
) -> None:
    said = stopped.run(*args, given='{"word": "a"}\n', code=1)
    assert said.startswith("Error: ") or "\nError: " in said
    assert text in said


@pytest.fixture(scope="module")
def stopped_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store whose module does not run."""
    shell = Shell(tmp_path_factory.mktemp("stopped"))
    assert shell.start("run", "words:Words", "--until-idle").wait(SECONDS) == 0
    shell.close()
    return shell.folder


@pytest.fixture
def stopped(stopped_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    yield from _in_its_folder(Shell(stopped_store), monkeypatch)


def test_describe_says_what_runs_by_columns_when_asked_for_the_plan(stopped: Shell) -> None:
    described = stopped.run("describe", "words:Words", "--plan", "--json")
    assert [depot["name"] for depot in described["depots"]] == ["*words", "*rows"]
    assert {segment["mode"] for segment in described["plan"]} <= {"columns", "rows"}
    assert all(segment["reason"] for segment in described["plan"])


def test_an_option_holds_and_says_where_it_matters_when_it_is_set_and_unset(stopped: Shell) -> None:
    name = "topology.microbatch.ack.branching.factor"
    stopped.run("options", "set", "Words", name, "8", "--topology", "count")
    assert stopped.run("options", "get", "Words", name, "--topology", "count", "--json")["value"] == 8
    assert stopped.run("options", "get", "Words", name, "--json")["value"] == 16
    assert "does not matter on the engine local" in stopped.run("options", "get", "Words", name)
    stopped.run("options", "unset", "Words", name, "--topology", "count")
    assert stopped.run("options", "get", "Words", name, "--topology", "count", "--json")["value"] == 16
    assert name in [option["name"] for option in stopped.run("options", "list", "Words", "--json")]


def test_errors_are_json_when_json_is_asked_for(stopped: Shell) -> None:
    said = stopped.run("select", "Words", "$$nothing", "[]", "--json", code=1)
    assert said["error"]["code"] == "UnknownName"


def test_check_finds_it_when_a_stored_object_is_damaged(shell: Shell) -> None:
    assert shell.start("run", "words:Words", "--until-idle").wait(SECONDS) == 0
    shell.run("append", "Words", "*words", "-", given='"a"\n')
    segment = next(shell.folder.glob("store/Words/depots/words-*/log/*.arrow"))
    segment.write_bytes(segment.read_bytes()[:-40])
    found = shell.run("check", "--json", code=4)
    assert [finding["module"] for finding in found["findings"]] == ["Words"] * len(found["findings"]) != []
