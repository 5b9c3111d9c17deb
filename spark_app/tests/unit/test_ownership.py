"""Whose a module of a store is: who may run, update, describe and destroy it, and who is refused with a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path as Folder

import pytest
from rollouts import Rollouts, Shop, Smaller

from tidemill import InProcessCluster, LaunchConfig, ModuleExists, UnknownName
from tidemill.api.declaration import record_module
from tidemill.cluster.launch import destroy, launch
from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition
from tidemill.definition.ownership import BY_HAND, HAND, Owner
from tidemill.definition.stored_json import JSON
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.kubernetes.revision_gate import RevisionGate, RevisionPlan
from tidemill.store.lease import HeartbeatLease
from tidemill.values.errors import BadInput, Deleted, OwnedByAnother
from tidemill.values.ids import Ids

OURS = Owner("c1", "prod", "shop", "u1")
AGAIN = replace(OURS, uid="u2")
COPY = Owner("c1", "test", "shop", "u3")
ELSEWHERE = Owner("c2", "prod", "shop", "u4")


@pytest.fixture
def shop(tmp_path: Folder) -> Iterator[Rollouts]:
    made = Rollouts(tmp_path)
    yield made
    made.stop()


def turn(shop: Rollouts, owner: Owner, base: int, revision: int = 1, take_over_from: str = "") -> RevisionGate:
    plan = RevisionPlan(record_module(Shop()), revision, base, 2, 1, owner=owner, take_over_from=take_over_from)
    return RevisionGate(shop.store, plan, shop.clock)


def owned(shop: Rollouts, owner: Owner = OURS) -> StoredDefinition:
    """Its Module writes the first definition."""
    turn(shop, owner, 0).write()
    assert shop.definition.owner == owner
    return shop.definition


# --- the owner -------------------------------------------------------------------------------------------------------


def test_owner_is_there_again_when_the_definition_went_through_json() -> None:
    made = replace(definitions.launch(record_module(Shop()), 2, 1, Ids(1)), owner=OURS)
    for owner in (OURS, BY_HAND):
        assert JSON.decode(JSON.encode(replace(made, owner=owner), "key"), "key").owner == owner


def test_owner_is_read_from_the_word_of_the_operator() -> None:
    assert Owner.parse("c1/prod/shop/u1") == OURS
    assert Owner.parse("/prod/shop/u1") == replace(OURS, cluster="")
    assert Owner.parse("") == BY_HAND
    for wrong in ("shop", "c1/prod/shop/", "c1//shop/u1", "c1/prod/shop/u1/more"):
        with pytest.raises(BadInput, match="names no owner"):
            Owner.parse(wrong)


@pytest.mark.parametrize(
    ("before", "after", "may"),
    [
        (OURS, OURS, True),
        (OURS, AGAIN, True),
        (OURS, COPY, False),
        (OURS, ELSEWHERE, False),
        (replace(OURS, cluster=""), replace(AGAIN, cluster=""), False),
        (OURS, BY_HAND, False),
        (BY_HAND, OURS, False),
        (BY_HAND, BY_HAND, True),
    ],
)
def test_owner_is_followed_only_by_itself_and_by_its_namesake_of_one_cluster(
    before: Owner, after: Owner, may: bool
) -> None:
    assert before.is_followed_by(after) is may


# --- Modules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [COPY, ELSEWHERE, BY_HAND])
def test_second_module_is_refused_when_the_store_has_an_owner(shop: Rollouts, other: Owner) -> None:
    owned(shop)
    with pytest.raises(OwnedByAnother, match=r"belongs to the Kubernetes Module prod/shop \(uid u1 of cluster c1\)"):
        turn(shop, other, 1)
    assert shop.definition.number == 1


def test_second_of_two_modules_that_were_described_at_once_is_refused(shop: Rollouts) -> None:
    first, second = turn(shop, OURS, 0), turn(shop, COPY, 0)
    first.write()
    second.write()
    assert first.look()[0] == "mine"
    with pytest.raises(OwnedByAnother, match="retryNonce"):
        second.look()


def test_module_that_was_made_anew_goes_on_with_its_own_store(shop: Rollouts) -> None:
    before = owned(shop)
    again = turn(shop, AGAIN, 1)
    again.write()
    assert again.look()[0] == "mine"
    assert (shop.definition.owner, shop.definition.depots) == (AGAIN, before.depots)
    with pytest.raises(OwnedByAnother):
        turn(shop, OURS, 0).look()


def test_store_is_taken_when_its_owner_is_named_and_no_other(shop: Rollouts) -> None:
    before = owned(shop)
    old = turn(shop, OURS, 0)
    with pytest.raises(OwnedByAnother, match=r"takeOverFrom: u1\."):
        turn(shop, COPY, 1, take_over_from="u9")
    taken = turn(shop, COPY, 1, take_over_from="u1")
    taken.write()
    assert taken.look()[0] == "mine"
    assert shop.definition.depots == before.depots, "it goes on with the data"
    with pytest.raises(OwnedByAnother, match="test/shop"):
        old.look()


def test_module_takes_a_store_that_was_made_by_hand_only_with_the_word(shop: Rollouts) -> None:
    owned(shop, BY_HAND)
    with pytest.raises(OwnedByAnother, match=r"whoever runs it by hand.*takeOverFrom: hand"):
        turn(shop, OURS, 1)
    turn(shop, OURS, 1, take_over_from=HAND).write()
    assert shop.definition.owner == OURS


def test_owner_stays_when_its_module_is_updated_or_destroyed(shop: Rollouts) -> None:
    owned(shop)
    plan = RevisionPlan(record_module(Smaller()), 2, 1, 2, 1, ("$$old", "$$audited", "*returns"), owner=OURS)
    RevisionGate(shop.store, plan, shop.clock).write()
    assert (shop.definition.number, shop.definition.owner) == (2, OURS)
    destroy(shop.store, "Shop", OURS)
    turn(shop, COPY, 3).write()
    assert shop.definition.owner == COPY, "what was destroyed is free"


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_run_by_hand_is_refused_when_a_module_owns_the_store(shop: Rollouts) -> None:
    owned(shop)
    with InProcessCluster.create(store=shop.store.url) as cluster:
        with pytest.raises(OwnedByAnother, match="run --take-over"):
            cluster.launch_module(Shop(), LaunchConfig(2, 1))
        with pytest.raises(OwnedByAnother):
            cluster.update_module(Shop())
        with pytest.raises(OwnedByAnother):
            cluster.destroy_module("Shop")
    assert shop.definition.number == 1


def test_run_by_hand_goes_on_with_the_data_and_decides_options_when_it_takes_over(shop: Rollouts) -> None:
    before = owned(shop)
    place = ("module", "", "depot.microbatch.max.records")
    OptionsLog(shop.store, "Shop").manage("Module shop", {place: 7})
    running = launch(shop.store.url, Shop(), LaunchConfig(2, 1), shop.runner, takes_over=True)
    try:
        assert (shop.definition.number, shop.definition.owner) == (2, BY_HAND)
        assert shop.definition.depots == before.depots
        assert OptionsLog(shop.store, "Shop").read().managed == {}
        OptionsLog(shop.store, "Shop").set_many([(*place, 9)])
    finally:
        running.close()
    with pytest.raises(OwnedByAnother, match="whoever runs it by hand"):
        turn(shop, OURS, 0).look()


def test_several_runners_by_hand_stand_by_as_ever(tmp_path: Folder) -> None:
    url = tmp_path.as_uri()
    with InProcessCluster.create(store=url) as first, InProcessCluster.create(store=url) as second:
        first.launch_module(Shop(), LaunchConfig(2, 1))
        second.launch_module(Shop(), LaunchConfig(2, 1))
        assert DefinitionLog(first.store, "Shop").newest_number() == 1


# --- destroying ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [COPY, AGAIN, ELSEWHERE, BY_HAND])
def test_data_stays_when_somebody_else_destroys(shop: Rollouts, other: Owner) -> None:
    """Not even a namesake: its data is its own only once it has written a definition."""
    owned(shop)
    shop.append("*orders", "a")
    keys = shop.keys("Shop")
    with pytest.raises(OwnedByAnother, match="prod/shop"):
        destroy(shop.store, "Shop", other)
    assert shop.keys("Shop") == keys


def test_data_goes_when_the_owner_destroys_although_its_driver_wrote_just_now(shop: Rollouts) -> None:
    shop.lead(Shop(), written(shop))
    shop.stop()
    destroy(shop.store, "Shop", OURS)
    assert shop.definition.is_destroyed


def written(shop: Rollouts) -> RevisionGate:
    made = turn(shop, OURS, 0)
    made.write()
    return made


def test_destruction_names_who_leads_when_another_process_does(tmp_path: Folder) -> None:
    url = tmp_path.as_uri()
    with InProcessCluster.create(store=url) as first, InProcessCluster.create(store=url) as second:
        first.launch_module(Shop(), LaunchConfig(2, 1))
        with pytest.raises(ModuleExists, match=r"Topology \w+ of module 'Shop' .* is led by .* process \d+"):
            second.destroy_module("Shop")
        first.cluster_depot("Shop", "*orders").append("a")
        first.wait_for_microbatch_processed_count("Shop", "count", 1)
        first.destroy_module("Shop")


class Moving(SystemClock):
    """A clock on which waiting takes no time, and during which somebody may do something."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.meanwhile = lambda: None

    def monotonic_ms(self) -> float:
        return self.ms

    def wait(self, event: object, timeout_ms: float) -> bool:
        self.ms += timeout_ms
        self.meanwhile()
        return False


