"""Reading one's own writes: in the library, and from the command line beside a runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    PState,
)
from tidemill import Path as To
from tidemill.api.declaration import record_module
from tidemill.clients.barrier import Barrier, ProcessedWatch
from tidemill.clients.status_reader import LagReader, topology_status
from tidemill.cluster.launch import update
from tidemill.depot.log import DepotLog
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Entry, SourceProgress
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.collection import _needed
from tidemill.leader.topology_store import TopologyStore
from tidemill.plan.check.module import checked
from tidemill.store.urls import open_store
from tidemill.values.errors import UnknownName, UserCodeError

TIDEMILL = [sys.executable, "-c", "from tidemill.cli.main import app; app()"]


class Words(Module):
    def define(self, setup, topologies):  # type: ignore[no-untyped-def]
        setup.declare_depot("*words", Depot.random())
        for name in ("count", "other"):
            mb = topologies.microbatch(name)
            mb.pstate(f"$${name}", PState.map_schema(str, int))
            (
                mb.source("*words").out("*m")
                .explode_microbatch("*m").out("*word")
                .each(lambda word: word + "", "*word").out("*copy")
                .hash_partition("*copy")
                .compound_agg(f"$${name}", CompoundAgg.map("*copy", Agg.count()))
            )  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Words(), LaunchConfig(4, 2))
        yield cluster


def _entry(*offsets: int) -> Entry:
    return Entry("claim", "n", 1, 1, 0, progress={"s": SourceProgress("*words-1", offsets, (0,) * len(offsets))})


@pytest.mark.parametrize(
    ("entry", "missing"), [(None, 5), (_entry(0, 0), 5), (_entry(9, 0), 3), (_entry(2, 2), 1), (_entry(2, 3), 0)]
)
def test_missing_counts_what_is_not_processed_when_partitions_differ(entry: Entry | None, missing: int) -> None:
    assert Barrier("mb", {"s": (2, 3)}).missing(entry.progress if entry else {}) == missing


def test_a_source_that_was_not_met_yet_is_missing_when_its_depot_is_empty() -> None:
    assert Barrier("mb", {"new": (0, 0)}).missing(_entry(0, 0).progress) == 1


class Moved(Module):
    """A source that reads one depot or the other under the same ID, or went."""

    def __init__(self, depot: str | None) -> None:
        self.depot = depot

    def define(self, setup, topologies):  # type: ignore[no-untyped-def]
        setup.declare_depot("*a", Depot.random())
        setup.declare_depot("*b", Depot.random())
        setup.declare_depot("*one", Depot.random()).global_()
        setup.declare_depot("*always", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", int).global_().initial_value(0)
        for depot, name in (("*always", "other"), (self.depot, "s")):
            if depot is not None:
                options = MicrobatchSourceOptions.start_from_beginning().source_id(name)
                counted = mb.source(depot, options).out("*m").explode_microbatch("*m").out("*r")
                counted.global_partition().agg("$$n", Agg.count())


@pytest.mark.parametrize("changes", [("*b",), ("*one",), (None, "*a")])
def test_a_source_is_not_met_when_its_progress_is_of_another_one_of_its_id(
    changes: tuple[str | None, ...], tmp_path: Path
) -> None:
    url = tmp_path.as_uri()
    with InProcessCluster.create("local", store=url) as cluster:
        cluster.launch_module(Moved("*a"), LaunchConfig(4, 2))
        for depot, count in (("*a", 9), ("*b", 1), ("*one", 1)):
            cluster.cluster_depot("Moved", depot).append_many(list(range(count)))
        cluster.wait_until_processed("Moved")
    store = open_store(url)
    for change in changes:  # and no runner claims
        definition = update(store, checked(record_module(Moved(change))), (), SystemClock())
    head = CommitLog(store, definition.topology_prefix("mb")).head()
    assert head is not None

    assert ProcessedWatch.of_all(store, definition, None).look() is False
    assert LagReader(store, definition, "mb").read(head[1]).keys() == {"other"}
    status = topology_status(store, definition, "mb")
    assert status.progress.keys() == {"other"}
    topology_store = SimpleNamespace(
        store=store, definition=definition, restorable=lambda: (), clock=SystemClock(),
        options=OptionsLog(store, "Moved"),
    )  # fmt: skip
    depot = changes[-1] or ""
    log = DepotLog(store, definition.depot_prefix(depot), definition.partitions(depot))
    assert _needed(cast(TopologyStore, topology_store), depot, log, ()) is None  # so retention deletes nothing

    with InProcessCluster.create("local", store=url) as cluster:
        cluster.launch_module(Moved(changes[-1]), LaunchConfig(4, 2))
        cluster.wait_until_processed("Moved")
        assert cluster.cluster_pstate("Moved", "$$n").select_one(To.stay()) == (18 if changes[-1] == "*a" else 10)


def test_own_appends_are_read_when_they_are_waited_for(cluster: InProcessCluster) -> None:
    depot = cluster.cluster_depot("Words", "*words")
    for round in range(1, 6):
        depot.append_many(["a", "b", "a"])
        cluster.wait_until_processed("Words")
        for name in ("$$count", "$$other"):
            assert cluster.cluster_pstate("Words", name).select_one(To.key("a")) == 2 * round


def test_only_the_named_topology_is_waited_for_when_another_is_paused(cluster: InProcessCluster) -> None:
    cluster.pause_microbatch_topology("Words", "other")
    cluster.cluster_depot("Words", "*words").append("a")
    cluster.wait_until_processed("Words", "count")

    with pytest.raises(TimeoutError, match="other has not processed 1 of the records; it is paused"):
        cluster.wait_until_processed("Words", timeout_millis=1)
    with pytest.raises(UnknownName):
        cluster.wait_until_processed("Words", "nope")


def test_a_wait_ends_with_the_failure_when_each_attempt_fails(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Words", "*words").append(7)

    with pytest.raises(UserCodeError, match="fails on each attempt"):
        cluster.wait_until_processed("Words", "count", timeout_millis=30_000)


def test_an_old_failure_ends_no_wait_when_who_failed_does_not_run_any_more(tmp_path: Path) -> None:
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(Words(), LaunchConfig(2, 1))
        cluster.cluster_depot("Words", "*words").append(7)
        with pytest.raises(UserCodeError, match="fails on each attempt"):
            cluster.wait_until_processed("Words", "count")
        store = cluster.store

    definition = DefinitionLog(store, "Words").newest()
    assert definition is not None
    watch = ProcessedWatch.of_all(store, definition, "count")

    assert not watch.look(), "somebody may start it again with mended code"
    assert "nobody runs it" in watch.late(0.0, SystemClock())


def test_a_wait_goes_on_when_an_option_lets_the_record_go_to_the_quarantine(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Words", "*words").append(7)
    for topology in ("count", "other"):
        with pytest.raises(UserCodeError, match="fails on each attempt"):
            cluster.wait_until_processed("Words", topology)
    OptionsLog(cluster.store, "Words").set("module", "", "topology.on.record.error", "quarantine")

    cluster.wait_until_processed("Words")


class Keyed(Module):
    """Counts texts, and None where it is a key."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def module_name(self) -> str:
        return "Keyed"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(self.key, int))
        stream = mb.source("*d", MicrobatchSourceOptions.start_from_beginning()).out("*m").explode_microbatch("*m")
        stream.out("*r").hash_partition("*r").compound_agg("$$p", CompoundAgg.map("*r", Agg.count()))


