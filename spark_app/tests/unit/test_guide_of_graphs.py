"""The page on task graphs, told as a test: its examples give what they say, and the reference has each argument."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from guide_code import names_of

from tidemill import TaskGraph

DOCS = Path(__file__).resolve().parents[3] / "docs"
GUIDE = DOCS / "guide" / "graphs.md"


def test_the_examples_give_what_the_page_says_when_they_are_run() -> None:
    names = names_of(GUIDE)

    assert names["ann"] == 20.5
    assert names["everything"] == [("ann", 20.5), ("bob", 7.0), ("eve", 12.0)]
    assert names["three"] == [0, 1, 2]
    assert names["rows"] == 3


def test_each_argument_stands_in_the_reference() -> None:
    text = (DOCS / "reference" / "graphs.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| (.*) \|$", text, re.MULTILINE))
    for method in (
        "new_input_csv",
        "new_input_parquet",
        "new_input_frames",
        "new_input_from_dataset",
        "new_input_depot",
    ):
        wanted = [name for name in inspect.signature(getattr(TaskGraph, method)).parameters if name != "self"]
        assert [name for name in wanted if name not in rows[method]] == []
    assert [name for name in inspect.signature(TaskGraph).parameters if name not in rows["TaskGraph"]] == []


def test_an_input_reads_strides_of_64_mib_when_nothing_is_said() -> None:
    for method in (TaskGraph.new_input_csv, TaskGraph.new_input_parquet):
        assert inspect.signature(method).parameters["stride"].default == 64 * 1024 * 1024
