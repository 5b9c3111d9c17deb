"""Random queries against plain Python while a writer commits: each answer is that of one committed state.

The depot has one partition, so committed states are prefixes of its records. A record changes several keys, on several
tasks: an answer that mixes two states is that of no prefix.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tidemill import Agg, CompoundAgg, Depot, Expr, InProcessCluster, LaunchConfig, Module, Ops, Path, PState

NAME, KEYS = "Random", [f"k{number}" for number in range(9)]
Rows = list[tuple[str, int]]

AGGREGATES: dict[str, tuple[Callable[[], Any], Callable[[Rows], Any]]] = {
    "sum": (lambda: Agg.sum("*v"), lambda rows: sum(value for _, value in rows)),
    "count": (Agg.count, len),
    "max": (lambda: Agg.max("*v"), lambda rows: max((value for _, value in rows), default=None)),
    "set": (lambda: Agg.set("*v"), lambda rows: {value for _, value in rows} or None),
    "map": (lambda: Agg.map("*k", "*v"), lambda rows: dict(rows) or None),
    "count each": (lambda: Agg.multi_set("*k"), lambda rows: dict(Counter(key for key, _ in rows)) or None),
}


@dataclass(frozen=True)
class Spec:
    """A query: whether it reads all keys or some, how it filters and changes their values, and what it makes of them.

    `filters`, `branches` and `calls` say what stands between: a threshold, a second way for the same rows, a call of
    the query `one` for each value.
    """

    keys: tuple[str, ...] | None
    threshold: int | None
    factor: int
    branches: bool
    calls: bool
    aggregate: str

    def record(self, topologies: Any, name: str) -> None:
        """Declare it."""
        chain = topologies.query(name).out("*result")
        if self.keys is None:
            chain = chain.all_partition().local_select("$$sums", Path.all()).out("*pair")
            chain = chain.each(Ops.EXPAND, "*pair").out("*k", "*value")
        else:
            chain = chain.each(Ops.EXPLODE, list(self.keys)).out("*k")
            chain = chain.select("$$sums", Path.must("*k")).out("*value")
        if self.calls:
            chain = chain.invoke_query("one", "*k").out("*again").keep_true(Expr(Ops.EQUAL, "*again", "*value"))
        if self.threshold is not None:
            chain = chain.keep_true(Expr(Ops.GREATER_THAN, "*value", self.threshold))
        chain = chain.each(Ops.TIMES, "*value", self.factor).out("*v")
        if self.branches:
            chain = chain.anchor("here").hash_partition("*v").anchor("moved").unify("here", "moved")
        chain = chain.origin_partition()
        make, _ = AGGREGATES[self.aggregate]
        chain.agg(make()).out("*result")

    def expected(self, sums: dict[str, int]) -> Any:
        """What it gives on a state."""
        names = sums if self.keys is None else self.keys
        values = [(key, sums[key]) for key in names if key in sums]
        rows = [(k, v * self.factor) for k, v in values if self.threshold is None or v > self.threshold]
        return AGGREGATES[self.aggregate][1](rows * (2 if self.branches else 1))


SPECS = st.builds(
    Spec, st.one_of(st.none(), st.lists(st.sampled_from([*KEYS, "none"]), max_size=6).map(tuple)),
    st.one_of(st.none(), st.integers(-2, 20)), st.sampled_from([1, -3]), st.booleans(), st.booleans(),
    st.sampled_from(sorted(AGGREGATES)),
)  # fmt: skip
RECORDS = st.lists(st.lists(st.sampled_from(KEYS), min_size=2, max_size=6, unique=True), min_size=4, max_size=24)


def module_of(specs: Sequence[Spec]) -> Module:
    class Random(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*records", Depot.random()).global_()
            mb = topologies.microbatch("mb")
            mb.pstate("$$sums", PState.map_schema(str, int))
            rows = mb.source("*records").out("*mb").explode_microbatch("*mb").out("*keys")
            rows = rows.each(Ops.EXPLODE, "*keys").out("*k").hash_partition("*k")
            rows.compound_agg("$$sums", CompoundAgg.map("*k", Agg.sum(2)))
            one = topologies.query("one", "*k").out("*v").select("$$sums", Path.key("*k")).out("*v")
            one.origin_partition()
            for number, spec in enumerate(specs):
                spec.record(topologies, f"q{number}")
            if specs:
                pair = topologies.query("pair").out("*pair").invoke_query("q0").out("*a")
                pair.invoke_query("q0").out("*b").each(Ops.TUPLE, "*a", "*b").out("*pair").origin_partition()

    return Random()


def states(records: Sequence[Sequence[str]]) -> list[dict[str, int]]:
    """The sums after each prefix of the records."""
    found: list[dict[str, int]] = [{}]
    for keys in records:
        found.append({**found[-1], **{key: found[-1].get(key, 0) + 2 for key in keys}})
    return found


@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink)
)
@given(specs=st.lists(SPECS, min_size=1, max_size=5), records=RECORDS, tasks=st.sampled_from([1, 2, 4, 8]))
def test_an_answer_is_that_of_one_committed_state_when_a_writer_commits(
    specs: list[Spec], records: list[list[str]], tasks: int
) -> None:
    after = states(records)
    answers = [[spec.expected(state) for state in after] for spec in specs]
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(module_of(specs), LaunchConfig(tasks, 1))
        depot = cluster.cluster_depot(NAME, "*records")
        writer = threading.Thread(target=lambda: [depot.append(record) for record in records])
        writer.start()
        handles = [cluster.cluster_query(NAME, f"q{number}") for number in range(len(specs))]
        pair, first = cluster.cluster_query(NAME, "pair"), 0
        while writer.is_alive():
            for handle, known in zip(handles, answers, strict=True):
                found = handle.invoke()
                assert found in known[first:], (handle.name, found, known[first:])
                first += known[first:].index(found)
            one, other = pair.invoke()
            assert one == other and one in answers[0][first:]
        writer.join()
        cluster.wait_until_processed(NAME)

        assert [handle.invoke() for handle in handles] == [known[-1] for known in answers]
