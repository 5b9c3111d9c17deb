"""Addresses of the page: each view is one with all that was chosen in it, and one that leads nowhere says so."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from shown import Shown

NOWHERE = (
    "#/m/%E0%A4%A/t", "#/nonsense/x", "#/m/Shop/zzz", "#/m", "#/m/Shop/t", "#/m/Shop/t/sum/more", "#/m/Shop/zzz/sum",
    "#/toString", "#/m/Shop/constructor/sum", "#/graphs/a/b",
)  # fmt: skip
ABSENT = (
    "#/m/Shop/t/nope", "#/m/Shop/p/nope", "#/m/Shop/q/nope", "#/m/Nope/t/sum", "#/graphs/nope", "#/datasets/nope",
    "#/m/Nope", "#/m/Nope/log", "#/m/Shop/d/nope",
)  # fmt: skip


@pytest.mark.parametrize("address", NOWHERE)
def test_an_address_says_that_it_leads_nowhere_when_no_view_has_it(page: Page, shop: Shown, address: str) -> None:
    shop.go(page, address)
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such view")
    expect(page).to_have_title("There is no such view · Tidemill")
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()
    page.get_by_role("alert").get_by_role("link", name="overview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Modules")


@pytest.mark.parametrize("address", ABSENT)
def test_a_view_keeps_its_heading_when_what_it_is_about_is_not_there(page: Page, shop: Shown, address: str) -> None:
    shop.go(page, address)
    expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile("[Nn]ope|sum"))
    expect(page.get_by_role("alert")).to_contain_text("UnknownName")
    axe = Axe().run(page)
    assert axe.violations_count == 0, axe.generate_report()


def test_a_search_is_there_again_when_its_address_is_opened(page: Page, shop: Shown) -> None:
    shop.go(page, "#/")
    steps = page.evaluate("history.length")
    page.get_by_label("Search").press_sequentially("no/such?&one")
    expect(page.get_by_text("None fits.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"#/\?q=no"))
    assert page.evaluate("history.length") == steps
    page.reload()
    expect(page.get_by_label("Search")).to_have_value("no/such?&one")
    expect(page.get_by_text("None fits.")).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_label("Search")).to_have_value("")
    expect(page.get_by_role("row", name="Shop sum")).to_be_visible()


def test_arguments_are_there_again_when_the_address_of_a_query_is_opened(page: Page, shop: Shown) -> None:
    shop.go(page, "#/m/Shop/q/spent")
    page.get_by_label("Arguments").fill('["ann"]')
    expect(page).to_have_url(re.compile(r"\?arguments="))
    page.reload()
    expect(page.get_by_label("Arguments")).to_have_value('["ann"]')
    page.get_by_role("button", name="Call", exact=True).click()
    expect(page.locator(".values")).to_have_text("5")
