"""Stories of values that an update migrates: read at once, aggregated into, rewritten in the background, and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from held_compactions import hold_compactions, waiting_rows
from waiting import eventually

from tidemill import (
    Agg,
    CompoundAgg,
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    Path,
    PState,
    UpdateOptions,
)
from tidemill.api.declaration import record_module
from tidemill.cli.screens import Screen
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import topology_status
from tidemill.cluster.launch import update
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.options_log import OptionsLog
from tidemill.leader import maintenance
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.check import check_module
from tidemill.leader.restore import plan_restore, restore
from tidemill.leader.topology_store import TopologyStore
from tidemill.plan.check.module import checked
from tidemill.store.urls import connect, forget_stores, open_store
from tidemill.testing.fault_points import FaultPoints
from tidemill.values.data import route
from tidemill.values.errors import NeedsCode, UserCodeError

MAP = PState.map_schema
MIGRATED = PState.migrated
NAME = "Migrating"
SIZES = LaunchConfig(4, 2)


class Migrating(Module):
    """Pairs of key and value; `step` appends what becomes of a pair to the chain, with `*k` and `*v`."""

    def __init__(self, schema: Any, step: Callable[[Any], Any]) -> None:
        self.schema, self.step = schema, step

    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", self.schema)
        rows = mb.source("*pairs").out("*m").explode_microbatch("*m").out("*pair")
        self.step(rows.each(Ops.EXPAND, "*pair").out("*k", "*v"))
        if repr(self.schema).startswith("map") and "subindexed" not in repr(self.schema):  # none is taken whole
            (
                topologies.query("all").out("*result")
                .all_partition()
                .local_select("$$p", Path.map_vals()).out("*found")
                .origin_partition()
                .agg(Agg.list("*found")).out("*result")
            )  # fmt: skip


def put(rows: Any) -> Any:
    return rows.local_transform("$$p", Path.key("*k").term_val("*v"))


def put_text(rows: Any) -> Any:
    return rows.each(lambda value: f"{value}!", "*v").out("*w").local_transform("$$p", Path.key("*k").term_val("*w"))


def added(rows: Any) -> Any:
    return rows.compound_agg("$$p", CompoundAgg.map("*k", Agg.sum("*v")))


def bang(value: Any) -> str:
    return f"{value}!"


def texts(function: Any = bang, migration: str = "bang") -> Any:
    return MAP(str, MIGRATED(str, migration, function))


class Rig:
    """A launched module, what is appended to it, and how it stands."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster, self.count = cluster, 0

    def launch(self, schema: Any, step: Any) -> None:
        self.cluster.launch_module(Migrating(schema, step), SIZES)
        self.look_often()

    def look_often(self) -> None:
        """Whether there is something to compact, each second: what `held` held back is found so."""
        OptionsLog(self.cluster.store, NAME).set("module", "", "store.collection.period.seconds", 1)

    def update(self, schema: Any, step: Any) -> None:
        self.cluster.update_module(Migrating(schema, step))

    def append(self, *pairs: Any) -> None:
        for pair in pairs:
            self.cluster.cluster_depot(NAME, "*pairs").append(list(pair))
        self.count += len(pairs)
        self.cluster.wait_for_microbatch_processed_count(NAME, "mb", self.count)

    @property
    def pstate(self) -> PStateHandle:
        return self.cluster.cluster_pstate(NAME, "$$p")

    def read(self, *keys: str) -> list[Any]:
        return [self.pstate.select_one(Path.key(key)) for key in keys]

    def status(self) -> TopologyStatus:
        return topology_status(self.cluster.store, self.cluster._client(NAME).definition(), "mb")

    def runner_status(self) -> TopologyStatus:
        return self.cluster._running[NAME].topologies["mb"].status()

    def trouble(self) -> str:
        return self.runner_status().background_trouble

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


def test_t11_values_are_read_migrated_as_soon_as_the_module_was_updated(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1), ("b", 2), ("c", 3))
    handle = rig.pstate
    rig.update(texts(), put_text)
    assert [handle.select_one(Path.key(key)) for key in "abc"] == ["1!", "2!", "3!"]
    assert rig.waiting() == [3]
    held()
    rig.finish()
    assert rig.read("a", "b", "c") == ["1!", "2!", "3!"]


