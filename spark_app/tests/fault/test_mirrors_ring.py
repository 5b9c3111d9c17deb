"""Two modules that feed each other while their leaders die again and again: every count is exact in the end."""

from __future__ import annotations

import random
from pathlib import Path as Folder
from typing import Any

import pytest
from mirrored import BEGINNING
from rings import RECORDS, ROUNDS, SECONDS, check_counts, closed, feed, feeding, others, processed, run
from stories import module_of
from waiting import eventually

from tidemill import Depot, LaunchConfig, Ops
from tidemill.api.declaration import record_module
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.cluster.launch import RunningModule, definition_for_launch
from tidemill.journal.clock import SystemClock
from tidemill.leader.check import check_module
from tidemill.leader.report import RunnerState
from tidemill.local.runner import LocalRunner
from tidemill.store.urls import open_store
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore

KILLS = 12


@pytest.mark.usefixtures("short_leases")
def test_counts_stay_exact_when_leaders_of_two_modules_that_feed_each_other_are_killed(store_url: str) -> None:
    dice = random.Random(1)
    total = RECORDS * (ROUNDS + 1)
    running = closed(store_url)
    try:
        feed(running["Left"].store)
        for kill in range(1, KILLS + 1):
            wanted = min(total, kill * total // (KILLS + 2) + dice.randrange(5))
            eventually(lambda wanted=wanted: processed(running) >= wanted, SECONDS)
            victim = dice.choice(["Left", "Right"])
            running[victim].kill()
            running[victim] = run(store_url, victim, others()[victim])
        eventually(lambda: processed(running) >= total, SECONDS)

        check_counts(running["Left"].store)
    finally:
        for module in running.values():
            module.close()


def moving(setup: Any, topologies: Any) -> None:
    """Appends each of its records to another module's depot."""
    setup.declare_depot("*in", Depot.random())
    setup.cluster_depot("*theirs", "Left", "*in")
    setup.set_launch_module_dynamic_option("depot.microbatch.max.records", 2)
    mb = topologies.microbatch("mb")
    rows = mb.source("*in", BEGINNING).out("*mb").explode_microbatch("*mb").out("*r").each(Ops.FIRST, "*r").out("*id")
    rows.hash_partition("*theirs", "*id").depot_partition_append("*theirs", "*r")


class Dying:
    """The `at`-th create of a process does not come back, before or after it was done."""

    def __init__(self, at: int, when: str) -> None:
        self.at, self.count = at, 0
        self.plan = FaultPlan(**{when: self._look})

    def _look(self, verb: str, key: str) -> None:
        self.count += verb == "create"
        if self.count >= self.at:
            raise Crash


# A runner that dies cannot give its lease up either: its thread ends with that.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("when", ["before", "after"])
def test_each_record_is_in_another_modules_depot_once_when_its_topology_dies_at_any_create(
    tmp_path: Folder, when: str
) -> None:
    for at in range(1, 40):
        store = open_store(f"file://{tmp_path}/{at}")
        declarations = [record_module(module_of(*each)) for each in (("Left", feeding("Left", "")), ("Mover", moving))]
        left, mover = (definition_for_launch(store, each, LaunchConfig(2, 1), SystemClock()) for each in declarations)
        DepotHandle(ModuleClient(store, "Mover"), "*in").append_many([[n, ROUNDS] for n in range(4)])
        dying = Dying(at, when)
        first = RunningModule(FaultyObjectStore(store, dying.plan), declarations[1], mover, LocalRunner())
        try:
            first.start(SECONDS)
            topology = first.topologies["mb"]
            eventually(lambda topology=topology: topology.state.is_over or done(topology.state), SECONDS)
        except Crash:
            pass
        was_done = done(first.topologies["mb"].state)
        first.kill()
        second = RunningModule(store, declarations[1], mover, LocalRunner())
        try:
            second.start(SECONDS)
            eventually(lambda second=second: done(second.topologies["mb"].state), SECONDS)
        finally:
            second.close()
        handle = DepotHandle(ModuleClient(store, "Left"), "*in")
        ends = [handle.get_partition_info(p).end_offset for p in range(2)]
        found = [record for p, end in enumerate(ends) for record in handle.read(p, 0, end)]
        assert sorted(found) == [[n, ROUNDS] for n in range(4)], f"died {when} create {at}"
        assert check_module(store, "Mover") == check_module(store, "Left") == []
        if was_done and dying.count < at:
            assert at > 4
            return
    raise AssertionError("it never came to its end")


def done(state: RunnerState) -> bool:
    return state.processed >= 4 and state.report.unpublished == 0
