"""A failing microbatch names depot, partition and offset of the record, at once or from the second attempt on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts

from tidemill import (
    Agg,
    Block,
    Case,
    CompoundAgg,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    UserCodeError,
)
from tidemill.plan.traced import traced
from tidemill.values.columns import to_values

RECORDS = [["a", 1], ["b", 2], ["bad", 3], ["c", 4], ["bad", 3], ["d", 5], ["e", 6]]


def checked(value: Any) -> Any:
    if value == "bad":
        raise ValueError("bad")
    return value


def at_once(rows: Any) -> Any:
    return rows.each(lambda record: checked(record[0]), "*r").out("*k").compound_agg("$$p", counted("*k"))


def later(rows: Any) -> Any:
    return (
        rows.each(Ops.EXPAND, "*r").out("*k", "*n").each(checked, "*k").out("*ok").compound_agg("$$p", counted("*ok"))
    )


def on_another_task(rows: Any) -> Any:
    rows = rows.each(Ops.EXPAND, "*r").out("*k", "*n").hash_partition("*n").each(checked, "*k").out("*ok")
    return rows.hash_partition("*ok").compound_agg("$$p", counted("*ok"))


def by_rows(rows: Any) -> Any:
    rows = rows.each(Ops.EXPAND, "*r").out("*k", "*n").local_select("$$p", Path.key("*k")).out("*old")
    return rows.each(checked, "*k").out("*ok").local_transform("$$p", Path.key("*ok").term_val(1))


def in_a_condition_and_a_loop(rows: Any) -> Any:
    rows = (
        rows.each(Ops.EXPAND, "*r")
        .out("*k", "*n")
        .cond(
            Case.create(Expr(Ops.EQUAL, "*n", 1)).each(Ops.IDENTITY, "*n").out("*m"),
            Case.create(True).each(Ops.INC, "*n").out("*m"),
        )
    )
    body = Block.if_true(
        Expr(Ops.LESS_THAN, "*i", "*m"),
        Block.hash_partition("*i").each(Ops.INC, "*i").out("*j").continue_loop("*j"),
        Block.each(checked, "*k").out("*ok").emit_loop("*ok"),
    )
    rows = rows.loop_with_vars(LoopVars.var("*i", 0), body).out("*out")
    return rows.hash_partition("*out").compound_agg("$$p", counted("*out"))


def in_a_write(rows: Any) -> Any:
    rows = rows.each(Ops.EXPAND, "*r").out("*k", "*n")
    return rows.local_transform("$$q", Path.key("*k").term(lambda old, k: checked(k) and 1, "*k"))


def counted(key: str) -> CompoundAgg:
    return CompoundAgg.map(key, Agg.count())


class Failing(Module):
    def __init__(self, chain: Any) -> None:
        self._chain = chain

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*first", Depot.random())
        setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        mb.pstate("$$q", PState.map_schema(str, int))
        mb.source("*first").out("*other").explode_microbatch("*other").out("*r").compound_agg("$$q", counted("*r"))
        self._chain(mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r"))


CHAINS = [at_once, later, on_another_task, by_rows, in_a_condition_and_a_loop, in_a_write]


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize("chain", CHAINS)
def test_traced_attempt_names_the_record_wherever_it_fails(tmp_path: Folder, chain: Any, as_bytes: bool) -> None:
    attempts = Attempts(tmp_path, Failing(chain), 4, 2, as_bytes=as_bytes)
    attempts.feed("*first", ["x", "y"])
    attempts.feed("*d", [["z", 0], ["z", 9]])
    attempts.attempt()
    attempts.program = traced(attempts.program)
    attempts.feed("*d", RECORDS)
    with pytest.raises(UserCodeError) as caught:
        attempts.attempt()
    facts = caught.value.context
    log = attempts._depot("*d")
    assert (facts["depot"], caught.value.row) == ("*d", None)
    assert _record(log, facts) == ["bad", 3]
    place = f"The record is at offset {facts['offset']} of partition {facts['partition']} of *d."
    assert str(caught.value).endswith(place)


def _record(log: Any, facts: Any) -> Any:
    return to_values(log.read_columns(facts["partition"], facts["offset"], facts["offset"] + 1))[0]


@pytest.mark.parametrize("chain", CHAINS)
def test_traced_program_gives_the_same_results(tmp_path: Folder, chain: Any) -> None:
    good = [[key, n] for n, key in enumerate(["a", "b", "a", "c", "b", "a"])]
    found = []
    for name, change in (("plain", lambda program: program), ("traced", traced)):
        attempts = Attempts(tmp_path / name, Failing(chain), 4, 2)
        attempts.program = change(attempts.program)
        attempts.feed("*d", good)
        attempts.attempt()
        found.append([sorted(attempts.everywhere(pstate, Path.all())) for pstate in ("$$p", "$$q")])
    assert found[0] == found[1]
    assert found[0] != [[], []]


def test_retry_names_the_record_when_the_first_attempt_had_lost_it() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Failing(later), LaunchConfig(4, 2))
        cluster.cluster_depot("Failing", "*d").append_many(RECORDS[:3])
        runner = cluster._running["Failing"].topologies["mb"]
        found = runner.wait_for(lambda now: now.report.failure is not None and now.report.failure.version > 1, 20)
        failure = found.report.failure
        assert failure is not None and "*r=['bad', 3]" in failure.sample
        place = re.search(r"The record is at offset (\d+) of partition (\d+) of \*d\.$", failure.message)
        assert place is not None
        offset, partition = map(int, place.groups())
        assert cluster.cluster_depot("Failing", "*d").read(partition, offset, offset + 1) == [["bad", 3]]


def test_program_keeps_its_name_apart_when_it_is_traced(tmp_path: Folder) -> None:
    program = Attempts(tmp_path, Failing(later), 1).program
    assert traced(program).key != program.key
    assert replace(traced(program), live=program.live, key=program.key) == program
