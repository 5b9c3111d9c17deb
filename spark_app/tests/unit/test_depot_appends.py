"""`depot_partition_append`: what a topology stages for depots, by columns and by rows, in one process and as bytes."""

from __future__ import annotations

import re
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from faulty import Cases, Define, assert_one_fault, faults_of
from stories import module_of

from tidemill import (
    AckLevel,
    Agg,
    Block,
    CompoundAgg,
    Constant,
    Depot,
    Expr,
    LoopVars,
    Ops,
    Path,
    PState,
)
from tidemill.api.declaration import record_module
from tidemill.engine import appends
from tidemill.plan.warn import warnings_of
from tidemill.values.errors import UserCodeError

cases = Cases()
expect = cases.expect

WAYS = [(1, False), (2, False), (2, True), (4, True)]
"""(threads, whether threads know of each other only by bytes)"""


def with_depots(chain: Any) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.disallow())
        setup.declare_depot("*one", Depot.random()).global_()
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", PState.map_schema(object, int))
        chain(mb.source("*in").out("*mb").explode_microbatch("*mb").out("*v"))

    return module_of("M", define)


def appended(folder: Folder, chain: Any, records: list[Any], threads: int = 1, as_bytes: bool = False) -> Any:
    attempts = Attempts(folder, with_depots(chain), threads=threads, as_bytes=as_bytes)
    attempts.feed("*in", records)
    attempts.attempt()
    return {depot: dict(sorted(held.items())) for depot, held in attempts.appended.items()}


def here() -> Expr:
    return Expr(Ops.CURRENT_TASK_ID)


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_a_record_goes_to_the_partition_of_its_task_when_it_is_appended(
    tmp_path: Folder, threads: int, as_bytes: bool
) -> None:
    def chain(rows: Any) -> None:
        rows.direct_partition(Expr(Ops.MOD, "*v", 4)).depot_partition_append("*out", Expr(Ops.TUPLE, "*v", here()))

    found = appended(tmp_path, chain, list(range(40)), threads, as_bytes)

    assert found == {"*out": {task: [[v, task] for v in sorted(range(task, 40, 4), key=order)] for task in range(4)}}


