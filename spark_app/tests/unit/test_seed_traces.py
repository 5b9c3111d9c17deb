"""The published outputs of the seed (worked traces T1 to T15, those in scope), on both engines."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest
from waiting import eventually

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Constant,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    SubBatch,
    to_text,
)


class Printer:
    """Stands for PRINTLN: a file of lines, to which workers add wherever they run."""

    def __init__(self, file: Folder) -> None:
        self.file = file
        self._seen = 0
        file.touch()

    def function(self) -> Callable[..., bool]:
        file = str(self.file)

        def print_line(*values: Any) -> bool:
            handle = os.open(file, os.O_WRONLY | os.O_APPEND)
            os.write(handle, json.dumps(values).encode() + b"\n")
            os.close(handle)
            return True

        return print_line

    def forget(self) -> None:
        """Lines so far are not shown again."""
        self._seen = len(self._all())

    def lines(self) -> list[Any]:
        return self._all()[self._seen :]

    def _all(self) -> list[Any]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.fixture
def printer(tmp_path: Folder) -> Printer:
    return Printer(tmp_path / "printed")


class ExampleMicrobatchTopologyModule(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*keyPairsDepot", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*numbersDepot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$keyPairCounts", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        mb.pstate("$$globalSum", int).global_().initial_value(0)
        (mb.source("*keyPairsDepot").out("*microbatch")
           .explode_microbatch("*microbatch").out("*tuple")
           .each(Ops.EXPAND, "*tuple").out("*k", "*k2")
           .compound_agg("$$keyPairCounts", CompoundAgg.map("*k", CompoundAgg.map("*k2", Agg.count()))))  # fmt: skip
        (mb.source("*numbersDepot").out("*microbatch")
           .batch_block(Block.explode_microbatch("*microbatch").out("*v")
                             .global_partition()
                             .agg("$$globalSum", Agg.sum("*v"))))  # fmt: skip


@pytest.mark.parametrize(("tasks", "threads"), [(1, 1), (4, 4), (8, 2)])
def test_seed_example_prints_its_published_output_when_ten_records_are_processed(
    engine: Any, tasks: int, threads: int
) -> None:
    name = "ExampleMicrobatchTopologyModule"
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(ExampleMicrobatchTopologyModule(), LaunchConfig(tasks, threads))
        pairs = cluster.cluster_depot(name, "*keyPairsDepot")
        numbers = cluster.cluster_depot(name, "*numbersDepot")
        for number in (1, 3, 7):
            numbers.append(number)
        for pair in ("ab", "ab", "ac", "xy", "xy", "xy", "xz"):
            pairs.append(tuple(pair))
        cluster.wait_for_microbatch_processed_count(name, "mb", 10)
        counts = cluster.cluster_pstate(name, "$$keyPairCounts")
        assert cluster.cluster_pstate(name, "$$globalSum").select_one(Path.stay()) == 11
        assert to_text(counts.select(Path.key("a").all())) == '[["b" 2] ["c" 1]]'
        assert to_text(counts.select(Path.key("x").all())) == '[["y" 3] ["z" 1]]'
        assert counts.select(Path.key("x").all()) == [["y", 3], ["z", 1]]


class GlobalSumModule(Module):
    """T2: a sum that is printed after each microbatch, empty ones too."""

    def __init__(self, printed: Any) -> None:
        self.printed = printed

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        setup.set_launch_topology_dynamic_option("mb", "topology.microbatch.empty.sleep.time.millis", 20)
        mb = topologies.microbatch("mb")
        mb.pstate("$$sum", int).global_().initial_value(0)
        (mb.source("*depot").out("*microbatch")
           .batch_block(Block.explode_microbatch("*microbatch").out("*v")
                             .global_partition()
                             .agg("$$sum", Agg.sum("*v"))
                             .local_select("$$sum", Path.stay()).out("*sum")
                             .each(self.printed, "*sum").out("*ok")))  # fmt: skip


def test_post_agg_runs_once_on_task_0_and_in_empty_microbatches_when_a_block_ends_in_global_partition(
    engine: Any, printer: Printer
) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(GlobalSumModule(printer.function()), LaunchConfig(4, 2))
        eventually(lambda: [0] in printer.lines())
        cluster.pause_microbatch_topology("GlobalSumModule", "mb")
        cluster.cluster_depot("GlobalSumModule", "*depot").append_many([4, 1, 3, 2])
        printer.forget()
        cluster.resume_microbatch_topology("GlobalSumModule", "mb")
        cluster.wait_for_microbatch_processed_count("GlobalSumModule", "mb", 4)
        eventually(lambda: len(printer.lines()) >= 3)
        assert all(line == [10] for line in printer.lines())
        assert cluster.microbatch_state("GlobalSumModule", "mb") == (1, 1)


class PostAggAllTasksModule(Module):
    def __init__(self, printed: Any) -> None:
        self.printed = printed

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        (mb.source("*depot").out("*microbatch")
           .batch_block(Block.explode_microbatch("*microbatch").out("*k")
                             .hash_partition("*k")
                             .agg(Agg.map("*k", Constant(1))).out("*m")
                             .each(Ops.CURRENT_TASK_ID).out("*task")
                             .each(self.printed, "*task", "*m").out("*ok")))  # fmt: skip


def test_post_agg_runs_on_every_task_when_a_block_ends_in_hash_partition(engine: Any, printer: Printer) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(PostAggAllTasksModule(printer.function()), LaunchConfig(2, 2))
        cluster.pause_microbatch_topology("PostAggAllTasksModule", "mb")
        printer.forget()
        cluster.cluster_depot("PostAggAllTasksModule", "*depot").append("only")
        cluster.resume_microbatch_topology("PostAggAllTasksModule", "mb")
        cluster.wait_for_microbatch_processed_count("PostAggAllTasksModule", "mb", 1)
        lines = printer.lines()[:2]
        assert sorted(task for task, _ in lines) == [0, 1]
        assert [m for _, m in lines if m] == [{"only": 1}]


class TopWordsModule(Module):
    """T4: the words that occurred most often, of all microbatches; each word is captured once in a microbatch."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$top", list).global_()
        counted = (
            Block.explode_microbatch("*microbatch").out("*word")
            .hash_partition("*word")
            .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count().capture_new_val_into("*count")))
        )  # fmt: skip
        top = Agg.top_monotonic(3, "*row", id_function=Ops.FIRST, sort_val_function=Ops.LAST)
        (mb.source("*depot").out("*microbatch")
           .batch_block(Block.sub_batch(SubBatch(counted, "*word", "*count")).out("*word", "*count")
                             .each(Ops.TUPLE, "*word", "*count").out("*row")
                             .global_partition()
                             .agg("$$top", top)))  # fmt: skip


