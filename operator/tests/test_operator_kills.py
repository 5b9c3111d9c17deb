"""The operator is killed at every call it makes, before and after the call's effect; the result is always the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_double import ClusterDouble
from test_operator_rollouts import module, numbers

Json = dict[str, Any]
SECONDS = 16
ONCE = ("Job", "ControllerRevision", "Secret", "Topology")
"""Kinds of which none may be made twice, however often the operator starts anew."""


async def story(kill_at: int | None = None, is_after: bool = False) -> ClusterDouble:
    """A Module, then a new image for it, which is rolled out; the process dies at call `kill_at`."""
    cluster = ClusterDouble()
    cluster.api.kill_at, cluster.api.is_killed_after_effect = kill_at, is_after
    cluster.api.put(module())
    await cluster.settle(SECONDS, is_killing=True)
    cluster.api.edit("Module", "flights", lambda obj: obj["spec"].update(image="flights:2"))
    await cluster.settle(SECONDS, is_killing=True)
    return cluster


def objects(cluster: ClusterDouble) -> dict[Any, Json]:
    """What is there in the end, without what time and order leave."""
    left = {
        key: obj for key, obj in cluster.api.objects.items() if key[0] not in ("Event", "Module", "Topology", "Pod")
    }
    return {key: {"spec": obj.get("spec"), "data": obj.get("data")} for key, obj in left.items()}


@pytest.mark.parametrize("is_after", [False, True])
def test_the_end_is_the_same_when_the_operator_is_killed_at_any_call(is_after: bool) -> None:
    quiet = asyncio.run(story())
    calls = len(quiet.api.history)
    wanted, made = objects(quiet), {kind: quiet.api.created[kind] for kind in ONCE}
    assert calls > 20 and numbers(quiet) == (2, 2, 2)

    for place in range(calls):
        found = asyncio.run(story(place, is_after))
        assert found.restarts == 1, f"call {place} of {calls} was not reached"
        assert objects(found) == wanted, f"killed at call {place}: {quiet.api.history[place]}"
        assert numbers(found) == (2, 2, 2), f"killed at call {place}: {quiet.api.history[place]}"
        assert {kind: found.api.created[kind] for kind in ONCE} == made, f"killed at {quiet.api.history[place]}"


async def rollback_story(kill_at: int | None = None, is_after: bool = False) -> tuple[ClusterDouble, int]:
    """A revision that deletes a PState fails and is rolled back; and how many calls were made before it."""
    cluster = ClusterDouble()
    cluster.images["flights:2"] = {"is_failing": True}
    cluster.api.put(module())
    await cluster.settle(SECONDS)
    before = len(cluster.api.history)
    cluster.api.kill_at, cluster.api.is_killed_after_effect = kill_at, is_after

    def change(obj: Json) -> None:
        obj["spec"].update(image="flights:2", objectsToDelete=["$$old"])

    cluster.api.edit("Module", "flights", change)
    await cluster.settle(1.5 * SECONDS, is_killing=True)
    return cluster, before


@pytest.mark.parametrize("is_after", [False, True])
def test_the_deleting_revision_is_rolled_back_once_when_the_operator_is_killed_at_any_call(is_after: bool) -> None:
    """Every other call before its effect, the others after: the end does not tell which."""
    quiet, before = asyncio.run(rollback_story())
    wanted, made = objects(quiet), {kind: quiet.api.created[kind] for kind in ONCE}
    assert numbers(quiet) == (3, 3, 3)
    assert quiet.api.find("Module", "flights")["status"]["stableRevisions"] == [1, 3]

    for place in range(before + is_after, len(quiet.api.history), 2):
        found, _ = asyncio.run(rollback_story(place, is_after))
        assert found.restarts == 1, f"call {place} was not reached"
        assert objects(found) == wanted, f"killed at call {place}: {quiet.api.history[place]}"
        assert numbers(found) == (3, 3, 3), f"killed at call {place}: {quiet.api.history[place]}"
        assert found.api.find("Module", "flights")["status"]["stableRevisions"] == [1, 3]
        assert {kind: found.api.created[kind] for kind in ONCE} == made, f"killed at {quiet.api.history[place]}"
