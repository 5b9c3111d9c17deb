"""`status --watch`, `log --follow`, and what a shell completes: in order, once, through a store that is away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path as Folder
from typing import Any

import pytest
from typer.testing import CliRunner
from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, PState
from tidemill.cli import completion, repeated_looks
from tidemill.cli.main import app
from tidemill.cli.repeated_looks import LogLook, StoreLook, looks
from tidemill.journal.clock import ManualClock, SystemClock
from tidemill.store.urls import open_store
from tidemill.values.errors import StoreUnavailable, UnknownName

COMMAND = (sys.executable, "-c", "from tidemill.cli.main import app; app()")


class Pages(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*views", Depot.random())
        mb = topologies.microbatch("count")
        mb.pstate("$$views", PState.map_schema(str, int))
        mb.pstate("$$hidden", PState.map_schema(str, int)).make_private()
        (mb.source("*views").out("*m").explode_microbatch("*m").out("*page").hash_partition("*page")
           .compound_agg("$$views", CompoundAgg.map("*page", Agg.count())))  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Folder) -> Iterator[InProcessCluster]:
    with InProcessCluster.create(store=tmp_path / "data") as made:
        made.launch_module(Pages(), LaunchConfig(2, 1))
        yield made


def view(cluster: InProcessCluster, page: str) -> None:
    cluster.cluster_depot("Pages", "*views").append(page)
    cluster.wait_until_processed("Pages")


class AwayNow:
    """A look that the store does not answer for a while."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look, self.is_away = look, False

    def __call__(self) -> Any:
        if self.is_away:
            self.is_away = False
            raise StoreUnavailable("it is away")
        return self.look()


# --- looks -----------------------------------------------------------------------------------------------------------


