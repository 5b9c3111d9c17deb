"""The code of the guide to paths is correct: it runs, and what it claims holds."""

from __future__ import annotations

import re
from pathlib import Path

from guide_code import blocks_of, names_of

from tidemill import Path as StatePath

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "paths.md"


def test_the_code_of_the_guide_runs() -> None:
    names = names_of(GUIDE)

    assert len(blocks_of(GUIDE.read_text(encoding="utf-8"))) == 8
    assert "Words" in names


def test_navigators_in_the_guide_exist() -> None:
    words = re.findall(r"`([a-z_]+)[`(]", GUIDE.read_text(encoding="utf-8"))
    navigators = {name for name in vars(StatePath) if not name.startswith("_")}

    assert set(words) - {"next", "select", "transform"} <= navigators
