"""What all generators of pages do at their end: write what is not up to date, or, with `--check`, only say so."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(page: Path, text: str) -> int:
    """The exit code of the script that made `text`, which is what `page` should hold."""
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in sys.argv[1:]:
        sys.stderr.write(f"{page.relative_to(ROOT)} is not up to date: run scripts/{Path(sys.argv[0]).name}\n")
        return 1
    page.write_text(text, encoding="utf-8")
    return 0
