"""The Lease of Kubernetes against a small API over HTTP: who holds it, how it is lost, and what an outage does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kubernetes import FakeKubernetes
from waiting import eventually

from tidemill.journal.clock import SystemClock
from tidemill.kubernetes.api import ClusterApi
from tidemill.kubernetes.lease import DEFINITION, HAND_OVER_MS, QUIET_MS, RENEW_MS, SILENT_MS, KubernetesLease
from tidemill.values.errors import ApiUnavailable


class SteppedClock(SystemClock):
    """Time goes on when a test says so; who waits is woken then."""

    def __init__(self) -> None:
        self._at = 0.0
        self.waiting = 0
        self._moved = threading.Condition()

    def monotonic_ms(self) -> float:
        return self._at

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        with self._moved:
            until = self._at + timeout_ms
            self.waiting += 1
            while self._at < until and not event.is_set():
                self._moved.wait(0.005)
            self.waiting -= 1
        return event.is_set()

    def advance(self, milliseconds: float) -> None:
        with self._moved:
            self._at += milliseconds
            self._moved.notify_all()


class Desk:
    """Leases of several processes on one API and one clock."""

    def __init__(self, fake: FakeKubernetes) -> None:
        self.fake = fake
        self.clock = SteppedClock()
        self.api = ClusterApi("default")
        self.made: list[KubernetesLease] = []

    def lease(self, who: str, definition: int = 1) -> KubernetesLease:
        pod, _, uid = who.rpartition("_")
        self.fake.put("pods", pod, metadata={"name": pod, "namespace": "default", "uid": uid})
        made = KubernetesLease(self.api.leases("t"), "t", who, definition, self.clock)
        self.made.append(made)
        return made

    @property
    def spec(self) -> dict[str, object]:
        found = self.fake.get("leases", "t")
        assert found is not None
        return dict(found["spec"])

    def renew(self, lease: KubernetesLease) -> None:
        """Time goes on until the only holder has renewed."""
        eventually(lambda: self.clock.waiting == 1)
        rounds = self.rounds()
        self.clock.advance(RENEW_MS)
        lease.try_acquire()
        eventually(lambda: self.rounds() > rounds)

    def rounds(self) -> int:
        return sum(request.startswith("PUT") for request in self.fake.requests)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    fake = FakeKubernetes()
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig(tmp_path)))
    made = Desk(fake)
    yield made
    for lease in made.made:
        lease._over.set()
    made.api.close()
    fake.close()


def test_first_one_gets_the_lease_and_others_do_not_when_all_ask(desk: Desk) -> None:
    first, second = desk.lease("a_1"), desk.lease("b_2")
    assert (first.try_acquire(), second.try_acquire(), first.try_acquire()) == (True, False, True)
    assert (desk.spec["holderIdentity"], second.holder, desk.spec["leaseTransitions"]) == ("a_1", "a_1", 0)


def test_lease_is_taken_at_once_when_its_holder_released_it(desk: Desk) -> None:
    first, second = desk.lease("a_1"), desk.lease("b_2")
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert desk.spec["holderIdentity"] == ""
    assert second.try_acquire()
    assert (desk.spec["holderIdentity"], desk.spec["leaseTransitions"]) == ("b_2", 1)
    assert not first.is_held()


def test_lease_is_taken_when_it_has_not_changed_for_its_duration(desk: Desk) -> None:
    desk.fake.put("leases", "t", spec={"holderIdentity": "dead", "leaseDurationSeconds": 5, "renewTime": "x"})
    second = desk.lease("b_2")
    assert not second.try_acquire()
    desk.clock.advance(4_900)
    assert not second.try_acquire()
    desk.clock.advance(100)
    assert second.try_acquire()


@pytest.mark.parametrize("fate", ["deleted", "made anew", "failed"])
def test_lease_is_taken_early_when_its_holders_pod_is_gone(desk: Desk, fate: str) -> None:
    desk.fake.put("pods", "dead", metadata={"name": "dead", "namespace": "default", "uid": "1"})
    desk.fake.put("leases", "t", spec={"holderIdentity": "dead_1", "leaseDurationSeconds": 5, "renewTime": "x"})
    second = desk.lease("b_2")
    assert not second.try_acquire()
    desk.clock.advance(QUIET_MS)
    assert not second.try_acquire(), "its pod runs"

    if fate == "deleted":
        desk.fake.delete("pods", "dead")
    elif fate == "made anew":
        desk.fake.put("pods", "dead", metadata={"name": "dead", "namespace": "default", "uid": "2"})
    else:
        desk.fake.put("pods", "dead", status={"phase": "Failed"})

    assert second.try_acquire()


def test_pods_are_not_asked_for_when_their_leases_are_renewed(desk: Desk) -> None:
    first, second = desk.lease("a_1"), desk.lease("b_2")
    assert first.try_acquire()
    for _ in range(4):
        assert not second.try_acquire()
        desk.renew(first)
    assert not any("pods" in request for request in desk.fake.requests)


def test_lease_stays_with_its_holder_when_it_is_renewed(desk: Desk) -> None:
    first, second = desk.lease("a_1"), desk.lease("b_2")
    assert first.try_acquire()
    for _ in range(6):
        assert not second.try_acquire()
        desk.renew(first)
    assert first.is_held()


def test_metadata_of_others_does_not_prolong_a_lease_when_it_changes(desk: Desk) -> None:
    desk.fake.put("leases", "t", spec={"holderIdentity": "dead", "leaseDurationSeconds": 5, "renewTime": "x"})
    second = desk.lease("b_2")
    assert not second.try_acquire()
    desk.clock.advance(5_000)
    known = desk.fake.get("leases", "t")
    assert known is not None
    desk.fake.put("leases", "t", metadata={**known["metadata"], "labels": {"a": "b"}})
    assert second.try_acquire()
    after = desk.fake.get("leases", "t")
    assert after is not None
    assert after["metadata"]["labels"] == {"a": "b"}


def test_holder_goes_on_when_the_api_does_not_answer(desk: Desk) -> None:
    first, second = desk.lease("a_1"), desk.lease("b_2")
    assert first.try_acquire()
    desk.fake.is_away = True
    for _ in range(20):
        desk.clock.advance(RENEW_MS)
        assert first.try_acquire()
    with pytest.raises(ApiUnavailable):
        second.try_acquire()


def test_holder_loses_when_another_one_is_seen(desk: Desk) -> None:
    first = desk.lease("a_1")
    assert first.try_acquire()
    desk.fake.put("leases", "t", spec={"holderIdentity": "b_2", "leaseDurationSeconds": 5, "renewTime": "y"})
    eventually(lambda: desk.clock.waiting == 1)
    desk.clock.advance(RENEW_MS)
    eventually(lambda: not first.is_held())
    assert not first.try_acquire()


def test_lease_is_made_again_when_somebody_deleted_it(desk: Desk) -> None:
    first = desk.lease("a_1")
    assert first.try_acquire()
    desk.fake.delete("leases", "t")
    eventually(lambda: desk.clock.waiting == 1)
    desk.clock.advance(RENEW_MS)
    eventually(lambda: desk.fake.get("leases", "t") is not None)
    assert desk.spec["holderIdentity"] == "a_1"


def test_lease_is_left_to_expire_when_its_runner_hangs(desk: Desk) -> None:
    first = desk.lease("a_1")
    assert first.try_acquire()
    eventually(lambda: desk.clock.waiting == 1)
    desk.clock.advance(SILENT_MS)
    rounds = desk.rounds()
    second = desk.lease("b_2")
    assert not second.try_acquire()
    desk.clock.advance(5_000)
    assert second.try_acquire()
    assert desk.rounds() == rounds + 1


def test_lease_goes_on_when_the_same_pod_asks_after_a_restart(desk: Desk) -> None:
    assert desk.lease("a_1").try_acquire()
    assert desk.lease("a_1").try_acquire()


def test_lease_is_taken_by_force_when_its_holder_runs_an_older_definition_for_too_long(desk: Desk) -> None:
    old, new = desk.lease("a_1", definition=1), desk.lease("b_2", definition=2)
    assert old.try_acquire()
    for step in range(int(HAND_OVER_MS / RENEW_MS) + 1):
        assert not new.try_acquire(), step
        desk.renew(old)
    assert new.try_acquire()
    found = desk.fake.get("leases", "t")
    assert found is not None
    assert found["metadata"]["annotations"][DEFINITION] == "2"


def test_only_one_wins_when_two_take_a_free_lease_at_the_same_moment(desk: Desk) -> None:
    desk.fake.put("leases", "t", spec={"holderIdentity": "", "leaseDurationSeconds": 5})
    first, second = desk.lease("a_1"), desk.lease("b_2")
    barrier = threading.Barrier(2)
    met: list[str] = []

    def meet(plural: str, name: str) -> None:
        met.append(name)
        if len(met) <= 2:
            barrier.wait(5)

    desk.fake.before_write = meet
    asked = [threading.Thread(target=lease.try_acquire) for lease in (first, second)]
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    assert [first.is_held(), second.is_held()].count(True) == 1


def test_lease_goes_with_its_topology_when_that_is_deleted(desk: Desk) -> None:
    topology = {"metadata": {"name": "t", "uid": "u-1"}}
    lease = KubernetesLease(desk.api.leases("t"), "t", "a", 1, desk.clock, topology)
    desk.made.append(lease)
    assert lease.try_acquire()
    found = desk.fake.get("leases", "t")
    assert found is not None
    owner = {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Topology", "name": "t", "uid": "u-1"}
    assert found["metadata"]["ownerReferences"] == [owner]
