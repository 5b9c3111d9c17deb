"""The shell with real threads, on a local folder: leads, follows, stands by, stops, retries, pauses."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.clients.history import topology_history
from tidemill.clients.hub import AppendHub
from tidemill.clients.status_reader import topology_status
from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.log import DepotLog
from tidemill.engine.work import AttemptOutcome, AttemptWork
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.language.dataflow import (
    DepotDeclaration,
    Location,
    ModuleDeclaration,
    SourceDeclaration,
    StartFrom,
    TopologyDeclaration,
)
from tidemill.leader import runner as shell
from tidemill.leader.check import check_module
from tidemill.leader.runner import TopologyRunner
from tidemill.plan.compile.topology import compile_topology
from tidemill.store.lease import lease_for
from tidemill.store.local import LocalStore
from tidemill.store.urls import open_store
from tidemill.testing.counting_runner import CountingRunner, read_counts
from tidemill.values.ids import Ids

SECONDS = 20.0
AT = Location()


class Bench:
    """One module with one topology on a folder; runners are started as a test likes."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder.as_uri())
        self.hub = AppendHub()
        self.options = OptionsLog(self.store, "Bench")
        source = SourceDeclaration("*records", "*records", "*m", StartFrom("beginning"), (), AT)
        declaration = ModuleDeclaration(
            "Bench", (DepotDeclaration("*records", "random", AT),), (TopologyDeclaration("mb", (), (source,), AT),)
        )
        self.program = compile_topology(declaration, "mb")
        self.definitions = DefinitionLog(self.store, "Bench")
        self.definition: StoredDefinition = self.definitions.append(definitions.launch(declaration, 2, 1, Ids(1)))
        self.depot = DepotLog(self.store, self.definition.depot_prefix("*records"), 2)
        self.runners: list[TopologyRunner] = []
        self.fails: Callable[[], bool] = lambda: False

    def start(self) -> TopologyRunner:
        engine = CountingRunner(self.store, random.Random(1), Ids(), lambda: self.fails())
        prefix = self.definition.topology_prefix("mb")
        runner = TopologyRunner(
            store=self.store, definition=self.definition, topology="mb", program=self.program, runner=engine,
            hub=self.hub, lease=lease_for(self.store, f"{prefix}/lease", lambda: 0),
        )  # fmt: skip
        runner.start()
        self.runners.append(runner)
        return runner

    def append(self, *records: int) -> None:
        self.depot.append([(record % 2, [record]) for record in records])
        self.hub.notify(self.definition.depot_prefix("*records"))

    def counts(self) -> dict[int, int]:
        prefix = self.definition.topology_prefix("mb")
        head = CommitLog(self.store, prefix).head()
        assert head is not None
        return dict(read_counts(self.store, prefix, head[1].snapshot.parts()))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for runner in made.runners:
        runner.kill()


def test_each_record_counts_once_when_appended_one_by_one(bench: Bench) -> None:
    runner = bench.start()
    runner.wait_until_claimed(SECONDS)
    for record in range(30):
        bench.append(record)
    runner.wait_for(lambda state: state.processed == 30, SECONDS)
    assert bench.counts() == dict.fromkeys(range(30), 1)


def test_records_of_another_process_are_found_when_nobody_notifies(bench: Bench) -> None:
    runner = bench.start()
    runner.wait_until_claimed(SECONDS)
    bench.depot.append([(0, [7])])
    runner.wait_for(lambda state: state.processed == 1, SECONDS)


def test_standby_goes_on_when_the_leader_is_killed(bench: Bench) -> None:
    leader, standby = bench.start(), None
    leader.wait_until_claimed(SECONDS)
    standby = bench.start()
    standby.wait_until_claimed(SECONDS)
    assert standby.state.role == "standby"
    bench.append(1)
    leader.wait_for(lambda state: state.processed == 1, SECONDS)
    leader.kill()
    bench.append(2)
    state = standby.wait_for(lambda state: state.processed == 2, SECONDS)
    assert state.entry is not None
    assert state.entry.epoch == 2
    assert bench.counts() == {1: 1, 2: 1}


def test_failure_is_shown_and_retried_when_user_code_raises(bench: Bench) -> None:
    runner = bench.start()
    runner.wait_until_claimed(SECONDS)
    bench.fails = lambda: True
    bench.append(1)
    state = runner.wait_for(lambda state: state.report.failures_in_row >= 2, SECONDS)
    assert state.report.failure is not None
    assert state.report.failure.trace == "Traceback"
    status = topology_status(bench.store, bench.definition, "mb")
    assert status.failure is not None
    assert status.failure.sample == "17"
    with pytest.raises(TimeoutError, match="the record is not liked"):
        runner.wait_for(lambda state: state.processed == 1, 0.01)
    bench.fails = lambda: False
    after = runner.wait_for(lambda state: state.processed == 1, SECONDS)
    assert after.entry is not None
    assert (after.entry.last_id, after.entry.last_version) == (1, state.report.failure.version + 1)
    kinds = [line["kind"] for line in topology_history(bench.store, bench.definition, "mb")]
    assert kinds[0] == "claim"
    assert kinds[-1] == "commit"


