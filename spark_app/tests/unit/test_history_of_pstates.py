"""A PState as it was at a microbatch, and what changed between two of them: in the process, and through a gateway."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from gateways import WAYS, launched
from typer.testing import CliRunner

from tidemill import (
    BadInput,
    BadPath,
    Case,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    Path,
    PState,
    SnapshotExpired,
)
from tidemill.cli.main import app
from tidemill.clients import changes
from tidemill.clients.pages import pages
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import Leaf, MapSchema
from tidemill.pstate.changes import ChangedKeys
from tidemill.pstate.info import PStateInfo
from tidemill.values.data import route

CLEAR = "clear"
MICROBATCHES = 60
KEYS = [f"k{number}" for number in range(12)]


class Written(Module):
    """A record [key, value] sets a key; without a value it removes it; `CLEAR` clears all keys of its partition."""

    def define(self, setup: Any, topologies: Any) -> None:
        # Microbatches without records have IDs as well; here each ID is one append.
        setup.set_launch_module_dynamic_option("topology.microbatch.empty.sleep.time.millis", 3_600_000)
        setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$flat", PState.map_schema(str, object))
        mb.pstate("$$deep", PState.map_schema(str, PState.map_schema(int, object).subindexed()))
        mb.pstate("$$last", object)
        (
            mb.source("*d").out("*m")
            .explode_microbatch("*m").out("*r")
            .each(Ops.EXPAND, "*r").out("*k", "*v")
            .cond(
                Case.create(Expr(Ops.EQUAL, "*k", CLEAR)).local_clear("$$flat").local_clear("$$deep"),
                Case.create(Expr(Ops.IS_NULL, "*v"))
                .local_transform("$$flat", Path.key("*k").term_void())
                .local_transform("$$deep", Path.key("*k").term_void()),
                Case.create(True)
                .local_transform("$$flat", Path.key("*k").term_val("*v"))
                .local_transform("$$deep", Path.key("*k").key(7).term_val("*v")),
            )
            .local_transform("$$last", Path.term_val("*v"))
        )  # fmt: skip


def steps() -> Iterator[list[list[Any]]]:
    """The records of each microbatch: some repeat what is there, some remove it."""
    chance = random.Random(4)
    for number in range(1, MICROBATCHES + 1):
        if number % 17 == 0:
            yield [[CLEAR, 0]]
        else:
            values = (None, 1, 1.5, "text", number)
            yield [[key, chance.choice(values)] for key in chance.sample(KEYS, 3)]


def states(tasks_of: dict[str, int]) -> list[dict[str, Any]]:
    """The map before any microbatch, and after each."""
    found: list[dict[str, Any]] = [{}]
    for records in steps():
        state = dict(found[-1])
        for key, value in records:
            if key == CLEAR:
                state = {k: v for k, v in state.items() if tasks_of[k] != tasks_of[CLEAR]}
            elif value is None:
                state.pop(key, None)
            else:
                state[key] = value
        found.append(state)
    return found


@pytest.fixture(scope="module", params=WAYS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    with launched(request.param, Written(), LaunchConfig(4, 2)) as cluster:
        done = 0
        for records in steps():
            cluster.cluster_depot("Written", "*d").append_many(records)
            done += len(records)
            cluster.wait_for_microbatch_processed_count("Written", "mb", done)
        yield cluster


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    return states({key: route(key, 4) for key in [*KEYS, CLEAR]})


def test_the_state_is_that_of_a_microbatch_when_one_is_named(cluster: Any, expected: list[dict[str, Any]]) -> None:
    handle = cluster.cluster_pstate("Written", "$$flat")
    for microbatch in (0, 1, 16, 17, 40, MICROBATCHES):
        assert dict(handle.at(microbatch=microbatch).scan()) == expected[microbatch]


def test_changes_are_those_of_the_states_when_two_microbatches_are_compared(
    cluster: Any, expected: list[dict[str, Any]]
) -> None:
    handle = cluster.cluster_pstate("Written", "$$flat")
    chance = random.Random(5)
    pairs = [(0, MICROBATCHES), (16, 17), (17, 16), (9, 9)]
    pairs += [tuple(chance.choices(range(MICROBATCHES + 1), k=2)) for _ in range(30)]
    for before, after in pairs:
        found = {key: (old, new) for key, old, new in handle.diff(before, after, page_size=3)}

        wanted = {}
        for key in expected[before].keys() | expected[after].keys():
            sides = tuple([state[key]] if key in state else [] for state in (expected[before], expected[after]))
            if sides[0] != sides[1]:
                wanted[key] = sides
        assert found == wanted, (before, after)


def test_changes_below_a_path_are_found_when_values_are_subindexed(
    cluster: Any, expected: list[dict[str, Any]]
) -> None:
    handle = cluster.cluster_pstate("Written", "$$deep")
    found = {key: new for key, _, new in handle.diff(0, MICROBATCHES, Path.must(7))}

    assert found == {key: [value] for key, value in expected[-1].items()}
    assert list(handle.diff(0, 16, Path.must(8))) == []
    with pytest.raises(BadPath, match="subindexed"):
        next(handle.diff(0, 1))


def test_partitions_are_told_when_the_pstate_is_no_map(cluster: Any) -> None:
    found = list(cluster.cluster_pstate("Written", "$$last").diff(16, 17))

    assert [(old != new, new) for _, old, new in found] == [(True, [0])]


def test_a_page_goes_on_when_few_of_many_keys_changed(
    cluster: Any, expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "COMPARED_MAX", 2)
    handle = cluster.cluster_pstate("Written", "$$flat")
    lengths = []

    def page(after: str | None) -> Any:
        found = handle.diff_page(0, MICROBATCHES, 5, cursor=after)
        lengths.append(len(found.items))
        return found

    assert {key: new for key, _, new in pages(page)} == {key: [value] for key, value in expected[-1].items()}
    assert max(lengths) <= 2


@pytest.mark.parametrize("wrong", [-1, True, "1", 1.5, None])
def test_a_microbatch_is_refused_when_it_is_no_whole_number(cluster: Any, wrong: Any) -> None:
    handle = cluster.cluster_pstate("Written", "$$flat")
    with pytest.raises(BadInput, match="whole number"):
        handle.at(microbatch=wrong)
    with pytest.raises(BadInput):
        next(handle.diff(wrong, 1))


def test_a_microbatch_is_refused_when_it_is_yet_to_come(cluster: Any) -> None:
    handle = cluster.cluster_pstate("Written", "$$flat")
    for call in (lambda: handle.at(microbatch=MICROBATCHES + 1), lambda: next(handle.diff(0, MICROBATCHES + 1))):
        with pytest.raises(BadInput, match=f"the newest one is {MICROBATCHES}"):
            call()
    with pytest.raises(BadInput, match="one whole number"):
        handle.at(3, microbatch=4)


def test_the_state_is_expired_when_its_entry_was_trimmed() -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Written(), LaunchConfig(1, 1))
        handle = cluster.cluster_pstate("Written", "$$flat")
        for number in (1, 2, 3, 4):
            cluster.cluster_depot("Written", "*d").append(["k", number])
            cluster.wait_for_microbatch_processed_count("Written", "mb", number)
        early = handle.at(microbatch=1)
        log = CommitLog(cluster.store, cluster._client("Written").definition().topology_prefix("mb"))
        log.log.trim(handle.at(microbatch=3).entry)

        for read in (early.select, lambda: next(handle.diff(1, 4))):
            with pytest.raises(SnapshotExpired):
                read()
        assert handle.at(microbatch=4).entry == handle.current_entry()


class Opened(Exception):
    """A part was asked for."""


class NoLoader:
    """Tells which part is asked for first."""

    def table(self, part: Part, key: Any, table: Any) -> Any:
        raise Opened(part.name)


def test_parts_that_both_snapshots_have_are_not_read_when_keys_are_looked_for() -> None:
    def level(number: int) -> Level:
        return Level("delta", number, number, (Part(f"{number}.zip", TaskSet(1, 0), {"7/0": 1}),))

    info = PStateInfo("$$p", "7", MapSchema("str", Leaf("int")))
    loader: Any = NoLoader()
    before, after = Snapshot((level(1), level(2))), Snapshot((level(1), level(2), level(3)))

    with pytest.raises(Opened, match="3.zip"):
        next(ChangedKeys(before, after, loader, info).keys(0))
    assert list(ChangedKeys(after, after, loader, info).keys(0)) == []


def test_changes_are_shown_when_the_command_asks_for_them(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(Written(), LaunchConfig(4, 2))
        for done, records in enumerate(([["a", 1]], [["a", None]], [["b", "x"]]), 1):
            cluster.cluster_depot("Written", "*d").append_many(records)
            cluster.wait_for_microbatch_processed_count("Written", "mb", done)

    def said(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--store", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.output

    assert said("diff", "Written", "flat", "0", "1") == '"a"  nothing -> 1\n'
    assert said("diff", "Written", "$$flat", "1", "3") == '"a"  1 -> nothing\n"b"  nothing -> "x"\n'
    assert json.loads(said("diff", "Written", "flat", "1", "3", "--json")) == [["a", [1], []], ["b", [], ["x"]]]
    assert "There are more" in said("diff", "Written", "flat", "1", "3", "--limit", "1")
    assert said("diff", "Written", "deep", "1", "3", "[7]") == '"a"  1 -> nothing\n"b"  nothing -> "x"\n'
    assert said("select", "Written", "flat", '["a"]', "--microbatch", "1") == "1\n"
    assert said("scan", "Written", "flat", "--microbatch", "1") == '["a", 1]\n'


@pytest.mark.parametrize(
    "command",
    [
        ["select", "Written", "flat", '["b", ["view", "#__fOps.INC"]]'],
        ["scan", "Written", "flat", '[["view", "#__fOps.INC"]]'],
        ["diff", "Written", "flat", "0", "1", '[["view", "#__fOps.INC"]]'],
    ],
)
def test_commands_refuse_a_path_in_a_sentence_when_its_function_does_not_take_the_value(
    tmp_path: Folder, command: list[str]
) -> None:
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(Written(), LaunchConfig(4, 2))
        cluster.cluster_depot("Written", "*d").append(["b", "x"])
        cluster.wait_for_microbatch_processed_count("Written", "mb", 1)

    done = CliRunner().invoke(app, [*command, "--store", str(tmp_path)])

    assert done.exit_code == 1
    assert "INC cannot be called with (str)" in done.output and "Traceback" not in done.output
