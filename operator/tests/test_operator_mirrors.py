"""A Module that other modules mirror: the word that lets a revision, or a deletion with the data, break mirrors."""

from __future__ import annotations

from typing import Any

from api_double import ClusterDouble
from test_operator_rollouts import cluster, condition, module, numbers, run, set_image

Json = dict[str, Any]
BREAKS = "--break-mirrors"
SENTENCE = "$$p: would be gone, and module 'Report' mirrors it."
REFUSED: Json = {"faults": [{"subject": "$$p", "text": "would be gone, and module 'Report' mirrors it."}]}
ENDED: Json = {
    "phase": "Failed",
    "containerStatuses": [{"name": "destroy", "state": {"terminated": {"exitCode": 1, "message": SENTENCE}}}],
}
__all__ = ["cluster"]


def arguments(made: ClusterDouble, kind: str, name: str) -> list[str]:
    found: list[str] = made.api.find(kind, name)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def say(made: ClusterDouble, word: str) -> None:
    def change(obj: Json) -> None:
        obj["spec"].pop("breakMirrors", None)
        if word:
            obj["spec"]["breakMirrors"] = word

    made.api.edit("Module", "flights", change)


def test_a_refused_update_is_described_again_when_it_may_break_mirrors_and_not_again_when_the_word_goes(
    cluster: ClusterDouble,
) -> None:
    cluster.api.put(module())
    run(cluster)
    assert BREAKS not in arguments(cluster, "Job", "flights-1-describe")
    cluster.images["flights:2"] = REFUSED
    set_image(cluster, "flights:2")
    run(cluster)
    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "InvalidDefinition")
    assert numbers(cluster) == (2, 1, 1)

    cluster.images["flights:2"] = {}
    for word in ("flights:1", "deletion"):
        say(cluster, word)
        run(cluster)
        assert numbers(cluster) == (2, 1, 1), "these words are for something else"
    say(cluster, "flights:2")
    run(cluster)

    assert numbers(cluster) == (3, 3, 3)
    assert BREAKS in arguments(cluster, "Job", "flights-3-describe")
    assert BREAKS in arguments(cluster, "Deployment", "flights-core-3")
    for word in ("flights:3", "", "flights:2"):
        say(cluster, word)
        run(cluster)
        assert numbers(cluster) == (3, 3, 3)


def test_a_word_for_one_image_is_none_for_the_next_when_it_was_left_in_the_spec(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    say(cluster, "flights:2")
    set_image(cluster, "flights:2")
    run(cluster)
    assert numbers(cluster) == (2, 2, 2)
    assert BREAKS in arguments(cluster, "Job", "flights-2-describe")

    cluster.images["flights:3"] = REFUSED
    set_image(cluster, "flights:3")
    run(cluster)

    assert BREAKS not in arguments(cluster, "Job", "flights-3-describe")
    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "InvalidDefinition")
    assert numbers(cluster) == (3, 2, 2)


def test_a_rollback_may_break_mirrors_when_what_failed_could(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)
    cluster.images["flights:2"] = {"is_failing": True}
    say(cluster, "flights:2")
    set_image(cluster, "flights:2")
    run(cluster)

    assert numbers(cluster) == (3, 3, 3)
    assert cluster.api.find("ControllerRevision", "flights-3")["data"]["template"]["image"] == "flights:1"
    assert BREAKS in arguments(cluster, "Job", "flights-3-describe")


def test_the_data_of_a_mirrored_module_goes_when_the_word_is_said_after_it_was_refused(cluster: ClusterDouble) -> None:
    cluster.api.put(module(deletionPolicy="Delete"))
    run(cluster)
    cluster.images["flights:1"] = {"describe_status": ENDED}
    cluster.api.remove("Module", "flights")
    run(cluster, 3)
    assert BREAKS not in arguments(cluster, "Job", "flights-destroy")
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": cluster.time.text}
    cluster.api.edit("Job", "flights-destroy", lambda obj: obj.update(status={"conditions": [failed]}))
    run(cluster, 5)
    assert condition(cluster.api.find("Module", "flights"), "Stalled") == ("True", "DestroyFailed")
    said = [item["message"] for item in cluster.api.find("Module", "flights")["status"]["conditions"]]
    assert any("module 'Report' mirrors it" in message for message in said)

    say(cluster, "flights:1")
    run(cluster, 120)
    assert BREAKS not in arguments(cluster, "Job", "flights-destroy"), "a word for an update"
    failed = {**failed, "lastTransitionTime": cluster.time.text}
    cluster.api.edit("Job", "flights-destroy", lambda obj: obj.update(status={"conditions": [failed]}))
    say(cluster, "deletion")
    run(cluster, 120)

    assert BREAKS in arguments(cluster, "Job", "flights-destroy")


def test_a_topology_says_that_records_wait_in_its_quarantine(cluster: ClusterDouble) -> None:
    cluster.api.put(module())
    run(cluster)

    def message(count: int) -> str:
        def change(obj: Json) -> None:
            obj["status"].update(quarantinedCount=9, inQuarantineCount=count)

        cluster.api.edit("Topology", "flights-core", change)
        run(cluster, 5)
        found = cluster.api.find("Topology", "flights-core")["status"]["conditions"]
        return next(str(item["message"]) for item in found if item["type"] == "Ready")

    assert "quarantine" not in message(0)
    assert message(3).endswith("records wait in its quarantine: tidemill quarantine list")
    assert "quarantine" not in message(0)
