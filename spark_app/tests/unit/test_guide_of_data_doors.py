"""The code of docs/guide/data-doors.md runs as it stands there, and gives what the page says."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guide_code import names_of
from typer.testing import CliRunner

from tidemill.cli.main import app

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "data-doors.md"
TEXT = GUIDE.read_text(encoding="utf-8")
LOCAL, *ON_SPARK = TEXT.split("\n## Spark\n")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the page's code defines, its blocks run one after the other in an empty folder."""
    with contextlib.chdir(tmp_path_factory.mktemp("doors")):
        yield names_of(GUIDE, LOCAL)


def test_frames_hold_what_the_page_says(names: dict[str, Any]) -> None:
    assert names["of_ann"].rows() == [("/buy", 1), ("/home", 1)]
    assert sorted(names["first"].select("user", "page").rows()) in (
        [("ann", "/home"), ("bob", "/home")], [("ann", "/home")],
    )  # fmt: skip
    assert names["table"].sort_by("k0").to_pydict() == {"k0": ["ann", "ann", "bob"], "value": [1, 1, 1]}


def test_duckdb_answers_what_the_page_says(names: dict[str, Any]) -> None:
    assert names["top"] == [("/buy", 1), ("/home", 2)]
    assert names["streamed"] == [(3,)]


def test_the_commands_print_what_the_page_says(names: dict[str, Any]) -> None:
    examples = re.findall(r"```sh\n(.*?)```\n```json\n(.*?)\n```", LOCAL, re.DOTALL)
    assert len(examples) == 2
    for command, told in examples:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert json.loads(done.stdout) == json.loads(told), command
