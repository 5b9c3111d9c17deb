"""The reference of task graphs has every public name, as its code says it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/graphs.md"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/generate_graphs.py"))


def test_the_page_is_what_the_script_makes(script: dict[str, Any]) -> None:
    text = PAGE.read_text()
    assert script["page"](text) == text, "run scripts/generate_graphs.py"


def test_every_public_name_of_task_graphs_is_in_it_once(script: dict[str, Any]) -> None:
    listed = [name for names in script["sections"]().values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(script["graph_names"]()) <= set(listed)
    text = PAGE.read_text().partition(script["BEGIN"])[2]
    assert all(f"**`{name}(" in text for name in listed)


def test_each_name_in_it_has_a_text(script: dict[str, Any]) -> None:
    text = PAGE.read_text().partition(script["BEGIN"])[2]
    assert [line for line in text.splitlines() if line.startswith("- `") and line.rstrip().endswith("`:")] == []
    assert "help(type(self))" not in text
