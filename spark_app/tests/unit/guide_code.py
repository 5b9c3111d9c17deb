"""The Python of a page of docs, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def blocks_of(text: str) -> list[str]:
    """The blocks of Python in Markdown, in their order."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def names_of(page: Path, text: str = "") -> dict[str, Any]:
    """What the code of a page defines, or of this `text` of it, its blocks run one after the other."""
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks_of(text or page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), names)
    return names
