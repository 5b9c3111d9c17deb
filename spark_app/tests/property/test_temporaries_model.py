"""Rows and aggregates that batch blocks hand on, captured values and limits are those that plain Python comes to."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path as Folder
from typing import Any

from attempts import Attempts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill import Agg, Block, CompoundAgg, Depot, Expr, LimitAgg, Module, Ops, Path, PState

KEYS = st.sampled_from([None, "a", "b", "é", "", 2, -1, 1.5, b"x"])
VALUES = st.integers(-3, 3) | st.integers(-(2**40), 2**40)
RECORDS = st.lists(st.tuples(KEYS, KEYS, VALUES).map(list), max_size=12) | st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 9)).map(list),
    min_size=130, max_size=200,
)  # fmt: skip
"""Few rows of any keys, and so many of few keys that senders combine them."""

ROWS = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*k2", "*v")
SUMS = CompoundAgg.map("*k", CompoundAgg.map("*k2", Agg.sum("*v").capture_new_val_into("*sum")))
NAMES = ("rows", "sums", "captured", "groups", "total", "limit", "stored")


class Handing(Module):
    """Each result is the list of its rows, on task 0."""

    def __init__(self, amount: int, is_reverse: bool) -> None:
        limit = LimitAgg.create(amount, "*k", "*v").sort("*v").index_var("*i")
        self.limit = limit.reverse() if is_reverse else limit

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$found", PState.map_schema(str, object)).global_()
        chain = mb.source("*d").out("*mb")
        everywhere = Block.all_partition().local_select("$$sums", Path.map_keys()).out("*k")
        pairs = everywhere.local_select("$$sums", Path.key("*k").all()).out("*pair").each(Ops.EXPAND, "*pair")
        text = Block.each(repr, "*k").out("*name").hash_partition("*name")
        stored = text.compound_agg("$$counts", CompoundAgg.map("*name", Agg.count().capture_new_val_into("*n")))
        for block in (
            ROWS.materialize("*k", "*k2", "*v").out("$$rows"),
            ROWS.hash_partition("*k").compound_agg(SUMS).out("$$sums")
            .materialize("*k", "*k2", "*sum").out("$$captured"),
            pairs.out("*k2", "*sum").materialize("*k", "*k2", "*sum").out("$$sums rows"),
            ROWS.group_by("*k", Block.agg(Agg.count()).out("*n")).materialize("*k", "*n").out("$$groups"),
            ROWS.global_partition().agg(Agg.sum("*v")).out("$$total"),
            Block.local_select("$$total").out("*sum").materialize("*sum").out("$$total rows"),
            Block.explode_materialized("$$rows").out("*k", "*_", "*v").global_partition()
            .limit_agg(self.limit).materialize("*v", "*i").out("$$limit"),
            Block.explode_materialized("$$rows").out("*k", "*_", "*__").macro(stored)
            .materialize("*name", "*n").out("$$stored"),
        ):  # fmt: skip
            chain = chain.batch_block(block)
        widths = {"rows": 3, "sums": 3, "captured": 3, "groups": 2, "total": 1, "limit": 2, "stored": 2}
        for name in NAMES:
            outs = [f"*x{i}" for i in range(widths[name])]
            temp = f"$${name} rows" if name in ("sums", "total") else f"$${name}"
            chain = chain.batch_block(
                Block.explode_materialized(temp).out(*outs).global_partition()
                .agg(Agg.list(Expr(Ops.TUPLE, *outs))).out("*all")
                .local_transform("$$found", Path.key(name).term_val("*all"))
            )  # fmt: skip


def expected(rows: list[Any], stored: Counter[str], amount: int, is_reverse: bool) -> dict[str, list[Any]]:
    """What a microbatch of these records leaves; `stored` holds the counts of all before."""
    sums: dict[Any, int] = defaultdict(int)
    for k, k2, v in rows:
        sums[k, k2] += v
    stored.update(repr(k) for k, _, _ in rows)
    summed = [[k, k2, sum_] for (k, k2), sum_ in sums.items()]
    ordered = sorted((v for _, _, v in rows), reverse=is_reverse)[:amount]
    return {
        "rows": rows, "sums": summed, "captured": summed,
        "groups": [[k, n] for k, n in Counter(k for k, _, _ in rows).items()],
        "total": [[sum(v for _, _, v in rows)]], "limit": [[v, i] for i, v in enumerate(ordered)],
        "stored": [[name, stored[name]] for name in {repr(k) for k, _, _ in rows}],
    }  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(RECORDS, min_size=1, max_size=3), st.sampled_from([(1, 1), (2, 2), (4, 2), (8, 4)]), st.booleans(),
    st.integers(1, 4), st.booleans(),
)  # fmt: skip
def test_results_are_those_of_python_when_blocks_hand_on_rows_and_aggregates(
    batches: list[list[Any]], size: tuple[int, int], as_bytes: bool, amount: int, is_reverse: bool
) -> None:
    stored: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        tasks, threads = size
        attempts = Attempts(Folder(folder), Handing(amount, is_reverse), tasks, threads, as_bytes=as_bytes)
        for rows in batches:
            attempts.feed("*d", rows)
            attempts.attempt()
            found = dict(attempts.select("$$found", Path.all(), 0))
            for name, wanted in expected(rows, stored, amount, is_reverse).items():
                assert sorted(map(repr, found[name])) == sorted(map(repr, wanted)), name