@pytest.mark.parametrize("is_alive", [True, False])
def test_heartbeat_counts_only_while_it_goes_on_when_a_module_is_destroyed(
    shop: Rollouts, monkeypatch: pytest.MonkeyPatch, is_alive: bool
) -> None:
    definition, clock = owned(shop, BY_HAND), Moving()
    prefix = f"{definition.topology_prefix('count')}/lease"
    monkeypatch.setattr("tidemill.store.lease.LocalStore", type("NoFolder", (), {}))
    monkeypatch.setattr("tidemill.journal.leadership.LocalStore", type("NoFolder", (), {}))
    lease = HeartbeatLease(shop.store, prefix, lambda: int(clock.ms))
    assert lease.try_acquire()
    clock.meanwhile = lease.try_acquire if is_alive else clock.meanwhile  # type: ignore[assignment]
    if is_alive:
        with pytest.raises(ModuleExists, match="led by"):
            destroy(shop.store, "Shop", clock=clock)
    else:
        destroy(shop.store, "Shop", clock=clock)
    assert shop.definition.is_destroyed is not is_alive
    with nullcontext() if is_alive else pytest.raises(Deleted):
        assert CommitLog(shop.store, definition.topology_prefix("count")).head() is None


def test_message_does_not_contradict_itself_when_a_module_was_destroyed(shop: Rollouts) -> None:
    owned(shop, BY_HAND)
    destroy(shop.store, "Shop")
    with pytest.raises(UnknownName, match=r"Module 'Shop' in .* was destroyed; it has no other modules\."):
        shop.append("*orders", "a")
    with (
        InProcessCluster.create(store=shop.store.url) as cluster,
        pytest.raises(UnknownName, match=r"There is no module 'Shap' in .*; it has no other modules\."),
    ):
        cluster.destroy_module("Shap")
