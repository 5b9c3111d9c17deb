"""Who leads and who waits to, on the page: real processes, a kill, and what the page says of it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import watched
from axe_playwright_python.sync_playwright import Axe
from gateways import served
from playwright.sync_api import Page, expect

from tidemill import InProcessCluster, LaunchConfig
from tidemill.gateway.modules import Modules
from tidemill.store.urls import open_store

START = [sys.executable, "-c", "from tidemill.cli.main import app; app()"]
LONG = 60_000


@contextmanager
def running(folder: Path) -> Iterator[Any]:
    """`start(*options)` starts one more runner of the shop; all are killed at the end."""
    made: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        command = [*START, "run", f"{watched.__file__}:Shop", "--store", str(folder), *options]
        made.append(subprocess.Popen(command, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return made[-1]

    try:
        yield start
    finally:
        for process in made:
            process.kill()
            process.wait()


def fact(page: Page, name: str) -> Any:
    """What the view of the topology says now under a name."""
    term = page.locator("dl.facts dt", has_text=re.compile(f"^{name}$")).first
    return term.locator("xpath=following-sibling::dd")


@pytest.mark.timeout(240)
def test_a_standby_is_told_and_leads_when_the_leader_is_killed(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(folder) as start:
        first = start()
        with served(Modules(open_store(str(folder)))) as server:
            page.goto(f"{server.url}/#/")
            expect(page.get_by_role("row", name="Shop sum")).to_contain_text("running", timeout=LONG)
            page.goto(f"{server.url}/#/m/Shop/t/sum")
            expect(fact(page, "Leader")).to_contain_text(f"process {first.pid}", timeout=LONG)
            expect(fact(page, "Standbys")).to_have_text("none", timeout=LONG)
            expect(fact(page, "Runs on")).to_contain_text("local", timeout=LONG)
            second = start()
            expect(fact(page, "Standbys")).to_contain_text(f"process {second.pid}", timeout=LONG)
            first.send_signal(signal.SIGKILL)
            first.wait()
            expect(fact(page, "Leader")).to_contain_text(f"process {second.pid}", timeout=LONG)
            expect(
                page.get_by_label("Log").get_by_role("row", name=re.compile("after the last entry of"))
            ).to_be_visible()
            second.send_signal(signal.SIGKILL)
            second.wait()
            told = page.get_by_label("Nobody leads")
            expect(told).to_contain_text(f"process {second.pid} led it and went without a word", timeout=LONG)
            axe = Axe().run(page)
            assert axe.violations_count == 0, axe.generate_report()
            page.goto(f"{server.url}/#/")
            expect(page.get_by_role("row", name="Shop sum")).to_contain_text("went without a word")


def test_a_leader_that_was_stopped_is_not_told_as_killed_when_nobody_leads(page: Page, tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=str(tmp_path)) as cluster:
        cluster.launch_module(watched.Shop(), LaunchConfig(1, 1))
    with served(Modules(open_store(str(tmp_path)))) as server:
        page.goto(f"{server.url}/#/m/Shop/t/sum")
        expect(page.get_by_label("Nobody leads")).to_contain_text("it was stopped")
