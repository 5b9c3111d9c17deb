"""`tidemill init`: a user's project, with a module that runs and tests that pass."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

import tidemill
from tidemill.cli.loader import JsonOption
from tidemill.cli.output import command, say, show_json, wants_json
from tidemill.values.errors import BadInput

FILES = {
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    ".dockerignore": "dockerignore",
    ".gitignore": "gitignore",
    "kubernetes.yaml": "kubernetes.yaml",
    ".github/workflows/ci.yaml": "ci.yaml",
    "{{package}}/module.py": "module.py",
    "tests/test_module.py": "test_module.py",
}
"""Files of a project, and the texts in `cli/project` from which they are made."""

NAME_CHARACTERS_MAX = 40
"""Kubernetes allows 63 in all, and names of a Module's own objects are longer than the Module's."""
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""What stands for them in a manifest is no text."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@command
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the project and of its folder: page-visits.")],
    json_: JsonOption = False,
) -> None:
    """Write a new project into the folder NAME: a module, tests, an image, manifests, and a file for CI.

    Its tests pass as written. A folder that is there already is left alone.
    """
    wants_json(json_)
    words = _words(name)
    folder = Path(name)
    if os.path.lexists(folder):
        raise BadInput(f"{folder} is there already, and nothing in it was changed; take another name, or remove it.")
    _write(folder, words)
    if json_:
        show_json({"folder": str(folder), "entry": f"{words['package']}.module:{words['class']}"})
    else:
        say(f"{name} is written. Its README says how to install what it needs, test it and run it: cd {name}")


def _words(name: str) -> dict[str, str]:
    """What stands for the placeholders; refuses names that no package, class or Kubernetes resource can have."""
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        raise BadInput(
            f"{name!r} is no name of a project: it has small letters, digits and single hyphens between them, begins "
            f"with a letter, and has at most {NAME_CHARACTERS_MAX} characters, such as page-visits."
        )
    package = name.replace("-", "_")
    made = "".join(part.capitalize() for part in name.split("-"))
    if _is_taken(package) or keyword.iskeyword(made) or made in tidemill.__all__:
        raise BadInput(
            f"'{name}' is also a name or a word of Python, of YAML or of tidemill, and one would hide the other; "
            f"take another name, such as my-{name}."
        )
    return {"name": name, "package": package, "class": made, "version": tidemill.__version__}


def _is_taken(package: str) -> bool:
    is_word = keyword.iskeyword(package) or package in _YAML_WORDS
    is_own = package in ("tests", "test_module")  # the project's own folder, and its file there
    return is_word or is_own or package in sys.stdlib_module_names or importlib.util.find_spec(package) is not None


def _write(folder: Path, words: dict[str, str]) -> None:
    """All files or none: they are written beside the place, which then gets them at once."""
    texts = resources.files("tidemill.cli") / "project"
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for place, source in FILES.items():
            path = beside / _filled(place, words)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_filled((texts / f"{source}.txt").read_text(encoding="utf-8"), words), encoding="utf-8")
        (beside / words["package"] / "__init__.py").touch()
        beside.chmod(0o755)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"{{{{{word}}}}}", value)
    return text
