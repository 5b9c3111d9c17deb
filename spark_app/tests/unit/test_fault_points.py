"""Fault points fail the functions of a module, wherever these stand."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tidemill import Depot, InProcessCluster, LaunchConfig, Module, Path, PState
from tidemill.testing.fault_points import Abort, FaultPoints


def test_points_are_the_same_object_when_they_travel_within_a_process() -> None:
    points, others = FaultPoints(), FaultPoints()
    assert pickle.loads(pickle.dumps(points)) is points
    assert pickle.loads(pickle.dumps(others)) is others


def test_points_do_nothing_when_they_arrive_in_another_process() -> None:
    points = FaultPoints()
    points.arm("here")
    data = pickle.dumps(points)
    del points
    pickle.loads(data).reach("here")


def test_nested_function_fails_as_often_as_its_test_armed_it() -> None:
    points = FaultPoints()

    def seen(record: Any) -> Any:
        points.reach("seen")
        return record

    class Seen(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(str, int))
            rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").each(seen, "*r").out("*k")
            rows.hash_partition("*k").local_transform("$$p", Path.key("*k").term_val(1))

    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Seen(), LaunchConfig(2, 1))
        points.arm("seen", times=1)
        cluster.cluster_depot("Seen", "*d").append("a")
        cluster.wait_for_microbatch_processed_count("Seen", "mb", 1)
        assert cluster.cluster_pstate("Seen", "$$p").select_one(Path.key("a")) == 1
    assert points.reached("seen") == 2
    with pytest.raises(Abort):
        points.arm("x")
        points.reach("x")
