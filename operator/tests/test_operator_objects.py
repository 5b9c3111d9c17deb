"""The objects that the operator makes, held against the API's own models and the restricted Pod Security Standard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_double import expanded
from kubeflow_spark_api.models.spark_v1beta2_spark_application import SparkV1beta2SparkApplication
from lightkube import codecs
from lightkube.models import core_v1
from test_operator_rollouts import module

from tidemill.spark.settings import SparkSettings, spark_conf
from tidemill_operator.resources import access, driver, driver_kind, gateway, jobs, memory, names
from tidemill_operator.resources.merge import merge_template
from tidemill_operator.resources.revision import Revision, Verdict, controller_revision, read_revision, template_of
from tidemill_operator.resources.settings import Defaults

Json = dict[str, Any]
TOPOLOGY: Json = {
    "kind": "Topology",
    "metadata": {"name": "flights-core", "namespace": "ns", "uid": "uid-t"},
    "spec": {"moduleRef": {"name": "flights"}, "topology": "core"},
}
VERDICT = Verdict("Flights", 3, True, topologies={"core": ("*d",)})


def full_module(**spec: Any) -> Json:
    store = {
        "url": "s3://b/p?endpoint=http://minio:9000",
        "credentialsSecretRef": {"name": "minio"},
        "caSecretRef": {"name": "ca", "key": "ca.crt"},
    }
    made = module(store=store, imagePullSecrets=[{"name": "registry"}], **spec)
    made["metadata"] |= {"namespace": "ns", "uid": "uid-m"}
    return made


def revision(made: Json, verdict: Verdict = VERDICT) -> Revision:
    return Revision(4, template_of(made["spec"]), verdict=verdict)


def all_objects(made: Json) -> list[Json]:
    found = revision(made)
    return [
        controller_revision(made, found),
        driver.config_map(made, found),
        driver.deployment(made, TOPOLOGY, found),
        driver.disruption_budget(made, TOPOLOGY),
        jobs.describe(made, found),
        jobs.destroy(made, found, "Flights"),
        gateway.token_secret(made, "t"),
        *gateway.objects(made, found, Defaults()),
        *access.objects(made, Defaults()),
    ]


def pod_specs(made: Json) -> Iterator[tuple[str, Json]]:
    for obj in all_objects(made):
        if "template" in obj.get("spec", {}):
            yield obj["kind"] + "/" + names.name_of(obj), obj["spec"]["template"]["spec"]
    executor = yaml.safe_load(driver.config_map(made, revision(made))["data"]["executor.yaml"])
    yield "executor", executor["spec"]


def test_every_object_is_one_of_the_api_when_lightkube_reads_it() -> None:
    for obj in all_objects(full_module(gateway={"replicas": 2})):
        read = codecs.from_dict(obj).to_dict()
        assert _lost(obj, read) == [], names.name_of(obj)


def _lost(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Fields that the models do not know: the API server would refuse or drop them."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [path]
        return [lost for key, child in wanted.items() for lost in _lost(child, found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        pairs = zip(wanted, found or [], strict=False)
        return [lost for place, (mine, theirs) in enumerate(pairs) for lost in _lost(mine, theirs, f"{path}[{place}]")]
    return [] if found is not None or wanted in ("", None) else [path]


def test_every_pod_is_restricted() -> None:
    found = dict(pod_specs(full_module()))
    assert set(found) >= {
        "Deployment/flights-core-4",
        "Deployment/flights-gateway",
        "Job/flights-4-describe",
        "executor",
    }
    for where, spec in found.items():
        assert spec["securityContext"]["runAsNonRoot"] is True, where
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, where
            assert security["capabilities"] == {"drop": ["ALL"]}, where
            assert security["readOnlyRootFilesystem"] is True, where
            assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/tmp", "/work"}, where
            assert container["resources"], where


def test_only_drivers_may_speak_to_the_api_server() -> None:
    for where, spec in pod_specs(full_module()):
        has_token = spec.get("automountServiceAccountToken", True)
        assert has_token == where.startswith("Deployment/flights-core"), where


def test_no_secret_is_in_an_object_but_by_reference() -> None:
    text = json.dumps([obj for obj in all_objects(full_module()) if obj["kind"] != "Secret"])
    assert "secretKeyRef" in text
    assert '"value": "AKIA' not in text
    for obj in all_objects(full_module()):
        for variable in _environment(obj):
            if "KEY" in variable["name"] or "TOKEN" in variable["name"].replace("TOKEN_FILE", ""):
                assert "value" not in variable, variable


def _environment(obj: Any) -> Iterator[Json]:
    if isinstance(obj, dict):
        yield from obj.get("env", ())
        for child in obj.values():
            yield from _environment(child)
    elif isinstance(obj, list):
        for child in obj:
            yield from _environment(child)


def test_a_revision_reads_back_as_it_was_written() -> None:
    made = full_module(objectsToDelete=["$$b", "*a"])
    written = revision(made)

    assert read_revision(controller_revision(made, written)) == written


def test_labels_fit_when_names_are_as_long_as_they_may_be() -> None:
    longest = names.generated_topology_name("m" * 40, "a_very_long_topology_name")
    assert len(longest) <= names.TOPOLOGY_NAME_LIMIT
    assert len(names.driver_name(longest, 99_999)) + len("-0123456789-abcde") <= 68
    assert len(names.describe_name("m" * 40, 99_999)) <= 63


@pytest.mark.parametrize(
    ("theirs", "path", "value"),
    [
        ({"spec": {"nodeSelector": {"disk": "ssd"}}}, ("nodeSelector", "disk"), "ssd"),
        ({"spec": {"containers": [{"name": "driver", "env": [{"name": "A", "value": "1"}]}]}}, ("env", "A"), "1"),
        ({"spec": {"terminationGracePeriodSeconds": 90}}, ("terminationGracePeriodSeconds",), 90),
    ],
)
def test_a_template_is_merged_over_ours(theirs: Json, path: tuple[str, ...], value: Any) -> None:
    made = full_module(spark={"driver": {"template": theirs}})
    spec = driver.deployment(made, TOPOLOGY, revision(made))["spec"]["template"]["spec"]
    container = spec["containers"][0]
    if path[0] == "env":
        assert {item["name"]: item.get("value") for item in container["env"]}[path[1]] == value
        assert "POD_NAME" in {item["name"] for item in container["env"]}
    else:
        found: Any = spec
        for name in path:
            found = found[name]
        assert found == value
    assert len(spec["containers"]) == 1


def test_our_labels_win_when_a_template_sets_them() -> None:
    ours = {"metadata": {"labels": {"a": "1"}}, "spec": {}}
    merged = merge_template(ours, {"metadata": {"labels": {"a": "2", "b": "3"}}})
    assert merged["metadata"]["labels"] == {"a": "1", "b": "3"}


def test_a_sidecar_is_added_and_a_null_takes_a_field_away() -> None:
    ours = {"spec": {"containers": [{"name": "driver", "image": "x"}], "tolerations": [{"key": "a"}]}}
    theirs = {"spec": {"containers": [{"name": "log", "image": "y"}], "tolerations": None}}
    merged = merge_template(ours, theirs)
    assert [item["name"] for item in merged["spec"]["containers"]] == ["driver", "log"]
    assert "tolerations" not in merged["spec"]


# SparkApplication


def application(**spec: Any) -> Json:
    made = full_module(spark={"launcher": "SparkApplication", **spec})
    return driver_kind.launched(made, TOPOLOGY, revision(made))


def test_a_spark_application_is_one_of_the_models_when_it_is_read_back() -> None:
    made = application(executors={"count": 3}, conf={"spark.network.timeout": "60s"})
    read = SparkV1beta2SparkApplication.from_dict(json.loads(json.dumps(made)))

    assert read is not None and _lost(made["spec"], read.to_dict()["spec"]) == []
    assert made["spec"]["executor"]["instances"] == 3
    assert made["spec"]["sparkConf"]["spark.network.timeout"] == "60s"


def test_a_spark_application_gives_the_driver_the_options_of_java_that_drivers_give_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "spark.driver.extraJavaOptions"
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))  # one without an archive of classes, which only drivers know of

    assert application()["spec"]["sparkConf"][name] == spark_conf(SparkSettings(), Path("/tmp"))[name]
    assert application(conf={name: "-Xss4m"})["spec"]["sparkConf"][name] == "-Xss4m"


def test_names_of_pstates_reach_the_commands_whole_when_the_kubelet_has_expanded_their_arguments() -> None:
    made = full_module(objectsToDelete=["$$total", "*old", "$$$(HOME)"])
    found = revision(made)
    pods = [jobs.describe(made, found), driver.deployment(made, TOPOLOGY, found)]
    commands = [pod["spec"]["template"]["spec"]["containers"][0]["args"] for pod in pods]
    made = full_module(objectsToDelete=["$$total", "*old", "$$$(HOME)"], spark={"launcher": "SparkApplication"})
    commands.append(driver_kind.launched(made, TOPOLOGY, revision(made))["spec"]["arguments"])

    for command in commands:
        given = expanded(command)
        assert given[given.index("--objects-to-delete") + 1] == "$$$(HOME),$$total,*old"
    destroyed = jobs.destroy(made, found, "$(HOME)")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert expanded(destroyed)[2] == "$(HOME)"


def test_a_spark_application_steps_around_the_traps() -> None:
    spec = application()["spec"]

    excluded = spec["sparkConf"]["spark.kubernetes.driver.pod.excludedFeatureSteps"]
    assert excluded == "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
    policy = spec["restartPolicy"]
    assert policy["type"] == "Always"
    assert policy["onFailureRetryInterval"] > 0 and policy["onSubmissionFailureRetryInterval"] > 0
    assert spec["mode"] == "cluster" and spec["pythonVersion"] == "3"
    assert "timeToLiveSeconds" not in spec


def test_a_spark_application_has_the_drivers_arguments_of_the_native_launcher() -> None:
    made = full_module()
    native = driver.deployment(made, TOPOLOGY, revision(made))["spec"]["template"]["spec"]["containers"][0]["args"]

    assert ["tidemill", *application()["spec"]["arguments"]] == native


def test_executors_follow_the_load_when_they_have_bounds() -> None:
    spec = application(executors={"min": 1, "max": 4})["spec"]
    assert spec["dynamicAllocation"] == {"enabled": True, "initialExecutors": 1, "minExecutors": 1, "maxExecutors": 4}


def test_a_spark_application_does_not_change_when_only_options_do() -> None:
    made = full_module(spark={"launcher": "SparkApplication"})
    other = json.loads(json.dumps(TOPOLOGY))
    other["spec"] |= {"paused": True, "options": {"depot.max.fetch": 5}}

    assert driver_kind.launched(made, other, revision(made)) == driver_kind.launched(made, TOPOLOGY, revision(made))


def test_its_pods_are_restricted_too() -> None:
    spec = application()["spec"]
    for role in ("driver", "executor"):
        pod = core_v1.PodSpec.from_dict(spec[role]["template"]["spec"])
        assert pod.securityContext is not None and pod.securityContext.runAsNonRoot
        assert pod.containers[0].securityContext is not None
        assert pod.containers[0].securityContext.readOnlyRootFilesystem


def test_the_port_that_monitoring_names_stays_when_spark_adds_its_own() -> None:
    (container,) = application()["spec"]["driver"]["template"]["spec"]["containers"]

    assert container["ports"] == [{"name": "http", "containerPort": driver.HTTP_PORT, "protocol": "TCP"}]


def test_probes_name_ports_by_number_everywhere() -> None:
    probes = [
        probe["httpGet"]["port"]
        for _, spec in pod_specs(full_module())
        for container in spec["containers"]
        for name, probe in container.items()
        if name.endswith("Probe")
    ]

    assert len(probes) >= 6 and all(isinstance(port, int) for port in probes)


# How much of the driver's memory is the JVM's


@pytest.mark.parametrize(
    ("spark", "heap", "beside"),
    [
        ({}, "1024m", "1024m"),
        ({"driver": {"resources": {"limits": {"memory": "8Gi"}}}}, "4096m", "4096m"),
        ({"driver": {"resources": {"requests": {"memory": "3G"}}}}, "1430m", "1431m"),
        ({"driver": {"resources": {"requests": {"memory": "700Mi"}, "limits": {"memory": "1200Mi"}}}}, "600m", "600m"),
        ({"driver": {"resources": {"limits": {"memory": "600Mi"}}}}, "512m", "384m"),
        ({"driver": {"template": {"spec": {"containers": [
            {"name": "driver", "resources": {"limits": {"memory": "4Gi"}}}]}}}}, "2048m", "2048m"),
    ],
)  # fmt: skip
def test_the_heap_is_half_of_the_memory_with_both_launchers(spark: Json, heap: str, beside: str) -> None:
    native = full_module(spark=spark)
    settings = json.loads(driver.config_map(native, revision(native))["data"]["spark.json"])
    sizes = application(**spark)["spec"]["driver"]

    assert settings["driverMemory"] == sizes["memory"] == heap
    assert sizes["memoryOverhead"] == beside


def test_cores_are_taken_as_they_are_when_a_spark_application_is_asked_for_some() -> None:
    sizes = application(driver={"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": 2}}})["spec"]["driver"]

    assert (sizes["coreRequest"], sizes["coreLimit"]) == ("250m", "2")


def test_settings_of_spark_win_over_resources_when_both_say_the_same() -> None:
    conf = {
        "spark.driver.memory": "3g",
        "spark.driver.memoryOverhead": "700m",
        "spark.kubernetes.driver.request.cores": "2",
        "spark.kubernetes.driver.limit.cores": "4",
    }
    sizes = application(conf=conf, driver={"resources": {"limits": {"cpu": "1", "memory": "4Gi"}}})["spec"]["driver"]

    found = [sizes[name] for name in ("memory", "memoryOverhead", "coreRequest", "coreLimit")]
    assert found == ["3g", "700m", "2", "4"]


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [("1Gi", 1024), ("1.5Gi", 1536), ("2000000Ki", 1953), ("1G", 953), ("1e9", 953), ("2147483648", 2048), ("much", 0)],
)
def test_a_quantity_is_read_in_all_its_ways(quantity: str, expected: int) -> None:
    assert memory.mebibytes(quantity) == expected


# Whose rights a pod has


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount", "restartPolicy"])
def test_a_template_does_not_change_whose_rights_a_pod_has_when_an_old_definition_let_it_through(field: str) -> None:
    theirs = {"spec": {field: "strong", "priorityClassName": "high"}}
    made = full_module(
        spark={"driver": {"template": theirs}, "executor": {"template": theirs}}, gateway={"template": theirs}
    )
    specs = dict(pod_specs(made))

    assert {spec.get("priorityClassName") for kind, spec in specs.items() if "Job" not in kind} == {"high"}
    assert [kind for kind, spec in specs.items() if spec.get(field) == "strong"] == []
    assert specs["Deployment/flights-core-4"]["serviceAccountName"] == "flights-driver"
