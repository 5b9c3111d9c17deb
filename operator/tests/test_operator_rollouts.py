"""Rollouts from one end to the other, against an API server in memory with controllers and drivers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_double import ClusterDouble, expanded

Json = dict[str, Any]


def module(image: str = "flights:1", **spec: Any) -> Json:
    return {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Module",
        "metadata": {"name": "flights"},
        "spec": {
            "image": image,
            "entry": "flights.module:Flights",
            "tasks": 4,
            "threads": 2,
            "engine": "Spark",
            "store": {"url": "s3://b/p", "credentialsSecretRef": {"name": "minio"}},
            "rollout": {"progressDeadlineSeconds": 60, "stableMicrobatches": 3},
            "gateway": {"replicas": 1},
            **spec,
        },
    }


@pytest.fixture
def cluster() -> ClusterDouble:
    return ClusterDouble()


def run(cluster: ClusterDouble, seconds: float = 40.0) -> None:
    asyncio.run(cluster.settle(seconds))


def status(cluster: ClusterDouble) -> Json:
    found: Json = cluster.api.find("Module", "flights")["status"]
    return found


def numbers(cluster: ClusterDouble) -> tuple[int, int, int]:
    found = status(cluster)
    return found.get("updateRevision", 0), found.get("activeRevision", 0), found.get("currentRevision", 0)


def condition(obj: Json, kind: str) -> tuple[str, str] | None:
    found = [item for item in obj["status"]["conditions"] if item["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else None


def set_image(cluster: ClusterDouble, image: str) -> None:
    cluster.api.edit("Module", "flights", lambda obj: obj["spec"].update(image=image))


def events(cluster: ClusterDouble) -> list[str]:
    found = [obj for (kind, _, _), obj in cluster.api.objects.items() if kind == "Event"]
    return [obj["reason"] for obj in sorted(found, key=lambda obj: int(obj["metadata"]["resourceVersion"]))]


def test_everything_runs_when_a_module_is_applied(cluster: ClusterDouble) -> None:
    cluster.api.put(module())

    run(cluster)

    assert numbers(cluster) == (1, 1, 1)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")
    assert condition(cluster.api.find("Topology", "flights-core"), "Ready") == ("True", "Running")
    assert cluster.api.names("Deployment") == ["flights-core-1", "flights-gateway"]
    assert cluster.api.names("Secret") == ["flights-gateway-token"]
    assert cluster.api.names("ConfigMap") == ["flights-1"]
    assert {"ServiceAccount", "RoleBinding", "NetworkPolicy", "Service"} <= {key[0] for key in cluster.api.objects}
    assert status(cluster)["definition"]["topologies"] == ["core"]


def test_the_first_status_is_in_progress_when_a_module_is_new(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    seen: list[Json] = []
    feed = cluster.api.seen
    cluster.api.seen = lambda kind, obj: (seen.append(obj), feed(kind, obj))[1]

    run(cluster, 1)

    first = next(obj for obj in seen if obj["kind"] == "Module" and obj.get("status"))
    assert first["status"]["observedGeneration"] == 1
    assert condition(first, "Ready") == ("False", "NewRevision")
    assert condition(first, "Reconciling") == ("True", "NewRevision")


def test_the_old_revision_leads_until_the_new_is_warm_when_the_image_changes(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"driver_status": {"phase": "Pending"}}

    set_image(cluster, "flights:2")
    run(cluster, 10)

    assert numbers(cluster) == (2, 1, 1)
    assert cluster.api.names("Deployment") == ["flights-core-1", "flights-core-2", "flights-gateway"]
    assert cluster.api.find("Topology", "flights-core")["status"]["revision"] == 1
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Warming")


def test_the_new_revision_alone_is_left_when_it_is_stable(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)

    set_image(cluster, "flights:2")
    run(cluster)

    assert numbers(cluster) == (2, 2, 2)
    assert cluster.api.names("Deployment") == ["flights-core-2", "flights-gateway"]
    assert cluster.api.names("ConfigMap") == ["flights-2"]
    assert cluster.api.names("Job") == ["flights-2-describe"]
    assert cluster.api.find("ControllerRevision", "flights-2")["metadata"]["annotations"]
    assert "--definition-base" in " ".join(_arguments(cluster, "flights-core-2"))
    told = events(cluster)
    assert told.index("RevisionCreated") < told.index("DefinitionValid") < told.index("RevisionActivated")
    assert told.count("RevisionStable") == 2


def _arguments(cluster: ClusterDouble, name: str) -> list[str]:
    return expanded(cluster.api.find("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["args"])


def test_warnings_of_the_code_are_in_the_status_when_its_revision_runs(cluster: ClusterDouble) -> None:
    warning = {"location": "/app/flights/module.py:12", "text": "No topology reads '*clock'.", "advice": "Remove it."}
    cluster.images["flights:1"] = {"warnings": [warning]}
    cluster.api.put(module())

    run(cluster)

    assert status(cluster)["definition"]["warnings"] == [
        "/app/flights/module.py:12: No topology reads '*clock'. Remove it."
    ]
    assert said(cluster.api.find("Module", "flights")).endswith("code has warnings: status.definition.warnings")
    set_image(cluster, "flights:2")
    run(cluster)
    assert status(cluster)["definition"]["warnings"] == []
    assert "warnings" not in said(cluster.api.find("Module", "flights"))


def test_a_status_stays_small_when_the_code_has_many_warnings(cluster: ClusterDouble) -> None:
    cluster.images["flights:1"] = {"warnings": [{"location": "m.py:1", "text": "x" * 9_000, "advice": ""}] * 300}
    cluster.api.put(module())

    run(cluster)

    found = status(cluster)["definition"]["warnings"]
    assert (len(found), found[-1]) == (21, "and 280 more, which tidemill describe shows")
    assert max(map(len, found)) == 500


def test_a_topology_says_which_of_its_options_do_not_hold_when_its_driver_does(cluster: ClusterDouble) -> None:
    trouble = "Topology core: depot.max.fetch of depot *d is decided by Topology other: name it in one of them only"
    cluster.images["flights:1"] = {"reports": {"optionTrouble": trouble}}
    cluster.api.put(module())

    run(cluster)

    found = cluster.api.find("Topology", "flights-core")
    assert condition(found, "Ready") == ("True", "Running")
    assert said(found).endswith(f"; not all options hold: {trouble}")
    cluster.images["flights:1"] = {"reports": {"optionTrouble": None}}
    run(cluster, 20)
    assert "options" not in said(cluster.api.find("Topology", "flights-core"))


def said(obj: Json) -> str:
    return next(str(item["message"]) for item in obj["status"]["conditions"] if item["type"] == "Ready")


def test_all_faults_are_told_and_the_old_goes_on_when_an_update_is_invalid(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    faults = [{"subject": "$$p", "text": "was int, is str", "advice": "use a new name"}, {"subject": "*d", "text": "x"}]
    cluster.images["flights:bad"] = {"faults": faults}

    set_image(cluster, "flights:bad")
    run(cluster)

    found = cluster.api.find("Module", "flights")
    assert condition(found, "Stalled") == ("True", "InvalidDefinition")
    message = found["status"]["conditions"][0]["message"]
    assert "2 faults: 1) $$p: was int, is str (use a new name); 2) *d: x" in message
    assert cluster.api.names("Deployment") == ["flights-core-1", "flights-gateway"]
    assert cluster.api.find("Topology", "flights-core")["status"]["revision"] == 1


def test_nothing_restarts_when_an_invalid_update_is_taken_back(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:bad"] = {"faults": ["no"]}
    set_image(cluster, "flights:bad")
    run(cluster)
    before = cluster.api.find("Deployment", "flights-core-1")["metadata"]["uid"]

    set_image(cluster, "flights:1")
    run(cluster)

    assert numbers(cluster) == (1, 1, 1)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")
    assert cluster.api.find("Deployment", "flights-core-1")["metadata"]["uid"] == before


def test_an_invalid_update_is_described_again_when_the_deletions_are_named(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"faults": ["$$p is gone: name it in objectsToDelete"]}
    set_image(cluster, "flights:2")
    run(cluster)

    cluster.images["flights:2"] = {}
    cluster.api.edit("Module", "flights", lambda obj: obj["spec"].update(objectsToDelete=["$$p"]))
    run(cluster)

    assert numbers(cluster) == (3, 3, 3)
    assert "$$p" in _arguments(cluster, "flights-core-3")

    cluster.api.edit("Module", "flights", lambda obj: obj["spec"].pop("objectsToDelete"))
    run(cluster)

    assert numbers(cluster) == (3, 3, 3)


CRASHING = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "driver",
            "restartCount": 3,
            "ready": False,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 70, "message": "KeyError: token=abc123 boom"}},
        }
    ],
}


def test_the_update_stalls_and_the_old_goes_on_when_a_warm_driver_crashes(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"driver_status": CRASHING}

    set_image(cluster, "flights:2")
    run(cluster)

    found = cluster.api.find("Module", "flights")
    assert numbers(cluster) == (2, 1, 1)
    assert condition(found, "Stalled") == ("True", "CrashLoop")
    assert "boom" in found["status"]["conditions"][0]["message"]
    assert "abc123" not in str([obj for key, obj in cluster.api.objects.items() if key[0] in ("Module", "Event")])


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [("ImagePullBackOff", "ImagePullFailed"), ("InvalidImageName", "ImagePullFailed"),
     ("CreateContainerConfigError", "ContainerConfigError")],
)  # fmt: skip
def test_the_reason_is_told_when_the_describe_pod_cannot_start(
    cluster: ClusterDouble, waiting: str, reason: str
) -> None:
    state = {"waiting": {"reason": waiting, "message": "because"}}
    status_of_pod = {"phase": "Pending", "containerStatuses": [{"name": "describe", "image": "x", "state": state}]}
    cluster.images["flights:1"] = {"describe_status": status_of_pod}
    cluster.api.put(module())

    run(cluster, 5)

    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", reason)


def test_the_last_stable_revision_comes_back_when_attempts_fail(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}

    set_image(cluster, "flights:2")
    run(cluster, 60)

    found = cluster.api.find("Module", "flights")
    assert numbers(cluster) == (3, 3, 3)
    assert found["status"]["rollback"]["failedRevision"] == 2
    assert condition(found, "Stalled") == ("True", "RolledBack")
    assert cluster.api.names("Deployment") == ["flights-core-3", "flights-gateway"]
    assert cluster.api.find("ControllerRevision", "flights-3")["data"]["template"]["image"] == "flights:1"
    assert "RollbackStarted" in events(cluster)

    set_image(cluster, "flights:4")
    run(cluster)

    assert numbers(cluster) == (4, 4, 4)
    assert "rollback" not in status(cluster)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")


def test_the_module_is_ready_without_a_restart_when_the_spec_follows_a_rollback(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}
    set_image(cluster, "flights:2")
    run(cluster, 60)

    set_image(cluster, "flights:1")
    run(cluster)

    assert numbers(cluster) == (3, 3, 3)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")


def test_the_failed_revision_stays_when_the_rollback_is_manual(cluster: ClusterDouble) -> None:
    cluster.api.put(module(rollout={"rollback": "Manual", "stableMicrobatches": 3}))
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}

    set_image(cluster, "flights:2")
    run(cluster, 60)

    assert numbers(cluster) == (2, 2, 1)
    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "AttemptsFail")


def test_the_failed_revision_may_go_on_when_a_rollback_would_be_invalid(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}
    set_image(cluster, "flights:2")
    cluster.images["flights:1"] = {"faults": ["$$q of the store is not declared"]}

    run(cluster, 60)

    found = cluster.api.find("Module", "flights")
    assert condition(found, "Stalled") == ("True", "RollbackImpossible")
    assert numbers(cluster) == (3, 2, 1)
    assert cluster.api.find("Topology", "flights-core")["status"]["revision"] == 2


def test_old_drivers_are_gone_before_new_ones_come_when_the_strategy_is_recreate(cluster: ClusterDouble) -> None:
    cluster.api.put(module(rollout={"strategy": "Recreate", "stableMicrobatches": 3}))
    run(cluster)
    together: list[list[str]] = []
    feed = cluster.api.seen

    def seen(kind: str, obj: Json) -> None:
        together.append([name for name in cluster.api.names("Deployment") if "core" in name])
        feed(kind, obj)

    cluster.api.seen = seen
    set_image(cluster, "flights:2")
    run(cluster)

    assert numbers(cluster) == (2, 2, 2)
    assert [] in together
    assert all(len(found) <= 1 for found in together)


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes: cpu",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


def test_the_update_asks_for_room_when_two_drivers_do_not_fit(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"driver_status": UNSCHEDULABLE}

    set_image(cluster, "flights:2")
    run(cluster)

    found = cluster.api.find("Module", "flights")
    assert condition(found, "Stalled") == ("True", "NoRoomForSurge")
    assert cluster.api.find("Topology", "flights-core")["status"]["revision"] == 1


def test_a_topology_of_a_person_is_used_when_it_comes_with_the_module(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster, 3)
    cluster.api.put(
        {
            "kind": "Topology",
            "metadata": {"name": "mine"},
            "spec": {"moduleRef": {"name": "flights"}, "topology": "core", "driver": {"replicas": 2}},
        }
    )

    run(cluster)

    assert cluster.api.names("Topology") == ["mine"]
    assert cluster.api.names("Deployment") == ["flights-gateway", "mine-1"]
    assert cluster.api.find("Deployment", "mine-1")["spec"]["replicas"] == 2
    assert "mine" in cluster.api.names("PodDisruptionBudget")


def test_a_generated_topology_waits_five_seconds_when_it_is_new(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster, 4)
    assert cluster.api.names("Topology") == ["flights-core"]
    assert "flights-core-1" not in cluster.api.names("Deployment")

    run(cluster, 6)

    assert "flights-core-1" in cluster.api.names("Deployment")


def test_topologies_come_and_go_when_the_definition_changes(cluster: ClusterDouble) -> None:
    cluster.images["flights:2"] = {"topologies": ["core", "extra"]}
    cluster.images["flights:3"] = {"topologies": ["extra"]}
    cluster.api.put(module())
    run(cluster)

    set_image(cluster, "flights:2")
    run(cluster)
    assert cluster.api.names("Topology") == ["flights-core", "flights-extra"]

    set_image(cluster, "flights:3")
    run(cluster)
    assert cluster.api.names("Topology") == ["flights-extra"]
    assert cluster.api.names("Deployment") == ["flights-extra-3", "flights-gateway"]


def test_the_driver_is_replaced_in_its_revision_when_the_nonce_changes(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)

    cluster.api.edit("Topology", "flights-core", lambda obj: obj["spec"].update(restartNonce="1"))
    run(cluster, 5)

    found = cluster.api.find("Deployment", "flights-core-1")["spec"]["template"]["metadata"]["annotations"]
    assert found["tidemill.dev/restart-nonce"] == "1"
    assert numbers(cluster) == (1, 1, 1)


def test_an_event_says_so_when_a_start_is_edited_too_late(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)

    sources = {"*d": {"startFrom": {"beginning": {}}}}
    cluster.api.edit("Topology", "flights-core", lambda obj: obj["spec"].update(sources=sources))
    run(cluster, 20)

    assert events(cluster).count("StartFromIgnored") == 1


def test_the_data_is_destroyed_first_when_the_policy_is_delete(cluster: ClusterDouble) -> None:
    cluster.api.put(module(deletionPolicy="Delete"))
    run(cluster)
    assert cluster.api.find("Module", "flights")["metadata"]["finalizers"] == ["tidemill.dev/destroy-data"]

    cluster.api.remove("Module", "flights")
    run(cluster, 3)
    job = cluster.api.find("Job", "flights-destroy")
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    uid = cluster.api.find("Module", "flights")["metadata"]["uid"]
    owner = ["--owner", f"cluster-1/ns/flights/{uid}"]
    assert arguments == ["tidemill", "destroy", "Flights", "--store", "s3://b/p", "--yes", *owner]
    assert not cluster.api.names("Deployment")

    complete = {"type": "Complete", "status": "True", "lastTransitionTime": cluster.time.text}
    cluster.api.edit("Job", "flights-destroy", lambda obj: obj.update(status={"conditions": [complete]}))
    run(cluster, 3)

    assert cluster.api.names("Module") == []
    assert "flights-destroy" not in cluster.api.names("Job"), "nothing of a deleted Module is left"


def test_the_module_goes_at_once_when_the_policy_is_changed_to_retain(cluster: ClusterDouble) -> None:
    cluster.api.put(module(deletionPolicy="Delete"))
    run(cluster)
    cluster.api.remove("Module", "flights")
    run(cluster, 3)

    cluster.api.edit("Module", "flights", lambda obj: obj["spec"].update(deletionPolicy="Retain"))
    run(cluster, 3)

    assert cluster.api.names("Module") == []


BEGINNING = {"startFrom": {"beginning": {}}}


def message(cluster: ClusterDouble) -> str:
    return str(next(item["message"] for item in status(cluster)["conditions"] if item["type"] == "Stalled"))


def test_nothing_begins_when_a_start_is_asked_for_a_depot_that_is_not_read(cluster: ClusterDouble) -> None:
    cluster.api.put(module(topologyDefaults={"core": {"sources": {"*dd": BEGINNING}}, "cor": {}}))

    run(cluster)

    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "NoSuchSource")
    assert "says where *dd starts, which topology core does not read; it reads *d" in message(cluster)
    assert "names the topology cor, which the module has not; it has core" in message(cluster)
    assert numbers(cluster) == (1, 0, 0) and events(cluster).count("Stalled") == 1

    defaults = {"core": {"sources": {"*d": BEGINNING}}}
    cluster.api.edit("Module", "flights", lambda obj: obj["spec"].update(topologyDefaults=defaults))
    run(cluster)

    assert numbers(cluster) == (1, 1, 1)
    assert cluster.api.find("Topology", "flights-core")["status"]["startedFrom"] == {"*d": '{"beginning": {}}'}


@pytest.mark.parametrize("strategy", ["RollingUpdate", "Recreate"])
def test_the_running_revision_goes_on_when_a_topology_asks_for_a_start_of_nothing(
    cluster: ClusterDouble, strategy: str
) -> None:
    rollout = {"progressDeadlineSeconds": 60, "stableMicrobatches": 3, "strategy": strategy}
    cluster.api.put(module(rollout=rollout))
    run(cluster)
    cluster.api.edit("Topology", "flights-core", lambda obj: obj["spec"].update(sources={"*old": BEGINNING}))
    set_image(cluster, "flights:2")
    run(cluster)

    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "NoSuchSource")
    assert condition(cluster.api.find("Topology", "flights-core"), "Ready") == ("True", "Running")
    assert cluster.api.names("Deployment") == ["flights-core-1", "flights-gateway"]
    assert "Topology flights-core says where *old starts" in message(cluster)
    assert numbers(cluster) == (2, 1, 1)

    cluster.api.edit("Topology", "flights-core", lambda obj: obj["spec"].pop("sources"))
    run(cluster)

    assert numbers(cluster) == (2, 2, 2)


def test_a_topology_says_what_is_wrong_when_it_names_nothing(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    for name, ref, topology in (("a", "nobody", "core"), ("b", "flights", "other"), ("c", "flights", "core")):
        spec = {"moduleRef": {"name": ref}, "topology": topology}
        cluster.api.put({"kind": "Topology", "metadata": {"name": name}, "spec": spec})
    run(cluster)
    cluster.api.put({"kind": "Topology", "metadata": {"name": "d"}, "spec": spec})
    run(cluster)

    found = {name: condition(cluster.api.find("Topology", name), "Stalled") for name in "abcd"}
    assert found == {
        "a": ("True", "ModuleNotFound"),
        "b": ("True", "NoSuchTopology"),
        "c": None,
        "d": ("True", "DuplicateTopology"),
    }


def test_the_binding_is_made_anew_when_it_is_to_another_role(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    before = cluster.api.find("RoleBinding", "flights-driver")
    other = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "old"}
    cluster.api.edit("RoleBinding", "flights-driver", lambda obj: obj.update(roleRef=other))

    run(cluster, 5)

    after = cluster.api.find("RoleBinding", "flights-driver")
    assert after["roleRef"]["name"] == "tidemill-driver"
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_drivers_come_after_what_they_name_when_everything_is_new(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    spec = {"moduleRef": {"name": "flights"}, "topology": "core"}
    cluster.api.put({"kind": "Topology", "metadata": {"name": "mine"}, "spec": spec})

    run(cluster, 10)

    applied = cluster.api.history
    driver = applied.index("apply Deployment/mine-1")
    assert applied.index("apply ServiceAccount/flights-driver") < driver
    assert applied.index("apply RoleBinding/flights-driver") < driver
