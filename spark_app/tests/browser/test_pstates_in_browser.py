"""PStates on the page: examples that work, paths that are completed, results and keys in pages, sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import watched_pstates
from axe_playwright_python.sync_playwright import Axe
from gateways import served
from playwright.sync_api import Page, expect
from shown import Shown

from tidemill import InProcessCluster, LaunchConfig
from tidemill.gateway.modules import Modules


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(watched_pstates.Shelf(), LaunchConfig(4, 2))
        depot = cluster.cluster_depot("Shelf", "*items")
        for items in (watched_pstates.ITEMS, [["bob", "milk", 3]]):
            depot.append_many(items)
            cluster.wait_until_processed("Shelf")
        with served(Modules(cluster.store)) as server:
            yield f"{server.url}/#/m/Shelf/p"


def select(page: Page) -> None:
    page.get_by_role("button", name="Select", exact=True).click()


@pytest.mark.parametrize("pstate", watched_pstates.PSTATES)
def test_every_example_selects_something_when_it_is_tried(page: Page, url: str, pstate: str) -> None:
    page.goto(f"{url}/{pstate[2:]}")
    examples = page.get_by_text("For example").get_by_role("button")
    expect(examples.first).to_be_visible()
    for name in examples.all_inner_texts():
        examples.get_by_text(name, exact=True).click()
        select(page)
        expect(page.get_by_text(re.compile("^[1-9][0-9]* values?")), name).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("Looking …")).to_have_count(0)
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


@pytest.mark.parametrize("pstate", ["counts", "products", "notes", "years"])
def test_a_key_leads_to_its_select_when_it_is_clicked(page: Page, url: str, pstate: str) -> None:
    page.goto(f"{url}/{pstate}")
    keys = page.get_by_label("Keys").get_by_role("link")
    expect(keys.first).to_be_visible()
    for name in keys.all_inner_texts()[:3]:
        keys.get_by_text(name, exact=True).click()
        expect(page.get_by_label("Path, as a JSON list")).to_have_value(re.compile(re.escape(f"[{name}")))
        expect(page.get_by_text(re.compile("^[1-9][0-9]* values?"))).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_key_stays_a_float_when_no_integer_reaches_so_far(page: Page, url: str) -> None:
    page.goto(url)
    texts = page.evaluate("""async () => [1e20, -1e300, 2.5, 7].map((await import("/page/paths.js")).inPath)""")
    assert texts == ["1e+20", "-1e+300", "2.5", "7"]


def test_a_path_is_completed_by_the_keyboard_when_it_is_written(page: Page, url: str) -> None:
    page.goto(f"{url}/products")
    box = page.get_by_role("combobox", name="Path, as a JSON list")
    expect(page.get_by_label("Keys").get_by_role("link")).to_have_count(3)
    offers = page.get_by_role("listbox", name="What may follow").get_by_role("option")
    box.press("ArrowDown")
    expect(offers.filter(has_text='"ann"')).to_be_visible()
    box.press_sequentially('["an')
    expect(offers).to_have_count(1)
    box.press("ArrowDown")
    expect(offers).to_have_attribute("aria-selected", "true")
    box.press("Enter")
    expect(box).to_have_value('["ann"]')
    expect(offers.filter(has_text='"item 000"')).to_be_visible()
    expect(offers.filter(has_text="sortedMapRangeFromStart")).to_contain_text("The first `max_amt` entries of a map")
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()
    box.press("ArrowUp")
    expect(offers.last).to_have_attribute("aria-selected", "true")
    box.fill('["ann", ["al')
    offers.get_by_text('["all"]', exact=True).click()
    expect(box).to_have_value('["ann", ["all"]]')
    box.press("Escape")
    expect(offers).to_have_count(0)
    box.press("Enter")
    expect(page.get_by_text("250 values")).to_be_visible()
    assert "path=" in page.url


def test_results_come_in_pages_when_they_are_many(page: Page, url: str) -> None:
    page.goto(f'{url}/products?path=["ann", ["all"]]')
    rows = page.get_by_role("region", name="Selected").get_by_role("row")
    select_more = page.locator("section", has=page.get_by_role("heading", name="Select")).get_by_role(
        "button", name="More"
    )
    for count in (101, 201, 251):
        expect(rows).to_have_count(count)
        if count < 251:
            select_more.click()
    expect(select_more).to_have_count(0)
    expect(rows.nth(1)).to_have_text(re.compile('"item 000".*0'))
    page.goto(f'{url}/notes?path=["ann"]')
    expect(page.get_by_text("1 value", exact=True)).to_be_visible()
    expect(rows).to_have_count(0)


def test_levels_are_told_when_a_pstate_is_shown(page: Page, url: str) -> None:
    page.goto(f"{url}/products")
    page.get_by_role("heading", name="Levels").click()
    rows = page.get_by_role("region", name="Levels").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_have_text(re.compile("^2changes"))
    expect(page.get_by_text("Last compaction")).to_be_visible()
    expect(page.get_by_text("none yet")).to_be_visible()
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


def test_all_that_was_chosen_is_there_again_when_the_address_is_opened(page: Page, url: str) -> None:
    page.goto(f"{url}/years")
    page.get_by_role("button", name="More").click()
    expect(page).to_have_url(re.compile("[?&]keys="))
    second = page.get_by_label("Keys").get_by_role("row").nth(1).inner_text()
    page.get_by_label("From microbatch").fill("1")
    page.get_by_label("to", exact=True).fill("2")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_label("Changes")).to_contain_text("3")
    changed = page.get_by_label("Changes").inner_text()
    page.get_by_label("Path, as a JSON list").fill("[7]")
    page.get_by_label("As of microbatch").fill("1")
    select(page)
    expect(page.get_by_text("1 value", exact=True)).to_be_visible()
    page.goto("about:blank")
    page.go_back()
    expect(page.get_by_label("Changes")).to_have_text(re.compile(".*"))
    expect(page.get_by_label("Changes")).to_contain_text("3")
    assert page.get_by_label("Changes").inner_text() == changed
    expect(page.get_by_label("From microbatch")).to_have_value("1")
    expect(page.get_by_label("As of microbatch")).to_have_value("1")
    expect(page.get_by_label("Path, as a JSON list")).to_have_value("[7]")
    expect(page.get_by_text("1 value", exact=True)).to_be_visible()
    assert page.get_by_label("Keys").get_by_role("row").nth(1).inner_text() == second
    page.get_by_role("button", name="First keys").click()
    expect(page).not_to_have_url(re.compile("[?&]keys="))


def test_a_pstate_goes_on_by_itself_when_records_are_processed(page: Page, shop: Shown) -> None:
    """Its keys, its size and what is selected of it, but not as of a microbatch."""
    shop.go(page, '#/m/Shop/p/sales?path=["zoe", ["all"]]')
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_label("Keys").get_by_role("row")).to_have_count(3)
    shop.sales.append(["zoe", "tea", 7])
    expect(page.get_by_label("Keys").get_by_role("row")).to_have_count(4)
    expect(page.get_by_role("region", name="Selected")).to_contain_text("7")
    shop.go(page, '#/m/Shop/p/sales?path=["zoe", ["all"]]&microbatch=1')
    expect(page.get_by_text(re.compile("^0 values"))).to_be_visible()


def test_the_place_of_options_is_there_again_when_its_address_is_opened(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/options")
    page.get_by_label("Set at").select_option("depot:*sales")
    expect(page).to_have_url(re.compile(r"\?at=depot"))
    page.reload()
    expect(page.get_by_label("Set at")).to_have_value("depot:*sales")