def test_every_way_to_read_gives_migrated_values_when_nothing_is_rewritten_yet(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    first = rig.status().microbatch_id
    rig.append(("b", 2))
    rig.update(texts(), put_text)
    rig.append(("b", 5), ("c", 6))
    assert {value for key in "abc" for value in rig.pstate.select(Path.map_vals(), pkey=key)} == {"1!", "5!", "6!"}
    assert rig.pstate.select_many([Path.key("a"), Path.key("b"), Path.key("c")]) == [["1!"], ["5!"], ["6!"]]
    assert rig.pstate.at(microbatch=first).select(Path.key("a")) == ["1!"]
    assert sorted(rig.cluster.cluster_query(NAME, "all").invoke()) == ["1!", "5!", "6!"]
    assert rig.pstate.proxy(Path.key("a")).get() == "1!"


def test_operands_of_both_sides_fold_when_values_were_migrated(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), added)
    rig.append(("a", 1), ("a", 2))
    rig.append(("a", 4), ("b", 8))
    rig.update(MAP(str, MIGRATED(int, "cents", lambda value: value * 100)), added)
    assert rig.read("a", "b") == [700, 800]
    rig.append(("a", 1), ("c", 9))
    rig.append(("a", 1), ("b", -800))
    assert rig.read("a", "b", "c") == [702, 0, 9]
    held()
    rig.finish()
    assert rig.read("a", "b", "c") == [702, 0, 9]
    rig.append(("a", 1))
    assert rig.read("a") == [703]


def test_sum_beyond_64_bits_is_refused_when_a_migration_made_large_numbers(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), added)
    rig.append(("a", 1))
    rig.update(MAP(str, MIGRATED(int, "huge", lambda value: 2**62)), added)
    rig.cluster.cluster_depot(NAME, "*pairs").append(["a", 2**62])
    with pytest.raises(Exception, match="64 bits"):
        rig.cluster.wait_for_microbatch_processed_count(NAME, "mb", 2)


def test_records_are_migrated_whole_when_they_have_columns(rig: Rig, held: Any) -> None:
    person = PState.fixed_keys_schema("name", str, "age", int)
    named = PState.fixed_keys_schema("first", str, "last", str, "age", int)

    def split(old: Any) -> Any:
        first, last = old["name"].split(" ")
        return {"first": first, "last": last, "age": old.get("age")}

    rig.launch(MAP(str, person), put)
    rig.append(("a", {"name": "Ada King", "age": 36}), ("b", {"name": "Bo Li"}))
    rig.update(MAP(str, MIGRATED(named, "split", split)), put)
    expected = [{"first": "Ada", "last": "King", "age": 36}, {"first": "Bo", "last": "Li", "age": None}]
    assert rig.read("a", "b") == expected
    assert rig.pstate.select(Path.key("a").key("last")) == ["King"]
    held()
    rig.finish()
    assert rig.read("a", "b") == expected


def test_records_have_the_published_keys_when_a_migration_adds_and_removes_some(rig: Rig, held: Any) -> None:
    def moved(user: dict[str, Any]) -> dict[str, Any]:
        return {"age": user["age"], "location": user["location"].lower(), "score": 10}

    fields = ("age", int, "location", str)
    rig.launch(MAP(str, PState.fixed_keys_schema(*fields, "occupation", str)), put)
    rig.append(("ann", {"age": 7, "location": "OSLO", "occupation": "none"}))
    record = MIGRATED(PState.fixed_keys_schema(*fields, "score", int), "fixedKeyExampleMigration", moved)
    rig.update(MAP(str, record.add_fixed_keys("score").remove_fixed_keys("occupation")), put)
    assert rig.read("ann") == [{"age": 7, "location": "oslo", "score": 10}]
    held()
    rig.finish()
    assert rig.read("ann") == [{"age": 7, "location": "oslo", "score": 10}]


def test_elements_below_are_migrated_when_they_are_subindexed(rig: Rig, held: Any) -> None:
    def inner(value: Any) -> Any:
        return PState.fixed_keys_schema("seen", int, "log", PState.list_schema(value).subindexed())

    def log(rows: Any) -> Any:
        return rows.local_transform("$$p", Path.key("*k").key("log").after_elem().term_val("*v"))

    rig.launch(MAP(str, inner(int)), log)
    rig.append(("a", 1), ("a", 2))
    rig.update(MAP(str, inner(MIGRATED(str, "text", str))), lambda rows: log(rows.each(str, "*v").out("*v")))
    rig.append(("a", 3))
    whole = Path.key("a").key("log").all()
    assert rig.pstate.select(whole) == ["1", "2", "3"]
    assert rig.pstate.select_one(Path.key("a").key("log").view(Ops.SIZE)) == 3
    held()
    rig.finish()
    assert rig.pstate.select(whole) == ["1", "2", "3"]


