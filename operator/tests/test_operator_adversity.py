"""What must not happen when things come at the worst moment: stale verdicts, lost records of revisions, deletions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_double import ClusterDouble, _ready_status
from test_operator_rollouts import condition, events, module, numbers, run, set_image

from tidemill_operator.apply.api import Going
from tidemill_operator.handlers import watches
from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.reconcile import leadership
from tidemill_operator.resources import names
from tidemill_operator.resources.kinds import KINDS

Json = dict[str, Any]
PENDING = {"phase": "Pending"}


@pytest.fixture
def cluster() -> ClusterDouble:
    return ClusterDouble()


def wake_driver(cluster: ClusterDouble, image: str, prefix: str) -> None:
    """The drivers of an image that was slow to start are ready now."""
    cluster.images[image] = {}
    for name in cluster.api.names("Pod"):
        if name.startswith(prefix):
            cluster.api.edit("Pod", name, lambda obj: obj.update(status=_ready_status()))


def test_an_update_is_described_again_when_the_definition_under_it_was_written_meanwhile(
    cluster: ClusterDouble,
) -> None:
    cluster.images["flights:1"] = {"driver_status": PENDING}
    cluster.images["flights:2"] = {"driver_status": PENDING}
    cluster.api.put(module())
    run(cluster, 8)
    set_image(cluster, "flights:2")
    run(cluster, 8)
    assert numbers(cluster) == (2, 1, 0)

    wake_driver(cluster, "flights:1", "flights-core-1")
    run(cluster, 5)
    wake_driver(cluster, "flights:2", "flights-core-3")
    run(cluster, 60)

    assert cluster.definition == 2
    assert numbers(cluster) == (3, 3, 3)
    assert cluster.api.find("ControllerRevision", "flights-3")["data"]["template"]["image"] == "flights:2"


def test_the_update_stalls_with_a_reason_when_its_drivers_never_get_warm(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"driver_status": {"phase": "Running"}}

    set_image(cluster, "flights:2")
    run(cluster, 90)

    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "ProgressDeadlineExceeded")
    assert numbers(cluster) == (2, 1, 1)

    wake_driver(cluster, "flights:2", "flights-core-2")
    run(cluster)

    assert numbers(cluster) == (2, 2, 2)


def test_the_running_driver_stays_when_somebody_deletes_its_revision(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    deployment = cluster.api.find("Deployment", "flights-core-1")["metadata"]["uid"]

    cluster.api.remove("Job", "flights-1-describe")  # its time to live is over
    cluster.api.remove("ControllerRevision", "flights-1")
    run(cluster, 1)

    assert cluster.api.find("Deployment", "flights-core-1")["metadata"]["uid"] == deployment
    run(cluster, 60)
    assert cluster.api.find("Deployment", "flights-core-1")["metadata"]["uid"] == deployment
    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Running")


def test_nothing_of_the_old_comes_back_when_a_recreated_revision_fails(cluster: ClusterDouble) -> None:
    cluster.api.put(module(rollout={"strategy": "Recreate", "stableMicrobatches": 3}))
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}
    together: set[tuple[str, ...]] = set()
    feed = cluster.api.seen

    def seen(kind: str, obj: Json) -> None:
        together.add(tuple(name for name in cluster.api.names("Deployment") if "core" in name))
        feed(kind, obj)

    cluster.api.seen = seen
    set_image(cluster, "flights:2")
    run(cluster, 60)

    assert numbers(cluster) == (3, 3, 3)
    assert not any("flights-core-1" in found and len(found) > 1 for found in together), together


def deleting(cluster: ClusterDouble) -> None:
    """The spec asks for an image that does not have $$old any more."""

    def change(obj: Json) -> None:
        obj["spec"].update(image="flights:2", objectsToDelete=["$$old"])

    cluster.api.edit("Module", "flights", change)


def back_by_hand(cluster: ClusterDouble, **rollout: Any) -> None:
    def change(obj: Json) -> None:
        obj["spec"].update(image="flights:1", rollout={**obj["spec"]["rollout"], **rollout})
        del obj["spec"]["objectsToDelete"]

    cluster.api.edit("Module", "flights", change)


def arguments_of(cluster: ClusterDouble, kind: str, name: str) -> list[str]:
    found: list[str] = cluster.api.find(kind, name)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_a_revision_that_deleted_something_is_rolled_back_with_its_data_when_it_fails(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}
    deleting(cluster)
    run(cluster, 60)

    found = cluster.api.find("Module", "flights")
    assert numbers(cluster) == (3, 3, 3)
    assert condition(found, "Stalled") == ("True", "RolledBack")
    assert found["status"]["stableRevisions"] == [1, 3]
    for kind, name in (("Job", "flights-3-describe"), ("Deployment", "flights-core-3")):
        assert "--restore-retired" in arguments_of(cluster, kind, name)
        assert "--objects-to-delete" not in arguments_of(cluster, kind, name)


def test_a_rollback_is_impossible_when_its_image_would_not_find_its_data(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:1"] = {"faults_when_back": ["$$old was deleted by definition 1"]}
    cluster.images["flights:2"] = {"is_failing": True}
    deleting(cluster)
    run(cluster, 60)

    found = cluster.api.find("Module", "flights")
    assert numbers(cluster) == (3, 2, 1)
    assert condition(found, "Stalled") == ("True", "RollbackImpossible")
    assert "$$old was deleted" in found["status"]["conditions"][0]["message"]


def test_going_back_by_hand_is_impossible_when_a_stable_revision_deleted_something(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    deleting(cluster)
    run(cluster)
    assert numbers(cluster) == (2, 2, 2)
    assert "--restore-retired" not in arguments_of(cluster, "Deployment", "flights-core-2")
    cluster.images["flights:1"] = {"faults_when_back": ["$$old was deleted by definition 2"]}

    back_by_hand(cluster)
    run(cluster)

    found = cluster.api.find("Module", "flights")
    assert numbers(cluster) == (3, 2, 2)
    assert condition(found, "Stalled") == ("True", "RollbackImpossible")
    message = found["status"]["conditions"][0]["message"]
    for part in ("revision 1", "$$old was deleted by definition 2", "Revision 2 goes on", "retryNonce"):
        assert part in message, message

    cluster.api.edit("Module", "flights", lambda obj: obj["spec"]["rollout"].update(retryNonce="start it empty"))
    run(cluster)
    assert numbers(cluster) == (4, 4, 4)
    assert "--restore-retired" not in arguments_of(cluster, "Deployment", "flights-core-4")


def test_going_back_by_hand_restores_when_the_revision_that_deleted_is_not_stable(cluster: ClusterDouble) -> None:
    cluster.api.put(module(rollout={"rollback": "Manual", "stableMicrobatches": 3, "progressDeadlineSeconds": 60}))
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}
    deleting(cluster)
    run(cluster)
    assert numbers(cluster) == (2, 2, 1)

    back_by_hand(cluster)
    run(cluster)

    assert numbers(cluster) == (3, 3, 3)
    assert "--restore-retired" in arguments_of(cluster, "Deployment", "flights-core-3")


def test_a_failed_spec_that_is_tried_again_is_no_going_back(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}
    set_image(cluster, "flights:2")
    run(cluster, 60)
    set_image(cluster, "flights:3")
    run(cluster)
    cluster.images["flights:2"] = {}

    set_image(cluster, "flights:2")
    run(cluster)

    assert numbers(cluster) == (5, 5, 5)
    assert "--restore-retired" not in arguments_of(cluster, "Deployment", "flights-core-5")


def test_a_rollback_takes_away_what_the_failed_revision_added_and_nothing_else(cluster: ClusterDouble) -> None:
    cluster.api.put(module(objectsToDelete=["$$earlier"]))
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True, "pstates": ["$$p", "$$new"]}

    def change(obj: Json) -> None:
        obj["spec"].update(image="flights:2")
        del obj["spec"]["objectsToDelete"]

    cluster.api.edit("Module", "flights", change)
    run(cluster, 60)

    template = cluster.api.find("ControllerRevision", "flights-3")["data"]["template"]
    assert (template["image"], template["objectsToDelete"]) == ("flights:1", ["$$new?"])
    assert numbers(cluster) == (3, 3, 3)

    cluster.api.edit("Module", "flights", lambda obj: obj["spec"].update(image="flights:1"))
    run(cluster)
    assert numbers(cluster) == (3, 3, 3)


def test_the_data_is_destroyed_when_everything_of_the_module_was_collected_before(cluster: ClusterDouble) -> None:
    """Deletion in the foreground (as Argo CD does): dependents go first, and again while the Module waits."""
    cluster.api.put(module(deletionPolicy="Delete"))
    run(cluster)
    uid = cluster.api.find("Module", "flights")["metadata"]["uid"]

    cluster.api.remove("Module", "flights")
    for (kind, _, name), obj in list(cluster.api.objects.items()):
        if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences", ())):
            cluster.api.remove(kind, name)
    run(cluster, 5)

    job = cluster.api.find("Job", "flights-destroy")
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][:3] == ["tidemill", "destroy", "Flights"]
    assert all(owner["uid"] != uid for owner in job["metadata"].get("ownerReferences", ()))


def test_the_module_goes_when_its_namespace_is_being_deleted(cluster: ClusterDouble) -> None:
    cluster.api.put(module(deletionPolicy="Delete"))
    run(cluster)
    create = cluster.api._applied

    def refused(obj: Json) -> Json:
        if ("Job", "ns", obj["metadata"]["name"]) not in cluster.api.objects and obj["kind"] == "Job":
            text = (
                "jobs.batch is forbidden: unable to create new content in namespace ns because it is being terminated"
            )
            raise Going(403, text)
        return create(obj)

    cluster.api._applied = refused  # type: ignore[method-assign]
    cluster.api.remove("Module", "flights")
    run(cluster, 10)

    assert cluster.api.names("Module") == []


def test_nobody_is_blamed_when_an_executor_ends(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    ended = {
        "phase": "Failed",
        "containerStatuses": [
            {"name": "executor", "restartCount": 0, "ready": False, "state": {"terminated": {"exitCode": 1}}}
        ],
    }
    labels = names.labels("flights", "executor", "flights-core", 2)
    cluster.images["flights:2"] = {"driver_status": PENDING}
    set_image(cluster, "flights:2")
    run(cluster, 5)
    cluster.api.put(
        {
            "kind": "Pod",
            "metadata": {"name": "x-1", "labels": labels},
            "spec": {"restartPolicy": "Never"},
            "status": ended,
        }
    )
    run(cluster, 10)

    assert condition(cluster.api.find("Module", "flights"), "Stalled") is None


def test_topologies_whose_names_fold_to_one_each_have_their_own(cluster: ClusterDouble) -> None:
    cluster.images["flights:1"] = {"topologies": ["core_a", "coreA"]}
    cluster.api.put(module())

    run(cluster)

    found = {cluster.api.find("Topology", name)["spec"]["topology"] for name in cluster.api.names("Topology")}
    assert found == {"core_a", "coreA"}
    assert numbers(cluster) == (1, 1, 1)


def test_what_came_during_a_list_stays_known_when_the_list_does_not_have_it() -> None:
    cache = ObjectCache()
    old = {"kind": "Module", "metadata": {"name": "old", "namespace": "ns", "uid": "1", "resourceVersion": "1"}}
    new = {"kind": "Module", "metadata": {"name": "new", "namespace": "ns", "uid": "2", "resourceVersion": "5"}}
    cache.put(old)
    before = cache.refs("Module", None)
    cache.put(new)

    cache.replace("Module", [], before)

    assert cache.all("Module") == [new]


def test_what_was_deleted_does_not_come_back_when_a_late_answer_shows_it() -> None:
    cache = ObjectCache()
    obj = {"kind": "Module", "metadata": {"name": "old", "namespace": "ns", "uid": "1", "resourceVersion": "1"}}
    cache.put(obj)
    cache.remove({**obj, "metadata": {**obj["metadata"], "resourceVersion": "3"}})

    cache.put({**obj, "metadata": {**obj["metadata"], "resourceVersion": "2"}})
    assert cache.all("Module") == []

    labelled = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "4"}}
    cache.put(labelled)  # it was only out of sight, because somebody took our label off
    assert cache.all("Module") == [labelled]


def test_the_lease_counts_as_lost_in_time_when_the_api_server_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        async def get(self, kind: str, namespace: str, name: str) -> Json:
            await asyncio.Event().wait()
            return {}

    monkeypatch.setattr(leadership, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(leadership, "RENEW_DEADLINE_SECONDS", 0.05)
    held = leadership.Leadership(Hanging(), "ns", "lease", "me")  # type: ignore[arg-type]
    held.is_held = True

    async def keep() -> None:
        await asyncio.wait_for(held.keep(), 2)

    asyncio.run(keep())

    assert not held.is_held


def test_a_list_is_made_when_a_watch_begins_anew() -> None:
    begun: list[str] = []
    cache = ObjectCache()
    seen = watches._handler(cache, KINDS["Module"], lambda: begun.append("module"))
    metadata = {"name": "m", "namespace": "ns", "uid": "1", "resourceVersion": "1"}

    asyncio.run(seen(event={"type": "MODIFIED", "object": {"metadata": metadata, "spec": {}}}))
    assert begun == []

    asyncio.run(seen(event={"type": None, "object": {"metadata": metadata, "spec": {}}}))
    assert begun == ["module"]


def test_the_module_stalls_when_nobody_leads_for_long(cluster: ClusterDouble) -> None:
    """Somebody else wrote a definition: the drivers are superseded, and only a person can know why."""
    cluster.api.put(module())
    run(cluster)
    cluster.definition, cluster.defined_by = 7, 99

    run(cluster, 30)
    assert condition(cluster.api.find("Module", "flights"), "Stalled") is None
    run(cluster, 60)

    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "ProgressDeadlineExceeded")


def test_the_module_stays_ready_when_an_update_follows_one_that_removed_a_topology(cluster: ClusterDouble) -> None:
    cluster.images["flights:1"] = {"topologies": ["core", "extra"]}
    cluster.images["flights:3"] = {"driver_status": {"phase": "Pending"}}
    cluster.api.put(module())
    spec = {"moduleRef": {"name": "flights"}, "topology": "extra"}
    cluster.api.put({"kind": "Topology", "metadata": {"name": "mine"}, "spec": spec})
    run(cluster)
    set_image(cluster, "flights:2")
    run(cluster)

    set_image(cluster, "flights:3")
    run(cluster, 10)

    assert condition(cluster.api.find("Module", "flights"), "Ready") == ("True", "Warming")


def test_a_log_that_is_gone_is_no_verdict_when_the_kubelet_says_so(cluster: ClusterDouble) -> None:
    logs, text = cluster.api.logs, "unable to retrieve container logs for containerd://abc"
    read = cluster.api.log

    async def gone(namespace: str, pod: str, container: str) -> str:
        calls.append(pod)
        return text if len(calls) < 3 else await read(namespace, pod, container)

    calls: list[str] = []
    cluster.api.log = gone  # type: ignore[method-assign]
    cluster.api.put(module())

    run(cluster)

    assert logs and len(calls) == 3
    assert numbers(cluster) == (1, 1, 1)


def test_records_that_retention_deleted_unread_are_told_once_a_count(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    assert "RecordsSkipped" not in events(cluster)
    name = cluster.api.names("Topology")[0]

    for skipped in (40, 41):
        cluster.api.edit("Topology", name, lambda found, n=skipped: found["status"].update(skippedCount=n))
        run(cluster, 5)
        [ready] = [c for c in cluster.api.find("Topology", name)["status"]["conditions"] if c["type"] == "Ready"]
        assert (ready["status"], ready["reason"]) == ("True", "Running")
        assert ready["message"].endswith(f"; retention deleted {skipped} records before they were read")

    assert events(cluster).count("RecordsSkipped") == 2
