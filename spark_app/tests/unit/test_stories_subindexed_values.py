"""Stories of values that an update subindexes: whole structures are read as rows of their own from the update on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest
from held_compactions import hold_compactions, waiting_rows
from waiting import eventually

import tidemill
from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    Module,
    NeedsCode,
    Ops,
    Path,
    PState,
    SubindexOptions,
    UserCodeError,
)
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.check import check_module

MAP = PState.map_schema
NAME = "Carts"
PLAIN = MAP(str, MAP(str, int))


def same(value: Any) -> Any:
    return value


def subindexed(structure: Any, function: Callable[[Any], Any] = same, migration: str = "one-by-one") -> Any:
    return MAP(str, PState.migrated(structure, migration, function).migrate_to_subindexed())


ROWS = MAP(str, int).subindexed()


class Carts(Module):
    """How often each item is in each cart, by triples of cart, item and number; a number of None empties the cart."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*changes", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$carts", self.schema)
        (
            mb.source("*changes").out("*m").explode_microbatch("*m").out("*change")
            .each(Ops.EXPAND, "*change").out("*cart", "*item", "*n")
            .if_true(
                Expr(Ops.IS_NULL, "*n"),
                Block.local_transform("$$carts", Path.key("*cart").term_void()),
                Block.compound_agg("$$carts", CompoundAgg.map("*cart", CompoundAgg.map("*item", Agg.sum("*n")))),
            )
        )  # fmt: skip


