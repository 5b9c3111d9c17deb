"""What a newcomer reads runs: the five pages of the tutorial in their order, and each recipe of the cookbook."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.store.urls import open_store

from gateways import served  # isort: skip

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPE = re.compile(r"^## ([^\n]+)$", re.MULTILINE)
INTRODUCTION, *SECTIONS = RECIPE.split((DOCS / "cookbook.md").read_text(encoding="utf-8"))
RECIPES = dict(zip(SECTIONS[::2], SECTIONS[1::2], strict=True))
SECONDS = 120


# --- the tutorial ----------------------------------------------------------------------------------------------------


class Reader:
    """Does what the tutorial says, in a folder: writes files, runs their tests and the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def follow(self, page: Path) -> None:
        """The files of a page and their tests, then its commands, in one shell."""
        blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
        for place, text in (code.split("\n", 1) for kind, code in blocks if kind == "python"):
            name, _, where = place.removeprefix("# ").partition(", ")
            self._write(self.folder / name, where, text)
            if name.startswith("test_"):
                self._test(name.removesuffix(".py"))
        if commands := [text for kind, text in blocks if kind == "sh"]:
            self._paste("".join(commands))

    def _write(self, file: Path, where: str, text: str) -> None:
        if where == "above the class":
            text = file.read_text().replace("class ", f"{text}class ", 1)
        elif where:
            assert where == "at the end of define"
            text = f"{file.read_text()}\n{text}"
        file.write_text(text)

    def _test(self, name: str) -> None:
        self.forget()
        for function_name, function in vars(importlib.import_module(name)).items():
            if not function_name.startswith("test_"):
                continue
            marks = [mark.args for mark in getattr(function, "pytestmark", ())]
            for given in [{name: value} for name, values in marks for value in values] or [{}]:
                function(**given)

    def _paste(self, text: str) -> None:
        """Run commands; a line that ends with a comment prints what the comment promises."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL")}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            ["bash", "-c", f"set -e\ntrap 'kill %1 2>/dev/null || true' EXIT\n{text}"],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        promised = re.findall(r"# (\S+)$", text, re.MULTILINE)
        assert [line for line in done.stdout.splitlines() if line in promised] == promised, done.stdout + done.stderr

    def forget(self) -> None:
        """Let the files be imported anew, as another process would."""
        for name in ("shop", "shop2", "test_shop", "client"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    reader = Reader(tmp_path)
    yield reader
    reader.forget()


@pytest.mark.timeout(900)
def test_the_tutorial_works_when_it_is_followed_page_by_page(reader: Reader) -> None:
    pages = sorted((DOCS / "tutorial").glob("*.md"))
    assert len(pages) == 5
    for page in pages:
        reader.follow(page)


def test_the_client_of_the_tutorial_reads_what_it_wrote_when_a_gateway_serves(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemill import InProcessCluster, LaunchConfig

    for page in sorted((DOCS / "tutorial").glob("[12]*.md")):
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "python":
                (tmp_path / text.split("\n", 1)[0].removeprefix("# ")).write_text(text)
    store = tmp_path / "data"
    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(importlib.import_module("shop").Shop(), LaunchConfig(4, 2))
        with served(Modules(open_store(store.as_uri())), GatewaySettings()) as server:
            source = (tmp_path / "client.py").read_text().replace("http://127.0.0.1:8080", server.url)
            names: dict[str, Any] = {}
            exec(source, names)
            assert names["main"]() == 1


# --- the cookbook ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the recipes have in common, and what all of them define: a later one may go on with an earlier one."""
    found: dict[str, Any] = {}
    for text in (INTRODUCTION, *RECIPES.values()):
        for _, code in BLOCK.findall(text):
            tree = ast.parse(code)
            tree.body = [node for node in tree.body if not isinstance(node, (ast.With, ast.Assert))]
            exec(compile(tree, "cookbook.md", "exec"), found)
    return found


def test_the_page_says_how_many_recipes_it_has_when_they_are_counted() -> None:
    words = {20: "Twenty", 21: "Twenty-one", 22: "Twenty-two", 23: "Twenty-three", 24: "Twenty-four"}

    assert INTRODUCTION.startswith(f"# Cookbook\n\n{words[len(RECIPES)]} recipes.")


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_holds_when_it_is_run(title: str, names: dict[str, Any]) -> None:
    blocks = BLOCK.findall(RECIPES[title])
    assert blocks
    for _, text in blocks:
        assert "assert" in text or "while" in text  # each recipe says itself what holds
        exec(compile(text, title, "exec"), names)
