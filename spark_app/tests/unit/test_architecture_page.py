"""docs/architecture.md names packages, files, classes and functions: all of them exist, and no package is left out."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "spark_app/src/tidemill"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PACKAGES = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
QUOTED = sorted(set(re.findall(r"`([\w./]+)`", PAGE)))
NAMES = [name for name in QUOTED if name.partition(".")[0] in PACKAGES and "." in name]
# Files that the reader of the tutorial writes are there for the reader only.
WRITTEN = {
    name
    for page in (ROOT / "docs/tutorial").glob("*.md")
    for name in re.findall(r"^```python\n# (\w+\.py)", page.read_text(encoding="utf-8"), re.MULTILINE)
}
PATHS = [
    (page.name, name)
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for name in sorted(set(re.findall(r"`([\w][\w./]+\.py)`", page.read_text(encoding="utf-8"))) - WRITTEN)
]
FOLDERS = [ROOT, ROOT / "spark_app", ROOT / "spark_app/tests", SOURCE, ROOT / "operator/src/tidemill_operator"]


def has_name(dotted: str) -> bool:
    """Whether `package.module` or `package.module.Name` is in the source."""
    parts = dotted.split(".")
    at = SOURCE.joinpath(*parts)
    if at.is_dir() or at.with_suffix(".py").is_file():
        return True
    path = SOURCE.joinpath(*parts[:-1]).with_suffix(".py")
    if not path.is_file():
        return False
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return parts[-1] in {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_in_the_source_when_the_page_names_it(name: str) -> None:
    assert has_name(name)


@pytest.mark.parametrize("name", ["runtime.nowhere", "store.leases.LeaderLease", "store.lease.Nobody"])
def test_a_name_is_missed_when_it_is_not_in_the_source(name: str) -> None:
    assert not has_name(name)


def test_a_path_exists_when_a_page_of_the_docs_names_it() -> None:
    assert len(PATHS) > 20
    assert [(page, name) for page, name in PATHS if not any((folder / name).is_file() for folder in FOLDERS)] == []


def test_each_package_has_a_line_when_listed() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(PACKAGES)


def test_layers_are_those_that_the_linter_holds_when_written_down() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    held = [re.findall(r"tidemill\.(\w+)", layer) for layer in contracts[0]["layers"]]
    sentence = re.search(r"^Layers[^:]*: (.*?);", PAGE, re.DOTALL | re.MULTILINE)
    assert sentence is not None
    assert [re.findall(r"`(\w+)`", layer) for layer in sentence[1].split(">")] == held
