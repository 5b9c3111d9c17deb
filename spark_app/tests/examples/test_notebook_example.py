"""The notebooks of examples/ are run again, and must show what they show."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from execute_notebooks import NOTEBOOKS, executed  # noqa: E402 - found by the line above


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_the_same_when_it_is_run_again(path: Path) -> None:
    assert nbformat.writes(executed(path)) + "\n" == path.read_text(encoding="utf-8")


def test_there_is_a_notebook_when_the_examples_are_listed() -> None:
    assert [path.name for path in NOTEBOOKS] == ["visits.ipynb"]
