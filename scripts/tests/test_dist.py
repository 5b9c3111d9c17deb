"""The packages as people install them: built, put into empty environments of each Python that they name and that is
here, and tried.
"""

from __future__ import annotations

import email.message
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPERATOR = tomllib.loads((ROOT / "operator/pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
RUNNING = "{}.{}".format(*sys.version_info)
CLAIMED = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
MAIN_SHARE_MAX = 400
"""Modules that `import tidemill` may load, of Python and its own; a count, which no busy machine changes."""

pytestmark = pytest.mark.timeout(900)  # the first time, packages are fetched

STORY = """
import os, sys
started = []
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec")
sys.addaudithook(lambda event, _: started.append(event) if event in STARTS else None)
import tidemill
loaded = set(sys.modules)
for name in tidemill.__all__:
    getattr(tidemill, name)
import tidemill.client
import json
heavy = [name for name in ("numpy", "polars", "pyarrow", "cloudpickle") if name in loaded]
extras = ("pyspark", "py4j", "fastapi", "lightkube", "confluent_kafka", "psycopg", "pyiceberg", "sqlalchemy")
extras = [name for name in extras if name in sys.modules]
print(json.dumps({"version": tidemill.__version__, "loaded": len(loaded), "heavy": heavy, "extras": extras,
                  "started": started, "place": os.path.dirname(tidemill.__file__)}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it knows nothing of this checkout but what it is given."""
    dropped = ("TIDEMILL", "PYTHON", "VIRTUAL_ENV", "COVERAGE")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def interpreter(version: str) -> str | None:
    """A Python of this version: the one that runs this, one of pyenv, or one on the path that answers."""
    if version == RUNNING:
        return sys.executable
    beside = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"))
    for candidate in [*beside, shutil.which(f"python{version}")]:
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = candidate and subprocess.run([candidate, "-c", asked], capture_output=True, text=True)
        if done and done.stdout.strip() == version:
            return str(candidate)
    return None


HERE = {version: found for version in CLAIMED if (found := interpreter(version))}
"""Those of the claimed Pythons that this machine has: a run tries these, and the names of its tests say which."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    run("bash", ROOT / "scripts/dist.sh", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def uv() -> str:
    return run("bash", ROOT / "scripts/supply.sh", "uv", cwd=ROOT).strip()


def wheel(built: Path, package: str) -> Path:
    return built / f"{package}-{VERSION}-py3-none-any.whl"


def environment(uv: str, folder: Path, python: str, *packages: str | Path) -> Path:
    """The programs of a new environment with these packages, and what they need at the locked versions."""
    run(uv, "venv", "-q", "--python", python, folder, cwd=folder.parent)
    # The locked versions with their hashes; nothing is built, so nothing but what was published runs.
    run(
        uv, "pip", "install", "-q", "--system-certs", "--no-build", "--python", folder / "bin/python",
        "--constraint", ROOT / "requirements.lock", *packages, cwd=folder.parent,
    )  # fmt: skip
    return folder / "bin"


def metadata(path: Path) -> email.message.Message:
    with zipfile.ZipFile(path) as archive:
        [place] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(place).decode())


def test_all_parts_have_one_version_when_they_are_read() -> None:
    import tidemill
    import tidemill_operator
    from tidemill_operator.resources.settings import Defaults

    chart = (ROOT / "charts/tidemill/Chart.yaml").read_text()
    assert tidemill.__version__ == tidemill_operator.VERSION == OPERATOR["version"] == VERSION
    assert re.findall(r"^(?:version|appVersion): (.*)$", chart, re.MULTILINE) == [VERSION, VERSION]
    assert Defaults().gateway_image.endswith(f":{VERSION}")


@pytest.mark.parametrize("package", ["tidemill", "tidemill_operator"])
def test_a_package_says_what_it_is_when_it_is_built(built: Path, package: str) -> None:
    told = metadata(wheel(built, package))

    assert (told["Version"], told["License-Expression"], told["Author"]) == (
        VERSION,
        "Apache-2.0",
        "The Tidemill authors",
    )
    assert told["Requires-Python"] == f">={CLAIMED[0]}"
    assert told["License-File"] == "LICENSE"
    assert [line for line in told.get_all("Classifier", []) if line[-5:-2] == " 3."] == [
        f"Programming Language :: Python :: {version}" for version in CLAIMED
    ]
    assert len(told.get_payload()) > 100  # the README
    with tarfile.open(built / f"{package}-{VERSION}.tar.gz") as archive:
        held = {name.split("/", 1)[1].split("/")[0] for name in archive.getnames() if "/" in name}
    assert held <= {
        "spark_app",
        "src",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "pyproject.toml",
        ".gitignore",
    }


def unpacked(built: Path, package: str, folder: Path) -> Path:
    """The tree of a source package."""
    with tarfile.open(built / f"{package}-{VERSION}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has none yet
        archive.extractall(folder)
    [tree] = folder.iterdir()
    return tree


def test_the_licence_is_the_same_when_each_package_brings_it() -> None:
    assert (ROOT / "operator/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("package", ["tidemill", "tidemill_operator"])
def test_the_same_wheel_is_built_when_only_the_source_package_is_there(
    built: Path, package: str, tmp_path: Path
) -> None:
    tree = unpacked(built, package, tmp_path / "source")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", cwd=tree)

    assert wheel(tmp_path / "again", package).read_bytes() == wheel(built, package).read_bytes()


def test_the_python_that_runs_this_is_claimed_when_the_packages_are_tried() -> None:
    assert RUNNING in HERE


@pytest.mark.parametrize("version", HERE)
def test_the_package_works_when_it_is_installed_alone(built: Path, uv: str, version: str, tmp_path: Path) -> None:
    bin_ = environment(uv, tmp_path / "env", HERE[version], wheel(built, "tidemill"), "pytest")
    told = json.loads(run(bin_ / "python", "-c", STORY, cwd=tmp_path))

    assert (told["version"], told["heavy"], told["extras"], told["started"]) == (VERSION, [], [], [])
    assert told["loaded"] < MAIN_SHARE_MAX
    assert Path(told["place"]).is_relative_to(tmp_path)
    assert (Path(told["place"]) / "py.typed").exists()
    assert run(bin_ / "tidemill", "--version", cwd=tmp_path) == f"tidemill {VERSION}\n"

    run(bin_ / "tidemill", "init", "page-visits", cwd=tmp_path)
    project = tmp_path / "page-visits"
    run(bin_ / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert "*visits" in run(bin_ / "tidemill", "describe", "page_visits.module:PageVisits", cwd=project)
    if version == next(iter(HERE)):  # types are checked for the oldest one
        run(
            sys.executable,
            "-m",
            "mypy",
            "--python-executable",
            bin_ / "python",
            "--python-version",
            version,
            cwd=project,
        )
        run(Path(sys.executable).with_name("basedpyright"), "--pythonpath", bin_ / "python", cwd=project)


def test_the_operator_works_when_it_is_installed_alone(built: Path, uv: str, tmp_path: Path) -> None:
    bin_ = environment(uv, tmp_path / "env", sys.executable, wheel(built, "tidemill_operator"))

    assert "--namespaces" in run(bin_ / "tidemill-operator", "--help", cwd=tmp_path)
    assert (
        run(bin_ / "python", "-c", "import importlib.util as u; print(u.find_spec('tidemill'))", cwd=tmp_path)
        == "None\n"
    )


BROWSER = """#!/bin/sh
# Looks at the page, then stops `tidemill ui`, as a person does with Ctrl-C.
python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).status)' "$1" > {seen}
kill -INT $PPID
"""


def test_each_block_of_a_projects_readme_does_what_it_says_when_no_registry_has_tidemill(
    built: Path, tmp_path: Path
) -> None:
    """Word by word, in a shell that has no `tidemill` but the one that the README installs."""
    unpacked(built, "tidemill", tmp_path / "source").rename(tmp_path / "tidemill")
    run(Path(sys.executable).with_name("tidemill"), "init", "page-visits", cwd=tmp_path)
    project, browser, seen = tmp_path / "page-visits", tmp_path / "browser", tmp_path / "seen"
    browser.write_text(BROWSER.format(seen=seen))
    browser.chmod(0o755)
    (tmp_path / "locked").write_text(
        "\n".join(re.findall(r"^[\w.\[\]-]+==\S+", (ROOT / "requirements.lock").read_text(), re.M))
    )
    lines = {"BROWSER": browser, "PIP_CONSTRAINT": tmp_path / "locked", "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin"}
    exports = "".join(f"export {name}='{text}'\n" for name, text in lines.items())
    (_, install), (_, use), (kind, change), (_, again) = re.findall(
        r"```(sh|python)\n(.*?)```", (project / "README.md").read_text(), re.DOTALL
    )

    said = run("bash", "-e", "-c", f"{exports}{install}{use}wait", cwd=project)
    assert " 5 passed" in said and "Success: no issues" in said
    assert '["/home", 1]' in said.splitlines()
    assert seen.read_text() == "200\n"
    assert [path.name for path in (project / "wheels").iterdir()] == [wheel(built, "tidemill").name]

    module = project / "page_visits/module.py"
    module.write_text(module.read_text() + change)
    assert kind == "python"
    assert "1" in run("bash", "-e", "-c", f"{exports}. .venv/bin/activate\n{again}wait", cwd=project).splitlines()

    steps = (project / ".github/workflows/ci.yaml").read_text()  # from the folder that was committed, as in the README
    [line] = [line for line in install.splitlines() if "--find-links" in line]
    assert f"- run: {line}" in steps
