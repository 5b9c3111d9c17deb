"""A wall clock that was a day ahead: what it dated is collected in time all the same, and status says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as Folder

import pytest
from rollouts import SECONDS, Clock, Rollouts, Shop

from tidemill.api.declaration import record_module
from tidemill.clients.status_reader import topology_status
from tidemill.cluster.launch import RunningModule, programs
from tidemill.journal.leadership import topology_lease
from tidemill.leader.check import check_module
from tidemill.leader.collection import collect
from tidemill.leader.log_ages import SEEN_MAX, LogAges
from tidemill.leader.topology_store import TopologyStore

DAY_MS = 86_400_000
RETENTION_MS = 600_000


class Later(Clock):
    """A clock of which only what passes is moved."""

    later_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.later_ms


@pytest.fixture
def shop(tmp_path: Folder) -> Iterator[Rollouts]:
    made = Rollouts(tmp_path)
    yield made
    made.stop()


def ten_microbatches(shop: Rollouts, depot: str = "*orders") -> None:
    assert shop.running is not None
    for _ in range(10):
        done = shop.running.topologies["count"].state.processed
        shop.append(depot, "a")
        shop.processed("count", done + 1)


def led_a_day_ahead(shop: Rollouts) -> TopologyStore:
    """A leader a day ahead is followed by one whose clock is right; the topology's store of that one."""
    shop.clock.ahead_ms = DAY_MS
    definition = shop.run(Shop())
    ten_microbatches(shop)
    shop.stop()
    shop.clock.ahead_ms = 0
    shop.running = RunningModule(
        shop.store, record_module(Shop()), definition, shop.runner, hub=shop.hub, clock=shop.clock
    )
    shop.running.start(SECONDS)
    program = programs(record_module(Shop()), definition)["count"]
    lease = topology_lease(shop.store, definition.topology_prefix("count"), shop.clock)
    return TopologyStore(shop.store, definition, "count", program, lease, Later())


def test_entries_go_when_they_were_seen_so_long_ago_although_they_are_dated_a_day_ahead(shop: Rollouts) -> None:
    topology_store, clock = led_a_day_ahead(shop), Later()
    topology_store.clock = clock
    ten_microbatches(shop)
    assert collect(topology_store, RETENTION_MS).entries == 0
    seen = topology_store.commit_log.newest_number()
    ten_microbatches(shop)
    clock.later_ms = RETENTION_MS - 300_000
    assert collect(topology_store, RETENTION_MS).entries == 0, "not yet so old"
    clock.later_ms = RETENTION_MS + 1_000
    assert collect(topology_store, RETENTION_MS).entries > 0
    first = topology_store.commit_log.log.span()[0]
    assert first <= seen, "what was replaced within the retention stays"
    assert check_module(shop.store, "Shop") == []
    assert shop.counts("$$counts", "a") == {"a": 30}


def test_records_of_a_depot_go_when_their_start_was_seen_so_long_ago(shop: Rollouts) -> None:
    topology_store, clock = led_a_day_ahead(shop), Later()
    topology_store.clock = clock
    topology_store.options.set_many([("depot", "*visits", "depot.max.entries.per.partition", 1)])
    shop.clock.ahead_ms = DAY_MS
    ten_microbatches(shop, "*visits")  # the depot's segments are dated ahead from here on
    shop.clock.ahead_ms = 0
    collect(topology_store, RETENTION_MS)
    depot = topology_store.depots["*visits"]
    assert any(depot.starts())
    collect(topology_store, RETENTION_MS)
    ten_microbatches(shop, "*visits")
    assert depot.files.log.span()[0] == 1
    clock.later_ms = RETENTION_MS + 1_000
    collect(topology_store, RETENTION_MS)
    assert depot.files.log.span()[0] > 1


def test_status_says_how_far_ahead_the_newest_entry_is_dated(shop: Rollouts) -> None:
    topology_store = led_a_day_ahead(shop)
    found = topology_status(shop.store, topology_store.definition, "count", shop.clock)
    assert DAY_MS / 1000 - 600 < found.clock_ahead_seconds <= DAY_MS / 1000
    shop.clock.ahead_ms = DAY_MS
    assert topology_status(shop.store, topology_store.definition, "count", shop.clock).clock_ahead_seconds == 0


def test_nothing_is_called_older_than_it_is_when_more_was_seen_than_is_kept() -> None:
    ages = LogAges()
    for number in range(1, 10 * SEEN_MAX):
        ages.note(number, 10.0 * number)
        for millis in (0, 5, 10, 1_000):
            old = ages.old(millis, 10.0 * number)
            assert 10.0 * old <= 10.0 * number - millis or old == 0
    assert ages.old(0, 10.0 * number) == number
    assert ages.old(1_000, 10.0 * number) > number - 300
    assert len(ages._seen) <= SEEN_MAX
