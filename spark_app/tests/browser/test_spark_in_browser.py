"""Spark on the page: where microbatches run, how many executors ran the last one, and the way to Spark's own page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import watched
from gateways import served
from playwright.sync_api import Page, expect
from test_standbys_in_browser import fact, running

from tidemill import InProcessCluster, LaunchConfig
from tidemill.client import Client
from tidemill.gateway.modules import Modules
from tidemill.store.urls import open_store

LONG = 300_000
"""Milliseconds: a JVM, its executor and its workers start, on a machine that is busy."""


@pytest.mark.timeout(900)
def test_executors_and_sparks_own_page_are_shown_when_spark_runs_the_microbatches(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with InProcessCluster.create(engine="local", store=str(folder)) as cluster:
        cluster.launch_module(watched.Shop(), LaunchConfig(2, 1))
    with served(Modules(open_store(str(folder)))) as server, Client(server.url) as client, running(folder) as start:
        client.set_option("Shop", "topology.microbatch.placement", "spread")
        page.goto(f"{server.url}/#/m/Shop/t/sum")
        expect(page.get_by_label("Nobody leads")).to_be_visible(timeout=LONG)
        start("--engine", "spark", "--master", "local-cluster[1,1,1024]", "--spark-ui")
        expect(fact(page, "Runs on")).to_have_text(re.compile(r"Spark .*local-cluster\[1,1,1024\]"), timeout=LONG)
        client.depot("Shop", "*sales").append(["bob", "tea", 4])
        expect(fact(page, "Executors at the last one")).to_have_text("1", timeout=LONG)
        expect(fact(page, "Placement of the last one")).to_have_text("spread")
        with page.context.expect_page() as opened:
            fact(page, "Spark's page").get_by_role("link").click()
        expect(opened.value).to_have_title(re.compile("Spark Jobs"), timeout=LONG)
