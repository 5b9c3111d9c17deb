"""The pinned packages of each image, derived from what the project declares and what its environment holds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from e2e.images.places import ROOT

RUNNER = ("spark", "gateway", "kubernetes", "otlp")
GATEWAY = ("gateway", "otlp")

_ENTRY = re.compile(r"^([\w.-]+)==(\S+)[^\\\n]*((?: \\\n +--hash=\S+)+)", re.MULTILINE)
"""A package of the lock: name, version, hashes."""


def requirements() -> dict[str, str]:
    """Path of each requirements file -> its text."""
    library, operator = ROOT / "pyproject.toml", ROOT / "operator/pyproject.toml"
    spark, runner = _closure({"pyspark"}), _closure(_declared(library, RUNNER))
    return {
        path: _locked(names)
        for path, names in {
            "images/runner/requirements-spark.txt": spark,
            "images/runner/requirements.txt": [name for name in runner if name not in spark],
            "images/gateway/requirements.txt": _closure(_declared(library, GATEWAY)),
            "images/operator/requirements.txt": _closure(_declared(operator)),
        }.items()
    }


def write() -> list[str]:
    """Brings the files up to date; returns the paths of those that changed."""
    changed = []
    for path, text in requirements().items():
        file = ROOT / path
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            changed.append(path)
    return changed


def _declared(project: Path, extras: Sequence[str] = ()) -> set[str]:
    """Names of the dependencies, with those of the extras."""
    table = tomllib.loads(project.read_text())["project"]
    groups = table.get("optional-dependencies", {})
    lines = table.get("dependencies", []) + [line for extra in extras for line in groups[extra]]
    return {_name(line) for line in lines}


def _closure(names: set[str]) -> list[str]:
    """The packages and all that they need without extras, in alphabetical order."""
    found: set[str] = set()
    open_names = [_normal(name) for name in names]
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        found.add(name)
        open_names += [_normal(_name(line)) for line in metadata.requires(name) or [] if _applies(line)]
    return sorted(found)


def _locked(names: list[str]) -> str:
    """The packages at their versions, with the hashes of their files, as the lock has them.

    Raises:
        KeyError: the lock lacks a package: run `make lock`.
    """
    lock = (ROOT / "requirements.lock").read_text()
    found = {_normal(name): f"{name}=={version}{hashes}\n" for name, version, hashes in _ENTRY.findall(lock)}
    return "".join(found[name] for name in names)


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