def test_each_entry_is_shown_once_and_in_order_when_the_store_was_away(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(repeated_looks, "LINES_AT_ONCE", 3)
    look = AwayNow(LogLook(cluster.store, "Pages", "count", 2))
    found = looks(look, 1.0, ManualClock())
    shown = [line["entry"] for line in next(found)]
    for page in "abcdef":
        view(cluster, page)
        look.is_away = True
        shown += [line["entry"] for line in next(found)]
    newest = LogLook(cluster.store, "Pages", "count", 1)()[0]["entry"]
    while shown[-1] < newest:
        shown += [line["entry"] for line in next(found)]

    assert shown == list(range(shown[0], newest + 1))
    assert capsys.readouterr().err.count("The store answers again.") == 6


def test_a_trouble_is_told_once_when_it_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([StoreUnavailable("away"), StoreUnavailable("away"), StoreUnavailable("away"), 7])

    def look() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert list(islice(looks(look, 1.0, ManualClock()), 1)) == [7]
    assert capsys.readouterr().err.count("does not answer") == 1


def test_a_look_waits_for_the_interval_when_nothing_is_new() -> None:
    clock = ManualClock()
    list(islice(looks(list, 2.0, clock), 4))

    assert clock.monotonic_ms() == 6_000


def test_what_was_deleted_meanwhile_is_told_when_a_log_is_followed(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look = LogLook(cluster.store, "Pages", "count", 5)
    seen = look()[-1]["entry"]
    view(cluster, "a")
    real = repeated_looks.lines_of
    monkeypatch.setattr(repeated_looks, "lines_of", lambda *given, **named: real(*given, **named)[1:])
    first = look()[0]["entry"]

    assert first == seen + 2
    assert f"Entries {seen + 1} to {seen + 1} were deleted" in capsys.readouterr().err


def test_the_log_begins_anew_when_its_module_was_made_anew(
    cluster: InProcessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    view(cluster, "a")
    look = LogLook(cluster.store, "Pages", "count", 1)
    look()
    cluster.destroy_module("Pages")
    with pytest.raises(UnknownName, match="destroyed"):
        look()
    cluster.launch_module(Pages(), LaunchConfig(2, 1))

    assert look()[0]["entry"] == 1
    assert "its log begins anew" in capsys.readouterr().err


def test_the_status_follows_modules_that_come_and_go_when_it_is_watched(cluster: InProcessCluster) -> None:
    look = StoreLook(cluster.store, "", SystemClock())
    assert [row.module for row in look()] == ["Pages"]
    view(cluster, "a")
    assert [row.processed for row in look()] == [1]
    cluster.destroy_module("Pages")

    assert look() == []
    with pytest.raises(UnknownName):
        StoreLook(cluster.store, "Pages", SystemClock())()


# --- as commands -----------------------------------------------------------------------------------------------------


def heeds_ctrl_c() -> None:
    """As in a terminal: who runs the tests in the background may have made all that they start ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def told_by(*arguments: str) -> tuple[subprocess.Popen[str], list[str]]:
    """A command that goes on, and the lines that it has said so far."""
    running = subprocess.Popen(
        (*COMMAND, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeds_ctrl_c
    )
    lines: list[str] = []

    def listen() -> None:
        assert running.stdout is not None
        with running.stdout:
            lines.extend(running.stdout)

    threading.Thread(target=listen, daemon=True).start()
    return running, lines


@pytest.mark.parametrize(
    "words", [("status", "Pages", "--watch", "--interval", "0.2"), ("log", "Pages", "count", "-f", "--json")]
)
def test_changes_are_lines_and_ctrl_c_ends_it_when_there_is_no_terminal(
    cluster: InProcessCluster, words: tuple[str, ...]
) -> None:
    running, lines = told_by(*words, "--store", str(cluster.store_url))
    try:
        eventually(lambda: len(lines) > 0, 60)
        view(cluster, "a")
        is_told = "1 processed" if words[0] == "status" else '"kind": "commit"'
        eventually(lambda: any(is_told in line for line in list(lines)), 60)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr is not None
        with running.stderr:
            assert "Traceback" not in running.stderr.read()
    finally:
        running.kill()
        running.wait()
    assert len(lines) == len(set(lines))


def test_a_table_is_drawn_in_place_when_there_is_a_terminal(cluster: InProcessCluster) -> None:
    screen, terminal = os.openpty()
    words = ("status", "--watch", "--store", str(cluster.store_url))
    running = subprocess.Popen(
        (*COMMAND, *words), stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm"},
        preexec_fn=heeds_ctrl_c,
    )  # fmt: skip
    os.close(terminal)
    told = b""
    try:
        while b"Ctrl-C ends this" not in told:
            told += os.read(screen, 4096)
        view(cluster, "a")
        begin = len(told)
        while b"1/1" not in told[begin:]:
            told += os.read(screen, 4096)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    finally:
        running.kill()
        running.wait()
        os.close(screen)
    assert b"\x1b[1A" in told  # the cursor goes up, over the table before


@pytest.mark.parametrize("interval", ["0", "0.1", "4000"])
def test_an_interval_is_refused_when_it_is_out_of_bounds(tmp_path: Folder, interval: str) -> None:
    done = CliRunner().invoke(app, ["status", "--watch", "--interval", interval, "--store", str(tmp_path)])

    assert done.exit_code == 2


# --- completion ------------------------------------------------------------------------------------------------------


def completed(*words: str, **variables: str) -> list[str]:
    """What bash offers for the last of these words."""
    line = {"COMP_WORDS": "\n".join(("tidemill", *words)), "COMP_CWORD": str(len(words))}
    asked = {**os.environ, **variables, **line, "_TIDEMILL_COMPLETE": "complete_bash"}
    program = "import sys; sys.argv[0] = 'tidemill'\nfrom tidemill.cli.main import app\napp(prog_name='tidemill')"
    done = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_commands_and_names_when_the_line_names_a_store(cluster: InProcessCluster) -> None:
    store = f"--store={cluster.store_url}"

    assert {"status", "drive"} & set(completed("")) == {"status"}  # the other one is the operator's
    assert completed(store, "select", "Pages", "") == ["views"]  # not the private one
    assert completed("log", "Pages", "c", TIDEMILL_STORE=str(cluster.store_url)) == ["count"]


class Line:
    """The context of a command whose line names this so far."""

    def __init__(self, **params: Any) -> None:
        self.params = params


def test_names_are_offered_when_they_fit_what_is_written(cluster: InProcessCluster) -> None:
    line: Any = Line(store=cluster.store_url, module="Pages")

    assert completion.modules(line, "P") == ["Pages"]
    assert completion.modules(line, "Q") == []
    assert completion.depots(line, "*v") == completion.depots(line, "") == ["views"]
    assert completion.queries(line, "") == []
    assert completion.options("depot.max.f") == ["depot.max.fetch"]


@pytest.mark.parametrize("url", ["/nowhere/at/all", "s3://", "ftp://x", "s3://b?endpoint=http://127.0.0.1:9"])
def test_nothing_is_offered_and_nothing_made_when_there_is_no_such_store(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "SECONDS_MAX", 0.1)
    line: Any = Line(store=url, module="Pages")

    assert completion.modules(line, "") == completion.pstates(line, "") == []
    assert not Folder("/nowhere").exists()


def test_nothing_is_offered_when_the_store_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(completion, "SECONDS_MAX", 0.01)
    monkeypatch.setattr(completion, "_modules", lambda url: ["late"] if answers.wait(60) else [])
    line: Any = Line(store="s3://bucket")

    assert completion.modules(line, "") == []
    answers.set()


def test_few_names_are_offered_when_a_store_has_many(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(tmp_path.as_uri())
    monkeypatch.setattr(completion, "_modules", lambda url: (f"M{number}" for number in range(10_000)))
    line: Any = Line(store=str(tmp_path))

    assert len(completion.modules(line, "M")) == completion.NAMES_MAX
