"""Drift: what somebody deletes, changes or refuses is put right or named, and nothing is done when all is well."""

from __future__ import annotations

import pytest
from api_double import ClusterDouble
from test_operator_rollouts import condition, events, module, run, set_image


@pytest.fixture
def cluster() -> ClusterDouble:
    return ClusterDouble()


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Service", "flights-gateway"), ("Deployment", "flights-core-1"), ("ConfigMap", "flights-1"),
     ("ServiceAccount", "flights-driver"), ("NetworkPolicy", "flights-driver"), ("RoleBinding", "flights-driver")],
)  # fmt: skip
def test_an_object_comes_back_when_somebody_deletes_it(cluster: ClusterDouble, kind: str, name: str) -> None:
    cluster.api.put(module())
    run(cluster)

    cluster.api.remove(kind, name)
    run(cluster, 5)

    assert name in cluster.api.names(kind)
    assert "DriftRepaired" in events(cluster)


def test_a_field_is_put_right_when_somebody_changes_it(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)

    cluster.api.edit("Service", "flights-gateway", lambda obj: obj["spec"].update(selector={"other": "x"}))
    run(cluster, 5)

    assert "tidemill.dev/module" in cluster.api.find("Service", "flights-gateway")["spec"]["selector"]


def test_no_call_is_made_when_all_is_well(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.api.calls.clear()

    run(cluster, 240)

    assert sum(cluster.api.calls.values()) == 0


def test_an_object_is_named_when_the_api_server_refuses_it(cluster: ClusterDouble) -> None:
    cluster.api.refuse = lambda obj: "spec.template.spec.x: unknown" if obj["kind"] == "Deployment" else None
    cluster.api.put(module())

    run(cluster)

    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "InvalidObject")

    cluster.api.refuse = lambda obj: None
    run(cluster, 60)

    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")


def test_only_so_many_revisions_are_kept_when_there_are_more(cluster: ClusterDouble) -> None:
    cluster.api.put(module(revisionHistoryLimit=1))
    for number in range(2, 6):
        run(cluster)
        set_image(cluster, f"flights:{number}")
    run(cluster)

    assert cluster.api.names("ControllerRevision") == ["flights-4", "flights-5"]


def test_stalled_stays_and_nothing_is_announced_again_when_a_describe_job_is_tried_anew(
    cluster: ClusterDouble,
) -> None:
    waiting = {"name": "describe", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    failing = {"phase": "Pending", "containerStatuses": [waiting]}
    cluster.images["flights:1"] = {"describe_status": failing}
    cluster.api.put(module())
    run(cluster, 60)
    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "ImagePullFailed")
    stalled = events(cluster).count("Stalled")

    for status in ({"phase": "Pending"}, {"phase": "Running"}, failing, {"phase": "Running"}):
        cluster.api.edit("Pod", "flights-1-describe-pod", lambda pod, s=status: pod.update(status=s))  # type: ignore[misc]
        run(cluster, 10)
        assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "ImagePullFailed")
    assert events(cluster).count("Stalled") == stalled and "Recovered" not in events(cluster)

    cluster.api.edit("Pod", "flights-1-describe-pod", lambda pod: pod.update(status={"phase": "Succeeded"}))
    run(cluster, 60)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")


def test_stalled_ends_at_once_when_the_spec_is_edited(cluster: ClusterDouble) -> None:
    waiting = {"name": "describe", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    cluster.images["flights:1"] = {"describe_status": {"phase": "Pending", "containerStatuses": [waiting]}}
    cluster.images["flights:2"] = {"describe_status": {"phase": "Running"}}
    cluster.api.put(module())
    run(cluster, 60)

    set_image(cluster, "flights:2")
    run(cluster, 5)

    found = cluster.api.find("Module", "flights")
    assert (condition(found, "Stalled"), condition(found, "Reconciling")) == (None, ("True", "Describing"))


def test_an_event_says_so_when_the_api_server_fails_on_an_object(cluster: ClusterDouble) -> None:
    words = 'failed calling webhook "mutate.example": connection refused'
    cluster.api.fail = lambda obj: words if obj["kind"] == "Deployment" else None
    cluster.api.put(module())
    run(cluster, 40)

    assert events(cluster).count("ApiFailed") == 2, "one of the Module's gateway, one of the Topology's driver"
    told = [
        obj for (kind, _, _), obj in cluster.api.objects.items() if kind == "Event" and obj["reason"] == "ApiFailed"
    ]
    assert all(words in each["message"] and each["type"] == "Warning" for each in told)

    cluster.api.fail = lambda obj: None
    run(cluster, 120)
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")
