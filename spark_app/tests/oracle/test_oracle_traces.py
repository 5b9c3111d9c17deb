"""The published outputs of the seed (T1 to T15), told to the oracle: the modules are those of the stories that both
engines run (`test_seed_traces`, `test_temporary_rows`, `test_temporary_pstates`).
"""

from __future__ import annotations

import random
from pathlib import Path as Folder
from typing import Any

import pytest
import test_captured_values as captures
import test_joins as joins
import test_limited_rows as limited_rows
import test_seed_traces as seed
import test_temporary_pstates as temporary_pstates
import test_temporary_rows as temporary_rows
from oracle_comparison import placed
from oracle_interpreter import Oracle
from oracle_paths import Walk
from oracle_schedules import Chance, Schedule
from stories import module_of

from tidemill import Path
from tidemill.api.declaration import record_module
from tidemill.values.data import route

SEEDS = range(5)


class Tale:
    """A module in the oracle; each batch is one microbatch, in an order of the seed's choice."""

    def __init__(self, module: Any, tasks: int = 4, order: int = 0, topology: str = "mb") -> None:
        declared = record_module(module)
        assert not declared.faults
        self.oracle = Oracle(declared, tasks)
        self.topology = topology
        self.order = order

    def batch(self, **records: list[Any]) -> None:
        for depot, held in records.items():
            places = placed(self.oracle.module, f"*{depot}", held, self.oracle.tasks)
            for place, there in places.items():
                self.oracle.append(f"*{depot}", place, there)
        schedule: Schedule | None = Chance(self.order) if self.order else None
        self.oracle.attempt(self.topology, schedule)

    def select(self, pstate: str, path: Path, key: Any = None) -> list[Any]:
        """What a path selects on the key's task."""
        task = 0 if key is None else route(key, self.oracle.tasks)
        return Walk(lambda arg: arg.value).selected(path.path, self.oracle.state[pstate][task])


