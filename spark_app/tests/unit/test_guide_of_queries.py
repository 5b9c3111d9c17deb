"""The page on queries, told as a test: its module has no fault, and its examples give what they say."""

from __future__ import annotations

import re
from pathlib import Path

from guide_code import names_of

from tidemill import InProcessCluster, LaunchConfig
from tidemill.api.declaration import record_module
from tidemill.language.options import find_option
from tidemill.plan.check.module import check
from tidemill.plan.warn import warnings_of

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "queries.md"
TEXT = GUIDE.read_text(encoding="utf-8")


def test_the_examples_give_what_the_page_says_when_they_are_run() -> None:
    names = names_of(GUIDE)

    declaration = record_module(names["Shop"]())
    assert (check(declaration), warnings_of(declaration)) == ([], [])
    for name in ("Friends", "Scanned"):
        other = record_module(names[name]())
        assert (check(other), warnings_of(other)) == ([], [])
    with InProcessCluster.create() as cluster:
        cluster.launch_module(names["Friends"](), LaunchConfig(4, 2))
        cluster.cluster_depot("Friends", "*friends").append_many([["ann", "bob"], ["bob", "cid"], ["cid", "ann"]])
        cluster.wait_until_processed("Friends")
        assert cluster.cluster_query("Friends", "circle").invoke("bob") == {"ann", "bob", "cid"}
    assert (names["total"], names["found"], names["share"]) == (60, {"tea": 50, "milk": 10}, 10 / 60)


def test_the_bounds_are_those_of_the_options_when_the_page_names_them() -> None:
    rows = re.findall(r"\| `(topology\.query\.[a-z.]+)`[^|]*\| ([0-9,]+)", TEXT)

    assert {name: int(value.replace(",", "")) for name, value in rows} == {
        name: find_option(name).default
        for name in ("topology.query.timeout.millis", "topology.query.max.rows", "topology.query.max.mb")
    }
