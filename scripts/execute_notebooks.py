"""Runs the notebooks of examples/ and writes into them what they show; with --check, fails where that differs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*/*.ipynb"))
SECONDS = 300

_PASSING = (
    (re.compile(r"[^\s\"'<>(]*ipykernel_\d+/\d+\.py"), "cell.py"),
    (re.compile(r"(file://)?/[\w./-]*tmp[\w./-]*"), "/tmp/folder"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x0"),
)
"""What differs from run to run: files of cells, temporary folders, addresses."""


def executed(path: Path) -> Any:
    """The notebook as it is after a run of all its cells, without what differs from run to run."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute()
    notebook.metadata.get("language_info", {}).pop("version", None)  # whichever Python runs it
    for cell in notebook.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = _lasting(output["text"])
            for kind, shown in output.get("data", {}).items():
                output["data"][kind] = _lasting(shown)
    return notebook


def _lasting(text: str) -> str:
    for pattern, name in _PASSING:
        text = pattern.sub(name, text)
    return text


def main() -> int:
    is_check, differing = "--check" in sys.argv[1:], []
    for path in NOTEBOOKS:
        text = nbformat.writes(executed(path)) + "\n"
        if is_check and text != path.read_text(encoding="utf-8"):
            differing.append(path)
        elif not is_check:
            path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{path.relative_to(ROOT)} shows another thing now\n" for path in differing))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
