"""The pages of examples/: each command runs word by word and prints what its page says; no module has a fault."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill import Module
from tidemill.api.declaration import record_module
from tidemill.plan.check.module import check
from tidemill.plan.warn import warnings_of

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = sorted(page.parent for page in (ROOT / "examples").glob("*/README.md"))
BLOCK = re.compile(r"```sh\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)
COMMANDS = [
    pytest.param(*found, id=f"{folder.name}-{number}")
    for folder in FOLDERS
    for number, found in enumerate(BLOCK.findall((folder / "README.md").read_text(encoding="utf-8")))
]


def environment() -> dict[str, str]:
    """That of a shell with the virtual environment, and no settings of Tidemill but the place of its cache."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDEMILL") or "CACHE" in name}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"}


@pytest.mark.parametrize("commands, printed", COMMANDS)
def test_commands_print_what_their_page_says_when_they_are_pasted(commands: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = f"set -e\ntrap 'jobs -p | xargs -r kill; wait' EXIT\n{commands}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    promised = re.findall(r" # (.*)$", commands, re.MULTILINE)
    assert promised or printed
    assert set(promised) <= set(done.stdout.splitlines())
    if printed:
        assert done.stdout == printed


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_module_has_no_fault_and_no_warning(folder: Path) -> None:
    code = importlib.import_module(f"examples.{folder.name}.module")
    [module] = [
        each for each in vars(code).values()
        if isinstance(each, type) and issubclass(each, Module) and each is not Module
    ]  # fmt: skip
    declaration = record_module(module())

    assert (check(declaration), warnings_of(declaration)) == ([], [])


def test_the_index_names_each_example_that_there_is() -> None:
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    folders = {path.parent.name for found in ("*/__init__.py", "*/*.ipynb") for path in (ROOT / "examples").glob(found)}

    assert set(re.findall(r"^\| \[(\w+)\]", index, re.MULTILINE)) == folders
    modules = {path.parent.name for path in (ROOT / "examples").glob("*/module.py")}
    assert {folder.name for folder in FOLDERS} == modules - {"flights", "seed_example"}
