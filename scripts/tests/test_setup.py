"""scripts/setup.sh on a machine of stand-ins: an apt that knows some packages once its lists are there, and no Java."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "setup.sh"
REAL = ("bash", "sh", "sed", "cat", "cksum", "tr", "dirname", "touch", "chmod", "mkdir", "id", "env")
JAVA = "echo 'openjdk version \"{major}.0.1\"' >&2"


class Machine:
    """A folder of programs; `apt-get install` writes down what it was asked for and brings what a test says."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.lists = folder / "lists"
        checkout = folder / "checkout"
        (checkout / "scripts").mkdir(parents=True)
        (checkout / "images").mkdir()
        self.setup = checkout / "scripts/setup.sh"
        self.setup.write_text(SETUP.read_text())
        for name in ("requirements.lock", "pyproject.toml", "images/requirements-build.txt"):
            (checkout / name).write_text("")
        self.bin.mkdir()
        for name in REAL:
            found = next(path for path in (Path("/bin") / name, Path("/usr/bin") / name) if path.exists())
            (self.bin / name).symlink_to(found)

    def add(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def add_apt(self, candidates: dict[str, str], brings: dict[str, str]) -> None:
        """An apt whose lists come with `update` only; `brings`: package -> what its installation runs."""
        known = "".join(f'{name}) echo "  Candidate: {version}" ;; ' for name, version in candidates.items())
        self.add("apt-cache", f'[ -e {self.lists} ] || exit 0; case "$2" in {known} esac')
        effects = "".join(f"*' {name} '*) {effect} ;; " for name, effect in brings.items())
        self.add(
            "apt-get",
            f'echo "$*" >>{self.log}; case " $* " in *" update "*) touch {self.lists} ;; {effects} esac',
        )

    def brings(self, name: str, script: str = "") -> str:
        """Shell that puts a program in place."""
        path = self.bin / name
        return f"printf '%s\\n' '#!/bin/sh' \"{script}\" >{path}; chmod +x {path}"

    def run(self) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "HOME": os.environ["HOME"]}
        command = ["bash", str(self.setup)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    def installed(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split()[-1] for line in lines if " install " in f" {line} "]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.add("python3", f'[ "$2" != venv ] || {{ mkdir -p .venv/bin; {made.brings("../checkout/.venv/bin/python")}; }}')
    made.add("pgrep", "")
    made.add("curl", "")
    return made


def java(machine: Machine, major: int) -> str:
    """What an installation of Java does."""
    return machine.brings("java", f"echo 'openjdk version \\\"{major}.0.1\\\"' >&2")


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        # Debian 12; Debian 13, which mentions 17 but has none; an Ubuntu that has both; a newer one with neither.
        ({"openjdk-17-jre-headless": "17.0.15", "default-jre-headless": "2:1.17"}, "openjdk-17-jre-headless"),
        ({"openjdk-17-jre-headless": "(none)", "openjdk-21-jre-headless": "21.0.7"}, "openjdk-21-jre-headless"),
        ({"openjdk-17-jre-headless": "17.0.15", "openjdk-21-jre-headless": "21.0.7"}, "openjdk-21-jre-headless"),
        ({"openjdk-17-jre-headless": "(none)", "default-jre-headless": "2:1.25"}, "default-jre-headless"),
    ],
)
def test_the_newest_java_that_apt_has_is_installed_when_there_is_none(
    machine: Machine, candidates: dict[str, str], expected: str
) -> None:
    machine.add_apt(candidates, {expected: java(machine, 21)})

    done = machine.run()

    assert (done.returncode, machine.installed()) == (0, [expected]), done.stderr


def test_setup_says_so_when_apt_has_no_java(machine: Machine) -> None:
    machine.add_apt({"openjdk-17-jre-headless": "(none)"}, {})

    done = machine.run()

    assert done.returncode == 1 and "Java runtime" in done.stderr and "by hand" in done.stderr
    assert machine.installed() == []


def test_nothing_is_installed_when_java_is_there(machine: Machine) -> None:
    machine.add("java", JAVA.format(major=21))
    machine.add_apt({}, {})

    done = machine.run()

    assert (done.returncode, machine.installed()) == (0, []), done.stderr


def test_the_java_of_java_home_is_looked_at_when_it_is_set(machine: Machine) -> None:
    machine.add("java", JAVA.format(major=21))
    machine.add_apt({"openjdk-21-jre-headless": "21.0.7"}, {"openjdk-21-jre-headless": ":"})
    machine.add("bin_java", JAVA.format(major=11))
    home = machine.bin.parent / "old"
    (home / "bin").mkdir(parents=True)
    (machine.bin / "bin_java").rename(home / "bin/java")
    machine.setup.write_text(machine.setup.read_text().replace("set -eu", f"export JAVA_HOME={home}; set -eu"))

    done = machine.run()

    assert done.returncode == 1 and f"JAVA_HOME={home}" in done.stderr


def test_the_venv_module_is_installed_when_python_lacks_it(machine: Machine) -> None:
    machine.add("java", JAVA.format(major=21))
    there = machine.bin / "has-venv"
    python = (machine.bin / "python3").read_text().removeprefix("#!/bin/sh\n")
    machine.add("python3", f'case "$2" in *ensurepip*) [ -e {there} ] || exit 1 ;; esac\n{python}')
    machine.add_apt({"python3-venv": "3.13.5"}, {"python3-venv": f"touch {there}"})

    done = machine.run()

    assert (done.returncode, machine.installed()) == (0, ["python3-venv"]), done.stderr


def test_python_itself_is_installed_when_there_is_none(machine: Machine) -> None:
    machine.add("java", JAVA.format(major=21))
    (machine.bin / "python3").rename(machine.bin / "later")
    machine.add_apt({"python3": "3.13.5"}, {"python3": f"cp {machine.bin / 'later'} {machine.bin / 'python3'}"})
    (machine.bin / "cp").symlink_to("/bin/cp")

    done = machine.run()

    assert (done.returncode, machine.installed()) == (0, ["python3"]), done.stderr


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_each_python_that_is_claimed_is_taken_when_the_plain_one_is_too_old(machine: Machine, minor: int) -> None:
    machine.add("java", JAVA.format(major=21))
    (machine.bin / "python3").rename(machine.bin / f"python3.{minor}")
    machine.add("python3", "exit 1")
    machine.add_apt({}, {})

    done = machine.run()

    assert (done.returncode, machine.installed()) == (0, []), done.stderr


@pytest.mark.parametrize(("program", "package"), [("pgrep", "procps"), ("curl", "curl")])
def test_a_program_that_tests_call_is_installed_when_it_is_missing(
    machine: Machine, program: str, package: str
) -> None:
    machine.add("java", JAVA.format(major=21))
    (machine.bin / program).unlink()
    machine.add_apt({package: "2:4.0"}, {package: machine.brings(program)})

    done = machine.run()

    assert (done.returncode, machine.installed()) == (0, [package]), done.stderr