def test_function_is_called_no_more_when_all_rows_are_rewritten(rig: Rig) -> None:
    points = FaultPoints()

    def counted(value: Any) -> str:
        points.reach("migrated")
        return bang(value)

    rig.launch(MAP(str, int), put)
    rig.append(("a", 1), ("b", 2))
    rig.update(texts(counted), put_text)
    rig.finish()
    before = points.reached("migrated")
    assert before >= 2
    assert rig.read("a", "b") == ["1!", "2!"]
    rig.append(("a", 3), ("c", 4))
    assert rig.read("a", "c") == ["3!", "4!"]
    assert points.reached("migrated") == before


def test_migrations_follow_each_other_when_the_first_is_not_done(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    rig.update(texts(), put_text)
    rig.append(("b", 2))
    chain = MAP(str, MIGRATED(str, "bang", bang).migrated(PState.list_schema(str), "listed", lambda value: [value]))
    rig.update(
        chain,
        lambda rows: rows.each(lambda v: [v], "*v").out("*l").local_transform("$$p", Path.key("*k").term_val("*l")),
    )
    rig.append(("c", "3"))
    assert rig.read("a", "b", "c") == [["1!"], ["2!"], ["3"]]
    with pytest.raises(DefinitionError, match="loses the migration 'bang' of values before it is done"):
        rig.update(MAP(str, MIGRATED(PState.list_schema(str), "listed", lambda value: [value])), put)
    held()
    rig.finish()
    rig.update(MAP(str, MIGRATED(PState.list_schema(str), "listed", lambda value: [value])), put)
    rig.update(MAP(str, PState.list_schema(str)), put)
    assert rig.read("a", "b", "c") == [["1!"], ["2!"], ["3"]]


def test_update_is_refused_when_a_migration_would_go_before_it_is_done(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    rig.update(texts(), put_text)
    for schema, text in [
        (MAP(str, str), "loses the migration 'bang'"),
        (MAP(str, int), "loses the migration 'bang'"),  # the code from before: a rollback
        (texts(migration="other"), "loses the migration 'bang'"),
        (MAP(str, MIGRATED(str, "other", bang).migrated(str, "bang", bang)), "changes the order"),
        (MAP(str, MIGRATED(int, "bang", bang).migrated(str, "next", bang)), "but str is stored"),
    ]:
        with pytest.raises(DefinitionError, match=text):
            rig.update(schema, put_text)
    assert rig.read("a") == ["1!"]


def test_id_is_refused_when_its_migration_was_given_up(rig: Rig) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    rig.update(texts(), put_text)
    rig.finish()
    rig.update(MAP(str, str), put_text)
    with pytest.raises(DefinitionError, match="uses the migration ID 'bang' again"):
        rig.update(texts(), put_text)
    rig.update(texts(lambda value: value + "?", "again"), put_text)
    assert rig.read("a") == ["1!?"]
    rig.finish()
    assert rig.read("a") == ["1!?"]


def test_others_go_on_and_nothing_is_lost_when_the_function_raises(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.leader.maintenance.MIGRATION_BACK_OFF_MS", 50.0)

    def picky(value: int) -> str:
        if value == 13:
            raise ValueError("an unlucky number")
        return bang(value)

    rig.launch(MAP(str, int), put)
    rig.append(("a", 1), ("b", 13))
    rig.update(texts(picky), put_text)
    with pytest.raises(UserCodeError, match=r"\$\$p\['b'\]: the migration 'bang' of values at .*unlucky number"):
        rig.read("b")
    assert rig.read("a") == ["1!"]
    rig.append(*((f"k{number}", number) for number in range(40)))  # the newer levels are compacted
    assert rig.read("a", "k39") == ["1!", "39!"]
    eventually(lambda: "unlucky number" in rig.trouble())
    shown: list[str] = []
    monkeypatch.setattr("tidemill.cli.screens.log", shown.append)
    Screen().show([rig.runner_status()])
    assert "compaction or collection failed, it will be tried again" in shown[-1]
    assert "the migration 'bang' of values" in shown[-1]
    assert rig.waiting() != [0]
    rig.update(texts(), put_text)  # mended
    rig.finish()
    assert rig.read("a", "b", "k39") == ["1!", "13!", "39!"]


def test_row_is_not_migrated_when_it_was_replaced_since(rig: Rig, held: Any) -> None:
    def never(value: int) -> str:
        raise ValueError("must not be asked")

    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    rig.update(texts(never), put_text)
    rig.append(("a", 2))
    assert rig.read("a") == ["2!"]
    held()
    rig.finish()
    assert rig.read("a") == ["2!"]


def test_value_that_does_not_fit_is_told_when_a_migration_returns_it(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    rig.update(texts(lambda value: value), put_text)
    with pytest.raises(UserCodeError, match=r"\$\$p\['a'\]: the migration 'bang' .*returned 1 \(int\) does not fit"):
        rig.read("a")


def test_reader_without_the_code_is_told_so_while_rows_wait(tmp_path: Folder, held: Any) -> None:
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        rig = Rig(cluster)
        rig.launch(MAP(str, int), put)
        rig.append(("a", 1))
        rig.update(texts(), put_text)
        rig.append(("b", 2))
        foreign = PStateHandle(ModuleClient(cluster.store, NAME), "$$p")
        assert foreign.select_one(Path.key("b")) == "2!"
        with pytest.raises(NeedsCode, match="was stored before the migration 'bang' of values"):
            foreign.select_one(Path.key("a"))
        held()
        rig.finish()
        assert foreign.select_one(Path.key("a")) == "1!"
        assert check_module(cluster.store, NAME) == []


def test_state_is_whole_when_the_module_is_launched_again_before_it_is_migrated(tmp_path: Folder, held: Any) -> None:
    for round_, schema in enumerate((MAP(str, int), texts(), texts(), texts())):
        with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
            rig = Rig(cluster)
            rig.count = round_
            if round_ == 1:
                rig.launch(MAP(str, int), put)
                rig.update(schema, put_text)
            else:
                rig.launch(schema, put if round_ == 0 else put_text)
            rig.append((f"k{round_}", round_))
            assert check_module(cluster.store, NAME) == []
            if round_ == 3:
                held()
                rig.finish()
                assert rig.read("k0", "k1", "k2", "k3") == ["0!", "1!", "2!", "3!"]
                assert check_module(cluster.store, NAME) == []


def test_pstate_can_be_deleted_when_its_migration_is_not_done(rig: Rig, held: Any) -> None:
    class Without(Migrating):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
            mb = topologies.microbatch("mb")
            mb.pstate("$$q", MAP(str, int))
            rows = mb.source("*pairs").out("*m").explode_microbatch("*m").out("*pair")
            rows.each(Ops.EXPAND, "*pair").out("*k", "*v").local_transform("$$q", Path.key("*k").term_val("*v"))

    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    rig.update(texts(), put_text)
    rig.cluster.update_module(Without(None, put), UpdateOptions.objects_to_delete("$$p"))
    rig.append(("b", 2))
    held()
    eventually(lambda: rig.status().levels == 1)
    assert rig.cluster.cluster_pstate(NAME, "$$q").select_one(Path.key("b")) == 2
    assert check_module(rig.cluster.store, NAME) == []


def test_others_are_migrated_when_a_pstate_that_waits_is_deleted_for_good(
    rig: Rig, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Two(Migrating):
        names: tuple[str, ...] = ("$$p", "$$q")

        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
            mb = topologies.microbatch("mb")
            rows = mb.source("*pairs").out("*m").explode_microbatch("*m").out("*pair")
            rows = rows.each(Ops.EXPAND, "*pair").out("*k", "*v")
            for name in self.names:
                mb.pstate(name, self.schema)
                rows = rows.local_transform(name, Path.key("*k").term_val("*v"))

    class One(Two):
        names = ("$$q",)

    is_stable = threading.Event()
    restorable = TopologyStore.restorable
    monkeypatch.setattr(
        TopologyStore, "restorable", lambda self: restorable(self) if is_stable.is_set() else self.definition.retired
    )
    monkeypatch.setattr(maintenance, "BACK_OFF_MS", 20)
    rig.cluster.launch_module(Two(MAP(str, int), put), SIZES)
    rig.look_often()
    rig.append(("a", 1))
    rig.cluster.update_module(Two(texts(), put))
    rig.cluster.update_module(One(texts(), put), UpdateOptions.objects_to_delete("$$p"))
    held()
    eventually(lambda: "$$p was deleted while its values wait" in rig.trouble())
    assert rig.cluster.cluster_pstate(NAME, "$$q").select_one(Path.key("a")) == "1!"
    is_stable.set()
    rig.finish()
    eventually(lambda: rig.trouble() == "")
    assert rig.cluster.cluster_pstate(NAME, "$$q").select_one(Path.key("a")) == "1!"
    assert check_module(rig.cluster.store, NAME) == []


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (MAP(str, int), MIGRATED(int, "m", len), "migrates the value, whose elements are stored one by one"),
        (MAP(str, MAP(str, int).subindexed()), MAP(str, MIGRATED(int, "m", len)), "migrates values, whose elements"),
        (MAP(str, int), MAP(int, MIGRATED(str, "m", str)), "changes its schema"),
        (MAP(str, int), MAP(str, str), "changes its schema"),
    ],
)
def test_update_is_refused_when_what_is_stored_cannot_be_migrated(rig: Rig, old: Any, new: Any, text: str) -> None:
    def nothing(rows: Any) -> Any:
        return rows.each(Ops.IDENTITY, "*v").out("*same")

    rig.launch(old, nothing)
    with pytest.raises(DefinitionError, match=text):
        rig.update(new, nothing)


def test_launch_declares_migrations_that_find_nothing_when_the_module_is_new(rig: Rig) -> None:
    rig.launch(texts(), put_text)
    rig.append(("a", 1))
    assert rig.read("a") == ["1!"]
    assert rig.waiting() == [0]


def test_whole_value_is_migrated_when_the_partition_holds_one(rig: Rig, held: Any) -> None:
    def top(rows: Any) -> Any:
        return rows.agg("$$p", Agg.sum("*v"))

    rig.launch(int, top)
    rig.append(("a", 1), ("a", 2))
    rig.update(MIGRATED(float, "half", lambda value: value / 2), top)
    assert rig.pstate.select_one(Path.stay(), pkey="a") == 1.5
    rig.append(("a", 1.0))
    held()
    rig.finish()
    assert rig.pstate.select_one(Path.stay(), pkey="a") == 2.5


def test_unfinished_migration_goes_on_when_the_store_was_restored_from_a_backup(tmp_path: Folder, held: Any) -> None:
    url, folder = (tmp_path / "store").as_uri(), BackupFolder(connect((tmp_path / "backup").as_uri()))
    with InProcessCluster.create("local", store=url) as cluster:
        rig = Rig(cluster)
        rig.launch(MAP(str, int), put)
        rig.append(("a", 1))
        rig.update(texts(), put_text)
        rig.append(("b", 2))
        BackupRun(open_store(url), folder, 1, lambda *_: None).take()
        rig.append(("c", 3))
    restore(plan_restore(folder), folder, url, replaces=True, now_ms=1, tell=lambda *_: None)
    forget_stores()
    with InProcessCluster.create("local", store=url) as cluster:
        rig = Rig(cluster)
        rig.launch(texts(), put_text)
        assert rig.waiting() == [1]
        assert rig.read("a", "b", "c") == ["1!", "2!", None]
        held()
        rig.finish()
        assert rig.read("a", "b", "c") == ["1!", "2!", None]
        assert check_module(cluster.store, NAME) == []


def test_migration_counts_as_not_done_until_a_leader_of_its_definition_has_claimed(tmp_path: Folder) -> None:
    def updated(schema: Any) -> None:
        update(open_store(tmp_path.as_uri()), checked(record_module(Migrating(schema, put_text))), (), SystemClock())

    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        Rig(cluster).launch(MAP(str, int), put)
    updated(texts())
    with pytest.raises(DefinitionError, match="loses the migration 'bang'"):
        updated(MAP(str, str))  # a runner of the first definition may write rows at this moment
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        Rig(cluster).launch(texts(), put_text)
    updated(texts())  # nobody runs it, but who ran before knew the migration
    updated(MAP(str, str))


def test_differences_are_those_of_values_when_an_update_migrated_them_in_between(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1), ("b", 2))
    first = rig.status().microbatch_id
    rig.update(texts(), put_text)
    rig.append(("b", 5))
    last = rig.status().microbatch_id
    assert [tuple(change) for change in rig.pstate.diff(first, last)] == [("b", ["2!"], ["5!"])]


def test_proxy_tells_new_values_when_an_update_migrated_them(rig: Rig, held: Any) -> None:
    rig.launch(MAP(str, int), put)
    rig.append(("a", 1))
    proxy = rig.pstate.proxy(Path.key("a"))
    assert proxy.get() == 1
    rig.update(texts(), put_text)
    rig.append(("b", 2))
    eventually(lambda: proxy.get() == "1!")
    rig.append(("a", 3))
    eventually(lambda: proxy.get() == "3!")


# --- in pieces -------------------------------------------------------------------------------------------------------


class Gate:
    """What a migration was asked; it waits at one value until it is opened."""

    def __init__(self) -> None:
        self.stops_at, self.asked = -1, list[int]()
        self.is_open, self.has_come = threading.Event(), threading.Event()

    def pass_(self, value: int) -> None:
        self.asked.append(value)
        if value == self.stops_at:
            self.has_come.set()
            assert self.is_open.wait(60)


GATES: list[Gate] = []


def gated(value: int) -> str:
    GATES[-1].pass_(value)
    return bang(value)


@pytest.mark.parametrize("is_restored", [False, True], ids=["on its store", "on what a backup restored"])
def test_a_large_migration_goes_on_behind_its_last_piece_when_its_leader_dies_under_a_load(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, is_restored: bool
) -> None:
    monkeypatch.setattr("tidemill.leader.maintenance.PIECE_ROWS", 20)
    url, folder = (tmp_path / "store").as_uri(), BackupFolder(connect((tmp_path / "backup").as_uri()))
    gate, sizes = Gate(), LaunchConfig(4, 1)
    GATES.append(gate)
    of_task = {number: route(str(number), 4) for number in range(80)}
    rewritten = sorted(number for number, task in of_task.items() if task < 2)
    gate.stops_at = next(number for number, task in of_task.items() if task == 2)
    with InProcessCluster.create("local", store=url) as cluster:
        rig = Rig(cluster)
        cluster.launch_module(Migrating(MAP(str, int), put), sizes)
        rig.append(*((str(number), number) for number in range(80)))
        rig.update(texts(gated), put_text)
        assert gate.has_come.wait(60)
        eventually(lambda: rig.waiting() == [40])  # two of four pieces are done
        rig.append(*((f"new {number}", number) for number in range(30)))
        assert rig.waiting() == [40]
        assert check_module(cluster.store, NAME) == []
        assert sorted(number for number in gate.asked if of_task[number] < 2) == rewritten
        cluster._running[NAME].kill()
        gate.is_open.set()
        prefix = cluster._client(NAME).definition().topology_prefix("mb")
        _, entry = CommitLog(cluster.store, prefix).head() or (0, None)
        assert entry is not None
        lost = f"{prefix}/{entry.pending[0].parts[0].name}"
        content = bytes(cluster.store.get(lost))
        cluster.store.delete(lost)
        assert [(found.invariant, "does not exist" in found.text) for found in check_module(cluster.store, NAME)] == [
            ("S3", True)
        ]
        cluster.store.create(lost, content)
    if is_restored:
        BackupRun(open_store(url), folder, 1, lambda *_: None).take()
        restore(plan_restore(folder), folder, url, replaces=True, now_ms=1, tell=lambda *_: None)
        forget_stores()
    gate.asked.clear()
    with InProcessCluster.create("local", store=url) as cluster:
        rig = Rig(cluster)
        cluster.launch_module(Migrating(texts(gated), put_text), sizes)
        rig.finish()
        assert gate.asked, "the rest was rewritten"
        assert not [number for number in gate.asked if of_task[number] < 2]
        assert rig.read("1", "79", "new 29") == ["1!", "79!", "29!"]
        assert check_module(cluster.store, NAME) == []
    GATES.clear()


def test_a_migration_begins_anew_when_an_update_comes_between_its_pieces(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.leader.maintenance.PIECE_ROWS", 1)
    monkeypatch.setattr("tidemill.leader.maintenance.MIGRATION_BACK_OFF_MS", 50.0)

    def other(value: int) -> str:
        if route(str(value), 4) == 3:
            raise ValueError("not yet")
        return f"{value}?"

    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        rig = Rig(cluster)
        cluster.launch_module(Migrating(MAP(str, int), put), LaunchConfig(4, 1))
        rig.append(*((str(number), number) for number in range(20)))
        rig.update(texts(other), put_text)
        eventually(lambda: "not yet" in rig.trouble() and rig.waiting() == [5])  # three of four pieces are done
        rig.update(texts(), put_text)
        rig.finish()
        assert rig.read(*map(str, range(20))) == [f"{number}!" for number in range(20)]
        assert check_module(cluster.store, NAME) == []
