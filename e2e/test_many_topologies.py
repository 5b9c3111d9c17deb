"""Fifty Topologies under one operator: its memory, its calls, and how long an edit takes to be seen."""

from __future__ import annotations

import re
import time
from functools import partial

import pytest

from e2e.harness import modules, timeouts
from e2e.harness.rows import CountsRows
from e2e.harness.story import Story
from e2e.harness.traffic import assert_equals_truth
from e2e.harness.waiting import holds_for, until

COUNT = 50
QUIET_SECONDS = 60.0
UP_SECONDS = 900.0


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_one_operator_keeps_up_when_fifty_topologies_run(story: Story) -> None:
    """Drivers are light: `engine: Local`, a tenth of a core at most when nothing is to do."""
    base = {**modules.COUNTS, "engine": "Local", "tasks": 1, "threads": 1, "image": modules.image(f"many{COUNT}")}
    base["spark"] = {"driver": {"resources": {"requests": {"cpu": "20m", "memory": "150Mi"}}}}
    applied = story.apply(story.module(base=base))
    story.wait_ready(seconds=UP_SECONDS)
    ready = time.monotonic() - applied
    rows = story.rows()
    story.append(rows, [f"record-{i}" for i in range(20)])
    assert_equals_truth(rows, story.ledger)
    for number in range(COUNT):
        pstate = f"$$t{number:02}"
        until(f"{pstate} counts", partial(_counts_all, rows, pstate), timeouts.CAUGHT_UP)
    calls = _calls(story)
    holds_for("all stay ready", lambda: len(story.drivers("counts-t00")) == 1, QUIET_SECONDS, pause=5)
    quiet = (_calls(story) - calls) / QUIET_SECONDS
    story.figure(f"{COUNT} Topologies applied to all committing", ready, "s")
    story.figure(f"API calls of the operator with {COUNT} quiet Topologies", quiet, "calls/s", 5.0)
    story.figure(f"memory of the operator with {COUNT} Topologies", _memory(story), "MB", 300.0)
    edited = story.apply(story.topology("counts-t07", "t07", restartNonce="again"))
    seen = until("an edit is observed", lambda: _observed(story, "counts-t07"), timeouts.STATUS, pause=0.05)
    story.figure(f"edit to observed with {COUNT} Topologies", seen - edited, "s", 5.0)


def _counts_all(rows: CountsRows, pstate: str) -> bool:
    return len(rows.ids("k0", pstate)) == 20


def _observed(story: Story, name: str) -> float:
    found = story.get_topology(name)
    is_seen = (found.get("status") or {}).get("observedGeneration") == found["metadata"]["generation"]
    return time.monotonic() if is_seen and found["spec"].get("restartNonce") == "again" else 0.0


def _metrics(story: Story) -> str:
    leader = until("an operator leads", story.system.operator_leader, timeouts.RECOVERY)
    path = f"/api/v1/namespaces/tidemill-system/pods/{leader}:8080/proxy/metrics"
    return story.kubernetes.kubectl("get", "--raw", path)


def _calls(story: Story) -> float:
    lines = re.findall(
        r"^tidemill_operator_api_(?:calls|requests)_total(?:\{[^}]*\})? ([0-9.e+]+)$", _metrics(story), re.M
    )
    assert lines, "the operator tells its API calls in its metrics"
    return sum(float(line) for line in lines)


def _memory(story: Story) -> float:
    found = re.search(r"^process_resident_memory_bytes ([0-9.e+]+)$", _metrics(story), re.M)
    assert found, "the operator tells its memory in its metrics"
    return float(found.group(1)) / 1e6
