"""Fails if a relative link in a Markdown file leads nowhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")
SKIPPED = {".venv", ".git", "node_modules", "dist"}


def broken_links(page: Path) -> list[str]:
    """The links of one page whose target does not exist."""
    targets = [link["target"] for link in LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    return [f"{page.relative_to(ROOT)}: {target}" for target in local if not (page.parent / target).exists()]


def main() -> int:
    pages = [page for page in ROOT.rglob("*.md") if not SKIPPED & set(page.relative_to(ROOT).parts)]
    broken = [link for page in pages for link in broken_links(page)]
    sys.stdout.write(
        "".join(f"broken link: {link}\n" for link in broken) or f"links of {len(pages)} pages lead somewhere\n"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
