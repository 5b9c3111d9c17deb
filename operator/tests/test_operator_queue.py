"""The work queue and the Lease, with time by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from api_double import ApiDouble, ManualTime

from tidemill_operator.apply.api import ApiFailure
from tidemill_operator.reconcile.leadership import DURATION_SECONDS, Leadership
from tidemill_operator.reconcile.queue import BACK_OFF_LIMIT_SECONDS, WorkKey, WorkQueue

A, B = WorkKey("Module", "ns", "a"), WorkKey("Module", "ns", "b")


def test_an_object_comes_once_when_it_is_woken_often() -> None:
    time = ManualTime()
    queue = WorkQueue(time.seconds)
    for _ in range(5):
        queue.wake(A)

    assert queue.take_due() == (A, time.seconds())
    assert queue.take_due() is None


def test_the_earlier_time_holds_when_an_object_is_woken_for_two() -> None:
    time = ManualTime()
    queue = WorkQueue(time.seconds)
    queue.wake(A, 10)
    queue.wake(A, 3)
    queue.wake(A, 20)

    assert queue.take_due() == 3
    time.pass_seconds(3)
    assert isinstance(queue.take_due(), tuple)


def test_an_object_waits_when_it_is_worked_on() -> None:
    queue = WorkQueue(ManualTime().seconds)
    queue.wake(A)
    assert isinstance(queue.take_due(), tuple)
    queue.wake(A)
    queue.wake(B)

    found = queue.take_due()
    assert isinstance(found, tuple) and found[0] == B
    assert not isinstance(queue.take_due(), tuple)

    queue.done(A)
    assert isinstance(queue.take_due(), tuple)


def test_delays_grow_to_a_limit_and_start_anew_when_it_works_again() -> None:
    time = ManualTime()
    queue = WorkQueue(time.seconds)

    def fail() -> float:
        queue.wake(A)
        assert isinstance(queue.take_due(), tuple)
        delay = queue.failed(A)
        time.pass_seconds(delay)
        return delay

    delays = [fail() for _ in range(12)]
    assert delays[:3] == [0.5, 1.0, 2.0] and delays[-1] == BACK_OFF_LIMIT_SECONDS

    assert isinstance(queue.take_due(), tuple)
    queue.done(A)
    assert fail() == 0.5


def test_a_worker_wakes_up_when_something_comes() -> None:
    async def story() -> WorkKey:
        queue = WorkQueue(asyncio.get_running_loop().time)
        taking = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.wake(B)
        return (await asyncio.wait_for(taking, 5))[0]

    assert asyncio.run(story()) == B


def replicas() -> tuple[ManualTime, ApiDouble, Leadership, Leadership]:
    time = ManualTime()
    api = ApiDouble(time)
    made = [Leadership(api, "ns", "tidemill-operator", name, time.seconds) for name in ("one", "two")]
    return time, api, made[0], made[1]


def try_acquire(replica: Leadership) -> bool:
    return asyncio.run(replica.try_acquire())


def test_one_replica_leads_when_there_are_two() -> None:
    _, _, one, two = replicas()

    assert try_acquire(one)
    assert not try_acquire(two)


def test_the_other_leads_at_once_when_the_first_stops_cleanly() -> None:
    time, _, one, two = replicas()
    assert try_acquire(one) and not try_acquire(two)

    asyncio.run(one.release())
    time.pass_seconds(1.1)

    assert try_acquire(two)


def test_the_other_leads_after_the_duration_when_the_first_crashed() -> None:
    time, _, one, two = replicas()
    assert try_acquire(one) and not try_acquire(two)

    time.pass_seconds(DURATION_SECONDS - 1)
    assert not try_acquire(two)
    time.pass_seconds(2)
    assert try_acquire(two)
    assert not try_acquire(one)


def test_the_clock_of_the_holder_does_not_matter_when_it_is_wrong() -> None:
    time, api, one, two = replicas()
    assert try_acquire(one)
    api.edit("Lease", "tidemill-operator", lambda obj: obj["spec"].update(renewTime="1999-01-01T00:00:00.000000Z"))

    assert not try_acquire(two)


def test_nobody_leads_when_the_api_server_does_not_answer() -> None:
    _, api, one, _ = replicas()

    async def away(*_: Any) -> dict[str, Any]:
        raise ApiFailure(0, "away")

    api.get = away  # type: ignore[method-assign]
    assert not try_acquire(one)
    assert not one.is_held
