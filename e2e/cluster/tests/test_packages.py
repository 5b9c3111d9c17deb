"""What a bare Debian lacks is installed before it is used. No cluster is started here."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import packages
from e2e.cluster.shell import ClusterError
from e2e.images import build, buildah

E2E = Path(__file__).parents[2]
RUNNERS = {"run", "_run", "succeeds", "start", "inside", "_without_services", "Popen"}
# Of packages that Debian marks essential, of setup.sh (python3, bash), or of an optional way (kind).
ALWAYS_THERE = {"bash", "cp", "rm", "umount", "setpriv", "ldd", "apt-get", "kind", "docker"}


def test_every_program_is_brought_by_a_package_when_the_test_cluster_calls_it() -> None:
    called = {name for file in _sources() for name in _programs(file)}

    assert {"buildah", "skopeo", "debootstrap", "ip", "containerd"} <= called
    assert called - set(packages.FOR_CLUSTER) - ALWAYS_THERE == set()


def test_every_program_is_brought_by_a_package_when_images_are_built() -> None:
    called = {name for file in _sources() if file.parent.name == "images" for name in _programs(file)}

    assert called - {"ctr"} - set(packages.FOR_IMAGES) - ALWAYS_THERE == set()


def test_missing_packages_are_named_when_they_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)

    with pytest.raises(ClusterError, match="Missing: buildah debootstrap skopeo tar util-linux"):
        packages.install_missing(packages.FOR_IMAGES)


def test_a_build_installs_what_it_needs_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"apt-get", "tar", "unshare"}
    asked: list[list[str]] = []

    def apt(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        there.update(command[command.index("--no-install-recommends") + 1 :] if "install" in command else ())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", apt)

    build.see_to_programs()

    assert [command[-1] for command in asked] == ["update", "skopeo"]
    assert asked[1][-3:] == ["buildah", "debootstrap", "skopeo"]


def test_a_build_says_that_it_needs_root_when_all_programs_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(buildah.ImageError, match="must run as root"):
        build.see_to_programs()


def _sources() -> list[Path]:
    return sorted([*E2E.glob("*.py"), *(E2E / "cluster").glob("*.*"), *(E2E / "images").glob("*.py")])


def _programs(file: Path) -> Iterator[str]:
    """Names of programs that a file runs, by the strings that begin a command; of node.sh, by what it keeps running."""
    if file.suffix == ".sh":
        yield from re.findall(r"^keep (?:\w+ )(containerd)\b", file.read_text(), re.MULTILINE)
    if file.suffix != ".py":
        return
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and _name_of(node.func) in RUNNERS:
            yield from _words(file, node)


def _words(file: Path, call: ast.Call) -> Iterator[str]:
    arguments = call.args[1:] if _name_of(call.func) == "inside" else call.args
    if arguments and _is_text(arguments[0]) and not _is_buildah_command(file, call):
        yield _text(arguments[0])


def _is_buildah_command(file: Path, call: ast.Call) -> bool:
    """Whether the words are buildah's, as in `buildah.run("commit", …)`, and no program's name."""
    of_module = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "buildah"
    return of_module or (file.name == "buildah.py" and _name_of(call.func) == "run")


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    return str(node.value)
