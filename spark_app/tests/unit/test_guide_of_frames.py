"""The code of docs/guide/frames.md runs as it stands there, and does what the page says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guide_code import names_of

import tidemill

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "frames.md"
TEXT = GUIDE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the page's code defines, its blocks run one after the other in an empty folder."""
    with contextlib.chdir(tmp_path_factory.mktemp("frames")):
        yield names_of(GUIDE)


def test_the_query_gives_the_row_that_the_page_says(names: dict[str, Any]) -> None:
    assert names["rows"].rows() == [("Bern", 16.5, 3)]


def test_windows_sessions_and_joins_by_time_give_what_the_page_says(names: dict[str, Any]) -> None:
    assert names["by_half_hour"]["price"].to_list() == [1.5, 4.0]
    assert names["paid"] == 23.0
    assert names["visits"]["quotes"].to_list() == [2, 1]
    assert names["next_price"] == [2.0, None]


def test_an_expression_of_several_rows_is_refused_with_a_way_out(names: dict[str, Any]) -> None:
    assert "group_by" in names["refused"]


def test_windows_hold_the_clicks_of_five_minutes(names: dict[str, Any]) -> None:
    rows = names["counted"].to_polars().sort("window_start")

    assert [(page, start.minute, clicks) for page, start, _, clicks in rows.rows()] == [
        ("a", 0, 2),
        ("b", 5, 1),
        ("a", 15, 1),
    ]


def test_the_reason_is_the_one_on_the_page(names: dict[str, Any]) -> None:
    assert names["reason"] in TEXT
    assert "One run: 1 row(s) of stream 0, then 1 row(s) of stream 1" in names["example"]


def test_every_executor_of_the_page_can_be_imported_and_every_one_is_on_it() -> None:
    named = set(re.findall(r"`(\w+Executor)\b", TEXT))
    public = {name for name in tidemill.__all__ if name.endswith("Executor") and name != "StatelessExecutor"}

    assert named <= public
    assert public - named == {"Executor"} - named


def test_windows_and_the_as_of_join_give_what_the_page_says(names: dict[str, Any]) -> None:
    assert names["by_half_hour"]["price"].to_list() == [1.5, 4.0]
    assert names["paid"] == 23.0
