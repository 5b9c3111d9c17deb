"""Task graphs and Datasets on the page: a real Chromium over graphs that ran, failed, and go on while it looks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from gateways import served
from graph_executors import Count, Pass
from playwright.sync_api import Page, expect

from tidemill import KVDataset, TaskGraph, UserCodeError
from tidemill.gateway.modules import Modules
from tidemill.store.urls import open_store

ORDERS = pl.DataFrame({"customer": ["ann", "bob", "ann", "cid"] * 30, "price": range(120)})
PICTURES = os.environ.get("TIDEMILL_PICTURES")
VIEWS = (
    "#/graphs",
    "#/graphs/daily",
    "#/graphs/broken",
    "#/datasets",
    "#/datasets/daily-1",
    "#/datasets/daily-1?start=50",
)


class Bad(Pass):
    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Any:
        raise ValueError("no good")


def orders(store: str, id: str, executor: Any, **options: Any) -> TaskGraph:
    graph = TaskGraph(store, id=id, **options)
    source = graph.new_input_frames([ORDERS.slice(at, 20) for at in range(0, 120, 20)], 1)
    graph.new_blocking_node({0: source}, executor, 2, {0: "customer"}, kind=KVDataset, key="customer")
    graph.new_blocking_node({0: source}, Count("customer"), 1, {0: "customer"})
    return graph


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A page over a store in which one graph ended and one failed."""
    store = str(tmp_path / "data")
    orders(store, "daily", Pass()).run()
    with pytest.raises(UserCodeError):
        orders(store, "broken", Bad()).run()
    with served(Modules(open_store(store))) as server:
        yield server.url


def go(page: Page, url: str, view: str) -> None:
    page.goto("about:blank")
    page.goto(f"{url}/{view}")
    page.get_by_role("heading", level=1).wait_for()
    expect(page.get_by_text("Looking …")).to_have_count(0)


def test_a_graph_is_found_with_its_nodes_when_it_ran(page: Page, url: str) -> None:
    go(page, url, "#/")
    page.get_by_role("link", name="Graphs").click()
    expect(page.get_by_role("row", name="broken")).to_contain_text("no good")
    page.get_by_label("Search").fill("daily fin")
    expect(page.get_by_role("row", name="broken")).to_have_count(0)
    page.get_by_role("link", name="daily", exact=True).click()
    expect(page).to_have_title("daily · Graphs · Tidemill")
    drawn = page.get_by_label("Picture of the graph")
    expect(drawn.locator("g[data-box='1'] text.live")).to_have_text("done")
    expect(drawn.locator("text.live").filter(has_text="120")).to_have_count(2)
    node = page.get_by_label("Nodes").get_by_role("row", name="2: Count")
    expect(node.get_by_role("cell").nth(3)).to_have_text("3")
    if PICTURES:
        drawn.locator("svg").screenshot(path=str(Path(PICTURES) / "graph.png"))
    page.get_by_role("link", name="daily-1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("daily-1")


def test_a_failure_is_told_when_a_graph_failed(page: Page, url: str) -> None:
    go(page, url, "#/graphs/broken")
    expect(page.get_by_label("Why it failed")).to_contain_text("no good")
    expect(page.locator("[data-state=failed]")).to_be_visible()


def test_a_dataset_has_columns_and_rows_when_it_is_opened(page: Page, url: str) -> None:
    go(page, url, "#/datasets")
    page.get_by_role("link", name="daily-1").click()
    expect(page.get_by_label("Columns").get_by_role("row", name="price")).to_contain_text("Int64")
    rows = page.get_by_label("Rows").get_by_role("row")
    expect(rows).to_have_count(51)
    page.get_by_role("link", name="Later").click()
    expect(rows.nth(1).get_by_role("cell").first).to_have_text("50")
    assert "start=50" in page.url
    page.get_by_role("link", name="Later").click()
    expect(rows).to_have_count(21)
    expect(page.get_by_role("link", name="Later")).to_have_count(0)


def test_nodes_go_on_by_themselves_when_a_graph_runs(page: Page, tmp_path: Path) -> None:
    store, go_on = str(tmp_path / "data"), threading.Event()
    graph = orders(store, "long", Pass(), checkpoint_waves=1)
    graph.observe(lambda waves: None if waves.wave < 3 else _wait(go_on))
    running = threading.Thread(target=graph.run)
    running.start()
    try:
        with served(Modules(open_store(store))) as server:
            go(page, server.url, "#/graphs")
            expect(page.get_by_role("row", name="long")).to_contain_text("running or killed")
            page.get_by_role("link", name="long").click()
            box = page.get_by_label("Picture of the graph").locator("g[data-box='1'] text.live")
            expect(box).to_have_text("0/2 done")
            go_on.set()
            expect(box).to_have_text("done")
            expect(page.locator("[data-state=finished]")).to_be_visible()
    finally:
        go_on.set()
        running.join()


def _wait(go_on: threading.Event) -> None:
    go_on.wait(60)


def test_nothing_is_wrong_for_axe_narrow_windows_and_keys_when_graphs_are_shown(page: Page, url: str) -> None:
    for number, view in enumerate(VIEWS):
        page.emulate_media(color_scheme="dark" if number % 2 else "light", reduced_motion="reduce")
        go(page, url, view)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{view}: {found.generate_report()}"
    page.set_viewport_size({"width": 360, "height": 700})
    for view in VIEWS:
        go(page, url, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
    go(page, url, "#/graphs/daily")
    seen = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("document.activeElement.textContent || document.activeElement.getAttribute('aria-label')")
        )
    assert {"daily-1", "Size of the picture"} <= {text.strip() for text in seen}


def test_no_graphs_are_offered_when_the_gateway_serves_one_module(page: Page, tmp_path: Path) -> None:
    orders(str(tmp_path), "daily", Pass()).run()
    with served(Modules(open_store(str(tmp_path)), only="Shop")) as server:
        go(page, server.url, "#/")
        expect(page.get_by_role("link", name="Graphs")).to_have_count(0)
        go(page, server.url, "#/graphs")
        expect(page.get_by_role("alert")).to_contain_text("serves the module Shop only")