def test_nothing_is_processed_when_paused_and_all_when_resumed(bench: Bench) -> None:
    runner = bench.start()
    runner.wait_until_claimed(SECONDS)
    number = bench.options.pause("mb")
    bench.hub.notify(bench.definition.options_prefix)
    runner.wait_for(lambda state: state.entry is not None and state.entry.paused_seen == number, SECONDS)
    bench.append(1, 2)
    assert bench.counts() == {}
    bench.options.resume("mb")
    runner.wait_for(lambda state: state.processed == 2, SECONDS)


def test_nothing_is_processed_when_a_pause_was_seen_and_its_options_are_gone_until_they_are_written_anew(
    bench: Bench,
) -> None:
    first = bench.start()
    first.wait_until_claimed(SECONDS)
    bench.options.set("module", "", "depot.max.fetch", 7)
    number = bench.options.pause("mb")
    bench.hub.notify(bench.definition.options_prefix)
    first.wait_for(lambda state: state.entry is not None and state.entry.paused_seen == number, SECONDS)
    first.kill()
    for key in list(bench.store.list(bench.definition.options_prefix)):
        bench.store.delete(key)
    second = bench.start()
    bench.append(1)
    second.wait_for(lambda state: f"entry {number} of the options" in state.report.store_trouble, SECONDS)
    assert bench.counts() == {}
    assert [finding.place for finding in check_module(bench.store, "Bench")] == ["mb"]
    anew = OptionsLog(bench.store, "Bench")
    for value in range(1, number + 1):
        anew.set("module", "", "depot.max.fetch", value)
    second.wait_for(lambda state: state.processed == 1, SECONDS)
    assert check_module(bench.store, "Bench") == []


def test_bound_of_a_fetch_holds_from_the_next_microbatch_when_it_is_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, bounds = CountingRunner.run, []

    def noted(self: CountingRunner, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        bounds.extend(source.fetch for source in work.sources.values() if source.records)
        return run(self, work, cancel)

    monkeypatch.setattr(CountingRunner, "run", noted)
    runner = bench.start()
    runner.wait_until_claimed(SECONDS)
    for number, (scope, target, fetch) in enumerate([("module", "", 7), ("depot", "*records", 3), ("module", "", 9)]):
        bench.append(number)
        runner.wait_for(lambda state, done=number + 1: state.processed == done, SECONDS)  # type: ignore[misc] # a default
        bench.options.set(scope, target, "depot.max.fetch", fetch)
        bench.hub.notify(bench.definition.options_prefix)
    bench.append(3)
    runner.wait_for(lambda state: state.processed == 4, SECONDS)
    assert bounds == [10_000, 7, 3, 3], "the default, the module's, and the depot's, which is nearer"


def test_runner_gives_way_when_the_definition_is_updated(bench: Bench) -> None:
    runner = bench.start()
    runner.wait_until_claimed(SECONDS)
    bench.definition = bench.definitions.append(bench.definition)
    successor = bench.start()
    runner.wait_for(lambda state: state.role == "superseded", SECONDS)
    successor.wait_for(lambda state: state.role == "leader", SECONDS)
    bench.append(5)
    state = successor.wait_for(lambda state: state.processed == 1, SECONDS)
    assert state.entry is not None
    assert state.entry.definition == 2


def test_lease_is_free_when_a_runner_stopped(bench: Bench) -> None:
    first = bench.start()
    first.wait_until_claimed(SECONDS)
    first.stop()
    assert first.state.role == "stopped"
    second = bench.start()
    second.wait_until_claimed(SECONDS)
    assert second.state.role == "leader"


def test_two_entries_are_written_when_one_microbatch_follows_idleness(bench: Bench) -> None:
    runner = bench.start()
    runner.wait_until_claimed(SECONDS)
    assert isinstance(bench.store, LocalStore)
    bench.append(1)
    state = runner.wait_for(lambda state: state.processed == 1 and state.report.phase == "idle", SECONDS)
    assert state.number == 3  # claim, begin, commit


def test_records_are_found_when_a_collection_saw_them_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def collect_and_follow(topology_store: Any, _retention_ms: int) -> None:
        if not seen:
            bench.depot.append([(0, [7])])
            seen.append(topology_store.depots["*records"].follow())

    bench.options.set("module", "", "store.collection.period.seconds", 3)
    bench.options.set("topology", "mb", "topology.microbatch.empty.sleep.time.millis", 60_000)
    monkeypatch.setattr(shell, "collect", collect_and_follow)
    bench.start().wait_for(lambda state: state.processed == 1, 5.5)

    assert seen
