"""The examples of docs/guide/testing.md run as they stand there."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, Module, Ops, PState

GUIDE = Folder(__file__).resolve().parents[3] / "docs" / "guide" / "testing.md"


class Visits(Module):
    """The module of the README."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*visits", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("count")
        mb.pstate("$$visits", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        (mb.source("*visits").out("*microbatch")
           .explode_microbatch("*microbatch").out("*visit")
           .each(Ops.EXPAND, "*visit").out("*user", "*page")
           .compound_agg("$$visits", CompoundAgg.map("*user", CompoundAgg.map("*page", Agg.count()))))  # fmt: skip


def _examples(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., None]]:
    counts: Any = types.ModuleType("counts")
    counts.Visits = Visits
    monkeypatch.setitem(__import__("sys").modules, "counts", counts)
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL):
        if "def test_" in block:
            exec(compile(block, str(GUIDE), "exec"), scope)
    return {name: value for name, value in scope.items() if name.startswith("test_")}


def test_examples_hold_when_they_are_run(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = _examples(monkeypatch)
    assert len(examples) == 5
    for example in examples.values():
        example(*([tmp_path] if inspect.signature(example).parameters else []))


def test_the_pause_example_makes_one_microbatch_when_it_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    _examples(monkeypatch)
    from tidemill import LaunchConfig

    block = next(b for b in re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL) if "pause_" in b)
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Visits(), LaunchConfig(4, 2))
        exec(block, {"cluster": cluster, "visits": cluster.cluster_depot("Visits", "*visits")})
