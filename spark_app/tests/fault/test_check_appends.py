"""Invariant S8 is broken on purpose in a real store, and `tidemill check` names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import pytest
from test_appends_kept import LARGE, Relay

from tidemill import InProcessCluster, LaunchConfig
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import producer_of
from tidemill.depot.producers import Producers
from tidemill.depot.rows import in_one_partition
from tidemill.journal import entries
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import SEGMENTS_MAX, Entry
from tidemill.leader import events, runner
from tidemill.leader.check import check_module
from tidemill.store.urls import connect


class Relayed:
    """The store of a module that has committed two microbatches with appends, and published them or not."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.url = folder, folder.as_uri()
        with InProcessCluster.create("local", store=self.url) as cluster:
            cluster.launch_module(Relay(), LaunchConfig(1, 1))
            for count, word in enumerate((LARGE, LARGE + "y"), 1):
                cluster.cluster_depot("Relay", "*in").append(word)
                runners = cluster._running["Relay"].topologies
                runners["relay"].wait_for(lambda state, count=count: state.processed >= count, 20)  # type: ignore[misc]  # a default argument
                eventually_published(runners["relay"])
        definition = DefinitionLog(connect(self.url), "Relay").newest()
        assert definition is not None
        self.prefix, self.depot = definition.topology_prefix("relay"), definition.depot_prefix("*out")
        self.log = sorted((folder / self.prefix / "log").glob("*.zip"))
        self.staged = sorted((folder / self.prefix / "appends").iterdir())

    def change(self, change: Callable[[Entry], Entry]) -> None:
        """Another newest entry than the one that was written."""
        content = self.log[-1].read_bytes()
        self.log[-1].unlink()
        key = self.log[-1].relative_to(self.folder).as_posix()
        self.log[-1].write_bytes(entries.to_bytes(change(entries.from_bytes(content, key)), {}, key))

    def append(self, sequence: int) -> None:
        """A record that nobody committed, by the topology's producer."""
        log = DepotLog(connect(self.url), self.depot, 1)
        log.append(in_one_partition(["strange"], 0), (producer_of(self.prefix), sequence))

    def texts(self) -> list[str]:
        return [str(finding) for finding in check_module(connect(self.url), "Relay") if finding.invariant == "S8"]


def eventually_published(topology: Any) -> None:
    if runner.publish.__name__ == "publish" and runner.publish.__module__ == "tidemill.leader.publisher":
        topology.wait_for(lambda state: state.report.unpublished == 0, 20)


@pytest.fixture
def relayed(tmp_path: Folder) -> Relayed:
    return Relayed(tmp_path)


@pytest.fixture
def withheld(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Relayed:
    def nothing(store: Any, start: events.PublishAppends, *more: Any) -> events.AppendsPublished:
        return events.AppendsPublished(start.token, frozenset(), "not in this test")

    monkeypatch.setattr(runner, "publish", nothing)
    return Relayed(tmp_path)


def test_nothing_is_found_when_all_is_published(relayed: Relayed) -> None:
    assert check_module(connect(relayed.url), "Relay") == []


def test_nothing_is_found_when_nothing_is_published_yet(withheld: Relayed) -> None:
    assert check_module(connect(withheld.url), "Relay") == []


def test_a_staged_part_is_named_when_it_is_missing_or_changed(withheld: Relayed) -> None:
    content = bytearray(withheld.staged[0].read_bytes())
    content[len(content) // 2] ^= 1
    withheld.staged[0].write_bytes(bytes(content))
    withheld.staged[1].unlink()

    texts = withheld.texts()

    assert len(texts) == 2
    assert all("what is to be published, appends/" in text for text in texts)


def test_an_append_is_named_when_an_entry_leaves_it_out_and_it_is_not_there(withheld: Relayed) -> None:
    withheld.change(lambda entry: replace(entry, appends=()))

    assert f"the append {SEGMENTS_MAX} of microbatch 1 is missing" in "\n".join(withheld.texts())


def test_an_append_is_named_when_its_microbatch_was_never_committed(relayed: Relayed) -> None:
    relayed.append(3 * SEGMENTS_MAX)

    assert "microbatch 3 is there, but the last committed one is 2" in "\n".join(relayed.texts())


def test_an_append_is_named_when_it_is_there_twice(relayed: Relayed, monkeypatch: pytest.MonkeyPatch) -> None:
    last, asked = Producers.last, []

    def known_before(self: Producers, newest: Any, name: str) -> Any:
        """As a depot that forgot the last append, but not where it was."""
        found = last(self, newest, name)
        return replace(found, sequence=0) if found is not None and not asked else found

    with monkeypatch.context() as patched:
        patched.setattr(Producers, "last", known_before)
        relayed.append(2 * SEGMENTS_MAX)

    assert f"the append {2 * SEGMENTS_MAX} is there twice, or in the wrong order" in "\n".join(relayed.texts())


def test_an_append_is_named_when_other_records_are_there_than_were_committed(relayed: Relayed) -> None:
    def other(entry: Entry) -> Entry:
        (append,) = entry.appends[-1:]
        parts = tuple(replace(part, checksum="0" * 16, rows={"*out": 7}) for part in append.parts)
        return replace(entry, appends=(*entry.appends[:-1], replace(append, parts=parts)))

    relayed.change(other)

    texts = "\n".join(relayed.texts())
    assert "has other records than microbatch 2 committed" in texts
    assert "has 1 records, 7 were committed" in texts


def test_an_entry_is_named_when_it_lists_an_append_that_no_commit_named(relayed: Relayed) -> None:
    def more(entry: Entry) -> Entry:
        append = replace(entry.appends[-1], sequence=5 * SEGMENTS_MAX)
        return replace(entry, kind="note", appends=(*entry.appends, append))

    relayed.change(more)

    texts = "\n".join(relayed.texts())
    assert f"names the append {5 * SEGMENTS_MAX} to out-" in texts
    assert "which no commit named before" in texts
    assert "as one of microbatch 2" in texts
