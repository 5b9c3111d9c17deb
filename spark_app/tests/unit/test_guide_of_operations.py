"""The commands of docs/guide/operations.md run as they stand there, and its metrics are those of a gateway."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path as Folder
from typing import Any

import pytest
from typer.testing import CliRunner

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.cli.main import app
from tidemill.gateway.metrics import GatewayMetrics
from tidemill.kubernetes.probes import DriverMetrics
from tidemill.language.options import OPTIONS

GUIDE = (Folder(__file__).resolve().parents[3] / "docs" / "guide" / "operations.md").read_text(encoding="utf-8")


class Visits(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*visits", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("count")
        mb.pstate("$$visits", PState.map_schema(str, int))
        (mb.source("*visits").out("*microbatch").explode_microbatch("*microbatch").out("*page")
           .compound_agg("$$visits", CompoundAgg.map("*page", Agg.count())))  # fmt: skip


def test_commands_succeed_when_they_are_run_one_after_the_other(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessCluster.create("local", store=(tmp_path / "tidemill-data").as_uri()) as cluster:
        cluster.launch_module(Visits(), LaunchConfig(1, 1))
        cluster.cluster_depot("Visits", "*visits").append("/home")
        cluster.wait_for_microbatch_processed_count("Visits", "count", 1)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)


def test_metrics_and_options_exist_when_the_guide_names_them() -> None:
    metrics = GatewayMetrics()
    metrics.topologies.show([], True)
    known = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    families = {family.name for family in metrics.registry.collect()}
    named = set(re.findall(r"`(tidemill_\w+)`", GUIDE))
    of_drivers = set(re.findall(r'"(tidemill_\w+)"', inspect.getsource(DriverMetrics)))
    assert len(named) == 12
    assert {name.removesuffix("_total") for name in named} <= families | known | of_drivers
    options = set(re.findall(r"`((?:store|depot|topology)\.[a-z.]+)`", GUIDE))
    assert options <= set(OPTIONS)
