"""The log and the timeline of a topology on the page: long ones, old moments, and attempts of which nothing counts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import watched
from axe_playwright_python.sync_playwright import Axe
from gateways import served
from playwright.sync_api import Page, expect
from shown import Shown

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module
from tidemill.gateway.modules import Modules
from tidemill.journal.options_log import OptionsLog
from tidemill.store.urls import open_store

MICROBATCHES = 270


@pytest.fixture(scope="module")
def long() -> Iterator[str]:
    """The page of a topology with more entries than the page is given at first."""
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(watched.Shop(), LaunchConfig(1, 1))
        OptionsLog(cluster.store, "Shop").set("module", "", "depot.microbatch.max.records", 1)
        cluster.cluster_depot("Shop", "*sales").append_many([["ann", "tea", 1]] * MICROBATCHES)
        cluster.wait_until_processed("Shop")
        with served(Modules(cluster.store)) as server:
            yield f"{server.url}/#/m/Shop/t/sum"


def test_every_entry_is_reached_when_the_log_is_long(page: Page, long: str) -> None:
    page.goto(long)
    log = page.get_by_label("Log", exact=True)
    rows = log.get_by_role("row")
    expect(rows).to_have_count(61)
    for count in (261, MICROBATCHES):
        page.get_by_role("button", name="Older entries").click()
        expect(rows.nth(count - 1)).to_be_visible()
    expect(log.get_by_role("button", name="1", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Older entries")).to_have_count(0)
    expect(page.get_by_text(re.compile("of the entries 1 to [0-9]+, which are all"))).to_be_visible()


def test_an_old_moment_is_shown_when_its_address_is_opened(page: Page, long: str) -> None:
    page.goto(f"{long}?entry=4")
    expect(page.get_by_role("heading", name=re.compile("^Entry 4: commit at"))).to_be_in_viewport()
    expect(page.get_by_text("commit ms", exact=True)).to_be_visible()
    page.goto(f"{long}?entry=100000")
    expect(page.get_by_text(re.compile("There is no entry 100,000: the newest one is"))).to_be_visible()


def test_the_log_says_so_when_it_was_trimmed(page: Page, long: str) -> None:
    page.route("**/log?*", lambda route: route.fulfill(json=[]))
    page.goto(f"{long}?entry=4")
    expect(page.get_by_text("Entry 4 is not kept any more: the log was trimmed.")).to_be_visible()
    page.get_by_role("button", name="Older entries").click()
    expect(page.get_by_text("older ones are not kept any more, the log was trimmed")).to_be_visible()
    expect(page.get_by_role("button", name="Older entries")).to_have_count(0)


def test_the_log_is_filtered_by_its_address_when_a_kind_is_chosen(page: Page, shop: Shown) -> None:
    shop.sales.append(["eve", "tea", 13])
    shop.go(page, "#/m/Shop/t/sum")
    events = page.get_by_label("Log", exact=True).get_by_role("row")
    expect(page.get_by_label("Log", exact=True).get_by_text("nobody pays 13").first).to_be_visible()
    page.get_by_label("Show entries").select_option("failures")
    expect(page).to_have_url(re.compile("[?&]log=failures"))
    watched.FLAG.touch()
    expect(page.locator("[data-state=running]")).to_be_visible()
    shown = events.all_inner_texts()[1:]
    assert shown and all("after" in text and "failure" in text for text in shown)
    events.nth(1).get_by_role("button").click()
    expect(page).to_have_url(re.compile("log=failures.*entry="))
    page.reload()
    expect(page.get_by_label("Show entries")).to_have_value("failures")
    expect(page.get_by_role("heading", name=re.compile("^Entry [0-9]+: begin at"))).to_be_visible()
    page.get_by_label("Show entries").select_option("claims")
    expect(events).to_have_count(2)
    expect(events.nth(1)).to_contain_text("A leader claimed it")
    page.get_by_label("Show entries").select_option("commits")
    expect(events.nth(1)).to_contain_text("Committed")
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


def test_a_failed_bar_is_as_high_as_its_attempt_was_long_when_that_is_known(page: Page, shop: Shown) -> None:
    shop.sales.append(["eve", "tea", 13])
    shop.go(page, "#/m/Shop/t/sum")
    bar = page.get_by_role("button", name=re.compile("Microbatch 2, version 1 failed in process after [0-9.]+ m?s"))
    expect(bar).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("Microbatch 2, version 3 failed"))).to_be_visible()
    watched.FLAG.touch()
    expect(page.locator("[data-state=running]")).to_be_visible()
    expect(bar).to_have_count(1)
    # Those behind it waited before they ran: nobody noted how long they took.
    expect(page.get_by_role("button", name=re.compile("Microbatch 2, version 2 failed in process$"))).to_have_count(1)


# --- killed ----------------------------------------------------------------------------------------------------------

SLOW = """
    from pathlib import Path
    from time import sleep
    from tidemill import Agg, Depot, Module, PState

    def slowly(record):
        while record == "slow" and not Path("mended").exists():
            Path("under way").touch()
            sleep(0.05)
        return record

    class Slow(Module):
        def define(self, setup, topologies):
            setup.declare_depot("*words", Depot.random())
            mb = topologies.microbatch("count")
            mb.pstate("$$n", int).global_().initial_value(0)
            (mb.source("*words").out("*batch").explode_microbatch("*batch").out("*word")
               .each(slowly, "*word").out("*done").global_partition().agg("$$n", Agg.count()))
