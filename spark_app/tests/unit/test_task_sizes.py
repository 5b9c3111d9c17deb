"""How a PState lies on its tasks: rows, bytes and the heaviest keys, within their bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.clients import task_sizes
from tidemill.clients.task_sizes import PROBES, TaskSizes
from tidemill.values.data import route

TASKS = 4


class Skewed(Module):
    """Pairs of a key and a text, in PStates of several shapes."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$below", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        mb.pstate("$$whole", PState.map_schema(str, str))
        mb.pstate("$$plain", PState.map_schema(str, int))
        mb.pstate("$$one", int).global_().initial_value(0)
        pairs = mb.source("*pairs").out("*batch").explode_microbatch("*batch").out("*pair")
        (pairs.each(Ops.EXPAND, "*pair").out("*key", "*text")
              .compound_agg("$$below", CompoundAgg.map("*key", CompoundAgg.map("*text", Agg.count())))
              .compound_agg("$$whole", CompoundAgg.map("*key", Agg.last("*text")))
              .compound_agg("$$plain", CompoundAgg.map("*key", Agg.count()))
              .global_partition().agg("$$one", Agg.count()))  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Skewed(), LaunchConfig(TASKS, 2))
        depot = cluster.cluster_depot("Skewed", "*pairs")
        depot.append_many([[f"k{number}", f"t{number}"] for number in range(400)])
        depot.append_many([["heavy", f"text {number}"] for number in range(300)])
        depot.append_many([["long", "x" * 5_000], ["k1", "y" * 500]])
        cluster.wait_until_processed("Skewed")
        yield cluster


def looked(cluster: InProcessCluster, name: str, **given: Any) -> TaskSizes:
    return cluster.cluster_pstate("Skewed", name).task_sizes(**given)


def test_rows_of_all_tasks_add_up_when_a_pstate_is_looked_at(cluster: InProcessCluster) -> None:
    found = looked(cluster, "$$plain")
    assert [one.task for one in found.tasks] == list(range(TASKS)) and found.left_out == 0
    assert sum(one.rows for one in found.tasks) >= 402 and all(one.bytes > 0 for one in found.tasks)
    assert found.unit == "bytes" and all(one.keys == () for one in found.tasks)
    assert found.entry == cluster.cluster_pstate("Skewed", "$$plain").current_entry()


def test_a_key_with_many_rows_is_found_when_its_elements_are_rows(cluster: InProcessCluster) -> None:
    found = looked(cluster, "$$below")
    heavy = found.tasks[route("heavy", TASKS)]
    assert found.unit == "rows" and heavy.keys[0] == ("heavy", 300)
    assert heavy.rows > 300 and len(heavy.keys) <= task_sizes.KEYS_MAX


def test_a_key_with_a_long_value_is_found_when_values_are_whole(cluster: InProcessCluster) -> None:
    found = looked(cluster, "$$whole")
    key, size = found.tasks[route("long", TASKS)].keys[0]
    assert (found.unit, key) == ("bytes", "long") and size >= 5_000
    weights = dict(found.tasks[route("k1", TASKS)].keys)
    assert weights["k1"] >= 500


@pytest.mark.parametrize(
    ("key", "told"),
    [("é" * 5_000, "é" * 40 + "… (5,000 characters)"), (b"b" * 5_000, "(a key of 5,0"),
     (["x" * 5_000], "(a key of 5,0"), (("x" * 500,), ("x" * 500,)), (b"b" * 500, b"b" * 500)],
)  # fmt: skip
@pytest.mark.parametrize("below", [True, False])
def test_a_long_key_is_told_by_its_length_when_it_is_heavy(key: Any, told: Any, below: bool) -> None:
    inner = PState.map_schema(int, str).subindexed() if below else str

    class Long(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*keys", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(str if isinstance(key, str) else object, inner))
            last = Agg.last("text")
            (mb.source("*keys").out("*batch").explode_microbatch("*batch").out("*key").hash_partition("*key")
               .compound_agg("$$p", CompoundAgg.map("*key", CompoundAgg.map(1, last) if below else last)))  # fmt: skip

    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Long(), LaunchConfig(1, 1))
        cluster.cluster_depot("Long", "*keys").append(key)
        cluster.wait_until_processed("Long")
        [[shown, _]] = cluster.cluster_pstate("Long", "$$p").task_sizes().tasks[0].keys
    assert told in shown if isinstance(told, str) else shown == told


def test_one_task_is_told_when_a_pstate_is_global(cluster: InProcessCluster) -> None:
    found = looked(cluster, "$$one")
    assert len(found.tasks) == 1 and found.unit == "" and found.tasks[0].keys == ()


def test_tasks_are_left_out_when_there_is_no_time_or_too_many_bytes(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looked(cluster, "$$below", is_late=lambda: True).left_out == TASKS
    monkeypatch.setattr(task_sizes, "BYTES_MAX", 0)
    found = looked(cluster, "$$below")
    assert found.left_out == TASKS and found.tasks == ()


def test_the_rows_compared_are_bounded_when_there_are_many(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_sizes, "SCANNED_MAX", 10)
    compared = 0
    lengths = task_sizes._lengths

    def counted(table: Any, start: int, end: int, stride: int) -> Any:
        nonlocal compared
        found = lengths(table, start, end, stride)
        compared += 0 if found is None or stride == 1 else len(found)
        return found

    monkeypatch.setattr(task_sizes, "_lengths", counted)
    looked(cluster, "$$whole")
    assert 0 < compared <= 10 + 4 * TASKS * 4


def test_every_key_above_the_share_is_found_when_shapes_are_random() -> None:
    """The promise of the module, on its own words: a run of more than a PROBES-th of the rows is met by a probe."""
    chance = random.Random(5)
    for _ in range(200):
        rows = chance.randrange(1, 50_000)
        stride = max(1, rows // PROBES)
        begin = chance.randrange(0, rows)
        assert any(begin <= row < begin + stride for row in range(0, rows, stride)) or begin + stride > rows
