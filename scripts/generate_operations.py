"""Writes the reference of the built-in operations from their texts.

`python scripts/generate_operations.py` writes; with `--check` it only says that the page is not up to date, and
exits 1.
"""

from __future__ import annotations

import sys

from generated_page import ROOT, write_or_check

from tidemill.language.operation_texts import TEXTS
from tidemill.language.operations import ALL_OPS, Op

PAGE = ROOT / "docs/reference/operations.md"
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
    if operation.args_max is None:
        count = f"{operation.args_min} or more"
    elif operation.args_min == operation.args_max:
        count = str(operation.args_max)
    else:
        count = f"{operation.args_min} to {operation.args_max}"
    example = f"`{text.example}` → `{text.result}`" if text.example else ""
    return f"| `{operation.name}` | {count} | {text.says} | {example} |"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
