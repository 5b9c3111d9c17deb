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
    for folder in ("benchmarks", "e2e", "examples", "gitops", "images", "scripts", "spark_app/tests", "operator/tests")
]
SOURCES = sorted(path for folder in PACKAGES for path in folder.rglob("*.py"))
ALL = SOURCES + sorted(path for folder in OTHERS for path in folder.rglob("*.py"))
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 700
DOCUMENTED_MIN = 0.95
"""The least share of public names that have a docstring."""

Callable = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(_tree(path)) if isinstance(node, Callable)]


def _public_methods(made: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {node.name: node for node in made.body if isinstance(node, Callable) and not node.name.startswith("_")}


def _public_members(made: ast.ClassDef) -> set[str]:
    """The methods, the fields, and the attributes that methods set."""
    fields = (node for field in made.body if isinstance(field, (ast.Assign, ast.AnnAssign)) for node in ast.walk(field))
    names = {node.id for node in fields if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    attributes = (node for node in ast.walk(made) if isinstance(node, ast.Attribute))
    names |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    return {name for name in {*_public_methods(made), *names} if not name.startswith("_")}


def _public_names(trees: list[ast.Module]) -> Iterator[tuple[str, Definition]]:
    """Public functions, classes and methods, but for methods that a base, or a Protocol met in full, documents."""
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def bases(name: str) -> list[str]:
        return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in classes[name].bases]

    def line(name: str) -> list[str]:
        """The class and all its bases."""
        return [name, *(above for base in bases(name) if base in classes for above in line(base))]

    members = {name: {m for above in line(name) for m in _public_members(classes[above])} for name in classes}
    # Many classes have some one method by chance; that of a Protocol with no other is documented where it is made.
    protocols = [name for name in classes if "Protocol" in bases(name) and len(members[name]) > 1]

    def documented_elsewhere(name: str) -> set[str]:
        met = [protocol for protocol in protocols if protocol != name and members[protocol] <= members[name]]
        sources = [*line(name)[1:], *(above for protocol in met for above in line(protocol))]
        return {
            m for source in sources for m, node in _public_methods(classes[source]).items() if ast.get_docstring(node)
        }

    for node in (node for tree in trees for node in tree.body if isinstance(node, (*Callable, ast.ClassDef))):
        if node.name.startswith("_"):
            continue
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            elsewhere = documented_elsewhere(node.name)
            own = _public_methods(node).items()
            yield from ((f"{node.name}.{name}", method) for name, method in own if name not in elsewhere)


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


def test_files_are_called_by_nouns_when_listed() -> None:
    nouns = {"bindings", "drawing", "ranking", "routing", "settings", "tracing", "widening"}
    last_words = {path.stem.split("_")[-1] for path in SOURCES}

    assert {word for word in last_words if re.search("ings?$", word)} <= nouns


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
    url: str
    def get(self):
        'The object.'
    def put(self): ...
class Base(Generic[T]):
    def close(self):
        'End it.'
class File(base.Base[int]):
    'A file.'
    def __init__(self):
        self.url = ''
    def get(self): ...
    def put(self): ...
    def close(self): ...
    def size(self): ...
    def _hidden(self): ...
class Menu:
    'Has a method of the name alone, so the words of `Store` are not about it.'
    url = ''
    def get(self): ...
class Page(Store, Protocol):
    'A protocol with all of another one and more.'
    def turn(self):
        'Go on.'
class Turner(Protocol):
    'One method says too little.'
    def turn(self):
        'Go on.'
class Book:
    'Lacks the URL.'
    def get(self): ...
    def put(self): ...
    def turn(self): ...
async def opened(): ...
"""
    missing, total = _undocumented([ast.parse(text)])

    assert missing[:5] == ["Store", "Store.put", "Base", "File.put", "File.size"]
    assert missing[5:] == ["Menu.get", "Book.get", "Book.put", "Book.turn", "opened"]
    assert total == 19


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
