"""What `make audit` says of what was compared, and of what could not be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "audit.py"
SOUND: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
SKIPPED: dict[str, Any] = {"name": "b", "skip_reason": "Dependency not found on PyPI"}
FLAWED: dict[str, Any] = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3", "4"]}]}


def verdict(report: Any, trouble: str = "") -> tuple[int, str]:
    described = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert described is not None
    assert described.loader is not None
    script = importlib.util.module_from_spec(described)
    described.loader.exec_module(script)
    found: tuple[int, str] = script.verdict(report, trouble)
    return found


@pytest.mark.parametrize(
    ("packages", "code", "text"),
    [
        ([SOUND, SOUND], 0, "2 packages, no known vulnerability."),
        ([SOUND, FLAWED, SKIPPED], 1, "c 2: PYSEC-1, fixed in 3, 4\n"),
        ([SOUND, SKIPPED], 2, "1 of 2 packages could not be compared: b. "),
        ([SKIPPED, SKIPPED], 2, "Nothing was compared: the index that answers here publishes no vulnerabilities. "),
    ],
    ids=["sound", "flawed", "partly unknown", "unknown"],
)
def test_audit_fails_when_a_package_has_a_vulnerability_or_was_not_compared(
    packages: list[Any], code: int, text: str
) -> None:
    found, said = verdict({"dependencies": packages})
    assert found == code
    assert said.startswith(text)


def test_audit_names_the_trouble_when_nobody_can_be_asked() -> None:
    code, said = verdict(None, "Traceback …\nConnectionError: Failed to resolve 'pypi'\n")
    assert code == 2
    assert said.startswith("Nothing was compared: the published vulnerabilities could not be asked (ConnectionError")
    assert "Traceback" not in said