def order(v: int) -> Any:
    """Records arrive from partition to partition, and in the order of each: `feed` deals them round."""
    return (v % 4, v)


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_records_stand_as_rows_appended_them_when_a_row_appends_twice(
    tmp_path: Folder, threads: int, as_bytes: bool
) -> None:
    def chain(rows: Any) -> None:
        rows = rows.global_partition().depot_partition_append("*out", "*v")
        rows.depot_partition_append("*out", Expr(Ops.MINUS, 0, "*v"))

    found = appended(tmp_path, chain, [1, 2, 3], threads, as_bytes)

    assert found == {"*out": {0: [1, -1, 2, -2, 3, -3]}}


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_records_are_appended_when_in_loops_conditions_and_branches(
    tmp_path: Folder, threads: int, as_bytes: bool
) -> None:
    def chain(rows: Any) -> None:
        rows = rows.global_partition()
        body = Block.depot_partition_append("*out", Expr(Ops.TUPLE, "*v", "*i")).if_true(
            Expr(Ops.LESS_THAN, "*i", "*v"),
            Block.continue_loop(Expr(Ops.INC, "*i")),
            Block.depot_partition_append("*one", "*v").emit_loop(),
        )
        rows.loop_with_vars(LoopVars.var("*i", 1), body).branch(Block.depot_partition_append("*one", Constant("end")))

    found = appended(tmp_path, chain, [1, 2], threads, as_bytes)

    assert found["*out"] == {0: [[1, 1], [2, 1], [2, 2]]}
    assert sorted(found["*one"][0], key=str) == [1, 2, "end", "end"]


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_records_are_appended_when_in_each_phase_of_a_batch_block(
    tmp_path: Folder, threads: int, as_bytes: bool
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        for name in ("*in", "*pre", "*post", "*after"):
            setup.declare_depot(name, Depot.random())
        block = Block.explode_microbatch("*mb").out("*v").depot_partition_append("*pre", "*v")
        block = block.group_by("*v", Block.agg(Agg.count()).out("*n"))
        block = block.depot_partition_append("*post", Expr(Ops.TUPLE, "*v", "*n"))
        only = Block.explode_microbatch("*mb").out("*w").depot_partition_append("*pre", "*w")
        source = topologies.microbatch("mb").source("*in").out("*mb")
        source.batch_block(block).batch_block(only).depot_partition_append("*after", Constant("done"))

    attempts = Attempts(tmp_path, module_of("M", define), threads=threads, as_bytes=as_bytes)
    attempts.feed("*in", ["a", "b", "a", "c"])
    attempts.attempt()

    found = attempts.appended
    assert {p: sorted(rows) for p, rows in found["*pre"].items()} == {
        0: ["a"] * 2,
        1: ["b"] * 2,
        2: ["a"] * 2,
        3: ["c"] * 2,
    }
    assert sorted(row for rows in found["*post"].values() for row in rows) == [["a", 2], ["b", 1], ["c", 1]]
    assert found["*after"] == {0: ["done"]}


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_order_holds_when_parts_are_written_before_the_end(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, threads: int, as_bytes: bool
) -> None:
    monkeypatch.setattr(appends, "PART_BYTES_MAX", 32)
    monkeypatch.setattr(appends, "INLINE_BYTES_MAX", 0)

    def chain(rows: Any) -> None:
        rows = rows.depot_partition_append("*out", "*v").global_partition()
        rows = rows.depot_partition_append("*out", "*v").depot_partition_append("*out", ["again", "x" * 50])
        rows.hash_partition("*v").compound_agg("$$n", CompoundAgg.map("*v", Agg.count()))

    attempts = Attempts(tmp_path, with_depots(chain), threads=threads, as_bytes=as_bytes)
    attempts.feed("*in", list(range(20)))
    outcome = attempts.attempt()

    assert len(outcome.appends) > threads
    assert all(part.content is None for part in outcome.appends)
    assert attempts.appended["*out"][1] == list(range(1, 20, 4))
    later = [row for row in attempts.appended["*out"][0][5:] if row != ["again", "x" * 50]]
    assert later == sorted(range(20), key=order)


def test_nothing_is_staged_when_no_row_reaches_an_append(tmp_path: Folder) -> None:
    def chain(rows: Any) -> None:
        rows.keep_true(Expr(Ops.IS_NULL, "*v")).depot_partition_append("*out", "*v")

    assert appended(tmp_path, chain, [1]) == {}


# --- records that a depot does not take ------------------------------------------------------------------------------


def failure_of(folder: Folder, define: Any, records: list[Any]) -> UserCodeError:
    attempts = Attempts(folder, module_of("M", define))
    attempts.feed("*in", records)
    with pytest.raises(UserCodeError) as caught:
        attempts.attempt()
    return caught.value


@pytest.mark.parametrize("is_by_rows", [False, True])
def test_step_task_and_value_are_named_when_a_record_does_not_fit_the_schema(
    tmp_path: Folder, is_by_rows: bool
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.disallow()).schema(PState.fixed_keys_schema("n", int))
        rows = topologies.microbatch("mb").source("*in").out("*mb").explode_microbatch("*mb").out("*v")
        rows = rows.direct_partition(3).depot_partition_append("*out", "*v")
        if is_by_rows:
            rows.depot_partition_append("*out", "*v")

    error = failure_of(tmp_path, define, [{"n": 1}, {"n": "many"}])

    text = "raised RecordRefused: The record['n'] is 'many' (str), expected"
    assert text in str(error)
    assert "That is the schema of *out." in str(error)
    assert error.step.startswith("depot_partition_append(*out) on task 3 at " + __file__)
    assert "{'n': 'many'}" in error.sample


def test_offset_of_the_record_is_named_when_its_append_is_refused(tmp_path: Folder) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.disallow()).schema(int)
        rows = topologies.microbatch("mb").source("*in").out("*mb").explode_microbatch("*mb").out("*v")
        rows.depot_partition_append("*out", "*v")

    text = str(failure_of(tmp_path, define, [1, "x"]))
    assert re.search(r"[.!?…] The record is at offset 0 of partition 1 of \*in\.$", text)


def test_append_is_refused_when_its_value_is_no_data(tmp_path: Folder) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        rows = topologies.microbatch("mb").source("*in").out("*mb").explode_microbatch("*mb").out("*v")
        rows.each(lambda v: object(), "*v").out("*o").depot_partition_append("*in", "*o")

    assert "depot_partition_append(*in) on task 0" in str(failure_of(tmp_path, define, [1]))


@pytest.mark.parametrize("is_by_rows", [False, True])
def test_append_is_refused_when_a_global_depot_is_not_on_this_task(tmp_path: Folder, is_by_rows: bool) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*one", Depot.random()).global_()
        rows = topologies.microbatch("mb").source("*in").out("*mb").explode_microbatch("*mb").out("*v")
        rows = rows.depot_partition_append("*one", "*v")
        if is_by_rows:
            rows.depot_partition_append("*one", "*v")

    error = failure_of(tmp_path, define, [1, 2])

    assert "*one is a global depot: its one partition is on task 0. Write .global_partition() before it." in str(error)
    assert "on task 1" in error.step


# --- mistakes in a definition ----------------------------------------------------------------------------------------


def rows_of(setup: Any, topologies: Any) -> Any:
    setup.declare_depot("*d", Depot.random())
    setup.declare_tick_depot("*tick", 1_000)
    return topologies.microbatch("mb").source("*d").out("*mb").explode_microbatch("*mb").out("*v")


