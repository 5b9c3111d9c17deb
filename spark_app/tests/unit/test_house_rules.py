"""The limits of CONTRIBUTING.md, held by a test: size of functions and files, and calls that have a substitute."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = [ROOT / "spark_app/src", ROOT / "operator/src"]
OTHERS = [
    ROOT / folder
    for folder in ("benchmarks", "e2e", "gitops", "images", "scripts", "spark_app/tests", "operator/tests")
]
SOURCES = sorted(path for folder in PACKAGES for path in folder.rglob("*.py"))
ALL = SOURCES + sorted(path for folder in OTHERS for path in folder.rglob("*.py"))
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 700


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_within_limits_when_read(path: Path) -> None:
    too_long = [f.name for f in _functions(path) if (f.end_lineno or f.lineno) - f.lineno >= FUNCTION_LINES_MAX]

    assert too_long == []
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name == "__init__.py"], ids=lambda p: p.parent.name)
def test_a_package_says_what_lives_there_when_opened(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_module_is_called_utils_when_listed() -> None:
    assert [path.name for path in ALL if path.stem in {"utils", "util", "helpers", "misc", "common"}] == []
