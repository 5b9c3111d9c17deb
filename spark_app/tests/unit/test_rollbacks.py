"""A rollback after an update that deleted: all is there again, until the revision that deleted it is stable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rollouts import DELETED, Rollouts, Shop, Smaller

from tidemill.journal.options_log import OptionsLog
from tidemill.leader.check import check_module
from tidemill.leader.deletions import Deletions
from tidemill.spark.runner import SparkRunner
from tidemill.spark.session import Session
from tidemill.store.objects import ObjectStore
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.values.errors import DefinitionError, UnknownName


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Rollouts]:
    made = Rollouts(tmp_path)
    yield made
    made.stop()


def deleting(shop: Rollouts) -> tuple[str, str]:
    """Revision 1 has processed something, revision 2 deletes; the folders of what went."""
    first = shop.run(Shop())
    shop.append("*orders", "a", "a")
    shop.append("*returns", "r")
    shop.append("*visits", "v")
    shop.processed("count", 3)
    shop.processed("audit", 3)
    shop.run(Smaller(), *DELETED)
    return first.topology_prefix("audit"), first.depot_prefix("*returns")


def test_everything_is_there_again_when_a_revision_that_deleted_is_rolled_back(shop: Rollouts) -> None:
    deleting(shop)
    with pytest.raises(UnknownName):
        shop.append("*returns", "r")
    shop.append("*orders", "b")
    shop.append("*visits", "w")
    shop.processed("count", 4)

    shop.run(Shop(), restores=True)
    shop.append("*orders", "c")
    shop.append("*returns", "s")
    shop.processed("count", 6)
    shop.processed("audit", 6)

    assert shop.counts("$$counts", "abc") == {"a": 2, "b": 1, "c": 1}, "what both revisions share stays"
    assert shop.counts("$$old", "abc") == {"a": 2, "c": 1}, "as of the hand-over: b did not reach it"
    assert shop.counts("$$audited", "abcrs") == {"a": 2, "b": 1, "c": 1, "r": 1, "s": 1}, "it goes on where it stood"
    assert shop.counts("$$visits", "vw") == {"v": 1, "w": 1}, "a source that was not read goes on where it stood"
    assert shop.definition.retired == ()
    assert check_module(shop.store, "Shop") == []


def test_rows_of_a_deleted_pstate_stay_when_its_topology_is_compacted(shop: Rollouts) -> None:
    deleting(shop)
    definition = shop.definition
    old = next(gone.item.id for gone in definition.retired if gone.name == "$$old")  # type: ignore[union-attr]
    shop.compacted(definition)
    assert old in shop.tables(definition)

    restored = shop.run(Shop(), restores=True)

    assert restored.pstate("$$old")[1].id == old
    assert shop.counts("$$old", "a") == {"a": 2}


@pytest.mark.spark
@pytest.mark.slow
def test_rows_of_a_deleted_pstate_stay_when_spark_compacts(tmp_path: Path, spark: Session) -> None:
    shop = Rollouts(tmp_path, SparkRunner(spark.settings))
    try:
        test_rows_of_a_deleted_pstate_stay_when_its_topology_is_compacted(shop)
    finally:
        shop.stop()


def test_rows_of_a_deleted_pstate_go_when_the_revision_is_stable(shop: Rollouts) -> None:
    deleting(shop)
    definition = shop.definition
    old = next(gone.item.id for gone in definition.retired if gone.name == "$$old")  # type: ignore[union-attr]
    assert shop.confirm()
    shop.compacted(definition)
    base = shop.tables(definition)
    assert old not in base
    assert definition.pstate("$$counts")[1].id in base


def test_collection_keeps_what_was_deleted_until_the_revision_is_stable(shop: Rollouts) -> None:
    folders = deleting(shop)
    definition = shop.definition
    before = [shop.keys(folder) for folder in folders]
    shop.collect(Smaller(), definition)
    assert [shop.keys(folder) for folder in folders] == before
    assert all(before)

    assert shop.confirm()
    shop.clock.ahead_ms += 1
    shop.collect(Smaller(), definition)

    assert [shop.keys(folder) for folder in folders] == [[], []]
    assert shop.counts("$$counts", "a") == {"a": 2}
    assert check_module(shop.store, "Shop") == []


@pytest.mark.parametrize("place", [0, 1])
def test_check_finds_what_is_broken_when_it_may_still_come_back(shop: Rollouts, place: int) -> None:
    folder = deleting(shop)[place]
    assert check_module(shop.store, "Shop") == []
    shop.store.delete(next(key for key in shop.keys(f"{folder}/log") if key[-4:] in (".zip", "rrow")))
    assert check_module(shop.store, "Shop") != []
    assert shop.confirm()
    assert check_module(shop.store, "Shop") == [], "what is gone for good may be broken"


def test_garbage_is_named_on_when_the_next_definition_comes_before_its_collection(shop: Rollouts) -> None:
    folders = deleting(shop)
    assert shop.confirm()
    definition = shop.run(Smaller())
    assert (definition.retired, set(definition.garbage)) == ((), set(folders))

    shop.clock.ahead_ms += 1
    shop.collect(Smaller(), definition)

    assert [shop.keys(folder) for folder in folders] == [[], []]
    assert shop.run(Smaller()).garbage == ()


def test_rollback_is_refused_with_each_reason_when_the_revision_was_stable(shop: Rollouts) -> None:
    deleting(shop)
    assert shop.confirm()
    with pytest.raises(DefinitionError) as caught:
        shop.turn(Shop(), restores=True)
    assert {fault.location for fault in caught.value.faults} == {"$$old", "$$audited", "*returns", "audit"}
    assert all("deleted by definition 2" in fault.text for fault in caught.value.faults)


def test_update_finds_nothing_of_the_past_when_it_is_no_rollback(shop: Rollouts) -> None:
    deleting(shop)
    shop.append("*visits", "w")
    shop.run(Shop())
    shop.processed("audit", 2)
    shop.processed("count", 5)
    assert shop.counts("$$old", "a") == {}
    assert shop.counts("$$audited", "ar") == {"a": 2}, "a new topology meets the orders anew"
    assert shop.counts("$$visits", "vw") == {"v": 2, "w": 1}, "so does a source that was declared again"


def test_deletions_of_two_unstable_revisions_come_back_together(shop: Rollouts) -> None:
    first = shop.run(Shop())
    shop.append("*orders", "a")
    shop.processed("count", 1)
    shop.run(Smaller(), *DELETED)
    shop.run(Smaller())
    assert {gone.by for gone in shop.definition.retired} == {2}

    restored = shop.run(Shop(), restores=True)

    assert restored.pstate("$$old")[1].id == first.pstate("$$old")[1].id
    assert restored.topology("audit").id == first.topology("audit").id
    assert shop.counts("$$old", "a") == {"a": 1}


def test_rollback_is_refused_when_a_deleted_object_was_made_anew(shop: Rollouts) -> None:
    deleting(shop)
    shop.run(Shop())
    with pytest.raises(DefinitionError, match="made anew"):
        shop.turn(Shop(), restores=True)


def test_retention_keeps_what_a_deleted_topology_has_not_read(shop: Rollouts) -> None:
    deleting(shop)
    OptionsLog(shop.store, "Shop").set("depot", "*orders", "depot.max.entries.per.partition", 1)
    for _ in range(20):
        shop.append("*orders", *"bcdefgh")
    shop.processed("count", 143)
    shop.collect(Smaller(), shop.definition)

    shop.run(Shop(), restores=True)
    shop.processed("audit", 143)

    assert shop.counts("$$audited", "bh") == {"b": 20, "h": 20}


# --- whoever dies when -----------------------------------------------------------------------------------------------


def restored_or_gone(shop: Rollouts, folders: tuple[str, str]) -> bool:
    """Rolls back by a new process. It finds all data, or refuses; whether it found them."""
    try:
        shop.run(Shop(), restores=True)
    except DefinitionError:
        return False
    shop.append("*returns", "s")
    shop.processed("audit", 4)
    assert shop.counts("$$old", "a") == {"a": 2}
    assert shop.counts("$$audited", "ars") == {"a": 2, "r": 1, "s": 1}
    assert all(shop.keys(folder) for folder in folders)
    assert check_module(shop.store, "Shop") == []
    return True


def at_change(store: ObjectStore, step: int, act: Callable[[], None], is_after: bool) -> tuple[ObjectStore, list[str]]:
    """A store that calls `act` before or after its create or delete number `step`; and the changes so far."""
    changes: list[str] = []

    def before(verb: str, key: str) -> None:
        if verb in ("create", "delete"):
            changes.append(f"{verb} {key}")
            if len(changes) == step + 1 and not is_after:
                act()

    def after(verb: str, key: str) -> None:
        if verb in ("create", "delete") and len(changes) == step + 1 and is_after:
            act()

    return FaultyObjectStore(store, FaultPlan(before, after)), changes


def die() -> None:
    raise Crash


def stabilize(shop: Rollouts, store: ObjectStore | None = None) -> bool:
    """What the leaders of revision 2 do once it is stable; whether its deletions took effect."""
    definition = shop.definitions.read(2)
    is_done = Deletions(store or shop.store, "Shop").confirm(definition, shop.clock.now_ms())
    shop.clock.ahead_ms += 1
    shop.collect(Smaller(), definition, store)
    return is_done


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("step", [0, 1, 2, 5, 9])
def test_data_is_whole_or_refused_when_a_stable_revision_dies_while_it_deletes(
    shop: Rollouts, step: int, is_after: bool
) -> None:
    folders = deleting(shop)
    shop.stop()
    store, changes = at_change(shop.store, step, die, is_after)
    with pytest.raises(Crash):
        stabilize(shop, store)
    is_done = is_after or step > 0

    assert restored_or_gone(shop, folders) is not is_done

    assert changes[0] == "create Shop/deletions/00000000000000000002.json", "first it says what it does"
    if is_done:
        stabilize(shop)
        assert [shop.keys(folder) for folder in folders] == [[], []], "the next leader goes on"


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("step", [0, 1])
def test_data_is_whole_or_refused_when_a_rollback_dies_while_it_begins(
    shop: Rollouts, step: int, is_after: bool
) -> None:
    folders = deleting(shop)
    shop.stop()
    store, changes = at_change(shop.store, step, die, is_after)
    with pytest.raises(Crash):
        shop.turn(Shop(), restores=True, store=store).write()
    assert changes[0] == "create Shop/deletions/00000000000000000002.json", "first it holds what it needs"

    is_done = stabilize(shop)

    assert is_done is not (is_after or step > 0), "what a rollback holds nobody deletes"
    if step == 1 and is_after:
        shop.definitions = type(shop.definitions)(shop.store, "Shop")
        assert shop.definition.number == 3
        assert all(shop.keys(folder) for folder in folders)
    else:
        assert restored_or_gone(shop, folders) is not is_done


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("step", [0, 1])
def test_one_of_both_wins_when_a_revision_gets_stable_while_a_rollback_begins(
    shop: Rollouts, step: int, is_after: bool
) -> None:
    folders = deleting(shop)
    shop.stop()
    done: list[bool] = []
    store, _ = at_change(shop.store, step, lambda: done.append(stabilize(shop)), is_after)
    turn = shop.turn(Shop(), restores=True, store=store)
    if step == 0 and not is_after:
        with pytest.raises(DefinitionError, match="deleted by definition 2"):
            turn.write()
        assert done == [True]
        assert shop.definition.number == 2, "the revision that is stable stays"
        return
    turn.write()
    assert done == [False]
    shop.lead(Shop(), turn)
    assert shop.counts("$$old", "a") == {"a": 2}
    assert shop.counts("$$audited", "ar") == {"a": 2, "r": 1}
    assert all(shop.keys(folder) for folder in folders)


@pytest.mark.parametrize("step", [0, 1, 4])
def test_one_of_both_wins_when_a_rollback_begins_while_a_stable_revision_deletes(shop: Rollouts, step: int) -> None:
    folders = deleting(shop)
    shop.stop()
    found: list[bool] = []
    store, _ = at_change(shop.store, step, lambda: found.append(restored_or_gone(shop, folders)), is_after=False)

    assert stabilize(shop, store) is (step > 0)

    assert found == [step == 0]
    assert all(bool(shop.keys(folder)) is (step == 0) for folder in folders)
