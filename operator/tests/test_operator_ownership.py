"""A store that belongs to somebody else: who is Stalled, what takes it over, and whose data a deletion leaves alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_double import NAMESPACE, ApiDouble, ClusterDouble
from test_operator_rollouts import cluster, condition, events, module, numbers, run, status

from tidemill_operator.apply.api import ApiFailure
from tidemill_operator.handlers import process
from tidemill_operator.handlers.options import parse
from tidemill_operator.resources.revision import read_revision

Json = dict[str, Any]
THEIRS = "0f0f0f0f-0000-4000-8000-000000000001"
SENTENCE = f"Module 'Flights' in s3://b/p belongs to the Kubernetes Module prod/flights (uid {THEIRS})."
OWNED: Json = {"reason": "OwnedByAnother", "faults": [{"subject": "flights.module:Flights", "text": SENTENCE}]}
ENDED: Json = {
    "phase": "Failed",
    "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 5, "message": f"Error: {SENTENCE}"}}}],
}
__all__ = ["cluster"]


def arguments(made: ClusterDouble, kind: str, name: str) -> list[str]:
    found: list[str] = made.api.find(kind, name)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_jobs_and_drivers_are_told_for_whom_they_work(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    owner = f"cluster-1/{NAMESPACE}/flights/{cluster.api.find('Module', 'flights')['metadata']['uid']}"
    for kind, name in (("Job", "flights-1-describe"), ("Deployment", "flights-core-1")):
        words = arguments(cluster, kind, name)
        assert after(words, "--owner") == owner
        assert "--take-over-from" not in words


def test_module_is_stalled_with_the_owners_name_when_the_store_is_another_ones(cluster: ClusterDouble) -> None:
    cluster.images["flights:1"] = OWNED
    cluster.api.put(module())
    run(cluster)
    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "OwnedByAnother")
    assert SENTENCE in next(item["message"] for item in status(cluster)["conditions"] if item["type"] == "Stalled")
    assert numbers(cluster) == (1, 0, 0)
    assert cluster.api.names("Deployment") == []


def test_store_is_described_again_when_the_owner_is_named_and_not_again_when_the_name_goes(
    cluster: ClusterDouble,
) -> None:
    cluster.images["flights:1"] = OWNED
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:1"] = {}
    cluster.api.edit("Module", "flights", lambda obj: obj["spec"]["store"].update(takeOverFrom=THEIRS))
    run(cluster)
    assert numbers(cluster) == (2, 2, 2)
    for kind, name in (("Job", "flights-2-describe"), ("Deployment", "flights-core-2")):
        assert after(arguments(cluster, kind, name), "--take-over-from") == THEIRS
    assert (
        read_revision(cluster.api.find("ControllerRevision", "flights-2")).template["store"]
        == module()["spec"]["store"]
    )
    cluster.api.edit("Module", "flights", lambda obj: obj["spec"]["store"].pop("takeOverFrom"))
    run(cluster)
    assert numbers(cluster) == (2, 2, 2)


def test_running_module_takes_its_store_back_when_it_names_who_took_it(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.api.edit("Module", "flights", lambda obj: obj["spec"]["store"].update(takeOverFrom=THEIRS))
    run(cluster)
    assert numbers(cluster) == (2, 2, 2), "the same image and settings, but another word: a new revision"


def test_running_module_is_stalled_and_not_rolled_back_when_another_takes_its_store(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    ended = {**ENDED, "phase": "Running"}
    for name in [name for name in cluster.api.names("Pod") if name.startswith("flights-core")]:
        cluster.api.edit("Pod", name, lambda obj: obj.update(status=ended))
    asyncio.run(stepped(cluster))
    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "OwnedByAnother")
    assert condition(cluster.api.find("Topology", "flights-core"), "Stalled") == ("True", "OwnedByAnother")
    assert numbers(cluster) == (1, 1, 1)


async def stepped(cluster: ClusterDouble) -> None:
    for _ in range(10):
        await cluster.operator.step()
        cluster.time.pass_seconds(1.0)


@pytest.mark.parametrize("image", [OWNED, {}])
def test_data_stays_and_the_module_goes_when_a_copy_with_the_policy_delete_is_deleted(
    cluster: ClusterDouble, image: Json
) -> None:
    cluster.images["flights:1"] = image
    cluster.api.put(module(deletionPolicy="Delete"))
    run(cluster)
    cluster.images["flights:1"] = {**image, "describe_status": ENDED}
    cluster.api.remove("Module", "flights")
    run(cluster, 20)
    assert cluster.api.names("Module") == []
    assert "flights-destroy" not in cluster.api.names("Job")
    assert "DataRetained" in events(cluster)
    assert "DataDestroyed" not in events(cluster)


class Answering(ApiDouble):
    """An API server whose answers to one question are given."""

    answers: list[str | ApiFailure]

    async def cluster(self) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, ApiFailure):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "known"),
    [([ApiFailure(0, "no answer"), "uid-1"], "uid-1"), ([ApiFailure(403, "forbidden")], "")],
)
def test_operator_waits_for_the_clusters_name_unless_it_may_not_know_it(
    cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch, answers: list[str | ApiFailure], known: str
) -> None:
    monkeypatch.setattr(process, "_LIST_RETRY_SECONDS", 0.0)
    api = Answering(cluster.time)
    api.answers = answers
    made = process.Operator(parse([], {}), api)
    asyncio.run(made._know_cluster())
    assert made.reconciler.defaults.cluster == known
