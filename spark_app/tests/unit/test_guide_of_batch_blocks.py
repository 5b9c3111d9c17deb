"""The code of the guide to batch blocks runs, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path as File
from typing import Any

from stories import Story

from tidemill import InProcessCluster, Path
from tidemill.api.declaration import record_module
from tidemill.plan.check.module import check

GUIDE = File(__file__).resolve().parents[3] / "docs" / "guide" / "batch-blocks.md"


def shop() -> Any:
    """The module of the page: its blocks of code are one text."""
    names: dict[str, Any] = {"__name__": "guide"}
    exec("".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)), names)
    return names["Shop"]()


def test_module_of_the_guide_has_no_fault() -> None:
    assert check(record_module(shop())) == []


def test_module_of_the_guide_does_what_the_page_says_when_things_are_sold(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Shop", shop().define)
        story.batch(sales=[["pen", "Ada", 3], ["ink", "Ada", 2], ["pen", "Bob", 5], ["cup", "Bob", 1]])
        report = dict(story.pstate("$$report").select(Path.all()))
        assert report.pop("all") == 11
        assert sorted(report.pop("first products")) == [["Ada", {"ink": 2}], ["Bob", {"cup": 1}]]
        assert report == {"0": ["Bob", 5], "1": ["Ada", 3]}
        assert story.pstate("$$best").select_one(Path.stay()) == [["pen", 8], ["ink", 2]]
        story.batch(sales=[["cup", "Cyd", 4]])
        assert story.pstate("$$best").select_one(Path.stay()) == [["pen", 8], ["cup", 5]]
        assert dict(story.pstate("$$report").select(Path.all()))["all"] == 4
