"""What a driver makes of spark.json, pod templates and resources: exact settings, and refusals that say what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill import Depot, Module
from tidemill.api.declaration import record_module
from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredSource, StoredTopology
from tidemill.definition.stored import StoredMirror
from tidemill.kubernetes.resources import module_settings, start_from, topology_settings, with_starts
from tidemill.language.dataflow import StartFrom
from tidemill.spark.given_settings import check_settings, given_settings, read_settings
from tidemill.spark.on_kubernetes import DriverPod, mebibytes
from tidemill.spark.settings import spark_conf
from tidemill.values.errors import BadInput
from tidemill.values.ids import Ids

AGO = {"count": 5, "unit": "Records"}
POD = DriverPod("flights-1-abc", "ns", "10.1.2.3", "uid-1", "flights-counts")


def written(folder: Path, **more: Any) -> Path:
    path = folder / "spark.json"
    path.write_text(json.dumps({"image": "flights:1", "executors": {"count": 2}, **more}))
    return path


def conf_of(folder: Path, **more: Any) -> dict[str, str]:
    return spark_conf(read_settings(written(folder, **more), "tidemill M t", POD), folder)


def test_executors_reach_the_driver_and_never_end_it_when_they_fail(tmp_path: Path) -> None:
    conf = conf_of(tmp_path)
    assert (conf["spark.driver.bindAddress"], conf["spark.driver.host"]) == ("10.1.2.3", "10.1.2.3")
    assert conf["spark.kubernetes.driver.pod.name"] == "flights-1-abc"
    assert conf["spark.kubernetes.executor.label.tidemill.dev/topology"] == "flights-counts"
    assert conf["spark.kubernetes.driver.service.deleteOnTermination"] == "false", "a driver may delete no Services"
    assert int(conf["spark.executor.maxNumFailures"]) > 10**9
    assert conf["spark.stage.ignoreDecommissionFetchFailure"] == "false"
    assert (conf["spark.task.maxFailures"], conf["spark.executor.instances"]) == ("1", "2")
    assert not any(word in key.lower() for key in conf for word in ("aws", "secret", "password"))


def test_pods_of_two_contexts_have_other_names_when_one_pod_starts_both(tmp_path: Path) -> None:
    names = {conf_of(tmp_path)["spark.kubernetes.executor.podNamePrefix"] for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("flights-1-abc-") for name in names)


def test_executors_are_added_as_work_asks_when_a_range_is_given(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, executors={"min": 1, "max": 4})
    assert "spark.executor.instances" not in conf
    found = [conf[f"spark.dynamicAllocation.{name}"] for name in ("enabled", "minExecutors", "maxExecutors")]
    assert found == ["true", "1", "4"]


def test_sizes_are_those_of_the_pod_template_when_it_names_some(tmp_path: Path) -> None:
    resources = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    pod = {"spec": {"containers": [{"name": "other"}, {"name": "executor", "resources": resources}]}}
    (tmp_path / "executor.yaml").write_text(json.dumps(pod))
    conf = conf_of(tmp_path)
    assert conf["spark.kubernetes.executor.request.cores"] == "250m"
    assert (conf["spark.executor.memory"], conf["spark.executor.memoryOverhead"]) == ("819m", "1229m")
    assert conf["spark.kubernetes.executor.podTemplateFile"] == str(tmp_path / "executor.yaml")


@pytest.mark.parametrize(("text", "expected"), [("1Gi", 1024), ("512Mi", 512), ("1.5Gi", 1536), ("2G", 1907)])
def test_quantity_is_read_as_kubernetes_means_it_when_it_has_a_unit(text: str, expected: int) -> None:
    assert mebibytes(text) == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("spark.task.maxFailures", "records could count twice"),
        ("spark.speculation", "records could count twice"),
        ("spark.speculation.quantile", "records could count twice"),
        ("spark.stage.ignoreDecommissionFetchFailure", "records could count twice"),
        ("spark.master", "Tidemill sets it"),
        ("spark.kubernetes.authenticate.oauthToken", "Tidemill sets it"),
        ("spark.executor.instances", "use spark.executors"),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "secrets do not belong"),
        ("spark.hadoop.fs.s3a.secret.key", "secrets do not belong"),
        ("executor.memory", "begin with 'spark.'"),
    ],
)
def test_setting_is_refused_when_it_breaks_promises_of_ours(tmp_path: Path, key: str, text: str) -> None:
    ((subject, fault),) = check_settings(written(tmp_path, conf={key: "1"}))
    assert (subject, key in fault, text in fault) == ("spark.conf", True, True)


def test_setting_of_a_user_wins_when_it_is_free(tmp_path: Path) -> None:
    assert (
        conf_of(tmp_path, conf={"spark.executor.heartbeatInterval": "3s"})["spark.executor.heartbeatInterval"] == "3s"
    )


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"executors": {"min": 3, "max": 2}}, "make no sense"),
        ({"executers": 2}, "unknown settings: executers"),
        ({"conf": {"spark.x": 1}}, "put it in quotes"),
    ],
)
def test_file_is_refused_when_it_says_what_can_not_be(tmp_path: Path, more: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        conf_of(tmp_path, **more)


POD_VARIABLES = {"POD_NAME": "visits-1", "POD_NAMESPACE": "ns", "POD_IP": "10.1.2.4", "POD_UID": "uid-2"}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """That of a pod whose program starts Spark by itself, without the operator."""
    for name, value in {**POD_VARIABLES, "TIDEMILL_SPARK_CONF": str(written(tmp_path))}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_executors_are_pods_when_the_environment_names_a_file(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("TIDEMILL_SPARK_MASTER", "local[1]")
    settings = given_settings()
    conf = spark_conf(settings, tmp_path)
    assert (settings.master, settings.executors) == ("k8s://https://kubernetes.default.svc", 2)
    assert (conf["spark.driver.host"], conf["spark.kubernetes.driver.pod.name"]) == ("10.1.2.4", "visits-1")
    assert "spark.kubernetes.executor.label.tidemill.dev/topology" not in conf


@pytest.mark.parametrize("name", POD_VARIABLES)
def test_settings_are_refused_when_a_pod_does_not_say_who_it_is(environment: pytest.MonkeyPatch, name: str) -> None:
    environment.delenv(name)
    with pytest.raises(BadInput, match=f"^{name} is not set: TIDEMILL_SPARK_CONF is for pods"):
        given_settings()


# --- resources -------------------------------------------------------------------------------------------------------


class Two(Module):
    """A topology that reads a regular depot and one that ticks."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        setup.declare_tick_depot("*tick", 1_000)
        mb = topologies.microbatch("mb")
        mb.source("*d").out("*microbatch")
        mb.source("*tick").out("*ticks")


