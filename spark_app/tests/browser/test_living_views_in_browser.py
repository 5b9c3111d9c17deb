"""Views that go on by themselves: where their module goes and comes, where the gateway is busy, and in a hidden tab."""

from __future__ import annotations

import pytest
import watched
from playwright.sync_api import Page, Route, expect
from shown import SALES, Shown

from tidemill import LaunchConfig

NOTING = """
    const Source = window.EventSource;
    window.EventSource = class extends Source {
      constructor(path) {
        super(path);
        this.addEventListener("module", ({ data }) => {
          document.documentElement.dataset.processed = JSON.parse(data).topologies.sum?.processed;
        });
      }
    };"""
"""Notes what the events of a module told last, before the page's own handler has it."""

HIDDEN = "Object.defineProperty(document, 'hidden', { value: true, configurable: true })"
SEEN = "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"


@pytest.mark.parametrize("after", ["x", "1e300", "-"])
def test_a_depot_is_shown_when_its_address_has_a_time_that_is_none(page: Page, shop: Shown, after: str) -> None:
    shop.go(page, f"#/m/Shop/d/sales?after={after}")
    expect(page.get_by_label("Appended after")).to_have_value("")
    expect(page.get_by_role("alert")).to_contain_text("after is a whole number")


@pytest.mark.parametrize("view", ["topologies", "options", "d/sales", "p/sales", "t/sum"])
def test_a_view_goes_on_when_its_module_was_destroyed_and_launched_again(page: Page, shop: Shown, view: str) -> None:
    shop.go(page, f"#/m/Shop/{view}")
    expect(page.locator(".live")).to_be_visible()
    shop.cluster.destroy_module("Shop")
    expect(page.get_by_role("alert").first).to_contain_text("There is no module 'Shop'")
    shop.cluster.launch_module(watched.Shop(), LaunchConfig(4, 2))
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".live")).to_be_visible()


def test_a_record_that_is_being_written_stays_when_the_gateway_is_busy_for_a_moment(page: Page, shop: Shown) -> None:
    def busy(route: Route) -> None:
        route.fulfill(status=503, json={"error": {"code": "Busy", "message": "Too many."}})

    shop.go(page, "#/m/Shop/d/sales")
    page.get_by_label("The record as JSON").fill('["eve", "te')
    page.route("**/facts", busy)
    shop.sales.append(["eve", "tea", 1])
    expect(page.get_by_role("alert")).to_contain_text("Too many.")
    page.unroute("**/facts")
    shop.sales.append(["eve", "tea", 1])
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("The record as JSON")).to_have_value('["eve", "te')


def test_a_pstate_shows_what_came_meanwhile_when_its_tab_is_seen_again(page: Page, shop: Shown) -> None:
    page.add_init_script(NOTING)
    shop.go(page, "#/m/Shop/p/sales")
    keys = page.get_by_role("region", name="Keys")
    expect(keys).to_contain_text("ann")
    page.evaluate(HIDDEN)
    shop.sales.append(["zoe", "tea", 1])
    expect(page.locator("html")).to_have_attribute("data-processed", str(len(SALES) + 1))
    expect(keys).not_to_contain_text("zoe")
    page.evaluate(SEEN)
    expect(keys).to_contain_text("zoe")
