"""`tidemill init`: what it writes and refuses; scripts/tests/test_dist.py runs each block of its README from wheels."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from jsonschema_rs import validator_for
from typer.testing import CliRunner

import tidemill
from tidemill.cli.init import FILES
from tidemill.cli.main import app

ROOT = Path(__file__).resolve().parents[3]


def init(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["init", *arguments])
    return done.exit_code, done.output


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert init("page-visits")[0] == 0
    return tmp_path / "page-visits"


def test_all_files_are_written_when_a_project_is_made(project: Path) -> None:
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}

    assert files == {place.replace("{{package}}", "page_visits") for place in FILES} | {"page_visits/__init__.py"}
    assert [path for path in project.rglob("*") if path.is_file() and "{{" in path.read_text().replace("${{", "")] == []
    assert [path.name for path in project.parent.iterdir()] == ["page-visits"]  # nothing is left beside it


def test_its_tests_pass_when_a_project_is_made(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert re.search(r"^5 passed", done.stdout, re.MULTILINE), done.stdout


def test_it_needs_this_version_when_a_project_is_made(project: Path) -> None:
    told = tomllib.loads((project / "pyproject.toml").read_text())

    assert told["project"]["name"] == "page-visits"
    assert told["project"]["dependencies"] == [f"tidemill=={tidemill.__version__}"]
    assert told["tool"]["mypy"]["strict"] is True


def test_its_manifests_are_valid_when_a_project_is_made(project: Path) -> None:
    module, secret = yaml.safe_load_all((project / "kubernetes.yaml").read_text())
    [version] = yaml.safe_load((ROOT / "crds/module.yaml").read_text())["spec"]["versions"]
    schema = validator_for(version["schema"]["openAPIV3Schema"])

    assert [error.message for error in schema.iter_errors(module)] == []
    assert module["spec"]["entry"] == "page_visits.module:PageVisits"
    assert module["spec"]["store"]["credentialsSecretRef"]["name"] == secret["metadata"]["name"]


def test_its_image_and_ci_name_what_is_there_when_a_project_is_made(project: Path) -> None:
    copied = re.findall(r"^COPY (\S+)", (project / "Dockerfile").read_text(), re.MULTILINE)
    steps = yaml.safe_load((project / ".github/workflows/ci.yaml").read_text())["jobs"]["test"]["steps"]

    assert copied == ["page_visits"]
    assert (project / "page_visits/module.py").exists()
    assert [step["run"] for step in steps if "run" in step][-1] == "tidemill describe page_visits.module:PageVisits"


def test_each_line_of_its_readme_does_something_when_pasted(project: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)
    use = "".join(line for line in blocks[1].splitlines(keepends=True) if "tidemill ui" not in line)
    script = f"set -e\nexport PATH={Path(sys.executable).parent}:$PATH\n{use}\nwait %1 || true\n"
    done = subprocess.run(["bash", "-c", script], cwd=project, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert '["/home", 1]' in done.stdout.splitlines()


@pytest.mark.parametrize(
    "name",
    ["", "Visits", "page_visits", "1st", "-x", "x-", "a--b", "a/b", "../up", "a b", "ä", "x" * 41, "lambda", "json",
     "numpy", "tidemill", "tests", "module", "depot", "launch-config", "none", "true", "false", "null", "on", "y",
     "test-module"],
)  # fmt: skip
def test_a_name_is_refused_when_no_package_class_or_resource_can_have_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = init("--", name)

    assert (code, said[:7]) == (1, "Error: "), said
    assert "such as" in said.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_nothing_is_overwritten_when_the_name_is_there(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "page-visits"
    place.mkdir() if kind == "folder" else place.write_text("mine")
    code, said = init("page-visits")

    assert (code, "is there already" in said) == (1, True)
    assert place.is_dir() or place.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["page-visits"]


def test_nothing_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(FILES, "last", "no-such-text")
    code, said = init("page-visits")

    assert (code, "no-such-text" in said) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_json_says_where_it_is_when_a_program_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = init("page-visits", "--json")

    assert (code, json.loads(said)) == (0, {"folder": "page-visits", "entry": "page_visits.module:PageVisits"})