@pytest.fixture(scope="module")
def definition() -> StoredDefinition:
    return definitions.launch(record_module(Two()), 2, 1, Ids(1))


def test_topology_wins_over_module_over_code_when_all_say_where_to_start(definition: StoredDefinition) -> None:
    beginning, end = {"*d": {"startFrom": {"beginning": {}}}}, {"*d": {"startFrom": {"offsetAgo": AGO}}}
    module = {"spec": {"topologyDefaults": {"mb": {"sources": beginning}}}}
    topology = {"spec": {"sources": end}}
    kinds = [
        with_starts(definition, "mb", *given).topology("mb").sources[0].start_from.kind
        for given in ((None, None), (module, None), (module, {"spec": {}}), (module, topology))
    ]
    assert kinds == ["end", "beginning", "beginning", "ago_records"]


def test_options_go_to_their_own_objects_when_a_topology_names_them(definition: StoredDefinition) -> None:
    options = {
        "depot.max.fetch": 5, "topology.combiner.limit": 6, "worker.combined.transfer.limit": 7,
        "topology.microbatch.phase.timeout.seconds": "0.5",
    }  # fmt: skip
    found = topology_settings({"spec": {"options": options, "paused": False}}, "mb", definition)
    assert found.faults == ()
    assert found.settings == {
        ("depot", "*d", "depot.max.fetch"): 5,
        ("topology", "mb", "topology.combiner.limit"): 6,
        ("module", "", "worker.combined.transfer.limit"): 7,
        ("topology", "mb", "topology.microbatch.phase.timeout.seconds"): 0.5,
        ("topology", "mb", "paused"): False,
    }


