"""Names and keys that look like parts of addresses and of HTML: links lead to them, and the page shows them as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from gateways import served
from playwright.sync_api import Page, expect

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.gateway.modules import Modules

HTML = "<img src=x onerror=document.title=1>"
NAME = f"a b%2F?x=1#&;'\"+{HTML}"
KEYS = [HTML, "</script>", b"\xff\x00", ("a", 1), float("nan"), None, "\u202eevil", "k" * 50_000, "é" * 500, 2**62]

HEAVY = (HTML, "</script>")


class Hostile(Module):
    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot(f"*{NAME}", Depot.random())
        mb = topologies.microbatch(NAME)
        mb.pstate(f"$${NAME}", PState.map_schema(PState.nullable(object), str))
        (mb.source(f"*{NAME}").out("*batch").explode_microbatch("*batch").out("*pair")
           .each(Ops.EXPAND, "*pair").out("*key", "*text").hash_partition("*key")
           .compound_agg(f"$${NAME}", CompoundAgg.map("*key", Agg.last("*text"))))  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Hostile(), LaunchConfig(4, 2))
        cluster.cluster_depot(NAME, f"*{NAME}").append_many(
            [[key, "text" * (5 if key in HEAVY else 1)] for key in KEYS]
        )
        cluster.wait_until_processed(NAME)
        with served(Modules(cluster.store)) as server:
            yield server.url


def test_links_lead_to_hostile_names_when_somebody_clicks_through_the_page(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("link", name=NAME).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(NAME)
    for view in ("Depots", "PStates"):
        page.get_by_role("link", name=view).first.click()
        page.get_by_role("main").get_by_role("table").get_by_role("link").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(NAME)
        expect(page.get_by_role("alert")).to_have_count(0)
        page.go_back()
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_heaviest_keys_are_text_when_they_look_like_html(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("link", name=NAME).first.click()
    page.get_by_role("link", name="PStates").first.click()
    page.get_by_role("main").get_by_role("table").get_by_role("link").first.click()
    page.get_by_role("heading", name="By task").click()
    rows = page.get_by_role("region", name="By task")
    expect(rows.get_by_role("row")).to_have_count(5)
    for key in HEAVY:
        expect(rows.get_by_text(key)).to_be_visible()
    assert len(rows.inner_text()) < 10_000
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_nothing_is_cut_off_when_names_are_long_and_the_window_is_narrow(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{url}/#/m/{quote(NAME, safe='')}/options")
    page.get_by_label("Set at").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
