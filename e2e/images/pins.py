"""The pinned packages of each image, derived from what the project declares and what its environment holds."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from e2e.images.places import ROOT

NOT_IN_GATEWAY = frozenset({"pyspark", "lightkube", "lightkube-models"})
DEVELOPMENT = "dev"


def requirements() -> dict[str, list[str]]:
    """Path of each requirements file -> its lines."""
    library = _declared(ROOT / "pyproject.toml")
    spark = _closure({"pyspark"})
    found = {
        "images/runner/requirements-spark.txt": spark,
        "images/runner/requirements.txt": [line for line in _closure(library) if line not in spark],
        "images/gateway/requirements.txt": _closure(library - NOT_IN_GATEWAY),
    }
    operator = ROOT / "operator/pyproject.toml"
    if operator.exists():
        found["images/operator/requirements.txt"] = _closure(_declared(operator))
    return found


def write() -> list[str]:
    """Brings the files up to date; returns the paths of those that changed."""
    changed = []
    for path, lines in requirements().items():
        text = "".join(f"{line}\n" for line in lines)
        file = ROOT / path
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            changed.append(path)
    return changed


def _declared(project: Path) -> set[str]:
    """Names of all dependencies but those of developers."""
    table = tomllib.loads(project.read_text())["project"]
    groups = table.get("optional-dependencies", {})
    lines = table.get("dependencies", []) + [line for name in groups if name != DEVELOPMENT for line in groups[name]]
    return {_name(line) for line in lines}


def _closure(names: set[str]) -> list[str]:
    """`name==version` of the packages and all that they need without extras, in alphabetical order."""
    pinned: dict[str, str] = {}
    open_names = [_normal(name) for name in names]
    while open_names:
        name = open_names.pop()
        if name in pinned:
            continue
        pinned[name] = f"{name}=={metadata.version(name)}"
        open_names += [_normal(_name(line)) for line in metadata.requires(name) or [] if _applies(line)]
    return [pinned[name] for name in sorted(pinned)]


def _applies(requirement: str) -> bool:
    """Whether a line of a package's metadata holds on Linux with Python 3.13 and no extra."""
    from packaging.requirements import Requirement

    marker = Requirement(requirement).marker
    version = {"python_version": "3.13", "python_full_version": "3.13.0", "extra": ""}
    return marker is None or marker.evaluate(version)


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return found[0] if found else requirement


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
