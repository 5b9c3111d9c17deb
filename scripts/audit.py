"""Compares the locked packages with the published vulnerabilities: `python scripts/audit.py PIP_AUDIT LOCK`.

A package that could not be compared is a failure as one with a vulnerability is: silence would pass for health.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

SHOWN = 5


def verdict(report: Mapping[str, Any] | None, trouble: str) -> tuple[int, str]:
    """The exit code and what to say: 0 if all packages were compared and none has a known vulnerability, 1 if one has,
    2 if packages could not be compared. `report` is that of pip-audit, None where it ended without one; `trouble` is
    what it wrote beside.
    """
    if report is None:
        words = trouble.strip().splitlines() or ["it said nothing"]
        return 2, f"Nothing was compared: the published vulnerabilities could not be asked ({words[-1]}). {_ADVICE}"
    packages = report["dependencies"]
    found = [f"{_named(package)}: {_told(flaw)}" for package in packages for flaw in package.get("vulns", ())]
    if found:
        return 1, "\n".join([*found, "Lock a fixed version (make lock), or take the package out."])
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if len(skipped) == len(packages):
        return 2, f"Nothing was compared: the index that answers here publishes no vulnerabilities. {_ADVICE}"
    if skipped:
        names = ", ".join(skipped[:SHOWN]) + (", …" if len(skipped) > SHOWN else "")
        return 2, f"{len(skipped)} of {len(packages)} packages could not be compared: {names}. {_ADVICE}"
    return 0, f"{len(packages)} packages, no known vulnerability."


_ADVICE = "Run it again where PyPI itself answers."


def _named(package: Mapping[str, Any]) -> str:
    return f"{package['name']} {package['version']}"


def _told(flaw: Mapping[str, Any]) -> str:
    fixed = ", ".join(flaw["fix_versions"]) or "no version yet"
    return f"{flaw['id']}, fixed in {fixed}"


def main(program: str, lock: str) -> int:
    """Runs the program, and prints its verdict."""
    options = ("--disable-pip", "--no-deps", "--progress-spinner", "off", "-f", "json", "-r", lock)
    ended = subprocess.run([program, *options], capture_output=True, text=True, check=False)
    try:
        report = json.loads(ended.stdout)
    except ValueError:
        report = None
    code, said = verdict(report, ended.stderr)
    print(said, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
