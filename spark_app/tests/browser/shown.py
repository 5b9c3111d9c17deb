"""A module that runs, and the page that shows it, for the tests of the page."""

from __future__ import annotations

from playwright.sync_api import Page

from tidemill import InProcessCluster

SALES = [["ann", "tea", 3], ["ann", "milk", 2], ["bob", "tea", 4]]


class Shown:
    """A cluster that runs the shop, and where its page is."""

    def __init__(self, cluster: InProcessCluster, url: str) -> None:
        self.cluster, self.url = cluster, url
        self.sales = cluster.cluster_depot("Shop", "*sales")

    def go(self, page: Page, view: str) -> None:
        page.goto(f"{self.url}/{view}")
        page.get_by_role("heading", level=1).wait_for()