TOP_WORDS = (
    (["apple"] * 4 + ["plum"] * 3 + ["banana"] * 2, [["apple", 4], ["plum", 3], ["banana", 2]]),
    (["orange"] * 4 + ["apple"], [["apple", 5], ["orange", 4], ["plum", 3]]),
    (["orange"] * 2, [["orange", 6], ["apple", 5], ["plum", 3]]),
)


def test_top_words_are_the_published_ones_when_a_sub_batch_captures_their_counts(engine: Any) -> None:
    processed = 0
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(TopWordsModule(), LaunchConfig(4, 2))
        top = cluster.cluster_pstate("TopWordsModule", "$$top")
        for words, expected in TOP_WORDS:
            cluster.pause_microbatch_topology("TopWordsModule", "mb")
            cluster.cluster_depot("TopWordsModule", "*depot").append_many(words)
            cluster.resume_microbatch_topology("TopWordsModule", "mb")
            processed += len(words)
            cluster.wait_for_microbatch_processed_count("TopWordsModule", "mb", processed)
            assert top.select_one(Path.stay()) == expected


class TwoBlocksModule(Module):
    """T7 without `materialize`: two batch blocks, one after the other, over the same records."""

    def __init__(self, printed: Any) -> None:
        self.printed = printed

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        (mb.source("*depot").out("*microbatch")
           .batch_block(Block.explode_microbatch("*microbatch").out("*v")
                             .global_partition()
                             .agg(Agg.sum("*v")).out("*sum")
                             .each(self.printed, "first", "*sum").out("*ok"))
           .batch_block(Block.explode_microbatch("*microbatch").out("*v")
                             .each(Ops.INC, "*v").out("*w")
                             .global_partition()
                             .agg(Agg.sum("*w")).out("*sum")
                             .each(self.printed, "second", "*sum").out("*ok")))  # fmt: skip


