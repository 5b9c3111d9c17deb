"""A real Chromium for tests of the page. Each test has a page of its own; what the page complains of fails the test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import watched
from gateways import served
from playwright.sync_api import Browser, Page, sync_playwright
from shown import SALES, Shown

from tidemill import InProcessCluster, LaunchConfig
from tidemill.api.declaration import record_module
from tidemill.gateway.modules import Modules

SCRIPT = Path(__file__).parents[3] / "scripts" / "chromium.sh"
# The sandbox needs rights that root in a container has not; the other flags keep Chromium from asking hosts of its own.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")  # while it is there, its event loop runs in this thread, where other tests run theirs
def chromium() -> Iterator[Browser]:
    found = subprocess.run(["sh", str(SCRIPT)], capture_output=True, text=True, check=True, timeout=280)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found.stdout.strip(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(20_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # What the gateway refuses is an answer, too; the browser notes each as a failure to load.
    page.on("console", lambda line: complaints.append(line.text) if _is_complaint(line.type, line.text) else None)
    yield page
    context.close()
    assert complaints == []


def _is_complaint(kind: str, text: str) -> bool:
    return kind in ("error", "warning") and not text.startswith("Failed to load resource")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    monkeypatch.setattr(watched, "FLAG", tmp_path / "mended")
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(watched.Shop(), LaunchConfig(4, 2))
        cluster.cluster_depot("Shop", "*sales").append_many(SALES)
        cluster.wait_until_processed("Shop")
        with served(Modules(cluster.store, declaration=record_module(watched.Shop()))) as server:
            yield Shown(cluster, server.url)