def test_options_and_pauses_hold_when_a_topology_reads_the_depot_of_another_module() -> None:
    source = StoredSource("*m", "*m")
    mirror = StoredMirror("*m", "Other", 2, StoredDepot("*d", "d1", "random"))
    topology = StoredTopology("mb", "t1", {}, (source,))
    definition = StoredDefinition("M", 2, 1, {}, {"mb": topology}, mirrors={"*m": mirror})

    found = topology_settings({"spec": {"options": {"depot.max.fetch": 5}, "paused": True}}, "mb", definition)

    assert found.settings == {("depot", "*m", "depot.max.fetch"): 5, ("topology", "mb", "paused"): True}


def test_an_option_without_effect_is_told_when_only_the_owner_of_a_mirrored_depot_decides_it() -> None:
    topology = StoredTopology("mb", "t1", {}, (StoredSource("*m", "*m"),))
    mirror = StoredMirror("*m", "Other", 2, StoredDepot("*d", "d1", "random"))
    mirroring = StoredDefinition("M", 2, 1, {}, {"mb": topology}, mirrors={"*m": mirror})
    own = replace(mirroring, depots={"*d": StoredDepot("*d", "d2", "random")}, topologies={
        "mb": replace(topology, sources=(*topology.sources, StoredSource("*d", "*d")))
    })  # fmt: skip
    given = {"spec": {"options": {"depot.max.entries.per.partition": 5, "depot.max.fetch": 6}}}

    found = topology_settings(given, "mb", mirroring)
    assert found.settings == {("depot", "*m", "depot.max.fetch"): 6}
    assert [fault.split(", ")[-1] for fault in found.faults] == [
        f"which is a mirror of {mirror}: only module Other sets it"
    ]

    found = topology_settings(given, "mb", own)
    assert found.faults == ()
    assert ("depot", "*d", "depot.max.entries.per.partition") in found.settings
    assert len(found.settings) == 3


def test_an_option_of_depots_is_told_when_a_topology_reads_only_clocks() -> None:
    clock = StoredDepot("*tick", "d1", "tick", tick_millis=1_000)
    topology = StoredTopology("mb", "t1", {}, (StoredSource("*tick", "*tick"),))
    definition = StoredDefinition("M", 2, 1, {"*tick": clock}, {"mb": topology})
    found = topology_settings({"spec": {"options": {"depot.max.fetch": 6}}}, "mb", definition)
    assert found.settings == {}
    assert found.faults == ("depot.max.fetch has no effect: mb reads no depot that has records",)


def test_bad_option_is_told_and_the_others_hold_when_a_resource_names_it(definition: StoredDefinition) -> None:
    found = module_settings({"spec": {"options": {"depot.max.fetch": 5, "no.such": 1, "topology.combiner.limit": "x"}}})
    assert found.settings == {("module", "", "depot.max.fetch"): 5}
    assert ["no.such" in fault or "takes a whole number" in fault for fault in found.faults] == [True, True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"end": {}}, StartFrom("end")),
        ({"beginning": {}}, StartFrom("beginning")),
        ({"offsetAfterTimestamp": "2026-08-01T00:00:00Z"}, StartFrom("after_timestamp", 1_785_542_400_000)),
        ({"offsetAgo": {"count": 5, "unit": "Records"}}, StartFrom("ago_records", 5)),
        ({"offsetAgo": {"count": 2, "unit": "Hours"}}, StartFrom("ago_millis", 7_200_000)),
    ],
)
def test_place_to_start_is_read_when_a_resource_names_it(given: dict[str, Any], expected: StartFrom) -> None:
    assert start_from(given) == expected


@pytest.mark.parametrize("given", [{}, {"end": {}, "beginning": {}}, {"offsetAgo": {"count": 1, "unit": "Moons"}}])
def test_place_to_start_is_refused_when_it_is_none(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        start_from(given)
