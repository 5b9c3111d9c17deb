"""A newcomer's first hour: `tidemill init`, then what the README of the project says, word by word, with the page open.

The runner is killed while the page is looked at; the module is changed, and its new result counts the past.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from waiting import eventually

LONG = 60_000
"""Milliseconds that the page may take, on a machine that is busy."""

BLOCKS = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


class Newcomer:
    """A folder and a shell. What `tidemill ui` opens in the browser is written into the file `opened`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "page-visits"
        self.opened = folder / "opened"
        self._shells: list[subprocess.Popen[str]] = []
        browser = folder / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" > {self.opened}\n')
        browser.chmod(0o755)
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("TIDEMILL")}
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._environment['PATH']}"
        self._environment["BROWSER"] = str(browser)

    def starts(self, commands: str, folder: Path | None = None) -> subprocess.Popen[str]:
        """A shell that does these commands, one after the other, and ends at the first that fails."""
        shell = subprocess.Popen(
            ["bash", "-e", "-c", commands], cwd=folder or self.project, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._shells.append(shell)
        return shell

    def pastes(self, commands: str, folder: Path | None = None) -> list[str]:
        """What the commands print; none may fail."""
        shell = self.starts(commands, folder)
        said, _ = shell.communicate(timeout=LONG / 1000)
        assert shell.returncode == 0, said
        return said.splitlines()

    def blocks(self) -> list[tuple[str, str]]:
        """What the README of the project has to paste, kind by kind."""
        return BLOCKS.findall((self.project / "README.md").read_text())

    def close(self) -> None:
        for shell in self._shells:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.communicate()


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    found = Newcomer(tmp_path)
    yield found
    found.close()


def leader_of(newcomer: Newcomer) -> int:
    """The process that leads the module; 0 if none does."""
    [row] = json.loads(newcomer.pastes("tidemill status --json")[-1])
    return int(re.sub(r".* process ", "", row["leader"] or "0"))


@pytest.mark.timeout(600)
def test_a_newcomer_sees_a_kill_on_the_page_and_a_changed_result_when_the_readme_is_pasted(
    page: Page, newcomer: Newcomer
) -> None:
    newcomer.pastes("tidemill init page-visits", newcomer.folder)
    (_, _), (_, first), (kind, change), (_, second) = newcomer.blocks()
    assert kind == "python"

    first = first[: first.index("kill %1")]  # they leave the page open, and the runner is killed below
    newcomer.starts(first)
    eventually(lambda: newcomer.opened.exists() and newcomer.opened.read_text().strip(), LONG / 1000)
    page.goto(newcomer.opened.read_text().strip())
    counted = page.get_by_role("row", name="PageVisits count")
    expect(counted).to_contain_text("running", timeout=LONG)
    expect(counted.get_by_role("cell").nth(5)).to_have_text("1", timeout=LONG)

    os.kill(leader_of(newcomer), signal.SIGKILL)
    expect(counted).to_contain_text("went without a word", timeout=LONG)

    module = newcomer.project / "page_visits" / "module.py"
    module.write_text(module.read_text() + change)
    said = newcomer.pastes(second)
    assert any("may lead" in line for line in said), said
    assert "1" in said, said
    expect(page.get_by_role("row", name="PageVisits pages").get_by_role("cell").nth(5)).to_have_text("1", timeout=LONG)
    assert newcomer.pastes('tidemill select PageVisits visits \'["ann", "/home"]\'')[-1] == "1"