@pytest.fixture(params=SEEDS)
def order(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def test_t1_counts_and_sum_are_the_published_ones(order: int) -> None:
    tale = Tale(seed.ExampleMicrobatchTopologyModule(), 4, order)
    pairs = [list(pair) for pair in ("ab", "ab", "ac", "xy", "xy", "xy", "xz")]
    tale.batch(numbersDepot=[1, 3, 7], keyPairsDepot=pairs)
    assert tale.select("$$globalSum", Path.stay()) == [11]
    assert tale.select("$$keyPairCounts", Path.key("a").all(), "a") == [["b", 2], ["c", 1]]
    assert tale.select("$$keyPairCounts", Path.key("x").all(), "x") == [["y", 3], ["z", 1]]


def test_t2_post_agg_runs_once_in_each_microbatch_when_all_rows_go_to_task_0(order: int, tmp_path: Folder) -> None:
    printer = seed.Printer(tmp_path / "printed")
    tale = Tale(seed.GlobalSumModule(printer.function()), 4, order)
    tale.batch()
    tale.batch(depot=[4, 1, 3, 2])
    tale.batch()
    assert printer.lines() == [[0], [10], [10]]


def test_t3_post_agg_runs_on_every_task_when_rows_go_by_their_hash(order: int, tmp_path: Folder) -> None:
    printer = seed.Printer(tmp_path / "printed")
    tale = Tale(seed.PostAggAllTasksModule(printer.function()), 2, order)
    tale.batch(depot=["only"])
    assert sorted(task for task, _ in printer.lines()) == [0, 1]
    assert [m for _, m in printer.lines() if m] == [{"only": 1}]


def test_t4_top_words_are_the_published_ones_when_a_sub_batch_captures_their_counts(order: int) -> None:
    tale = Tale(seed.TopWordsModule(), 4, order)
    for words, expected in seed.TOP_WORDS:
        tale.batch(depot=words)
        assert tale.select("$$top", Path.stay()) == [expected]


@pytest.mark.parametrize("shape", captures.SHAPES)
def test_t5_new_values_are_the_published_ones_when_they_are_captured(order: int, shape: str) -> None:
    define = captures.captured(*captures.SHAPES[shape], "*k", "*k2", "*count", "*sum")
    tale = Tale(module_of("Captured", define), 4, order)
    seen = []
    for records in captures.BATCHES:
        tale.batch(d=records)
        seen.append(sorted(dict(tale.select("$$found", Path.all()))["rows"]))
    assert seen == [[["a", "b", 2, 7], ["a", "c", 1, 2], ["d", "b", 1, 9]], [["a", "b", 3, 8], ["f", "g", 1, 11]]]


def test_t6_counts_are_aggregated_again_when_they_are_temporary(order: int) -> None:
    tale = Tale(module_of("TmpPState", temporary_pstates.extremes), 4, order)
    tale.batch(d=["apple", "apple", "plum"])
    assert dict(tale.select("$$found", Path.all())) == {"max": 2, "min": 1}
    tale.batch(d=["apple", "banana", "banana"])
    assert dict(tale.select("$$found", Path.all())) == {"max": 2, "min": 1}


def test_t7_sums_are_6_and_9_when_rows_are_materialized(order: int) -> None:
    tale = Tale(module_of("Materialize", temporary_rows.sums), 4, order)
    tale.batch(d=[1, 2, 3])
    assert dict(tale.select("$$found", Path.all())) == {"plain": 6, "inc": 9}
    tale.batch(d=[10])
    assert dict(tale.select("$$found", Path.all())) == {"plain": 10, "inc": 11}


def test_t7_sums_are_6_and_9_when_two_blocks_read_the_records(order: int, tmp_path: Folder) -> None:
    printer = seed.Printer(tmp_path / "printed")
    Tale(seed.TwoBlocksModule(printer.function()), 4, order).batch(depot=[1, 2, 3])
    assert printer.lines() == [["first", 6], ["second", 9]]


OTHERS = [["a", 10], ["b", 20], ["d", 40]]
JOINED = {
    "inner": (joins.RIGHT, "*v1", "*v2", [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]),
    "left": (OTHERS, "*v1", "**v2", [["a", 1, 10], ["b", 2, 20], ["c", 3, None]]),
    "full": (OTHERS, "**v1", "**v2", [["a", 1, 10], ["b", 2, 20], ["c", 3, None], ["d", None, 40]]),
}


@pytest.mark.parametrize("kind", JOINED)
def test_t8_rows_are_the_published_ones_when_branches_are_joined(order: int, kind: str) -> None:
    rows, left, right, expected = JOINED[kind]
    block = joins.branch(joins.LEFT, "*k", left).macro(joins.branch(rows, "*k", right))
    kept = block.macro(joins.kept("*k", left, right))
    tale = Tale(joins.module_of(lambda mb: mb.source("*d").out("*mb").batch_block(kept)), 4, order)
    tale.batch()
    (found,) = tale.select("$$rows", Path.stay())
    assert sorted(found, key=repr) == expected


def test_t9_sum_is_8_when_two_sources_are_merged(order: int, tmp_path: Folder) -> None:
    printer = seed.Printer(tmp_path / "printed")
    Tale(seed.MergeModule(printer.function()), 4, order).batch()
    assert printer.lines() == [[8]]


def test_t10_value_is_3_when_the_module_was_updated_between_two_records(order: int) -> None:
    first, second = (Tale(made, 4, order) for made in (seed.SumPerRecordV1(), seed.SumPerRecordV2()))
    first.batch(depot=["x"])
    assert first.select("$$sum", Path.stay()) == [2]
    second.oracle.state = first.oracle.state
    second.batch(depot=["y"])
    assert second.select("$$sum", Path.stay()) == [3]


@pytest.mark.parametrize("tasks", [1, 2, 4, 8])
def test_t12_total_stays_when_transfers_cross_tasks(order: int, tasks: int) -> None:
    users = [f"user-{number}" for number in range(12)]
    dice = random.Random(12)
    tale = Tale(seed.BankTransferModule(), tasks, order, "banking")
    tale.batch(deposits=[[user, 100] for user in users])
    transfers = [[dice.choice(users), dice.choice(users), number, dice.randint(1, 150)] for number in range(60)]
    tale.batch(transfers=transfers)
    balances = [tale.select("$$funds", Path.key(user), user)[0] for user in users]
    assert sum(balances) == 1200
    assert min(balances) >= 0
    recorded = [entry for user in users for entry in tale.select("$$outgoing", Path.key(user).all(), user)]
    assert sorted(transfer for transfer, _ in recorded) == list(range(60))
    assert {success for _, success in recorded} == {True, False}


def test_t13_rows_and_sums_are_the_published_ones_when_the_best_three_are_kept(order: int) -> None:
    tale = Tale(module_of("Limit", limited_rows.best_three), 4, order)
    tale.batch(d=limited_rows.PAIRS)
    best = {0: [1000, 1000], 1: [10, 12], 2: [6, 5]}
    assert dict(tale.select("$$found", Path.all())) == {"best": best, "a": 1016, "b": 1017}


def test_t14_keys_are_renamed_when_a_path_ends_in_map_key(order: int) -> None:
    tale = Tale(seed.RenameModule(), 2, order)
    tale.batch(depot=[{"a": 0, "b": 1}])
    assert tale.select("$$m", Path.key("k"), "k") == [{"b": 0, "c": 1}]


def test_t14_lists_become_the_published_ones_when_they_are_in_pstates(order: int) -> None:
    tale = Tale(seed.ListsModule(), 2, order)
    tale.batch(depot=[["a", "b"]])
    assert tale.select("$$lists", Path.key("letters"), "letters") == [list("daebc")]
    assert tale.select("$$lists", Path.key("nested"), "nested") == [[[9, 2, 7, 4], [5, 6, 3], [8, 1, 10]]]
    for pstate in ("$$lists", "$$rows"):
        assert tale.select(pstate, Path.key("numbers").all(), "numbers") == [4, 1, 2, 3, 0, 5]


def test_t15_a_microbatch_ticks_once_when_a_tick_is_due(order: int) -> None:
    tale = Tale(seed.TickModule(), 2, order)
    for _ in range(3):
        tale.oracle.append("*tick", 0, [None])
        tale.batch()
    assert [tale.select("$$ticks", Path.key(number), number) for number in (1, 2, 3)] == [[1], [1], [1]]


def test_a_loop_visits_as_many_tasks_as_records_say_when_its_body_moves(order: int) -> None:
    tale = Tale(seed.LoopModule(), 4, order)
    tale.batch(depot=[3, 1, 5])
    assert [tale.select("$$visits", Path.key(i), i) for i in range(6)] == [[3], [2], [2], [1], [1], [None]]