class Rig:
    """The launched module, what is appended to it, and what is read."""

    def __init__(self, cluster: InProcessCluster, schema: Any = PLAIN) -> None:
        self.cluster, self.count = cluster, 0
        cluster.launch_module(Carts(schema), LaunchConfig(4, 2))
        OptionsLog(cluster.store, NAME).set("module", "", "store.collection.period.seconds", 1)

    def update(self, schema: Any) -> None:
        self.cluster.update_module(Carts(schema))

    def append(self, *changes: Any) -> None:
        self.cluster.cluster_depot(NAME, "*changes").append_many([list(change) for change in changes])
        self.count += len(changes)
        self.cluster.wait_for_microbatch_processed_count(NAME, "mb", self.count)

    def cart(self, name: str) -> tuple[dict[Any, Any], int]:
        """What is in a cart, and how many items it says that are."""
        pstate, path = self.cluster.cluster_pstate(NAME, "$$carts"), Path.key(name)
        return dict(pstate.select(path.all())), pstate.select_one(path.view(Ops.SIZE))

    def waiting(self) -> list[int]:
        return waiting_rows(self.cluster, NAME)

    def finish(self) -> None:
        """Wait until all rows are rewritten."""
        eventually(lambda: not any(self.waiting()))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with InProcessCluster.create() as cluster:
        yield Rig(cluster)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing is compacted until this is called."""
    return hold_compactions(monkeypatch)


def test_elements_are_read_and_written_one_by_one_as_soon_as_the_module_was_updated(rig: Rig, held: Any) -> None:
    rig.append(("ann", "tea", 1), ("ann", "cup", 2), ("bob", "tea", 3), ("cid", "mug", 4))
    rig.update(subindexed(ROWS))
    assert rig.cart("ann") == ({"cup": 2, "tea": 1}, 2)
    assert rig.waiting() == [3]
    pstate = rig.cluster.cluster_pstate(NAME, "$$carts")
    assert pstate.select(Path.key("ann").sorted_map_range_from("d").all()) == [["tea", 1]]
    assert pstate.select(Path.key("ann").key("tea")) == [1]
    rig.append(("ann", "tea", 5), ("ann", "jam", 6), ("bob", "tea", None), ("dot", "tea", 7))
    rig.append(("bob", "jam", 8))
    expected = {
        "ann": ({"cup": 2, "jam": 6, "tea": 6}, 3),
        "bob": ({"jam": 8}, 1),
        "cid": ({"mug": 4}, 1),
        "dot": ({"tea": 7}, 1),
    }
    assert {name: rig.cart(name) for name in expected} == expected
    held()
    rig.finish()
    assert {name: rig.cart(name) for name in expected} == expected
    assert check_module(rig.cluster.store, NAME) == []
    rig.append(("cid", "tea", 1))
    assert rig.cart("cid") == ({"mug": 4, "tea": 1}, 2)


def test_function_makes_the_elements_when_they_shall_be_others(rig: Rig, held: Any) -> None:
    rig.append(("ann", "tea", 2), ("bob", "cup", 3))
    rig.update(subindexed(ROWS, lambda cart: {item.upper(): number * 10 for item, number in cart.items()}))
    assert [rig.cart("ann"), rig.cart("bob")] == [({"TEA": 20}, 1), ({"CUP": 30}, 1)]


def test_function_is_not_asked_for_what_was_replaced_since(rig: Rig, held: Any) -> None:
    def picky(cart: Any) -> Any:
        if "bad" in cart:
            raise ValueError("must not be asked")
        return cart

    rig.append(("ann", "tea", 1), ("bob", "bad", 1))
    rig.update(subindexed(ROWS, picky))
    assert rig.cart("ann") == ({"tea": 1}, 1)
    with pytest.raises(UserCodeError, match=r"\$\$carts\['bob'\]: the migration 'one-by-one' of values .*must not be"):
        rig.cart("bob")
    rig.append(("bob", "bad", None), ("bob", "tea", 2))
    assert rig.cart("bob") == ({"tea": 2}, 1)
    held()
    rig.finish()
    assert [rig.cart("ann"), rig.cart("bob")] == [({"tea": 1}, 1), ({"tea": 2}, 1)]


@pytest.mark.parametrize("returned", [7, {"tea": "text"}, {None: 1}])
def test_what_does_not_fit_is_told_when_a_function_returns_it(rig: Rig, held: Any, returned: Any) -> None:
    rig.append(("ann", "tea", 1))
    rig.update(subindexed(ROWS, lambda cart: returned))
    with pytest.raises(UserCodeError, match=r"\$\$carts\['ann'\].*the migration 'one-by-one' of values"):
        rig.cart("ann")


def test_elements_have_migrations_of_their_own_when_they_are_subindexed(rig: Rig, held: Any) -> None:
    rig.append(("ann", "tea", 1))
    rig.update(subindexed(ROWS))
    rig.append(("bob", "cup", 2))
    cents = MAP(str, PState.migrated(int, "cents", lambda number: number * 100)).subindexed()
    with pytest.raises(DefinitionError, match="loses the migration 'one-by-one' of values before it is done"):
        rig.update(MAP(str, cents))
    rig.update(subindexed(cents))
    rig.append(("ann", "cup", 3), ("cid", "mug", 4))
    expected = [({"cup": 3, "tea": 100}, 2), ({"cup": 200}, 1), ({"mug": 4}, 1)]
    assert [rig.cart(name) for name in ("ann", "bob", "cid")] == expected
    held()
    rig.finish()
    assert [rig.cart(name) for name in ("ann", "bob", "cid")] == expected
    rig.update(MAP(str, cents))
    rig.update(MAP(str, ROWS))
    assert [rig.cart(name) for name in ("ann", "bob", "cid")] == expected
    with pytest.raises(DefinitionError, match="uses the migration ID 'one-by-one' again"):
        rig.update(subindexed(ROWS))


def test_update_is_refused_when_elements_and_what_they_are_in_migrate_together(rig: Rig) -> None:
    rig.append(("ann", "tea", 1))
    inner = MAP(str, PState.migrated(int, "cents", lambda number: number * 100)).subindexed()
    with pytest.raises(DefinitionError, match="migrates values.values together with values, where they are"):
        rig.update(subindexed(inner))
    assert rig.cart("ann") == ({"tea": 1}, 1)


def test_update_is_refused_when_it_would_make_one_value_of_rows(rig: Rig) -> None:
    rig.append(("ann", "tea", 1))
    rig.update(subindexed(ROWS))
    rig.finish()
    with pytest.raises(DefinitionError, match="changes its schema"):
        rig.update(PLAIN)
    with pytest.raises(DefinitionError, match="whose elements are stored one by one"):
        rig.update(MAP(str, PState.migrated(MAP(str, int), "back", same)))
    again = MAP(str, PState.migrated(ROWS, "again", same).migrate_to_subindexed())
    with pytest.raises(DefinitionError, match="whose elements are stored one by one"):
        rig.update(again)


def test_scans_have_each_element_once_when_structures_wait(tmp_path: Folder, held: Any) -> None:
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        rig = Rig(cluster)
        rig.append(*((f"c{cart}", f"i{item}", cart * item) for cart in range(9) for item in range(5)))
        code = Carts(subindexed(ROWS))
        rig.update(code.schema)
        rig.append(("c1", "i1", 100), ("c2", "i0", None), ("c9", "i9", 9))
        carts = tidemill.scan(tmp_path, NAME, "carts", code=code)
        expected = {(f"c{cart}", f"i{item}"): cart * item for cart in range(9) if cart != 2 for item in range(5)}
        expected |= {("c1", "i1"): 101, ("c9", "i9"): 9}
        found = carts.collect()
        assert dict(zip(zip(found["k0"], found["k1"], strict=True), found["value"], strict=True)) == expected
        assert found.height == len(expected)
        some = carts.filter(pl.col("k0").is_in(["c1", "c9"]) & pl.col("k1").is_in(["i0", "i1", "i9"]))
        assert sorted(some.select("k0", "k1", "value").collect().rows()) == [
            ("c1", "i0", 0), ("c1", "i1", 101), ("c9", "i9", 9)
        ]  # fmt: skip


def test_reader_without_the_code_is_told_so_while_structures_wait(tmp_path: Folder, held: Any) -> None:
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        rig = Rig(cluster)
        rig.append(("ann", "tea", 1))
        rig.update(subindexed(ROWS))
        rig.append(("bob", "cup", 2))
        foreign = PStateHandle(ModuleClient(cluster.store, NAME), "$$carts")
        assert foreign.select_one(Path.key("bob").key("cup")) == 2
        with pytest.raises(NeedsCode, match="was stored before the migration 'one-by-one' of values"):
            foreign.select_one(Path.key("ann").key("tea"))
        held()
        rig.finish()
        assert foreign.select_one(Path.key("ann").key("tea")) == 1


def test_sets_and_lists_become_rows_in_a_record_at_the_top() -> None:
    class Record(Module):
        def __init__(self, tags: Any, steps: Any) -> None:
            self.fields = ("tags", tags, "steps", steps)

        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*in", Depot.random()).global_()
            mb = topologies.microbatch("mb")
            mb.pstate("$$r", PState.fixed_keys_schema(*self.fields)).global_()
            rows = mb.source("*in").out("*m").explode_microbatch("*m").out("*n")
            rows.local_transform("$$r", Path.key("tags").void_set_elem().term_val("*n"))
            rows.local_transform("$$r", Path.key("steps").after_elem().term_val("*n"))

    with InProcessCluster.create() as cluster:
        cluster.launch_module(Record(PState.set_schema(int), PState.list_schema(int)), LaunchConfig(1, 1))
        cluster.cluster_depot("Record", "*in").append_many([3, 1, 3])
        cluster.wait_until_processed("Record")
        untracked = SubindexOptions.without_size_tracking()
        tags = PState.migrated(PState.set_schema(int).subindexed(untracked), "t", same).migrate_to_subindexed()
        steps = PState.migrated(PState.list_schema(int).subindexed(), "s", same).migrate_to_subindexed()
        cluster.update_module(Record(tags, steps))
        record = cluster.cluster_pstate("Record", "$$r")
        assert record.select(Path.key("tags").all()) == [1, 3]
        assert record.select(Path.key("steps").all()) == [3, 1, 3]
        cluster.cluster_depot("Record", "*in").append(2)
        cluster.wait_until_processed("Record")
        assert record.select(Path.key("tags").all()) == [1, 2, 3]
        assert record.select(Path.key("steps").all()) == [3, 1, 3, 2]
        assert record.select_one(Path.key("steps").view(Ops.SIZE)) == 4


class Notes(Module):
    """Records in carts, by triples of cart, item and number."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*changes", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$carts", MAP(str, self.schema))
        rows = mb.source("*changes").out("*m").explode_microbatch("*m").out("*change")
        rows = rows.each(Ops.EXPAND, "*change").out("*cart", "*item", "*n")
        rows.local_transform("$$carts", Path.key("*cart", "*item", "n").term_val("*n"))


