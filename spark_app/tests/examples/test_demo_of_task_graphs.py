"""`make demo-graph` on little data: two graphs are killed, go on, and come to what DuckDB comes to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from examples.taskgraph import demo

ROOT = Path(__file__).resolve().parents[3]


def test_both_graphs_are_killed_and_equal_to_duckdb_when_the_demo_runs() -> None:
    command = [sys.executable, str(ROOT / "examples/taskgraph/demo.py"), "--scale", "0.01", "--pages", "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr
    for name, rows in (("tpch-12", "2"), ("pagerank", "500")):
        said = [line for line in done.stdout.splitlines() if line.startswith(f"{name}: ")]
        assert said[0].endswith("behind wave 5")
        assert "went on with wave" in said[1]
        assert said[2] == f"{name}: {rows} rows, equal to DuckDB's"


def test_the_demo_fails_when_rows_are_others_than_those_of_duckdb() -> None:
    demo.compare("same", [("a", 1.0)], [("a", 1.0 + 1e-12)])
    with pytest.raises(SystemExit, match="other rows"):
        demo.compare("other", [("a", 1.0)], [("a", 1.1)])