def test_a_wait_goes_on_when_an_update_mended_what_failed() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Keyed(str), LaunchConfig(2, 1))
        cluster.cluster_depot("Keyed", "*d").append(None)
        with pytest.raises(UserCodeError, match="fails on each attempt"):
            cluster.wait_until_processed("Keyed")
        cluster.update_module(Keyed(PState.nullable(str)))
        cluster.wait_until_processed("Keyed")
        assert cluster.cluster_pstate("Keyed", "$$p").select_one(To.key(None)) == 1


class Grown(Words):
    def module_name(self) -> str:
        return "Words"

    def define(self, setup, topologies):  # type: ignore[no-untyped-def]
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("count")
        mb.pstate("$$count", PState.map_schema(str, int))
        (
            mb.source("*words").out("*m")
            .explode_microbatch("*m").out("*word").hash_partition("*word")
            .each(Ops.PLUS, 0, 10).out("*ten")
            .compound_agg("$$count", CompoundAgg.map("*word", Agg.sum(Expr(Ops.IDENTITY, "*ten"))))
        )  # fmt: skip


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "words.py").write_text("from test_barrier import Grown, Words")
        path = os.pathsep.join([str(folder), str(Path(__file__).parent)])
        self.environment = os.environ | {"TIDEMILL_STORE": "store", "PYTHONPATH": path, "TIDEMILL_ENGINE": "local"}
        self.runners: list[subprocess.Popen[str]] = []

    def __call__(self, *words: str, text: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [*TIDEMILL, *words], cwd=self.folder, env=self.environment, input=text, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        runner = subprocess.Popen(
            [*TIDEMILL, "run", *words], cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True
        )
        self.runners.append(runner)
        return runner


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for runner in shell.runners:
        runner.kill()
        runner.communicate()


def test_new_code_goes_on_with_the_state_when_the_command_updates_a_module(shell: Shell) -> None:
    old = shell.start("words:Words")
    shell("wait", "Words")
    shell("append", "Words", "words", "-", "--wait", text='"a"\n"b"\n"a"\n')
    assert json.loads(shell("select", "Words", "count", '["a"]')) == 2

    assert "objects_to_delete" in shell("update", "words:Grown", code=1)
    assert "definition 2" in shell("update", "words:Grown", "--delete", "$$other")
    assert "The module was updated: definition 2 replaced 1" in old.communicate(timeout=120)[1]
    assert old.returncode == 1

    shell.start("words:Grown")
    shell("append", "Words", "words", "-", "--wait", text='"a"\n')
    assert json.loads(shell("select", "Words", "count", '["a"]')) == 12


def test_waiting_ends_with_try_again_when_nobody_runs_the_module(shell: Shell) -> None:
    assert "There is no store" in shell("wait", "Words", "--timeout", "0", code=1)
    shell("run", "words:Words", "--until-idle")
    shell("append", "Words", "*words", "-", text='"a"\n')
    assert "nobody runs it" in shell("wait", "Words", "count", "--timeout", "0.1", code=3)
    assert "All records are appended." in shell(
        "append", "Words", "words", "-", "--wait", "--timeout", "0.1", text='"b"\n', code=3
    )
    shell("run", "words:Grown", "--until-idle", "--update", "--delete", "$$other")
    assert json.loads(shell("select", "Words", "count", '["a"]')) == 10


def test_the_version_is_printed_when_asked_for(shell: Shell) -> None:
    assert shell("--version").startswith("tidemill 0.")
