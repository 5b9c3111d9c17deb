"""The chart as helm renders it: custom resources, rights, security of pods, values that are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import rendering
import yaml
from rendering import CHART, EVERYTHING, ROOT
from test_operator_rollouts import module

from tidemill_operator.resources import driver, gateway
from tidemill_operator.resources.revision import Revision, Verdict, template_of
from tidemill_operator.resources.settings import Defaults

SEEN = {"list", "watch"}
MADE = SEEN | {"create", "patch"}
OWNED = MADE | {"delete"}


def _all(verbs: set[str], *resources: str) -> set[str]:
    return {f"{verb} {resource}" for verb in verbs for resource in resources}


OPERATOR = (
    _all(SEEN | {"patch"}, "tidemill.dev/modules")
    | _all(OWNED, "tidemill.dev/topologies", "apps/deployments", "apps/controllerrevisions", "batch/jobs")
    | _all({"patch"}, "tidemill.dev/modules/status", "tidemill.dev/topologies/status")
    | _all({"update"}, "tidemill.dev/modules/finalizers", "tidemill.dev/topologies/finalizers")
    | _all(MADE, "core/services", "core/serviceaccounts", "networking.k8s.io/networkpolicies")
    | _all(OWNED, "core/configmaps", "policy/poddisruptionbudgets")
    | _all(OWNED, "rbac.authorization.k8s.io/rolebindings", "sparkoperator.k8s.io/sparkapplications")
    | _all(SEEN, "core/pods")
    | {"get core/pods/log", "create core/secrets", "create core/events"}
    | {'bind rbac.authorization.k8s.io/clusterroles["tidemill-driver"]'}
)
DRIVER = (
    _all({"get"}, "tidemill.dev/modules", "tidemill.dev/topologies")
    | _all({"patch"}, "tidemill.dev/topologies/status")
    | _all({"get", "create", "update"}, "coordination.k8s.io/leases")
    | _all({"get", "list", "watch", "create", "delete", "deletecollection"}, "core/pods")
)
LEASE = {"create coordination.k8s.io/leases"} | {
    f'{verb} coordination.k8s.io/leases["tidemill-operator"]' for verb in ("get", "update")
}


def test_lint_finds_nothing_when_everything_is_on() -> None:
    done = rendering.run_helm("lint", "--strict", str(CHART), *rendering.settings(EVERYTHING))
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "crds").glob("*.yaml")))
def test_copy_of_a_custom_resource_is_equal_to_its_source(name: str) -> None:
    copy = CHART / "files/crds" / name
    assert copy.read_text() == (ROOT / "crds" / name).read_text(), f"cp crds/{name} {copy.relative_to(ROOT)}"


def test_custom_resources_are_rendered_as_they_are_and_kept_when_the_chart_goes() -> None:
    rendered = {item["metadata"]["name"]: item for item in rendering.render() if item["kind"].startswith("Custom")}
    sources = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    assert len(sources) == 2
    assert len(list((CHART / "files/crds").iterdir())) == 2
    for source in sources:
        found = rendered[source["metadata"]["name"]]
        assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert found == source


def test_custom_resources_are_left_to_somebody_else_when_asked() -> None:
    assert not [item for item in rendering.render({"crds.install": "false"}) if item["kind"].startswith("Custom")]


def test_operator_has_exactly_the_rights_it_needs_when_it_serves_all_namespaces() -> None:
    objects = rendering.render()
    knows_cluster = {'get core/namespaces["kube-system"]'}
    assert rendering.rights(rendering.one(objects, "ClusterRole", "tidemill-operator")) == OPERATOR | knows_cluster
    assert rendering.rights(rendering.one(objects, "ClusterRole", "tidemill-driver")) == DRIVER
    assert rendering.rights(rendering.one(objects, "Role", "tidemill-operator-lease")) == LEASE
    assert len([item for item in objects if item["kind"] == "ClusterRoleBinding"]) == 1


def test_operator_has_no_right_outside_its_namespaces_when_they_are_named() -> None:
    objects = rendering.render({"operator.namespaces": "{team-a,team-b}"})
    assert not [item for item in objects if item["kind"] == "ClusterRoleBinding"]
    roles = [item for item in objects if item["kind"] == "Role" and item["metadata"]["name"] == "tidemill-operator"]
    assert {role["metadata"]["namespace"] for role in roles} == {"team-a", "team-b"}
    assert all(rendering.rights(role) == OPERATOR for role in roles)
    bindings = [item for item in objects if item["kind"] == "RoleBinding"]
    assert {item["metadata"]["namespace"] for item in bindings} == {"team-a", "team-b", "tidemill-system"}
    args = rendering.one(objects, "Deployment", "tidemill-operator")["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    assert "--namespaces=team-a,team-b" in args


def test_no_rule_has_a_wildcard_when_all_roles_are_read() -> None:
    for role in (item for item in rendering.render(EVERYTHING) if item["kind"] in ("Role", "ClusterRole")):
        assert not [right for right in rendering.rights(role) if "*" in right]


@pytest.mark.parametrize("values", [EVERYTHING, {**EVERYTHING, "operator.podSecurityContext.runAsUser": "1234"}])
def test_every_pod_is_restricted_when_everything_is_on(values: dict[str, str]) -> None:
    specs = list(rendering.pod_specs(rendering.render(values)))
    assert len(specs) == 4, [name for name, _ in specs]
    for name, spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"], name
            assert container["resources"]["limits"]["memory"], name


def test_images_are_named_by_digest_when_one_is_given() -> None:
    digest = f"sha256:{'0' * 64}"
    objects = rendering.render({"operator.image.digest": digest, "gateway.image.tag": "v7"})
    container = rendering.one(objects, "Deployment", "tidemill-operator")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"tidemill/operator@{digest}"
    assert "--gateway-image=tidemill/gateway:v7" in container["args"]


def made_pods() -> dict[str, Any]:
    """The pod templates of a driver and a gateway, as the operator makes them."""
    flights = module()
    flights["metadata"] |= {"namespace": "ns", "uid": "uid-m"}
    core = {
        "kind": "Topology",
        "metadata": {"name": "flights-core", "namespace": "ns", "uid": "uid-t"},
        "spec": {"topology": "core", "moduleRef": {"name": "flights"}},
    }
    verdict = Verdict("Flights", 1, False, topologies={"core": ("*d",)})
    found = Revision(1, template_of(flights["spec"]), verdict=verdict)
    made = {
        "driver": driver.deployment(flights, core, found),
        "gateway": gateway.deployment(flights, found, Defaults(has_open_metrics=True)),
    }
    return {name: deployment["spec"]["template"] for name, deployment in made.items()}


def test_prometheus_finds_drivers_and_gateways_when_they_are_monitored() -> None:
    objects = rendering.render(EVERYTHING)
    for name, pod in made_pods().items():
        monitor = rendering.one(objects, "PodMonitor", f"tidemill-{name}")
        assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        assert endpoint["port"] in ports
        assert endpoint["path"] == "/metrics"
    assert "--open-metrics" in made_pods()["gateway"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("missing", ["enabled", "gateways"])
def test_gateways_keep_their_metrics_closed_when_nobody_monitors_them(missing: str) -> None:
    objects = rendering.render({**EVERYTHING, f"monitoring.serviceMonitor.{missing}": "false"})
    container = rendering.one(objects, "Deployment", "tidemill-operator")["spec"]["template"]["spec"]["containers"][0]
    assert "--open-gateway-metrics=false" in container["args"]
    assert ("PodMonitor", "tidemill-gateway") not in {(item["kind"], item["metadata"]["name"]) for item in objects}
    opened = rendering.one(rendering.render(EVERYTHING), "Deployment", "tidemill-operator")
    assert "--open-gateway-metrics=true" in opened["spec"]["template"]["spec"]["containers"][0]["args"]


def test_no_eviction_is_forbidden_when_there_is_one_replica() -> None:
    """A budget over a single pod would make nodes impossible to drain."""
    budgets = [item for item in rendering.render({"operator.replicas": "1"}) if item["kind"] == "PodDisruptionBudget"]
    assert budgets == []


def test_names_differ_when_two_releases_are_on_one_cluster() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        kinds = ("ClusterRole", "ClusterRoleBinding")
        return {(o["kind"], o["metadata"]["name"]) for o in rendering.render(release=release) if o["kind"] in kinds}

    assert names("one") & names("two") == set()


@pytest.mark.parametrize(
    "values",
    [
        {"operator.replicas": "many"},
        {"operator.replica": "2"},
        {"operator.namespaces": "{Team}"},
        {"operator.logLevel": "loud"},
        {"operator.image.digest": "latest"},
        {"gateway.replicas": "2"},
        {"minio.bucket": "No_Bucket"},
        {"minio.storage.size": "ten"},
        {"monitoring.serviceMonitor.interval": "15"},
    ],
    ids=lambda values: "=".join(next(iter(values.items()))),
)
def test_value_is_refused_when_it_cannot_be_right(values: dict[str, str]) -> None:
    done = rendering.run_helm("template", "tidemill", str(CHART), *rendering.settings(values))
    assert done.returncode != 0
    leaf = next(iter(values)).rpartition(".")[2]
    assert leaf in done.stderr


def _described(schema: dict[str, Any], path: str = "") -> list[str]:
    missing = [] if schema.get("description") or not path else [path]
    for name, part in schema.get("properties", {}).items():
        missing += _described(part, f"{path}.{name}")
    return missing


def test_every_value_is_described_and_has_a_default_when_schema_and_values_are_compared() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert _described(schema) == []

    def same(part: dict[str, Any], values: Any, path: str) -> None:
        names = set(part.get("properties", {})) - ({"global"} if not path else set())
        if names:
            assert names == set(values), path
            for name in names:
                same(part["properties"][name], values[name], f"{path}.{name}")

    same(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "")


def test_dashboard_asks_only_for_metrics_that_the_code_has() -> None:
    dashboard = json.loads((CHART / "files/dashboards/tidemill.json").read_text())
    asked = set(
        re.findall(r"\btidemill_[a-z_]+", " ".join(t["expr"] for p in dashboard["panels"] for t in p["targets"]))
    )
    sources = [
        ROOT / "operator/src",
        ROOT / "spark_app/src/tidemill/kubernetes",
        ROOT / "spark_app/src/tidemill/gateway",
    ]
    code = "\n".join(path.read_text() for source in sources for path in source.rglob("*.py"))
    missing = [name for name in asked if not _is_defined(name, code)]
    assert len(asked) > 10
    assert missing == []
    assert {"tidemill_in_quarantine", "tidemill_quarantined_records_total"} <= asked


def _is_defined(metric: str, code: str) -> bool:
    """Counters end with _total and histograms with _bucket; the gateway's code leaves out the common prefix."""
    name = re.sub(r"_(total|bucket)$", "", metric)
    return f'"{name}"' in code or f'"{name.removeprefix("tidemill_")}"' in code


def test_secret_of_the_store_is_the_given_one_when_keys_are_given() -> None:
    objects = rendering.render({"minio.enabled": "true", "minio.accessKey": "abc", "minio.secretKey": "long enough"})
    data = rendering.one(objects, "Secret", "tidemill-minio")["data"]
    assert data == {"AWS_ACCESS_KEY_ID": "YWJj", "AWS_SECRET_ACCESS_KEY": "bG9uZyBlbm91Z2g="}


def test_program_of_helm_test_is_whole_when_rendered() -> None:
    container = rendering.one(rendering.render(), "Pod", "tidemill-operator-test")["spec"]["containers"][0]
    assert container["args"] == [Path(CHART / "files/operator_test.py").read_text()]
    compile(container["args"][0], "operator_test.py", "exec")