def test_two_blocks_see_the_same_records_when_one_follows_the_other(engine: Any, printer: Printer) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(TwoBlocksModule(printer.function()), LaunchConfig(4, 2))
        cluster.pause_microbatch_topology("TwoBlocksModule", "mb")
        cluster.cluster_depot("TwoBlocksModule", "*depot").append_many([1, 2, 3])
        printer.forget()
        cluster.resume_microbatch_topology("TwoBlocksModule", "mb")
        cluster.wait_for_microbatch_processed_count("TwoBlocksModule", "mb", 3)
        assert printer.lines()[:2] == [["first", 6], ["second", 9]]


class MergeModule(Module):
    """T9: two sources of a batch block, merged."""

    def __init__(self, printed: Any) -> None:
        self.printed = printed

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        (mb.source("*depot").out("*microbatch")
           .batch_block(Block.anchor("root")
                             .each(Ops.EXPLODE, [1, 2]).out("*v").anchor("a")
                             .hook("root").each(Ops.EXPLODE, [2, 3]).out("*v").anchor("b")
                             .unify("a", "b")
                             .global_partition()
                             .agg(Agg.sum("*v")).out("*sum")
                             .each(self.printed, "*sum").out("*ok")))  # fmt: skip


def test_rows_of_both_sources_are_summed_when_they_are_merged(engine: Any, printer: Printer) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(MergeModule(printer.function()), LaunchConfig(4, 2))
        cluster.cluster_depot("MergeModule", "*depot").append("wakes the topology")
        eventually(lambda: printer.lines())
        assert printer.lines()[0] == [8]


class SumPerRecordV1(Module):
    """T10: the first version adds two a record."""

    def module_name(self) -> str:
        return "SumModule"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sum", int).global_().initial_value(0)
        (mb.source("*depot").out("*microbatch")
           .explode_microbatch("*microbatch").out("*v")
           .global_partition()
           .agg("$$sum", Agg.sum(2)))  # fmt: skip


class SumPerRecordV2(SumPerRecordV1):
    """T10: the second version counts."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sum", int).global_().initial_value(0)
        (mb.source("*depot").out("*microbatch")
           .explode_microbatch("*microbatch").out("*v")
           .global_partition()
           .agg("$$sum", Agg.count()))  # fmt: skip


def test_handles_go_on_and_state_carries_over_when_a_module_is_updated(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(SumPerRecordV1(), LaunchConfig(4, 2))
        depot = cluster.cluster_depot("SumModule", "*depot")
        total = cluster.cluster_pstate("SumModule", "$$sum")
        depot.append("x")
        cluster.wait_for_microbatch_processed_count("SumModule", "mb", 1)
        assert total.select_one(Path.stay()) == 2
        cluster.update_module(SumPerRecordV2())
        depot.append("y")
        cluster.wait_for_microbatch_processed_count("SumModule", "mb", 2)
        assert total.select_one(Path.stay()) == 3


class BankTransferModule(Module):
    """T12: a transfer debits one task and credits another in the same microbatch, or is refused."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*deposits", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*transfers", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("banking")
        mb.pstate("$$funds", PState.map_schema(str, int))
        mb.pstate("$$outgoing", PState.map_schema(str, PState.map_schema(int, bool).subindexed()))
        (mb.source("*deposits").out("*microbatch")
           .explode_microbatch("*microbatch").out("*deposit")
           .each(Ops.EXPAND, "*deposit").out("*user", "*amount")
           .compound_agg("$$funds", CompoundAgg.map("*user", Agg.sum("*amount"))))  # fmt: skip
        (mb.source("*transfers").out("*microbatch")
           .explode_microbatch("*microbatch").out("*transfer")
           .each(Ops.EXPAND, "*transfer").out("*from", "*to", "*id", "*amount")
           .local_select("$$funds", Path.key("*from").null_to_val(0)).out("*balance")
           .each(Ops.GREATER_THAN_OR_EQUAL, "*balance", "*amount").out("*success")
           .local_transform("$$outgoing", Path.key("*from", "*id").term_val("*success"))
           .keep_true("*success")
           .each(Ops.MINUS, "*balance", "*amount").out("*rest")
           .local_transform("$$funds", Path.key("*from").term_val("*rest"))
           .hash_partition("*to")
           .compound_agg("$$funds", CompoundAgg.map("*to", Agg.sum("*amount"))))  # fmt: skip


