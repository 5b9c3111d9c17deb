"""The operator dies at any moment of an update, or for good: streams go on, and the update ends well."""

from __future__ import annotations

import threading
import time

import pytest

from e2e.harness import modules, timeouts
from e2e.harness.kubernetes import condition
from e2e.harness.story import Story
from e2e.harness.traffic import Appender, Reader, assert_equals_truth
from e2e.harness.waiting import until

WATCHED = ("ControllerRevision", "Job", "ConfigMap", "Deployment", "Pod", "Topology")


def _footprint(story: Story) -> tuple[object, ...]:
    """What the operator has done so far: objects that exist, and what it wrote of them."""
    objects = tuple(
        sorted(
            f"{kind}/{each['metadata']['name']}"
            for kind in WATCHED
            for each in story.kubernetes.list(kind, story.namespace)
        )
    )
    status = story.get_module().get("status") or {}
    numbers = tuple(status.get(name) for name in ("updateRevision", "activeRevision", "currentRevision"))
    reasons = tuple((condition(story.get_module(), kind) or {}).get("reason") for kind in ("Ready", "Reconciling"))
    return (objects, numbers, reasons)


class Killer:
    """Kills (SIGKILL) the leading operator replica each time that it has done something new."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)
        self.kills: list[tuple[object, ...]] = []

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeouts.COMMAND)

    def _run(self) -> None:
        last, killed = _footprint(self._story), ""
        while not self._stop.is_set():
            now = _footprint(self._story)
            holder = self._story.system.kill_operator(killed)[0] if now != last else ""
            if holder:
                self.kills.append(now)
                last, killed = now, holder
            self._stop.wait(0.1)


@pytest.mark.long
def test_an_update_ends_well_when_the_operator_is_killed_after_each_of_its_actions(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.module())
    story.wait_ready()
    rows = story.rows()
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("commits go on", lambda: reader.total > 50, timeouts.RECOVERY)
        with Killer(story) as killer:
            applied = story.apply(story.module(image=modules.image("v3")))
            story.wait_stable(
                2, seconds=timeouts.ROLLOUT * 4
            )  # each kill costs a Lease of 12 s, and the kubelet's back-off
        stable = time.monotonic() - applied
        until("the new one commits", lambda: reader.sights[-1].versions.get("v3", 0) > 100, timeouts.RECOVERY)
        last_old, first_new = reader.hand_over("v1", "v3")
    story.system.wait_operator_ready()
    story.figure(
        "update with the operator killed (SIGKILL) after each action", stable, "s", note=f"{len(killer.kills)} kills"
    )
    story.figure("gap of an update with the operator killed (SIGKILL) after each action", first_new - last_old, "s")
    assert len(killer.kills) >= 3, killer.kills
    assert_equals_truth(rows, story.ledger)
    assert not appender.failures, appender.failures[:3]
    assert not reader.failures, reader.failures[:3]


@pytest.mark.quick
def test_another_replica_takes_over_when_the_leading_operator_is_killed(story: Story) -> None:
    """Measured on its work: a ConfigMap that it must make again is deleted once nothing of the killed one is left."""
    story.system.faults.need_own_cluster()
    story.apply(story.topology("counts-count"), story.module())
    story.wait_ready()
    rows, pods = story.rows(), {pod["metadata"]["uid"] for pod in story.drivers()}
    with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
        until("commits go on", lambda: reader.total > 50, timeouts.RECOVERY)
        until("an operator leads", story.system.operator_holder, timeouts.RECOVERY)
        killed = time.monotonic()
        old, _ = story.system.kill_operator()
        story.kubernetes.delete("ConfigMap", story.namespace, "counts-1")
        until("another replica mends", lambda: _has_config(story), timeouts.RECOVERY, pause=0.05)
        assert old and story.system.operator_holder() != old
        led = time.monotonic() - killed
        longest = reader.longest_pause(killed, time.monotonic())
    figure = story.figure("operator killed (SIGKILL) to another replica at work", led, "s", 20.0)
    story.figure("longest pause of rows when the operator is killed (SIGKILL)", longest, "s")
    assert {pod["metadata"]["uid"] for pod in story.drivers()} == pods
    assert_equals_truth(rows, story.ledger)
    assert not appender.failures and not reader.failures, (appender.failures[:3], reader.failures[:3])
    assert figure.is_borne, str(figure)
    story.system.wait_operator_ready()


def _has_config(story: Story) -> bool:
    return story.kubernetes.get("ConfigMap", story.namespace, "counts-1") is not None


@pytest.mark.long
def test_streams_go_on_and_a_driver_is_replaced_when_no_operator_is_there(story: Story) -> None:
    """The operator is scaled to nothing; a driver dies; an edit is made; the operator comes back and applies it."""
    story.system.faults.need_own_cluster()
    story.apply(story.topology("counts-count"), story.module())
    story.wait_ready()
    rows = story.rows()
    _scale_operator(story, 0)
    try:
        with Reader(rows) as reader, Appender(rows, story.ledger) as appender:
            until("commits go on", lambda: reader.total > 50, timeouts.RECOVERY)
            victim, killed = story.leader(), time.monotonic()
            gone = story.system.faults.kill(victim)
            recovered = reader.first_commit_after(gone, timeouts.RECOVERY) - killed
            story.apply(story.module(image=modules.image("v3")))
            _scale_operator(story, 2)
            story.wait_stable(2)
            until("v3 commits", lambda: reader.sights[-1].versions.get("v3", 0) > 0, timeouts.RECOVERY)
    finally:
        _scale_operator(story, 2)
    story.figure("driver killed (SIGKILL) to next commit, no operator there", recovered, "s")
    assert_equals_truth(rows, story.ledger)
    assert not appender.failures and not reader.failures, (appender.failures[:3], reader.failures[:3])


def _scale_operator(story: Story, replicas: int) -> None:
    where = ["-n", "tidemill-system", "deployment/tidemill-operator"]
    story.kubernetes.kubectl("scale", *where, f"--replicas={replicas}")
    until("the operator is scaled", lambda: len(story.system.operator_pods()) == replicas, timeouts.RECOVERY)
    if replicas:
        story.system.wait_operator_ready()
