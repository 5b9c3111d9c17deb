"""A leader's look at options and depots is no snapshot: what comes between its two reads must not be split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollouts import Rollouts, Shop

from tidemill.api.recording import record_module
from tidemill.cluster.launch import programs
from tidemill.journal.leading import topology_lease
from tidemill.journal.options_log import OptionsLog
from tidemill.leader import events
from tidemill.leader.topology_store import TopologyStore


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


def test_records_are_seen_when_they_came_before_the_end_of_the_pause(tmp_path: Path) -> None:
    shop = Rollouts(tmp_path)
    shop.turn(Shop()).write()
    OptionsLog(shop.store, shop.module).pause("count")
    program = programs(record_module(Shop()), shop.definition)["count"]
    lease = topology_lease(shop.store, shop.definition.topology_prefix("count"), shop.clock)
    topology_store = TopologyStore(shop.store, shop.definition, "count", program, lease, shop.clock)
    topology_store.options = ResumedWhileRead(shop)  # type: ignore[assignment]

    look = topology_store._look(events.Look())

    assert not look.options.paused
    (orders,) = (ends for source, ends in look.ends.items() if "orders" in source)
    assert sum(orders.ends) == 3
