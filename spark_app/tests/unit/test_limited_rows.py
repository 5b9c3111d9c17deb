"""`limit_agg`: post-agg gets the first rows of each task, or of each key, on both engines."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path as Folder
from typing import Any

import numpy as np
import pytest
from attempts import Attempts
from hypothesis import given, settings
from hypothesis import strategies as st
from stories import Story, module_of
from test_temporary_rows import found, results, topology

from tidemill import Agg, Block, Expr, InProcessCluster, LimitAgg, Ops, Path
from tidemill.engine import partition as sending
from tidemill.engine.frame import Frame
from tidemill.engine.limits import best_rows
from tidemill.plan.program import Cut
from tidemill.values.columns import from_values
from tidemill.values.data import sort_key

RECORDS = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*a", "*b")
PAIRS = [[1, 3], [10, 12], [6, 5], [1000, 1000], [2, 1], [5, 4]]


def best_three(setup: Any, topologies: Any) -> None:
    """T13: the three pairs with the greatest second number, and the sums of both in a block behind."""
    limit = LimitAgg.create(3, "*a", "*b").sort("*b").reverse().index_var("*i")
    kept = RECORDS.global_partition().limit_agg(limit).materialize("*a", "*b", "*i").out("$$best")
    topology(setup, topologies).batch_block(kept).batch_block(
        Block.explode_materialized("$$best").out("*a", "*b", "*i").global_partition()
        .agg(Agg.map("*i", Expr(Ops.TUPLE, "*a", "*b"))).out("*best")
        .agg(Agg.sum("*a")).out("*as").agg(Agg.sum("*b")).out("*bs")
        .macro(found("best", "*best")).macro(found("a", "*as")).macro(found("b", "*bs"))
    )  # fmt: skip


def test_rows_are_those_of_the_reference_when_the_best_three_are_kept(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Limit", best_three)
        story.batch(d=PAIRS)
        assert results(story) == {"best": {0: [1000, 1000], 1: [10, 12], 2: [6, 5]}, "a": 1016, "b": 1017}


def beside_others(setup: Any, topologies: Any) -> None:
    """Variables to sort by need not be kept; other aggregators take all rows."""
    whole = RECORDS.global_partition().agg(Agg.count()).out("*n").agg("$$found", Agg.map("seen", "*a"))
    chain = topology(setup, topologies).batch_block(
        whole.limit_agg(LimitAgg.create(2, "*a").sort("*b"))
        .each(Ops.TUPLE, "*a", "*n").out("*row").materialize("*row").out("$$rows")
    )  # fmt: skip
    greatest = Block.limit_agg(LimitAgg.create(1, "*a").sort("*a").reverse())
    chain = chain.batch_block(
        RECORDS.group_by("*b", greatest.agg(Agg.count()).out("*n"))
        .each(Ops.TUPLE, "*b", "*a", "*n").out("*row").materialize("*row").out("$$groups")
    )  # fmt: skip
    for name in ("rows", "groups"):
        chain = chain.batch_block(
            Block.explode_materialized(f"$${name}").out("*row").global_partition()
            .agg(Agg.list("*row")).out("*all").macro(found(name, "*all"))
        )  # fmt: skip


def test_limit_is_per_key_and_beside_other_outputs_when_a_block_has_them(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Beside", beside_others)
        story.batch(d=[[1, "x"], [2, "y"], [3, "x"], [4, "z"]])
        held = results(story)
        assert [row[1] for row in held["rows"]] == [4, 4] and {row[0] for row in held["rows"]} == {1, 3}
        assert sorted(held["groups"]) == [["x", 3, 2], ["y", 2, 1], ["z", 4, 1]]


NUMBERS = st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.5, float("nan")])
TEXTS = st.sampled_from(["", "a", "é", "\U0001f600", "\uffff"])
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.lists(st.integers(0, 2), max_size=2))
COLUMNS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)),
    st.lists(st.floats() | st.integers(0, 2).map(float)), st.lists(TEXTS),
    st.lists(st.text(max_size=2) | st.none()), st.lists(st.integers(0, 3) | st.none()), st.lists(VALUES),
)  # fmt: skip


def first_in_python(rows: list[Any], group: list[int], amount: int, is_reverse: bool) -> list[tuple[int, int]]:
    """(row, place), group by group: equal values in the order of the rows, forwards and backwards."""
    found: dict[int, list[int]] = defaultdict(list)
    for row in range(len(rows)):
        found[group[row]].append(row)
    kept = []
    for members in found.values():
        ordered = sorted(members, key=lambda row: sort_key(rows[row]), reverse=is_reverse)
        kept += [(row, place) for place, row in enumerate(ordered[:amount])]
    return kept


@settings(max_examples=200)
@given(COLUMNS, st.integers(1, 4), st.booleans(), st.randoms())
def test_rows_are_those_that_python_sorts_first_when_columns_are_of_any_type(
    values: list[Any], amount: int, is_reverse: bool, random: Any
) -> None:
    group = [random.randrange(3) for _ in values]
    frame = Frame(len(values), 0, {"*v": from_values(values)})
    cut = Cut(amount, ("*v",), ("*v",), is_reverse, None)
    rows, places, _ = best_rows(cut, frame, [from_values(group)])
    assert list(zip(rows.tolist(), places.tolist(), strict=True)) == first_in_python(values, group, amount, is_reverse)


@pytest.mark.parametrize("partition", ["global_partition", "hash_partition", "all_partition"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_rows_are_the_same_when_senders_keep_only_what_is_needed(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, partition: str, threads: int
) -> None:
    """Ties are cut in the order of the tasks that rows come from, whether a sender cut them before or not."""

    def define(setup: Any, topologies: Any) -> None:
        limit = LimitAgg.create(4, "*a", "*b").sort("*a").index_var("*i")
        rows = getattr(RECORDS, partition)(*(["*a"] if partition == "hash_partition" else []))
        kept = rows.limit_agg(limit).each(Ops.CURRENT_TASK_ID).out("*t").materialize("*a", "*b", "*i", "*t").out("$$x")
        topology(setup, topologies).batch_block(kept).batch_block(
            Block.explode_materialized("$$x").out("*a", "*b", "*i", "*t").global_partition()
            .agg(Agg.list(Expr(Ops.TUPLE, "*t", "*i", "*a", "*b"))).out("*all").macro(found("all", "*all"))
        )  # fmt: skip

    seen = []
    sent: list[int] = []
    needed = sending.needed_rows
    for number, is_cut in enumerate((True, False)):

        def counted(program: Any, move: Any, frame: Any, targets: Any, is_cut: bool = is_cut) -> Any:
            rows = needed(program, move, frame, targets) if is_cut else None
            sent.append(frame.rows if rows is None else len(rows))
            return rows

        monkeypatch.setattr(sending, "needed_rows", counted)
        sent.clear()
        attempts = Attempts(
            tmp_path / str(number), module_of("Cut", define), tasks=4, threads=threads, as_bytes=threads > 1
        )
        attempts.feed("*d", [[i % 3, i] for i in range(200)])
        attempts.attempt()
        seen.append((attempts.select("$$found", Path.key("all"), 0)[0], sum(sent)))
    (with_cut, few), (without, many) = seen
    assert with_cut == without
    assert few < many


def test_group_numbers_rise_when_groups_are_first_seen() -> None:
    frame = Frame(4, 0, {"*v": from_values([4, 3, 2, 1])})
    rows, places, groups = best_rows(Cut(9, ("*v",), ("*v",), False, None), frame, [from_values(["b", "a", "b", "a"])])
    assert (rows.tolist(), places.tolist(), groups.tolist()) == ([2, 0, 3, 1], [0, 1, 0, 1], [0, 0, 1, 1])
    assert rows.dtype == np.int64
