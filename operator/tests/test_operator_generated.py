"""What is generated from the registries is up to date, and what the CRDs say of themselves is whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemill.language import options

ROOT = Path(__file__).resolve().parents[2]
CRDS = [yaml.safe_load((ROOT / "crds" / name).read_text()) for name in ("module.yaml", "topology.yaml")]


def schema(crd: Mapping[str, Any]) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_crds_and_reference_are_up_to_date() -> None:
    script = ROOT / "scripts/generate_crds.py"
    found = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("crd", CRDS, ids=["Module", "Topology"])
def test_every_field_is_described(crd: Any) -> None:
    missing = [path for path, child in fields("", schema(crd)) if not child.get("description")]
    assert [path for path in missing if path not in ("apiVersion", "kind", "metadata")] == []


def fields(path: str, found: Any) -> Iterator[tuple[str, Any]]:
    for name, child in found.get("properties", {}).items():
        place = f"{path}.{name}".lstrip(".")
        if path or name in ("spec", "status"):
            yield place, child
        yield from fields(place, child)
    for inner in ("items", "additionalProperties"):
        if isinstance(found.get(inner), dict):
            yield from fields(f"{path}[]", found[inner])


@pytest.mark.parametrize("crd", CRDS, ids=["Module", "Topology"])
def test_every_list_says_how_it_merges(crd: Any) -> None:
    lists = [path for path, child in fields("", schema(crd)) if child.get("type") == "array"]
    kinds = {path: child.get("x-kubernetes-list-type") for path, child in fields("", schema(crd)) if path in lists}
    assert {path for path, kind in kinds.items() if kind is None} == set()


def test_every_option_has_a_rule_and_is_explained() -> None:
    found = schema(CRDS[1])["properties"]["spec"]["properties"]["options"]
    rules = [rule["rule"] for rule in found["x-kubernetes-validations"]]
    for name in options.OPTIONS:
        assert name in found["description"]
        assert f"'{name}'" in rules[0]
        assert any(rule.startswith(f"!('{name}' in self)") for rule in rules[1:])


def test_there_is_a_sentence_first_in_every_invalid_manifest() -> None:
    manifests = sorted((ROOT / "e2e/fixtures/invalid").glob("*.yaml"))
    assert len(manifests) >= 60
    assert all(path.read_text().startswith("# ") for path in manifests)
