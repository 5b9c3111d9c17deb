"""Two modules of examples/ under a load that never stops, while their drivers are killed: their results are exact."""

from __future__ import annotations

from functools import partial

import pytest
from examples.bank_transfer.load import Transfers
from examples.social_graph.load import Posts

from e2e.harness import modules, timeouts
from e2e.harness.examples import Load, append, faults_of_bank, faults_of_graph
from e2e.harness.story import Story
from e2e.harness.waiting import until

KILLS = 2
RECORDS_BETWEEN_KILLS = 100
BANK = {**modules.EXAMPLES, "engine": "Local", "entry": "examples.bank_transfer.module:BankTransfer"}
GRAPH = {**modules.EXAMPLES, "engine": "Local", "entry": "examples.social_graph.load:SmallPages"}


@pytest.mark.long
def test_no_cent_is_lost_when_drivers_of_the_bank_are_killed(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.module("bank", BANK))
    story.wait_ready("bank")
    gateway, transfers = story.gateway("bank"), Transfers()
    first = append(gateway, "BankTransfer", "*deposits", transfers.first(), "first")
    until("the deposits are processed", lambda: _processed(story, "bank-bank") >= first, timeouts.CAUGHT_UP)
    with Load(gateway, "BankTransfer", "*transfers", lambda: transfers.more(10)) as load:
        _kill_leaders(story, "bank-bank")
    _wait_for(story, "bank-bank", first + load.records)
    assert faults_of_bank(gateway, transfers) == []


@pytest.mark.long
def test_each_fan_gets_each_post_once_when_drivers_of_the_graph_are_killed(story: Story) -> None:
    story.system.faults.need_own_cluster()
    story.apply(story.module("graph", GRAPH))
    story.wait_ready("graph")
    gateway, posts = story.gateway("graph"), Posts()
    first = append(gateway, "SmallPages", "*follows", posts.first(), "first")
    until("the follows are processed", lambda: _processed(story, "graph-social") >= first, timeouts.CAUGHT_UP)
    with Load(gateway, "SmallPages", "*posts", lambda: posts.more(3)) as load:
        _kill_leaders(story, "graph-social")
    _wait_for(story, "graph-social", first + load.records + posts.pages_left())
    assert faults_of_graph(gateway, posts) == []


def _has_processed(story: Story, topology: str, records: int) -> bool:
    return _processed(story, topology) >= records


def _is_led_after(story: Story, topology: str, epoch: int) -> bool:
    return bool(story.status(topology).get("epoch", 0) > epoch)


def _processed(story: Story, topology: str) -> int:
    return int(story.status(topology).get("processedCount", 0))


def _wait_for(story: Story, topology: str, records: int) -> None:
    until(f"{records} records are processed", lambda: _processed(story, topology) >= records, timeouts.CAUGHT_UP)
    assert _processed(story, topology) == records


def _kill_leaders(story: Story, topology: str) -> None:
    """SIGKILL to the driver that leads, KILLS times, each time after the one before it was replaced and has gone on."""
    for _ in range(KILLS):
        enough = _processed(story, topology) + RECORDS_BETWEEN_KILLS
        until("commits go on", partial(_has_processed, story, topology, enough), timeouts.RECOVERY)
        epoch = story.status(topology).get("epoch", 0)
        story.system.faults.kill(story.leader(topology))
        until("there is a new leader", partial(_is_led_after, story, topology, epoch), timeouts.RECOVERY)
