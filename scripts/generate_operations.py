"""Writes the reference of the built-in operations from their texts.

`python scripts/generate_operations.py` writes; with `--check` it only says that the page is not up to date, and
exits 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidemill.language.operation_texts import TEXTS
from tidemill.language.operations import ALL_OPS, Op

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/operations.md"
HEAD = """# Operations

Made by `scripts/generate_operations.py`. The built-in functions, `Ops.NAME`, for `each`, `Expr` and paths. Each can be
called in Python, too: `Ops.PLUS(1, 2)`. In JSON, `"#__fOps.PLUS"`. What emits rows stands in `.each(…)` only and binds
as many variables as a row has values."""


def page() -> str:
    """The page as it should be."""
    lines = [HEAD, "", "| operation | arguments | what it gives | example |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(row, ALL_OPS.values())]) + "\n"


def row(operation: Op) -> str:
    """An operation's line of the table."""
    text = TEXTS[operation.name]
    most = "any number" if operation.args_max is None else str(operation.args_max)
    count = f"{operation.args_min} or more" if operation.args_max is None else most
    if operation.args_max is not None and operation.args_min != operation.args_max:
        count = f"{operation.args_min} to {most}"
    example = f"`{text.example}` → `{text.result}`" if text.example else ""
    return f"| `{operation.name}` | {count} | {text.says} | {example} |"


def main(arguments: list[str]) -> int:
    text = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        sys.stderr.write("docs/reference/operations.md is not up to date: run scripts/generate_operations.py\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
