"""The code of the guide to paths is correct: it runs, and what it claims holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tidemill import Path as StatePath

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "paths.md"


def test_the_code_of_the_guide_runs() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)

    assert len(blocks) == 8
    assert "Words" in names


def test_navigators_in_the_guide_exist() -> None:
    words = re.findall(r"`([a-z_]+)[`(]", GUIDE.read_text(encoding="utf-8"))
    navigators = {name for name in vars(StatePath) if not name.startswith("_")}

    assert set(words) - {"next", "select", "transform"} <= navigators
