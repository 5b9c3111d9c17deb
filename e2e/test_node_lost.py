"""A node loses its power with a leading driver on it; the standby on another node goes on."""

from __future__ import annotations

import time

import pytest

from e2e.harness import timeouts
from e2e.harness.kubernetes import Object
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until

LOST = "node1"


@pytest.mark.long
def test_the_standby_on_another_node_goes_on_when_a_node_is_lost(story: Story) -> None:
    story.system.faults.need_own_cluster()
    if len(story.kubernetes.kubectl("get", "nodes", "-o", "name").split()) < 2:
        pytest.skip("this story takes two nodes: python -m e2e.cluster up --nodes 2")
    gateway = {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node0"}}}}
    story.apply(story.topology("counts-count", driver={"replicas": 2}), story.module(gateway=gateway))
    story.wait_ready()
    rows = story.rows()
    _lead_from(story, LOST)
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("commits go on", lambda: reader.total > 50, timeouts.RECOVERY)
        lost = time.monotonic()
        with story.system.faults.node_away(LOST):
            taken = reader.first_commit_after(lost, timeouts.RECOVERY) - lost
            total = reader.total
            until("commits go on", lambda: reader.total > total + 100, timeouts.RECOVERY)
    figure = story.figure("node lost to next commit, standby on another node", taken, "s", 8.0)
    assert_equals_truth(rows, story.ledger)
    assert reader.never_went_back()
    assert not appender.failures and not reader.failures, (appender.failures[:3], reader.failures[:3])
    assert figure.is_borne, str(figure)


def _lead_from(story: Story, node: str) -> None:
    """Makes the driver on `node` the leader; the two drivers must be on two nodes."""
    until("drivers are on both nodes", lambda: len(_nodes(story.drivers())) == 2, timeouts.FIRST_COMMIT)
    leader = story.leader()
    if leader["spec"]["nodeName"] != node:
        story.kubernetes.delete("Pod", story.namespace, leader["metadata"]["name"], grace=0)
        until("the other driver leads", lambda: story.leader()["spec"]["nodeName"] == node, timeouts.RECOVERY)
        until("drivers are on both nodes again", lambda: len(_nodes(story.drivers())) == 2, timeouts.FIRST_COMMIT)


def _nodes(pods: list[Object]) -> set[str]:
    ready = [
        p
        for p in pods
        if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))
    ]
    return {str(pod["spec"].get("nodeName")) for pod in ready}
