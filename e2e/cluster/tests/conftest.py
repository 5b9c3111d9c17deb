"""A cluster of its own for these tests, beside one that may run: they break it and end it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e.cluster import own
from e2e.cluster.plan import Plan
from e2e.cluster.shell import run
from e2e.cluster.tools import find_tools

ROOT = Path(__file__).parents[3]
NUMBER = 9


@dataclass(frozen=True)
class TestCluster:
    """The cluster with what tests do to it."""

    __test__ = False
    plan: Plan
    tools: dict[str, Path]

    def command(self, *arguments: str) -> str:
        """`python -m e2e.cluster ARGUMENTS`; what it says."""
        return run_command(*arguments).stderr

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """The output of kubectl."""
        return run(self.tools["kubectl"], f"--kubeconfig={self.plan.kubeconfig}", *arguments, text=text)

    def get(self, *arguments: str) -> Any:
        """The object that `kubectl get` shows."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))


def run_command(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m e2e.cluster --number 9 ARGUMENTS`, checked."""
    done = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "--number", str(NUMBER), *arguments],
        cwd=ROOT,
        env=environment if environment is not None else without_kubeconfig(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done


def without_kubeconfig() -> dict[str, str]:
    """The environment, but no cluster is named in it."""
    return {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    """A running cluster of two nodes."""
    run_command("down")
    run_command("up", "--nodes", "2")
    made = TestCluster(Plan(NUMBER), find_tools())
    yield made
    run_command("down")
    assert own.left_behind(made.plan) == []
