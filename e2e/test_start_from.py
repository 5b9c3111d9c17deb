"""A topology that meets a depot for the first time starts where its Topology, its Module or its code says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from e2e.harness import modules, timeouts
from e2e.harness.kubernetes import Object
from e2e.harness.rows import CountsRows
from e2e.harness.story import Story
from e2e.harness.traffic import assert_equals_truth
from e2e.harness.waiting import holds_for, pause_for, until

ONE_TASK = {**modules.COUNTS, "engine": "Local", "tasks": 1, "threads": 1}
FIRST = [f"first-{i}" for i in range(10)]
SECOND = [f"second-{i}" for i in range(10)]
THIRD = [f"third-{i}" for i in range(5)]


def _sources(start: Object) -> Object:
    return {"*events": {"startFrom": start}}


@pytest.mark.quick
def test_a_topology_reads_from_where_it_was_told_when_it_meets_a_depot(story: Story) -> None:
    story.apply(story.module(base=ONE_TASK))
    story.wait_ready()
    rows = story.rows()
    story.append(rows, FIRST)
    pause_for(1.5)  # records of both batches must differ in their time by more than clocks may
    moment = datetime.now(UTC)
    pause_for(1.5)
    story.append(rows, SECOND)
    assert_equals_truth(rows, story.ledger)
    _add_late_topologies(story, moment)
    story.wait_stable(2)
    story.append(rows, THIRD)
    expected = {
        "$$lateBeginning": FIRST + SECOND + THIRD,
        "$$lateAfter": SECOND + THIRD,
        "$$lateAgo": SECOND[-4:] + THIRD,
        "$$lateCode": SECOND[-3:] + THIRD,
        "$$lateEnd": THIRD,
    }
    for pstate, ids in expected.items():
        _wait_for(rows, pstate, ids)
    holds_for("nothing more comes", lambda: all(_seen(rows, p) == set(ids) for p, ids in expected.items()), 2.0)
    assert_equals_truth(rows, story.ledger)
    _edit_has_no_effect(story, rows)


def _add_late_topologies(story: Story, moment: datetime) -> None:
    ago, after = {"offsetAgo": {"count": 4, "unit": "Records"}}, {"offsetAfterTimestamp": moment.isoformat()}
    defaults = {
        "lateBeginning": {"sources": _sources({"beginning": {}})},
        "lateAgo": {"sources": _sources({"end": {}})},
    }
    module = story.module(base=ONE_TASK, image=modules.image("late"), topologyDefaults=defaults)
    topologies = [
        story.topology("late-ago", "lateAgo", sources=_sources(ago)),
        story.topology("late-after", "lateAfter", sources=_sources(after)),
    ]
    story.apply(*topologies, module)


def _edit_has_no_effect(story: Story, rows: CountsRows) -> None:
    """A later edit is accepted, is told to have no effect, and has none."""
    story.apply(story.topology("late-ago", "lateAgo", sources=_sources({"beginning": {}})))
    until("an event says so", lambda: _ignored_events(story), timeouts.STATUS)
    assert _seen(rows, "$$lateAgo") == set(SECOND[-4:] + THIRD)


def _ignored_events(story: Story) -> list[Object]:
    events = story.kubernetes.list("Event", story.namespace)
    return [e for e in events if e["involvedObject"]["name"] == "late-ago" and "effect" in e.get("message", "")]


def _seen(rows: CountsRows, pstate: str) -> set[str]:
    return set(rows.ids("k0", pstate))


def _wait_for(rows: CountsRows, pstate: str, ids: list[str]) -> None:
    until(f"{pstate} holds {len(ids)} records", lambda: len(_seen(rows, pstate)) >= len(ids), timeouts.CAUGHT_UP)
    assert rows.ids("k0", pstate) == dict.fromkeys(ids, 1)