def test_records_are_still_there_when_they_got_a_subindexed_field_after_they_became_rows(rig: Rig) -> None:
    record, tags = PState.fixed_keys_schema("n", int), PState.set_schema(str).subindexed()
    tagged = MAP(str, PState.fixed_keys_schema("n", int, "tags", tags)).subindexed()
    rig.cluster.destroy_module(NAME)
    rig.cluster.launch_module(Notes(MAP(str, record)), LaunchConfig(4, 2))
    OptionsLog(rig.cluster.store, NAME).set("module", "", "store.collection.period.seconds", 1)
    rig.append(("ann", "tea", 1), ("ann", "cup", 2))
    rows = PState.migrated(MAP(str, record).subindexed(), "rows", same).migrate_to_subindexed()
    rig.cluster.update_module(Notes(rows))
    with pytest.raises(DefinitionError, match="loses the migration 'rows' of values before it is done"):
        rig.cluster.update_module(Notes(tagged))
    rig.finish()
    rig.cluster.update_module(Notes(tagged))
    rig.append(("ann", "jam", 3))
    numbers = Path.key("ann").all().collect_one(Path.first()).last().key("n")
    pstate = rig.cluster.cluster_pstate(NAME, "$$carts")
    assert pstate.select(numbers) == [["cup", 2], ["jam", 3], ["tea", 1]]
    assert pstate.select_one(Path.key("ann").view(Ops.SIZE)) == 3