@pytest.mark.parametrize("tasks", [1, 2, 4, 8])
def test_bank_total_stays_when_transfers_cross_tasks(engine: Any, tasks: int) -> None:
    users = [f"user-{number}" for number in range(12)]
    dice = random.Random(12)
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(BankTransferModule(), LaunchConfig(tasks, min(tasks, 2)))
        funds = cluster.cluster_pstate("BankTransferModule", "$$funds")
        cluster.cluster_depot("BankTransferModule", "*deposits").append_many([[user, 100] for user in users])
        cluster.wait_for_microbatch_processed_count("BankTransferModule", "banking", len(users))
        transfers = [[dice.choice(users), dice.choice(users), number, dice.randint(1, 150)] for number in range(60)]
        cluster.cluster_depot("BankTransferModule", "*transfers").append_many(transfers)
        cluster.wait_for_microbatch_processed_count("BankTransferModule", "banking", len(users) + 60)
        balances = [funds.select_one(Path.key(user)) for user in users]
        assert sum(balances) == 1200
        assert min(balances) >= 0
        outgoing = cluster.cluster_pstate("BankTransferModule", "$$outgoing")
        recorded = [entry for user in users for entry in outgoing.select(Path.key(user).all())]
        assert sorted(transfer_id for transfer_id, _ in recorded) == list(range(60))
        assert {success for _, success in recorded} == {True, False}


class RenameModule(Module):
    """T14: renaming keys keeps the values; a chain of names does not swallow one."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$m", PState.map_schema(str, dict))
        (mb.source("*depot").out("*microbatch")
           .explode_microbatch("*microbatch").out("*m")
           .hash_partition("k")
           .local_transform("$$m", Path.key("k").term_val("*m"))
           .local_transform("$$m", Path.key("k").map_key("b").term_val("c"))
           .local_transform("$$m", Path.key("k").map_key("a").term_val("b")))  # fmt: skip


def test_map_keys_are_renamed_when_a_path_ends_in_map_key(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(RenameModule(), LaunchConfig(2, 1))
        cluster.cluster_depot("RenameModule", "*depot").append({"a": 0, "b": 1})
        cluster.wait_for_microbatch_processed_count("RenameModule", "mb", 1)
        assert cluster.cluster_pstate("RenameModule", "$$m").select_one(Path.key("k")) == {"b": 0, "c": 1}


def _turned(values: list[Any]) -> list[Any]:
    return values[::-1]


def _evens_turned() -> Path:
    return Path.key("numbers").filtered_list(Path.filter_pred(Ops.IS_EVEN)).term(_turned)


class ListsModule(Module):
    """T14: inserting into a list, and turning some of its elements round."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$lists", PState.map_schema(str, PState.list_schema(object)))
        mb.pstate("$$rows", PState.map_schema(str, PState.list_schema(int).subindexed()))
        odd = Path.subselect(Path.key("nested").all().all().filter_pred(Ops.IS_ODD)).term(_turned)
        (mb.source("*depot").out("*microbatch")
           .explode_microbatch("*microbatch").out("*letters")
           .hash_partition("letters")
           .local_transform("$$lists", Path.key("letters").term_val("*letters"))
           .local_transform("$$lists", Path.key("letters").after_elem().term_val("c"))
           .local_transform("$$lists", Path.key("letters").before_elem().term_val("d"))
           .local_transform("$$lists", Path.key("letters").before_index(2).term_val("e"))
           .hash_partition("nested")
           .local_transform("$$lists", Path.key("nested").term_val([[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]]))
           .local_transform("$$lists", odd)
           .hash_partition("numbers")
           .local_transform("$$lists", Path.key("numbers").term_val([0, 1, 2, 3, 4, 5]))
           .local_transform("$$lists", _evens_turned())
           .local_transform("$$rows", Path.key("numbers").term_val([0, 1, 2, 3, 4, 5]))
           .local_transform("$$rows", _evens_turned()))  # fmt: skip


