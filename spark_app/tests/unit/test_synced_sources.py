"""Several sources of one depot in one topology: each goes its way until they are close, then they are one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirrored import bank, launch
from stories import module_of

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, MicrobatchSourceOptions, Ops, Path, PState
from tidemill.journal.entries import SourceProgress
from tidemill.language.options import ModuleOptions
from tidemill.leader.events import DepotEnds, SourceSpec, SourcesProbed, TopologySpec
from tidemill.leader.ranges import fix_ranges

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
MOST = 10


def fixed(end: int, **at: int) -> dict[str, tuple[int, int]]:
    """The range of each source of one depot with one partition, from where it is."""
    spec = TopologySpec("mb", 1, tuple(SourceSpec(name, "d-1", "*d", 1) for name in at))
    progress = {name: SourceProgress("d-1", (offset,), (0,)) for name, offset in at.items()}
    options = ModuleOptions(1, {("depot", "*d"): {"depot.microbatch.max.records": MOST}})
    look = SourcesProbed({name: DepotEnds((0,), (end,)) for name in at}, options, 1)
    return {name: (ranges.starts[0], ranges.ends[0]) for name, ranges in fix_ranges(spec, progress, look).items()}


def test_sources_go_their_own_way_when_they_are_far_apart() -> None:
    assert fixed(100, live=50, late=0) == {"live": (50, 60), "late": (0, 10)}


def test_sources_end_together_when_one_comes_up_to_the_other() -> None:
    assert fixed(100, live=50, late=45) == {"live": (50, 55), "late": (45, 55)}
    assert fixed(100, live=55, late=55) == {"live": (55, 65), "late": (55, 65)}
    assert fixed(52, live=50, late=45) == {"live": (50, 52), "late": (45, 52)}


def test_a_source_goes_on_when_one_behind_it_does_not_move() -> None:
    assert fixed(100, live=50, late=40) == {"live": (50, 60), "late": (40, 50)}


def test_only_the_close_ones_end_together_when_there_are_three() -> None:
    assert fixed(100, live=50, late=45, new=0) == {"live": (50, 55), "late": (45, 55), "new": (0, 10)}


@given(st.integers(0, 80), st.lists(st.integers(0, 80), min_size=2, max_size=4), st.integers(0, 40))
def test_all_sources_become_one_when_they_all_go_on(more: int, offsets: list[int], first_end: int) -> None:
    end = max([*offsets, first_end]) + more
    at = {f"s{number}": offset for number, offset in enumerate(offsets)}
    for _ in range(60):
        before = at
        found = fixed(end, **before)
        assert all(start == before[name] and start <= stop <= min(end, start + MOST)
                   for name, (start, stop) in found.items())  # fmt: skip
        assert end in before.values() or any(stop > before[name] for name, (_, stop) in found.items())
        at = {name: stop for name, (_, stop) in found.items()}
        if len(set(before.values())) == 1:
            assert len(set(at.values())) == 1, "once together they stay together"
    assert set(at.values()) == {end}


def counting(sources: dict[str, list[str]], mirrors: bool = False) -> Any:
    """Each source counts the records into its PStates; an empty id is that of the depot."""

    def define(setup: Any, topologies: Any) -> None:
        if mirrors:
            setup.cluster_depot("*d", "Bank", "*moves")
        else:
            setup.declare_depot("*d", Depot.random())
        setup.set_launch_module_dynamic_option("depot.microbatch.max.records", 4)
        mb = topologies.microbatch("mb")
        for source_id, pstates in sources.items():
            options = BEGINNING.source_id(source_id) if source_id else BEGINNING
            rows = mb.source("*d", options).out("*b").explode_microbatch("*b").out("*r")
            rows = rows.each(Ops.FIRST, "*r").out("*k").hash_partition("*k")
            for pstate in pstates:
                mb.pstate(pstate, PState.map_schema(str, int))
                rows = rows.compound_agg(pstate, CompoundAgg.map("*k", Agg.count()))

    return define


@pytest.mark.parametrize("mirrors", [False, True])
def test_a_new_pstate_catches_up_and_its_source_is_one_with_the_old_one_when_an_update_adds_it(mirrors: bool) -> None:
    with InProcessCluster.create() as cluster:
        if mirrors:
            launch(cluster, "Bank", bank)
        launch(cluster, "Counting", counting({"": ["$$old"]}, mirrors))
        depot = cluster.cluster_depot(*(("Bank", "*moves") if mirrors else ("Counting", "*d")))
        depot.append_many([["a", 1]] * 30)
        cluster.wait_until_processed("Counting", "mb")

        both = counting({"": ["$$old"], "again": ["$$new"]}, mirrors)
        cluster.update_module(module_of("Counting", both))
        depot.append_many([["a", 1]] * 20)
        cluster.wait_until_processed("Counting", "mb")
        info = cluster.get_microbatch_depot_info("Counting", "mb")["*d"]
        assert {p: at.end_offset for p, at in info["*d"].items()} == {
            p: at.end_offset for p, at in info["again"].items()
        }

        cluster.update_module(module_of("Counting", counting({"": ["$$old", "$$new"]}, mirrors)))
        depot.append_many([["a", 1]] * 10)
        cluster.wait_until_processed("Counting", "mb")
        counts = [cluster.cluster_pstate("Counting", name) for name in ("$$old", "$$new")]
        assert [each.select_one(Path.key("a")) for each in counts] == [60, 60]
