"""Renders the chart as helm does, and reads what came out."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/tidemill"
EVERYTHING = {
    "minio.enabled": "true",
    "monitoring.serviceMonitor.enabled": "true",
    "monitoring.serviceMonitor.gateways": "true",
    "monitoring.dashboard.enabled": "true",
}
Object = dict[str, Any]


def helm() -> str:
    """The helm of the cluster's tools, else the one on the PATH."""
    from e2e.cluster.tools import find_tools

    found = find_tools().get("helm") or shutil.which("helm")
    assert found, "helm is missing: `python -m e2e.cluster up` builds it"
    return str(found)


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *arguments], capture_output=True, text=True, check=False, timeout=120)


def settings(values: dict[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


def render_text(values: dict[str, str] | None = None, release: str = "tidemill") -> str:
    done = run_helm("template", release, str(CHART), "--namespace", "tidemill-system", *settings(values or {}))
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: dict[str, str] | None = None, release: str = "tidemill") -> list[Object]:
    """All objects of `helm template`."""
    return [found for found in yaml.safe_load_all(render_text(values, release)) if found]


def one(objects: list[Object], kind: str, name: str) -> Object:
    found = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pod_specs(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Each pod spec with a name for messages."""
    for item in objects:
        name = f"{item['kind']}/{item['metadata']['name']}"
        if item["kind"] == "Pod":
            yield name, item["spec"]
        elif "template" in item.get("spec", {}) and item["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield name, item["spec"]["template"]["spec"]


def rights(role: Object) -> set[str]:
    """`verb group/resource[name]` of every rule, one each."""
    return {
        f"{verb} {group or 'core'}/{resource}{json.dumps(rule['resourceNames']) if 'resourceNames' in rule else ''}"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