def test_lists_become_the_published_ones_when_transforms_insert_and_turn_elements(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(ListsModule(), LaunchConfig(2, 1))
        cluster.cluster_depot("ListsModule", "*depot").append(["a", "b"])
        cluster.wait_for_microbatch_processed_count("ListsModule", "mb", 1)
        lists = cluster.cluster_pstate("ListsModule", "$$lists")
        assert lists.select_one(Path.key("letters")) == list("daebc")
        assert lists.select_one(Path.key("nested")) == [[9, 2, 7, 4], [5, 6, 3], [8, 1, 10]]
        assert lists.select_one(Path.key("numbers")) == [4, 1, 2, 3, 0, 5]
        rows = cluster.cluster_pstate("ListsModule", "$$rows")
        assert rows.select(Path.key("numbers").all()) == [4, 1, 2, 3, 0, 5]


class TickModule(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        setup.declare_tick_depot("*tick", 10)
        mb = topologies.microbatch("mb")
        mb.pstate("$$ticks", PState.map_schema(int, int))
        (mb.source("*tick").out("*microbatch")
           .explode_microbatch("*microbatch")
           .each(Ops.CURRENT_MICROBATCH_ID).out("*id")
           .hash_partition("*id")
           .compound_agg("$$ticks", CompoundAgg.map("*id", Agg.count())))  # fmt: skip


def test_a_microbatch_ticks_once_at_most_when_many_periods_passed(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(TickModule(), LaunchConfig(2, 2))
        eventually(lambda: cluster.microbatch_state("TickModule", "mb")[0] >= 4)
        last, _ = cluster.microbatch_state("TickModule", "mb")
        ticks = cluster.cluster_pstate("TickModule", "$$ticks")
        counts = [ticks.select_one(Path.key(microbatch_id)) for microbatch_id in range(1, last + 1)]
        assert counts == [1] * last


class LoopModule(Module):
    """A loop whose body moves between tasks: each record visits its number of tasks, then says so."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*depot", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$visits", PState.map_schema(int, int))
        (mb.source("*depot").out("*microbatch")
           .explode_microbatch("*microbatch").out("*n")
           .loop_with_vars(
               LoopVars.var("*i", 0),
               Block.if_true(
                   Expr(Ops.LESS_THAN, "*i", "*n"),
                   Block.hash_partition("*i")
                        .compound_agg("$$visits", CompoundAgg.map("*i", Agg.count()))
                        .each(Ops.INC, "*i").out("*next")
                        .continue_loop("*next"),
                   Block.emit_loop("*i"))).out("*end"))  # fmt: skip


def test_a_loop_crosses_tasks_when_its_body_holds_a_partitioner(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        cluster.launch_module(LoopModule(), LaunchConfig(4, 2))
        cluster.cluster_depot("LoopModule", "*depot").append_many([3, 1, 5])
        cluster.wait_for_microbatch_processed_count("LoopModule", "mb", 3)
        visits = cluster.cluster_pstate("LoopModule", "$$visits")
        assert [visits.select_one(Path.key(i)) for i in range(6)] == [3, 2, 2, 1, 1, None]
