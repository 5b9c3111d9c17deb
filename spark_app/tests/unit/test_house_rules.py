"""The limits of CONTRIBUTING.md, held by a test: size of functions and files, names of files, and docstrings."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
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
DOCUMENTED_MIN = 0.9
"""The least share of public names that have a docstring."""

Callable = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(_tree(path)) if isinstance(node, Callable)]


def _public_names(trees: list[ast.Module]) -> Iterator[tuple[str, Definition]]:
    """Public functions, classes and methods; without methods that a Protocol or a base class documents."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases: dict[str, set[str]] = defaultdict(set)
    documented: dict[str, set[str]] = defaultdict(set)
    for made in classes:
        bases[made.name] |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in made.bases}
        documented[made.name] |= {m.name for m in made.body if isinstance(m, Callable) and ast.get_docstring(m)}
    of_protocols = {method for name in documented if "Protocol" in bases[name] for method in documented[name]}

    def inherits(name: str, method: str, seen: frozenset[str] = frozenset()) -> bool:
        others = bases[name] - seen
        return any(method in documented[base] or inherits(base, method, seen | others) for base in others)

    for node in (node for tree in trees for node in tree.body if isinstance(node, (*Callable, ast.ClassDef))):
        if node.name.startswith("_"):
            continue
        yield node.name, node
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            is_public = isinstance(method, Callable) and not method.name.startswith("_")
            if is_public and method.name not in of_protocols and not inherits(node.name, method.name):
                yield f"{node.name}.{method.name}", method


def _undocumented(trees: list[ast.Module]) -> tuple[list[str], int]:
    """The public names without a docstring, and how many public names there are."""
    names = list(_public_names(trees))
    return [name for name, node in names if ast.get_docstring(node) is None], len(names)


_RAISED = re.compile(r"Raises[^\n]*:\n((?:    .*(?:\n|$))+)|[Rr]aises:? ([A-Z]\w+(?:(?:,| and| or) [A-Z]\w+)*)")


def _raised(docstring: str) -> set[str]:
    """The errors that a docstring names: in its section `Raises:`, or in a sentence such as "Raises A, B."."""
    found: set[str] = set()
    for section, sentence in _RAISED.findall(docstring):
        lists = re.findall(r"^    ([A-Z]\w+(?:, [A-Z]\w+)*): ", section, re.MULTILINE) if section else [sentence]
        found |= {name for listed in lists for name in re.findall(r"[A-Z]\w+", listed)}
    return found


def _unknown_errors(trees: list[ast.Module]) -> list[str]:
    """The errors that docstrings name and that are neither classes of these files, nor imported, nor built in."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    known = {node.name for node in nodes if isinstance(node, ast.ClassDef)} | set(dir(builtins))
    known |= {name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    documented = [node for node in nodes if isinstance(node, (*Callable, ast.ClassDef))]
    return sorted({name for node in documented for name in _raised(ast.get_docstring(node) or "") - known})


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_within_limits_when_read(path: Path) -> None:
    too_long = [f.name for f in _functions(path) if (f.end_lineno or f.lineno) - f.lineno >= FUNCTION_LINES_MAX]

    assert too_long == []
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name == "__init__.py"], ids=lambda p: p.parent.name)
def test_a_package_says_what_lives_there_when_opened(path: Path) -> None:
    assert ast.get_docstring(_tree(path))


def test_no_module_is_called_utils_when_listed() -> None:
    assert [path.name for path in ALL if path.stem in {"utils", "util", "helpers", "misc", "common"}] == []


def test_no_two_classes_have_one_name_when_all_sources_are_read() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_public_names_have_docstrings_when_counted() -> None:
    missing, total = _undocumented([_tree(path) for path in SOURCES])

    assert 1 - len(missing) / total >= DOCUMENTED_MIN, "\n".join(["These names have no docstring:", *missing])


def test_a_missing_docstring_is_found_when_no_protocol_or_base_has_one() -> None:
    text = """
class Store(Protocol):
    def get(self):
        'The object.'
    def put(self): ...
class Base(Generic[T]):
    def close(self):
        'End it.'
class File(base.Base[int]):
    'A file.'
    def get(self): ...
    def close(self): ...
    def size(self): ...
    def _hidden(self): ...
async def opened(): ...
"""
    missing, total = _undocumented([ast.parse(text)])

    assert missing == ["Store", "Store.put", "Base", "File.size", "opened"]
    assert total == 7


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.parent.name)
def test_an_error_exists_when_a_docstring_names_it(folder: Path) -> None:
    assert _unknown_errors([_tree(path) for path in folder.rglob("*.py")]) == []


def test_an_unknown_error_is_found_when_a_docstring_names_it() -> None:
    text = """
class Known(Exception):
    'An error.'
def listed():
    \'\'\'Read it.

    Raises:
        Known, Gone: it is
            Not: a name, being deeper.
        ValueError: it is wrong.
    \'\'\'
def said():
    'Read it. Raises Known, Lost if it is not there.'
"""
    assert _unknown_errors([ast.parse(text)]) == ["Gone", "Lost"]
