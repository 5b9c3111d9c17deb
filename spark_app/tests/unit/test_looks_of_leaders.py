"""A leader's look at options and depots is no snapshot: what comes between its two reads must not be split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rollouts import Rollouts, Shop

from tidemill.api.declaration import record_module
from tidemill.cluster.launch import programs
from tidemill.journal.leadership import topology_lease
from tidemill.journal.options_log import OptionsLog
from tidemill.leader import events
from tidemill.leader.topology_store import TopologyStore
from tidemill.values.errors import Deleted


class ResumedWhileRead:
    """Options of which the next read comes just after records were appended and the pause was ended."""

    def __init__(self, shop: Rollouts) -> None:
        self._log, self._shop, self._is_due = OptionsLog(shop.store, shop.module), shop, True

    def read(self) -> Any:
        if self._is_due:
            self._is_due = False
            self._shop.append("*orders", "a", "b", "c")
            self._log.resume("count")
        return self._log.read()


def looking(shop: Rollouts) -> TopologyStore:
    """How a leader of the shop's topology looks at the store."""
    program = programs(record_module(Shop()), shop.definition)["count"]
    lease = topology_lease(shop.store, shop.definition.topology_prefix("count"), shop.clock)
    return TopologyStore(shop.store, shop.definition, "count", program, lease, shop.clock)


def test_records_are_seen_when_they_came_before_the_end_of_the_pause(tmp_path: Path) -> None:
    shop = Rollouts(tmp_path)
    shop.turn(Shop()).write()
    OptionsLog(shop.store, shop.module).pause("count")
    topology_store = looking(shop)
    topology_store.options = ResumedWhileRead(shop)  # type: ignore[assignment]

    look = topology_store._look(events.Look())

    assert not look.options.paused
    (orders,) = (ends for source, ends in look.ends.items() if "orders" in source)
    assert sum(orders.ends) == 3


def test_an_idle_leader_asks_once_for_each_depot_when_it_waits_for_records(tmp_path: Path) -> None:
    shop = Rollouts(tmp_path)
    shop.turn(Shop()).write()
    shop.append("*orders", "a")
    leader = looking(shop)
    assert leader.has_records()
    before = dict(shop.store.counts)

    assert not leader.has_records()

    asked = {verb: count - before.get(verb, 0) for verb, count in shop.store.counts.items()}
    assert {verb: count for verb, count in asked.items() if count} == {"exists": len(leader.depots)}
    shop.append("*orders", "b")
    assert leader.has_records()


def test_an_idle_leader_learns_of_a_deletion_when_it_looks_for_changes(tmp_path: Path) -> None:
    shop = Rollouts(tmp_path)
    shop.turn(Shop()).write()
    leader = looking(shop)
    leader.has_records()
    for depot in leader.depots.values():
        depot.files.log.mark_deleted()

    with pytest.raises(Deleted):
        leader.has_changes()
