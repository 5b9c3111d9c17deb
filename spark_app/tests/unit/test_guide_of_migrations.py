"""The code of the guide to migrations runs, and does what the guide says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "migrations.md"


def test_the_code_of_the_guide_to_migrations_runs() -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(GUIDE), "exec"), names)

    assert (names["at_once"], names["together"]) == (300, 700)
    assert (names["from_d"], names["size"]) == ([["tea", 1]], 2)
    north = {"shop": "north", "currency": "EUR"}
    assert names["read"] == [{**north, "euros": 3}, {**north, "euros": 4}]