@expect("There is no depot '*dd'.")
def unknown_depot(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("*dd", "*v")  # <- fault


@expect("There is no depot '*v'.")
def depot_in_a_variable(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("*v", 1)  # <- fault


@expect("'*tick' is a tick depot: nothing can be appended to it.")
def tick_depot(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("*tick", "*v")  # <- fault


@expect("The name of a depot begins with '*'; 'd' does not.")
def depot_without_its_sigil(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("d", "*v")  # <- fault


@expect("The variable '*w' is not bound here.")
def unbound_value(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("*d", "*w")  # <- fault


@expect("'*mb' is a microbatch and can only be exploded.")
def microbatch_as_value(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("*d", "*mb")  # <- fault


@expect("The third argument of depot_partition_append is an AckLevel, not 'ack'.")
def wrong_ack(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("*d", "*v", "ack")  # <- fault


@expect("depot_partition_append emits no values, so .out(…) cannot follow it (DepotAppend).")
def out_of_an_append(setup: Any, topologies: Any) -> None:
    rows_of(setup, topologies).depot_partition_append("*d", "*v").out("*offset")  # <- fault


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_fault_names_line_and_mistake_when_an_append_is_wrong(define: Define, text: str) -> None:
    assert_one_fault(define, text)


@pytest.mark.parametrize("ack", [None, *AckLevel])
def test_no_fault_is_found_when_an_append_names_any_ack_level(ack: Any) -> None:
    assert faults_of(lambda setup, topologies: rows_of(setup, topologies).depot_partition_append("*d", 1, ack)) == []


def warnings_in(define: Define) -> list[str]:
    """All but that of the clock of `rows_of`, which nothing reads."""
    texts = [warning.text for warning in warnings_of(record_module(module_of("M", define)))]
    return [text for text in texts if "'*tick'" not in text]


def test_a_warning_says_so_when_rows_for_a_global_depot_are_elsewhere() -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*one", Depot.random()).global_()
        rows = rows_of(setup, topologies).hash_partition("*v").depot_partition_append("*one", "*v")
        rows.global_partition().depot_partition_append("*one", "*v")

    (text,) = warnings_in(define)
    assert text.startswith("This appends to the global depot '*one', which is on task 0, but hash_partition")


def test_a_warning_says_so_when_the_asterisk_of_the_value_is_forgotten() -> None:
    def define(setup: Any, topologies: Any) -> None:
        rows_of(setup, topologies).depot_partition_append("*d", "v")

    assert warnings_in(define) == ["depot_partition_append is given the text 'v' in every row."]


def test_rows_of_a_path_can_be_appended_when_they_are_selected(tmp_path: Folder) -> None:
    def chain(rows: Any) -> None:
        rows = rows.hash_partition("*v").compound_agg("$$n", CompoundAgg.map("*v", Agg.count()))
        rows.local_select("$$n", Path.key("*v")).out("*n").depot_partition_append("*out", Expr(Ops.TUPLE, "*v", "*n"))

    found = appended(tmp_path, chain, ["a", "b", "a"])

    assert sorted(row for rows in found["*out"].values() for row in rows) == [["a", 1], ["a", 2], ["b", 1]]


def _grown(value: Any) -> int:
    """What no function should do: it changes what it is given, in all depths."""
    value[1].append("later")
    value[2]["later"] = 1
    value.append("later")
    return len(value)


@pytest.mark.parametrize("goes_by_rows", [False, True])
@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_a_record_is_appended_as_it_was_when_a_function_behind_changes_it(
    tmp_path: Folder, threads: int, as_bytes: bool, goes_by_rows: bool
) -> None:
    def chain(rows: Any) -> None:
        rows = rows.each(lambda v: [v, ["x"] * v, {"k": [v]}], "*v").out("*record")
        if goes_by_rows:
            rows = (
                rows.local_select("$$n", Path.key("k")).out("*n").local_transform("$$n", Path.key("k").term_val("*v"))
            )
        rows.depot_partition_append("*out", "*record").each(_grown, "*record").out("*length")

    found = appended(tmp_path, chain, [1, 2], threads, as_bytes)

    assert found == {"*out": {0: [[1, ["x"], {"k": [1]}]], 1: [[2, ["x", "x"], {"k": [2]}]]}}


def test_a_record_that_contains_itself_is_refused_at_once_when_it_is_appended_row_by_row(tmp_path: Folder) -> None:
    def chain(rows: Any) -> None:
        rows.local_select("$$n", Path.key("k")).out("*n").local_transform("$$n", Path.key("k").term_val("*v")).each(
            _endless, "*v"
        ).out("*record").depot_partition_append("*out", "*record")

    with pytest.raises(UserCodeError, match="nested deeper than 100 levels"):
        appended(tmp_path, chain, [1])


def _endless(value: int) -> list[Any]:
    made: list[Any] = [value]
    made += [made, made]
    return made
