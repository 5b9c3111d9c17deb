"""The page as people use it: a real Chromium, a real gateway, a module that runs, fails, and is killed.

With `TIDEMILL_PICTURES=FOLDER` the tests write the pictures of the documentation there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import watched
from axe_playwright_python.sync_playwright import Axe
from gateways import served
from playwright.sync_api import Locator, Page, expect
from shown import SALES, Shown

from tidemill import InProcessCluster, LaunchConfig
from tidemill import Path as At
from tidemill.api.declaration import record_module
from tidemill.definition.definition import launch
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.store.urls import open_store
from tidemill.values.ids import Ids

PICTURES = os.environ.get("TIDEMILL_PICTURES")
VIEWS = (
    "#/", "#/m/Shop", "#/m/Shop/depots", "#/m/Shop/pstates", "#/m/Shop/queries", "#/m/Shop/options", "#/m/Shop/log",
    "#/m/Shop/t/sum", "#/m/Shop/d/sales?partition=0", '#/m/Shop/p/sales?path=["ann", ["all"]]', "#/m/Shop/q/spent",
)  # fmt: skip


WITHOUT_FOLDERS = """(folder) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "");
}"""


def picture(page: Page | Locator, name: str) -> None:
    """For the documentation, which names no folder of the machine that took it."""
    if PICTURES:
        where = page if isinstance(page, Page) else page.page
        where.evaluate(WITHOUT_FOLDERS, f"{Path(watched.__file__).parent}/")
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"))


# --- looking ---------------------------------------------------------------------------------------------------------


def test_the_overview_goes_on_by_itself_when_records_come(page: Page, shop: Shown) -> None:
    shop.go(page, "#/")
    row = page.get_by_role("row", name="Shop sum")
    expect(row).to_contain_text("running")
    expect(row.get_by_role("cell").nth(5)).to_have_text("3")
    shop.sales.append_many(SALES)
    expect(row.get_by_role("cell").nth(5)).to_have_text("6")
    picture(page, "overview")
    page.get_by_label("Search").fill("nothing such")
    expect(page.get_by_text("None fits.")).to_be_visible()
    page.get_by_label("Search").fill("shop run")
    page.get_by_role("link", name="sum").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sum of Shop")
    expect(page).to_have_title("sum · Shop · Tidemill")


def test_the_topologies_of_a_module_go_on_by_themselves_when_records_come(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop")
    row = page.get_by_label("Topologies").get_by_role("row", name="sum")
    expect(row.get_by_role("cell").nth(3)).to_have_text("3")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    shop.sales.append_many(SALES)
    expect(row.get_by_role("cell").nth(3)).to_have_text("6")
    shop.cluster.destroy_module("Shop")
    expect(page.get_by_role("alert")).to_contain_text("UnknownName")


def test_options_are_shown_when_somebody_else_sets_them(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/options")
    field = page.get_by_label("depot.microbatch.max.records")
    expect(field).to_have_value("")
    OptionsLog(shop.cluster.store, "Shop", by="ann").set("module", "", "depot.microbatch.max.records", 7)
    expect(field).to_have_value("7")
    expect(page.get_by_label("Changes of options").get_by_role("row", name="1 Set")).to_contain_text("ann")


def test_the_log_of_a_module_goes_on_by_itself_when_something_happens(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/log")
    rows = page.get_by_label("Log of the module").get_by_role("row")
    expect(rows.last).to_contain_text("Launched: 1 topology, 1 depot, 1 query")
    OptionsLog(shop.cluster.store, "Shop", by="ann").set("topology", "sum", "topology.on.record.error", "retry")
    expect(rows.nth(1)).to_contain_text("Set topology.on.record.error to retry at topology sum")
    expect(rows.nth(1)).to_contain_text("ann")
    shop.sales.append(["eve", "tea", 13])
    expect(page.get_by_text(re.compile(r"failed in process: .*nobody pays 13")).first).to_be_visible()
    watched.FLAG.touch()
    expect(page.get_by_text("Committed microbatch 2/")).to_be_visible()
    page.get_by_label("What").select_option("failures")
    expect(rows.nth(1)).to_contain_text("nobody pays 13")
    expect(page.get_by_text("Launched")).to_have_count(0)
    assert page.url.endswith("#/m/Shop/log?kind=failure")
    page.reload()
    expect(page.get_by_label("What")).to_have_value("failure")
    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sum of Shop")
    assert re.search(r"#/m/Shop/t/sum\?entry=\d+$", page.url)


def test_older_lines_of_a_log_are_reached_and_stay_when_it_is_long(page: Page, shop: Shown) -> None:
    options = OptionsLog(shop.cluster.store, "Shop", by="ann")
    for number in range(1, 60):
        options.set("module", "", "depot.microbatch.max.records", number)
    shop.go(page, "#/m/Shop/log")
    rows = page.get_by_label("Log of the module").get_by_role("row")
    expect(rows).to_have_count(51)
    page.get_by_role("link", name="Older").click()
    expect(rows.last).to_contain_text("Launched")
    before = rows.count()
    shop.sales.append_many(SALES)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    shop.cluster.wait_until_processed("Shop")
    expect(rows).to_have_count(before)
    page.get_by_label("Topology").select_option("sum")
    expect(page.get_by_text("Launched")).to_have_count(0)
    expect(rows.nth(1)).to_contain_text("Committed microbatch 2/1, 3 records")


def test_a_failure_is_told_with_its_traceback_when_a_function_raises(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/t/sum")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    shop.sales.append(["eve", "tea", 13])
    failure = page.get_by_label("The last failure").first
    expect(failure).to_contain_text("nobody pays 13")
    expect(failure.locator("pre").last).to_contain_text("in priced")
    expect(page.locator("[data-state=failing]")).to_be_visible()
    picture(page, "failure")
    watched.FLAG.touch()
    expect(page.locator("[data-state=running]")).to_be_visible()
    expect(page.locator(".timeline .failed").first).to_be_visible()
    page.get_by_role("button", name=re.compile("Microbatch 2, version [0-9]+: 1 records")).click()
    expect(page.get_by_role("heading", name=re.compile("Entry .*: commit"))).to_be_visible()
    assert "entry=" in page.url


def test_a_value_is_found_by_its_path_when_it_is_selected(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/p/sales")
    page.get_by_label("Path, as a JSON list").fill('["ann", ["all"]]')
    page.get_by_role("button", name="Select", exact=True).click()
    milk = page.get_by_label("Selected").get_by_role("row", name='"milk"')
    expect(milk).to_contain_text("2")
    shop.sales.append(["ann", "milk", 5])
    shop.cluster.wait_until_processed("Shop")
    page.get_by_role("button", name="Select", exact=True).click()
    expect(milk).to_contain_text("7")
    page.get_by_label("As of microbatch").fill("1")
    page.get_by_role("button", name="Select", exact=True).click()
    expect(milk).to_contain_text("2")
    page.get_by_label("From microbatch").fill("1")
    page.get_by_label("to", exact=True).fill("2")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_label("Changes")).to_contain_text('[["milk",7],["tea",3]]')
    picture(page, "pstate")
    page.get_by_label("Path, as a JSON list").fill('["ann"')
    page.get_by_role("button", name="Select", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("The path is no JSON")


def test_all_keys_are_paged_when_there_are_many(page: Page, shop: Shown) -> None:
    shop.sales.append_many([[f"customer {number}", "tea", 1] for number in range(60)])
    shop.cluster.wait_until_processed("Shop")
    shop.go(page, "#/m/Shop/p/sales")
    keys = page.get_by_label("Keys").get_by_role("row")
    expect(keys).to_have_count(51)
    page.get_by_role("button", name="More").click()
    expect(keys).to_have_count(13)
    page.get_by_role("button", name="Back").click()
    expect(keys).to_have_count(51)


def test_tasks_are_compared_when_a_pstate_is_skewed(page: Page, shop: Shown) -> None:
    shop.sales.append_many([["ann", f"product {number}", 1] for number in range(40)])
    shop.cluster.wait_until_processed("Shop")
    shop.go(page, "#/m/Shop/p/sales")
    page.get_by_role("heading", name="By task").click()
    rows = page.get_by_role("region", name="By task").get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.nth(1)).to_contain_text('"ann" 42 rows')
    expect(page.get_by_text(re.compile("The largest task holds [0-9.]+ times the average"))).to_be_visible()
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


def test_words_are_explained_when_somebody_asks_with_the_keyboard(page: Page, shop: Shown) -> None:
    words = page.locator("details.help dd")
    shop.go(page, "#/")
    page.get_by_label("Search").press("?")
    expect(words).to_have_count(0)
    page.get_by_label("Search").blur()
    page.keyboard.press("?")
    expect(words.nth(1)).to_contain_text("its last commit. failing: the last attempt failed")
    for view in VIEWS:  # it stays open from view to view
        shop.go(page, view)
        expect(words.first).to_be_visible()
        expect(page.get_by_text(re.compile(r"docs/guide/[a-z-]+\.md"))).to_be_visible()
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()
    page.keyboard.press("?")
    expect(words).to_have_count(0)


def test_records_are_read_and_appended_when_a_depot_is_opened(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/d/sales")
    expect(page.get_by_role("region", name="Read by").get_by_role("row", name="sum")).to_contain_text("2 · 1")
    page.get_by_label("The record as JSON").fill('["zoe", "tea", 9]')
    page.get_by_role("button", name="Append").click()
    notice = page.get_by_role("status")
    expect(notice).to_contain_text("Appended: partition")
    partition = re.search(r"partition (\d+)", notice.inner_text())
    assert partition is not None
    page.get_by_label("Partitions").get_by_role("link", name=partition[1], exact=True).click()
    expect(page.get_by_label("Records")).to_contain_text('["zoe","tea",9]')
    page.get_by_label("The record as JSON").fill('["zoe"')
    page.get_by_role("button", name="Append").click()
    expect(page.get_by_role("alert")).to_contain_text("JSON")
    page.get_by_label("Appended after").fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Find").click()
    assert "after=1577836800000" in page.url
    since = page.get_by_label("Partitions").get_by_role("row").nth(int(partition[1]) + 1).get_by_role("link").last
    since.click()
    expect(page.get_by_label("Records")).to_contain_text('["zoe","tea",9]')
    shop.cluster.wait_until_processed("Shop")
    shop.go(page, "#/m/Shop/q/spent")
    page.get_by_label("Arguments").fill('["zoe"]')
    page.get_by_role("button", name="Call", exact=True).click()
    expect(page.locator(".values")).to_have_text("9")


def test_a_depot_goes_on_by_itself_when_records_come(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/d/sales")
    facts = page.locator("dl.facts")
    expect(facts).to_contain_text("all records are kept")
    expect(facts).to_contain_text("Segments1 in 1 object")
    expect(facts).to_contain_text("In the last minute0.05 records/s")
    reader = page.get_by_role("region", name="Read by").get_by_role("row", name="sum")
    expect(reader).to_contain_text("running")
    shop.sales.append_many(SALES)
    expect(facts).to_contain_text("Records kept6")
    expect(facts).to_contain_text("Segments2 in 2 objects")
    expect(reader).to_contain_text("4 · 2")
    shop.cluster.pause_microbatch_topology("Shop", "sum")
    expect(reader).to_contain_text("paused")
    OptionsLog(shop.cluster.store, "Shop").set("depot", "*sales", "depot.max.entries.per.partition", 4)
    shop.sales.append_many(SALES * 2)
    expect(facts).to_contain_text("the newest 4 of each partition; older ones go past 5")
    expect(reader.get_by_role("cell").nth(2)).to_have_text("6")
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


def test_an_option_is_set_and_unset_when_somebody_edits_it(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/options")
    field = page.get_by_label("depot.microbatch.max.records")
    field.fill("0")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("BadOption")
    field.fill("5000")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("status")).to_contain_text("sum: from microbatch 2")
    changed = page.get_by_label("Changes of options").get_by_role(
        "row", name="1 Set depot.microbatch.max.records to 5000"
    )
    expect(changed).to_contain_text("anyone, through the gateway")
    page.reload()
    expect(field).to_have_value("5000")
    expect(
        page.get_by_label("Options", exact=True).get_by_role("row", name="depot.microbatch.max.records")
    ).to_contain_text("anyone")
    field.fill("")
    field.press("Enter")
    page.reload()
    expect(field).to_have_value("")


def test_a_topology_rests_and_goes_on_when_it_is_paused_and_resumed(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/t/sum")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-state=paused]")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("[data-state=running]")).to_be_visible()


def test_the_plan_is_drawn_when_a_leader_kept_it(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/t/sum")
    page.get_by_role("heading", name="Plan").click()
    plan = page.get_by_label("Picture of the plan")
    for text in ("each(priced)", "*price → *paid", "$$sales"):
        expect(plan.locator("text").filter(has_text=re.compile(f"^{re.escape(text)}$")).first).to_be_visible()
    expect(plan.locator("text.live").filter(has_text=re.compile("^3$")).first).to_be_visible()
    time = page.get_by_label("Where the time goes")
    expect(time.get_by_role("row", name="each(priced)")).to_contain_text("watched.py")
    shop.sales.append_many([["cid", "tea", 1]] * 5)
    expect(plan.locator("text.live").filter(has_text=re.compile("^8$")).first).to_be_visible()
    page.get_by_role("button", name=re.compile("Microbatch 1, version [0-9]+: 3 records")).click()
    expect(page.get_by_text("Of microbatch 1, as the numbers")).to_be_visible()
    expect(plan.locator("text.live").filter(has_text=re.compile("^8$"))).to_have_count(0)
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()
    picture(plan.locator("svg"), "plan")
    with served(Modules(shop.cluster.store)) as without:
        page.goto(f"{without.url}/#/m/Shop/t/sum")
        page.get_by_role("heading", name="Plan").click()
        expect(plan.locator("text").filter(has_text=re.compile("^each.priced.$"))).to_be_visible()
        expect(time.get_by_role("row", name="each(priced)")).to_contain_text("watched.py")


def test_the_page_says_how_to_see_a_plan_when_none_is_kept(page: Page, shop: Shown) -> None:
    (topology,) = {key.partition("/log/")[0] for key in shop.cluster.store.list("Shop/topologies") if "/log/" in key}
    for key in list(shop.cluster.store.list(f"{topology}/plans")):
        shop.cluster.store.delete(key)
    with served(Modules(shop.cluster.store)) as without:
        page.goto(f"{without.url}/#/m/Shop/t/sum")
        page.get_by_role("heading", name="Plan").click()
        command = "tidemill ui --store STORE --entry FILE.py:Shop"
        expect(page.get_by_role("status").filter(has_text=command)).to_be_visible()
        expect(page.get_by_label("Where the time goes")).to_contain_text("step")
        expect(page.get_by_role("alert")).to_have_count(0)
        axe = Axe().run(page)
        assert axe.violations_count == 0, axe.generate_report()


def test_the_plan_marks_the_step_when_a_failure_leads_there(page: Page, shop: Shown) -> None:
    shop.sales.append(["eve", "tea", 13])
    shop.go(page, "#/m/Shop/t/sum")
    page.get_by_label("The last failure").first.get_by_role(
        "link", name=re.compile("each.priced. at .*watched.py")
    ).click()
    expect(page).to_have_url(re.compile("[?&]step=each"))
    marked = page.get_by_label("Picture of the plan").locator("g.failing")
    expect(marked).to_have_count(1)
    expect(marked).to_be_in_viewport()
    expect(marked).to_contain_text("each(priced)")
    number = marked.get_attribute("data-box")
    watched.FLAG.touch()
    shop.go(page, f"#/m/Shop/t/sum?step={number}")
    page.reload()
    expect(marked).to_contain_text("each(priced)")
    shop.go(page, "#/m/Shop/t/sum?step=each(gone) at old.py:1")
    expect(page.get_by_text("is no step of this plan")).to_be_visible()
    expect(marked).to_have_count(0)
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


def test_each_partition_is_told_when_records_wait(page: Page, shop: Shown) -> None:
    shop.cluster.pause_microbatch_topology("Shop", "sum")
    shop.sales.append_many([["ann", "tea", 1]] * 5)
    shop.go(page, "#/m/Shop/t/sum")
    rows = page.get_by_label("Partitions of the sources").get_by_role("row")
    expect(rows).to_have_count(5)
    waiting = [row.split("\t")[1:] for row in rows.all_inner_texts()[1:]]
    ends = [shop.sales.get_partition_info(one).end_offset for one in range(4)]
    expect(rows.filter(has_text=re.compile("5$"))).to_have_count(1)
    assert sorted(int(each[-1]) for each in waiting) == [0, 0, 0, 5]
    assert [[int(each) for each in row] for row in waiting] == [
        [one, 0, ends[one] - int(row[-1]), int(row[-1])] for one, row in enumerate(waiting)
    ]


def test_a_poison_record_is_shown_and_tried_again_when_it_was_left_out(page: Page, shop: Shown) -> None:
    OptionsLog(shop.cluster.store, "Shop").set("topology", "sum", "topology.on.record.error", "quarantine")
    shop.sales.append_many([["eve", "tea", 13], ["eve", "milk", 2]])
    shop.cluster.wait_until_processed("Shop")
    shop.go(page, "#/m/Shop/t/sum")
    held = page.get_by_label("Quarantine", exact=True)
    expect(held).to_contain_text('["eve","tea",13]')
    expect(held).to_contain_text("nobody pays 13")
    picture(page, "quarantine")
    watched.FLAG.touch()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("Appended 1 record again.")).to_be_visible()
    expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()
    shop.cluster.wait_until_processed("Shop")
    assert shop.cluster.cluster_pstate("Shop", "$$sales").select(At.key("eve").all()) == [["milk", 2], ["tea", 13]]


# --- killed ----------------------------------------------------------------------------------------------------------


START = [sys.executable, "-c", "from tidemill.cli.main import app; app()"]


class Other(watched.Shop):
    def module_name(self) -> str:
        return "Other"


def run_shop(folder: Path) -> subprocess.Popen[bytes]:
    command = [*START, "run", f"{watched.__file__}:Shop", "--store", str(folder)]
    return subprocess.Popen(command, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_the_page_tells_what_happened_when_the_runner_is_killed(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = run_shop(folder)
    second = None
    try:
        store = open_store(str(folder))
        with served(Modules(store)) as server:
            page.goto(f"{server.url}/#/")
            expect(page.get_by_role("row", name="Shop sum")).to_contain_text("running", timeout=60_000)
            page.get_by_role("link", name="sum").click()
            first.send_signal(signal.SIGKILL)
            first.wait()
            expect(page.locator("[data-state=stopped]")).to_be_visible()
            second = run_shop(folder)
            expect(page.locator("[data-state=running]")).to_be_visible(timeout=60_000)
            expect(page.get_by_label("Log").get_by_text("A leader claimed it")).to_have_count(2)
        expect(page.get_by_text("not connected")).to_be_visible()
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.wait()


def test_the_page_is_there_when_the_command_for_it_is_called(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with InProcessCluster.create(engine="local", store=str(folder)) as cluster:
        cluster.launch_module(watched.Shop(), LaunchConfig(1, 1))
        cluster.launch_module(Other(), LaunchConfig(1, 1))
        cluster.cluster_depot("Shop", "*sales").append_many(SALES)
        cluster.wait_until_processed("Shop")
        entry = f"{watched.__file__}:Shop"
        command = [*START, "ui", "--store", str(folder), "--entry", entry, "--no-browser", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            page.goto(json.loads(process.stdout.readline())["url"])
            expect(page.get_by_role("row", name="Other sum")).to_contain_text("running")
            page.get_by_role("row", name="Shop sum").get_by_role("link", name="sum").click()
            page.get_by_role("heading", name="Plan").click()
            expect(page.get_by_label("Picture of the plan").locator("text").first).to_be_visible()
            expect(page.get_by_label("Where the time goes").get_by_role("row", name="each(priced)")).to_contain_text(
                "watched.py"
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.communicate()


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_and_forgotten_when_the_gateway_needs_one(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("reading read\nworking\n")
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(watched.Shop(), LaunchConfig(1, 1))
        settings = GatewaySettings(tokens=Tokens(file=file))
        with served(Modules(cluster.store), settings) as server:
            page.goto(f"{server.url}/#/m/Shop/t/sum")
            page.get_by_label("Token").fill("nonsense")
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("does not know this token")
            page.get_by_label("Token").fill("reading")
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("[data-state=running]")).to_be_visible()
            expect(page.get_by_role("button", name="Pause")).to_have_count(0)
            assert page.evaluate("document.cookie") == ""
            page.get_by_role("button", name="Sign out").click()
            page.get_by_label("Token").fill("working")
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("button", name="Pause")).to_be_visible()


# --- for everybody ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_when_every_view_is_opened(page: Page, shop: Shown, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    shop.sales.append(["eve", "tea", 13])
    for view in VIEWS:
        shop.go(page, view)
        page.wait_for_load_state("load")
        expect(page.get_by_text("Looking …")).to_have_count(0)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{view}: {found.generate_report()}"


def test_nothing_is_cut_off_when_the_window_is_narrow(page: Page, shop: Shown) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    for view in VIEWS:
        shop.go(page, view)
        expect(page.get_by_text("Looking …")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        cut = "[...document.querySelectorAll('td')].filter((one) => one.getBoundingClientRect().right > 360).length"
        assert page.evaluate(cut) == 0, view


def test_a_failure_is_in_sight_and_told_once_when_the_window_is_narrow(page: Page, shop: Shown) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    shop.sales.append(["eve", "tea", 13])
    shop.go(page, "#/")
    row = page.get_by_role("row", name="Shop sum")
    expect(row).to_contain_text("nobody pays 13")
    told = row.get_by_role("cell").last
    assert told.evaluate("(one) => getComputedStyle(one, '::before').content").startswith('"Trouble"')
    shop.go(page, "#/m/Shop/t/sum")
    log = page.get_by_label("Log")
    expect(log.get_by_text("after the same failure").first).to_be_visible()
    expect(log.get_by_text("The record is at offset").first).to_be_visible()
    expect(log.get_by_text("nobody pays 13")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


MARKS = """async () => {
    const { html, render } = await import("/page/vendor/preact-htm.js");
    const { Chart, rate } = await import("/page/parts.js");
    const drawn = new Set(), draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        drawn.add(text);
        return draw.call(this, text, ...place);
    };
    document.body.prepend(document.createElement("div"));
    const data = [[100, 160, 220], [1.9, 2.1, 2.4]], series = [["records/s", "--process"]];
    render(html`<${Chart} label="Rates" series=${series} data=${data} format=${rate} />`, document.body.firstChild);
    for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
    return [...drawn].filter((text) => !text.includes(":")).concat(rate(2.34), rate(12.34), rate(3));
}"""


def test_marks_of_an_axis_differ_when_its_numbers_are_close(page: Page, shop: Shown) -> None:
    shop.go(page, "#/")
    marks = page.evaluate(MARKS)
    assert [float(mark) for mark in marks[:-3]] == [2.0, 2.2, 2.4], marks
    assert marks[-3:] == ["2.3", "12", "3"]


def test_every_control_is_reached_when_only_keys_are_used(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/t/sum")
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("document.activeElement.textContent || document.activeElement.getAttribute('aria-label')")
        )
    assert any("To the content" in text for text in seen) and any(text == "Pause" for text in seen)
    assert any("Microbatch 1, version 1" in text for text in seen)


@pytest.mark.timeout(120)
def test_the_overview_is_there_in_a_second_when_there_are_200_topologies(page: Page, tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    shop = record_module(watched.Shop())
    for number in range(200):
        named = ModuleDeclaration(**{**vars(shop), "name": f"Shop{number:03}"})
        DefinitionLog(store, named.name).append(launch(named, 4, 2, Ids()), 1)
    with served(Modules(store)) as server:
        page.goto(f"{server.url}/")
        expect(page.get_by_text("200 topologies")).to_be_visible()
        page.goto("about:blank")
        page.goto(f"{server.url}/")
        expect(page.get_by_text("200 topologies")).to_be_visible()
        millis = page.evaluate("performance.now()")
        assert millis < 1_000 * float(os.environ.get("TIDEMILL_SLACK", "5")), f"{millis:.0f} ms"
