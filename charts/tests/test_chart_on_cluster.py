"""The chart against a real API server: accepted as it is, no warning of Pod Security, CRDs change with an upgrade.

Nothing of it meets what else is on the cluster: a namespace of its own, and custom resources of another group.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rendering
import yaml
from e2e.cluster.choice import find
from e2e.cluster.tools import find_tools
from rendering import CHART

WITHOUT_FOREIGN_KINDS = {"minio.enabled": "true", "monitoring.dashboard.enabled": "true"}
LEVELS = ("enforce", "warn")


class Api:
    """kubectl and helm in a namespace that admits restricted pods only."""

    def __init__(self) -> None:
        self.kubeconfig = str(find().kubeconfig)
        self.namespace = f"chart-{secrets.token_hex(4)}"
        self._kubectl = str(find_tools().get("kubectl", "kubectl"))

    def kubectl(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [self._kubectl, f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)

    def helm(self, *arguments: str) -> str:
        done = rendering.run_helm(*arguments, f"--kubeconfig={self.kubeconfig}", "--namespace", self.namespace)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    labels = {f"pod-security.kubernetes.io/{level}": "restricted" for level in LEVELS}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace, "labels": labels}}
    assert found.kubectl("create", "-f", "-", text=json.dumps(space)).returncode == 0
    yield found
    found.kubectl("delete", "namespace", found.namespace, "--wait=false")


@pytest.mark.parametrize("namespaces", [[], ["own"]], ids=["all", "named"])
def test_api_server_takes_every_object_without_a_warning(api: Api, namespaces: list[str]) -> None:
    values = dict(WITHOUT_FOREIGN_KINDS)
    if namespaces:
        values["operator.namespaces"] = f"{{{api.namespace}}}"
    objects = [yaml.safe_dump(item) for item in rendering.render(values) if item["kind"] != "Pod"]
    text = "---\n".join(objects).replace("tidemill-system", api.namespace)
    done = api.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--field-manager=chart-test",
        "--force-conflicts",
        "-f",
        "-",
        text=text,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


def _older_chart(folder: Path, group: str) -> Path:
    """The chart as it could have been before: a version back, and one field less in a custom resource."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    for path in (chart / "files/crds").iterdir():
        path.write_text(path.read_text().replace("tidemill.dev", group))
    return chart


def _properties(api: Api, group: str) -> set[str]:
    found = json.loads(api.kubectl("get", "crd", f"modules.{group}", "-o", "json").stdout)
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"])


def test_upgrade_brings_new_fields_and_uninstall_keeps_the_kinds(api: Api, tmp_path: Path) -> None:
    group = f"{api.namespace}.example"
    chart = _older_chart(tmp_path, group)
    crd = chart / "files/crds/module.yaml"
    now = crd.read_text()
    older = yaml.safe_load(now)
    older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("deletionPolicy")
    crd.write_text(yaml.safe_dump(older))
    quiet = ["--set", "operator.replicas=0,rbac.create=false,uninstall.releaseFinalizers=false"]
    try:
        api.helm("install", api.namespace, str(chart), *quiet)
        assert "deletionPolicy" not in _properties(api, group)
        crd.write_text(now)
        api.helm("upgrade", api.namespace, str(chart), *quiet)
        assert "deletionPolicy" in _properties(api, group)
        api.helm("uninstall", api.namespace)
        assert "deletionPolicy" in _properties(api, group)
    finally:
        api.kubectl("delete", "crd", f"modules.{group}", f"topologies.{group}", "--ignore-not-found", "--wait=false")