"""


def run_slow(folder: Path) -> subprocess.Popen[bytes]:
    start = [sys.executable, "-c", "from tidemill.cli.main import app; app()", "run"]
    command = [*start, f"{folder}/slow.py:Slow", "--store", str(folder / "data")]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.timeout(240)
def test_a_killed_attempt_has_a_bar_of_its_own_when_the_next_leader_goes_on(page: Page, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    runners = [run_slow(tmp_path)]
    try:
        store = open_store(str(tmp_path / "data"))
        modules = Modules(store)
        with served(modules) as server:
            page.goto(f"{server.url}/#/")
            expect(page.get_by_role("row", name="Slow count")).to_contain_text("running", timeout=60_000)
            page.get_by_role("link", name="count").click()
            modules.module("Slow").depot("*words").append("slow")
            expect(page.get_by_text("1, version 1", exact=True)).to_be_visible(timeout=60_000)
            runners[0].send_signal(signal.SIGKILL)
            runners[0].wait()
            (tmp_path / "mended").touch()
            runners.append(run_slow(tmp_path))
            ended = page.get_by_role("button", name="Microbatch 1, version 1 ended with its leader")
            expect(ended).to_have_count(1, timeout=60_000)
            expect(ended.locator(".cross")).to_have_count(2)
            expect(page.get_by_role("button", name=re.compile("Microbatch 1, version 2: 1 records"))).to_be_visible()
            ended.click()
            expect(page.get_by_role("heading", name="Ended with its leader: microbatch 1, version 1")).to_be_visible()
            page.get_by_label("Show entries").select_option("failures")
            expect(page.get_by_label("Log", exact=True)).to_contain_text("microbatch 1/1 ended with its leader")
    finally:
        for process in runners:
            process.kill()
            process.wait()


# --- what a view says of a line --------------------------------------------------------------------------------------


def test_a_moment_says_its_day_when_it_is_not_of_today(page: Page, shop: Shown) -> None:
    shop.go(page, "#/")
    shown = """async (millis) => (await import("/page/parts.js")).when(millis)"""
    assert re.fullmatch(r"\d\d:\d\d:\d\d", page.evaluate(shown, page.evaluate("Date.now()")))
    assert re.fullmatch(
        r"\d\d/\d\d/\d{4}, \d\d:\d\d:\d\d", page.evaluate(shown, page.evaluate("Date.now() - 2 * 864e5"))
    )


class Mirror(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*theirs", "Shop", "*sales")
        setup.declare_depot("*own", Depot.random())
        setup.declare_tick_depot("*tick", 3_600_000)
        mb = topologies.microbatch("follow")
        mb.pstate("$$n", int).global_().initial_value(0)
        for depot in ("*theirs", "*own", "*tick"):
            (mb.source(depot).out("*batch").explode_microbatch("*batch").out("*record")
               .global_partition().agg("$$n", Agg.count()))  # fmt: skip


def test_sources_lead_to_the_depots_whose_records_are_here(page: Page, shop: Shown) -> None:
    shop.cluster.launch_module(Mirror(), LaunchConfig(1, 1))
    try:
        shop.go(page, "#/m/Mirror/t/follow")
        sources = page.get_by_label("Sources", exact=True)
        expect(sources.get_by_text("*theirs").first).to_be_visible()
        expect(sources.get_by_text("*tick").first).to_be_visible()
        expect(sources.get_by_role("link")).to_have_text(["*sales", "*own"])
        sources.get_by_role("link", name="*sales").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("*sales of Shop")
        shop.go(page, "#/m/Mirror/depots")
        row = page.get_by_label("Of other modules").locator("tbody tr")
        expect(row.get_by_role("cell")).to_have_text(["*theirs", "the depot *sales", "Shop", "follow"])
        row.get_by_role("link", name="Shop").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Shop")
    finally:
        shop.cluster.destroy_module("Mirror")


def test_a_failure_is_told_once_in_the_log_of_a_module_when_it_comes_again_and_again(page: Page, shop: Shown) -> None:
    shop.sales.append(["bob", "tea", 13])
    shop.go(page, "#/m/Shop/log?kind=failure")
    expect(page.get_by_text("failed in process, as above")).not_to_have_count(0)
    expect(page.get_by_text("nobody pays 13")).to_have_count(1)
