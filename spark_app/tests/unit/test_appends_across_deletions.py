"""Appends by clients that do not know yet that their depot was deleted: each counts in the depot that has the name now,
or is refused. The clients here look at the definition only when they must (`Still`), as slow ones on S3 may.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path as Folder
from typing import Any

import pytest
from deleted_depots import Still, newest, records

from tidemill import Depot, Module, Path, PState
from tidemill.api.declaration import record_module
from tidemill.api.launch import LaunchConfig
from tidemill.clients.barrier import ProcessedWatch, barrier_of
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.cluster.launch import definition_for_launch, delete_data, destroy, follow, update
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.header import Gate
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.kubernetes.revision_gate import RevisionGate, RevisionPlan
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.check import check_module
from tidemill.leader.deletions import Deletions
from tidemill.leader.log_closure import held
from tidemill.store.local import LocalStore
from tidemill.store.log import is_deletion_mark
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect, open_store
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import Deleted, DepotClosed, SnapshotExpired, UnknownName

Append = Callable[[DepotHandle, str], Any]


class Shop(Module):
    """Orders and returns; nothing runs here."""

    def module_name(self) -> str:
        return "Shop"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*orders", Depot.random())
        setup.declare_depot("*returns", Depot.random())
        count = topologies.microbatch("count")
        count.pstate("$$counts", PState.map_schema(str, int))
        count.source("*orders").out("*m")


class Smaller(Shop):
    """Without the returns."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*orders", Depot.random())
        count = topologies.microbatch("count")
        count.pstate("$$counts", PState.map_schema(str, int))
        count.source("*orders").out("*m")


class Wider(Shop):
    """The returns come back as a depot of one partition."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*orders", Depot.random())
        setup.declare_depot("*returns", Depot.random()).global_()
        count = topologies.microbatch("count")
        count.pstate("$$counts", PState.map_schema(str, int))
        count.source("*orders").out("*m")


CLOCK = SystemClock()


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    launch(made)
    return made


def launch(store: ObjectStore, module: Module | None = None) -> StoredDefinition:
    return definition_for_launch(store, record_module(module or Shop()), LaunchConfig(2, 1), CLOCK)


def updated(store: ObjectStore, module: Module, *deleted: str) -> StoredDefinition:
    return update(store, record_module(module), deleted, CLOCK)


def turn(store: ObjectStore, module: Module, *deleted: str, restores: bool = False) -> RevisionGate:
    base = DefinitionLog(store, "Shop").newest_number()
    return RevisionGate(store, RevisionPlan(record_module(module), base + 1, base, 2, 1, deleted, restores), CLOCK)


def slow_handle(store: ObjectStore, depot: str = "*returns") -> DepotHandle:
    return DepotHandle(ModuleClient(store, "Shop", clock=Still()), depot)


def left(store: ObjectStore) -> list[str]:
    return [key for part in ("depots", "topologies") for key in held(store, f"Shop/{part}")]


WAYS: dict[str, Append] = {
    "append": lambda handle, record: handle.append(record),
    "append_async": lambda handle, record: handle.append_async(record).result(),
    "append_many": lambda handle, record: handle.append_many([record]),
    "producer": lambda handle, record: handle.append(record, producer="p", sequence=7),
    "many of a producer": lambda handle, record: handle.append_many([record], producer="p", sequence=7),
    "column": lambda handle, record: handle.append_column_async([record]).result(),
}
every_way = pytest.mark.parametrize("append", WAYS.values(), ids=WAYS.keys())


def destroyed_and_launched(store: ObjectStore) -> None:
    destroy(store, "Shop")
    launch(store)


def deleted_and_added(store: ObjectStore) -> None:
    updated(store, Smaller(), "*returns")
    updated(store, Wider())


def deleted_and_added_by_drivers(store: ObjectStore) -> None:
    """No revision was stable in between, so the first depot could still come back."""
    turn(store, Smaller(), "*returns").write()
    turn(store, Wider()).write()


CHANGES = [destroyed_and_launched, deleted_and_added, deleted_and_added_by_drivers]


# --- where an append goes --------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("had_records", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_append_counts_once_in_the_new_depot_when_the_client_knows_the_old_one(
    store: MemoryStore, append: Append, had_records: bool, change: Callable[[ObjectStore], None]
) -> None:
    handle = slow_handle(store)
    if had_records:
        append(handle, "old")
    change(store)
    append(handle, "new")
    assert records(store) == ["new"]


@pytest.mark.parametrize("change", CHANGES)
def test_repeat_counts_in_the_new_depot_when_the_old_one_had_the_first(
    store: MemoryStore, change: Callable[[ObjectStore], None]
) -> None:
    """What was appended before went with the depot, so a repeat is no repeat there."""
    handle = slow_handle(store)
    handle.append("r", producer="p", sequence=7)
    change(store)
    for _ in range(2):
        handle.append("r", producer="p", sequence=7)
    assert records(store) == ["r"]


@every_way
@pytest.mark.parametrize("had_records", [False, True])
def test_append_is_refused_in_a_sentence_when_the_module_was_destroyed(
    store: MemoryStore, append: Append, had_records: bool
) -> None:
    handle = slow_handle(store)
    if had_records:
        append(handle, "old")
    destroy(store, "Shop")
    for _ in range(2):
        with pytest.raises(UnknownName, match="Module 'Shop' in .* was destroyed"):
            append(handle, "new")
    assert left(store) == []


@every_way
@pytest.mark.parametrize("is_stable", [False, True])
def test_append_is_refused_in_a_sentence_when_an_update_deleted_the_depot(
    store: MemoryStore, append: Append, is_stable: bool
) -> None:
    handle, old = slow_handle(store), newest(store)
    append(handle, "old")
    if is_stable:
        updated(store, Smaller(), "*returns")
    else:
        turn(store, Smaller(), "*returns").write()
    with pytest.raises(UnknownName, match=r"\*returns was deleted under this append: .* no depot \*returns"):
        append(handle, "new")
    assert records(store, definition=old) == ["old"], "what was there stays until it is collected"


@every_way
def test_append_counts_in_the_old_depot_when_a_rollback_brought_it_back(store: MemoryStore, append: Append) -> None:
    first, last = slow_handle(store), slow_handle(store)
    first.append("a")
    turn(store, Smaller(), "*returns").write()
    turn(store, Shop(), restores=True).write()
    append(first, "b")
    last.append("c")
    slow_handle(store).append("d")
    assert records(store) == ["a", "b", "c", "d"]


def test_append_is_refused_when_the_depot_is_deleted_again_after_a_rollback(store: MemoryStore) -> None:
    """Also by clients that know the definition that brought it back."""
    handle = slow_handle(store)
    turn(store, Smaller(), "*returns").write()
    turn(store, Shop(), restores=True).write()
    back = slow_handle(store)
    handle.append("a")
    turn(store, Smaller(), "*returns").write()
    for each in (handle, back):
        with pytest.raises(UnknownName, match="was deleted"):
            each.append("b")


def test_old_word_changes_nothing_when_a_later_definition_opened_or_closed_the_depot(store: MemoryStore) -> None:
    """Also where records came, and were rolled, since the later one."""
    prefix = newest(store).depot_prefix("*returns")
    log = DepotLog(store, prefix, 2)
    log.close(2)
    log.reopen(3)
    for number in range(4):
        log.append([(0, [str(number)])])
    assert roll(log, RollingLimits(segments_min=1)) == 4
    DepotLog(store, prefix, 2).close(2)
    log.append([(0, ["4"])])
    assert records(store) == list("01234")
    assert log.files.header(3).gate == Gate(3, is_closed=False)

    log.close(4)
    for old in (3, 4):
        DepotLog(store, prefix, 2).reopen(old)
        with pytest.raises(DepotClosed, match="Definition 4"):
            log.append([(0, ["5"])])
    assert records(store) == list("01234"), "what is there can be read"


def test_many_chunks_are_all_in_the_new_depot_when_the_old_one_went_between_them(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.depot.appender._VALUES_CHUNK_RECORDS", 2)
    creates: list[str] = []

    def before(verb: str, key: str) -> None:
        if verb == "create":
            creates.append(key)
            if len(creates) == 2:
                destroyed_and_launched(store)

    slow_handle(FaultyObjectStore(store, FaultPlan(before))).append_many(list("abcdef"))
    assert records(store) == list("abcdef")


def test_future_that_was_cancelled_appends_nothing_when_its_depot_is_deleted(store: MemoryStore) -> None:
    """Two appends wait behind one that is being written; one of them is cancelled, the other follows the depot."""
    goes, waits = threading.Event(), threading.Event()

    def before(verb: str, key: str) -> None:
        if verb == "create" and not goes.is_set():
            waits.set()
            assert goes.wait(20)

    handle = slow_handle(FaultyObjectStore(store, FaultPlan(before)))
    futures = [handle.append_column_async([name]) for name in "a"]
    assert waits.wait(20)
    futures += [handle.append_column_async([name]) for name in "bc"]
    assert futures[1].cancel()
    assert not futures[0].cancel()
    destroyed_and_launched(store)
    goes.set()
    assert futures[2].result(20).definition.number == newest(store).number
    assert futures[0].result(20).offsets
    assert futures[1].cancelled()
    assert records(store) == ["a", "c"]


# --- races -----------------------------------------------------------------------------------------------------------


def struck(store: ObjectStore, step: int, is_after: bool, act: Callable[[], None]) -> tuple[ObjectStore, list[str]]:
    """A store on whose request number `step`, before or after it, something happens; and the requests so far."""
    requests: list[str] = []

    def before(verb: str, key: str) -> None:
        requests.append(f"{verb} {key}")
        if len(requests) == step + 1 and not is_after:
            act()

    def after(verb: str, key: str) -> None:
        if len(requests) == step + 1 and is_after:
            act()

    return FaultyObjectStore(store, FaultPlan(before, after)), requests


def requests_of(act: Callable[[ObjectStore], Any]) -> list[str]:
    """The requests that this makes of a store that was just launched."""
    fresh = MemoryStore()
    launch(fresh)
    counting, requests = struck(fresh, -1, False, lambda: None)
    act(counting)
    return requests


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("had_records", [False, True])
@pytest.mark.parametrize("name", ["append", "producer"])
def test_append_is_not_lost_when_the_depot_is_deleted_at_any_request_of_it(
    name: str, had_records: bool, change: Callable[[ObjectStore], None]
) -> None:
    """It may be acknowledged for the depot that was only where it was in there before: when its segment was created
    before the log was closed, or, where nothing closed it, when it met no mark.
    """

    def prepared(at: ObjectStore) -> DepotHandle:
        handle = slow_handle(at)
        if had_records:
            WAYS["append"](handle, "old")
        return handle

    whole = requests_of(lambda at: WAYS[name](prepared(at), "new"))
    first = len(requests_of(prepared))
    created = next(at for at in range(first, len(whole)) if whole[at].startswith("create"))
    settled = created if change is not destroyed_and_launched else len(whole) - 1
    for step in range(first, len(whole)):
        for is_after in (False, True):
            store = MemoryStore()
            launch(store)
            faulty, _ = struck(store, step, is_after, lambda store=store: change(store))  # type: ignore[misc]
            WAYS[name](prepared(faulty), "new")
            was_before = (step, is_after) >= (settled, True)
            assert records(store) == ([] if was_before else ["new"]), (whole[step], is_after)


def killed_at_each_write(
    prepare: Callable[[], ObjectStore], act: Callable[[ObjectStore], Any]
) -> Iterator[tuple[ObjectStore, str]]:
    """Stores on which somebody died before or after each write of `act`, and where that was."""
    for step in count():
        for is_after in (False, True):
            store = prepare()
            writes: list[str] = []
            try:
                act(FaultyObjectStore(store, dying(step, is_after, writes)))
            except Crash:
                yield store, f"{'after' if is_after else 'before'} {writes[-1]}"
            else:
                assert step > 0, "it writes something"
                return


def dying(step: int, is_after: bool, writes: list[str]) -> FaultPlan:
    """Whoever uses the store dies before or after this write of his."""

    def before(verb: str, key: str) -> None:
        if verb in ("create", "delete"):
            writes.append(f"{verb} {key}")
            if len(writes) == step + 1 and not is_after:
                raise Crash

    def after(verb: str, key: str) -> None:
        if verb in ("create", "delete") and len(writes) == step + 1 and is_after:
            raise Crash

    return FaultPlan(before, after)


def with_records() -> ObjectStore:
    store = MemoryStore()
    launch(store)
    slow_handle(store, "*orders").append("o")
    return store


def killed_destroys() -> Iterator[tuple[ObjectStore, DepotHandle, str]]:
    handles: list[DepotHandle] = []

    def prepare() -> ObjectStore:
        store = with_records()
        handles.append(slow_handle(store))
        return store

    for store, where in killed_at_each_write(prepare, lambda at: destroy(at, "Shop")):
        yield store, handles[-1], where


@pytest.mark.parametrize("is_repeated", [False, True])
def test_append_counts_when_a_destroy_died_at_any_write_and_the_module_is_launched_anew(is_repeated: bool) -> None:
    places = []
    for store, handle, where in killed_destroys():
        places.append(where)
        was_destroyed = newest(store).is_destroyed
        if is_repeated:
            destroy(store, "Shop")
            assert left(store) == [], where
        launch(store)
        handle.append("new")
        assert records(store) == ["new"], where
        assert records(store, "*orders") == ([] if was_destroyed or is_repeated else ["o"]), where
    assert sum("floor/deleted" in where for where in places) == 6, "both depots and the topology, before and after"


def test_append_is_acknowledged_for_a_depot_only_before_its_mark_when_a_destroy_died() -> None:
    for store, handle, where in killed_destroys():
        marked = [key for key in store.list("Shop/depots") if is_deletion_mark(key) and "/returns-" in key]
        if marked:
            with pytest.raises(UnknownName):
                handle.append("late")
            assert not [key for key in left(store) if "/returns-" in key], where


def killed_updates(act: Callable[[ObjectStore], Any]) -> Iterator[tuple[ObjectStore, DepotHandle, str]]:
    handles: list[DepotHandle] = []

    def prepare() -> ObjectStore:
        store = with_records()
        handles.append(slow_handle(store))
        handles[-1].append("old")
        return store

    for store, where in killed_at_each_write(prepare, act):
        yield store, handles[-1], where


UPDATES: dict[str, Callable[[ObjectStore], Any]] = {
    "by hand": lambda at: updated(at, Smaller(), "*returns"),
    "not finished": lambda at: follow(at, record_module(Smaller()), ("*returns",), CLOCK),
    "by a driver": lambda at: turn(at, Smaller(), "*returns").write(),
}


@pytest.mark.parametrize("act", UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.parametrize("is_by_driver", [False, True])
def test_append_counts_in_the_new_depot_when_the_update_that_deleted_the_old_one_died(
    act: Callable[[ObjectStore], Any], is_by_driver: bool
) -> None:
    for store, handle, where in killed_updates(act):
        if "*returns" in newest(store).depots:
            updated(store, Smaller(), "*returns")
        if is_by_driver:
            turn(store, Wider()).write()
        else:
            updated(store, Wider())
        handle.append("new")
        assert records(store) == ["new"], where


def test_append_counts_in_the_old_depot_when_a_rollback_died_at_any_write() -> None:
    handles: list[DepotHandle] = []

    def prepare() -> ObjectStore:
        store = with_records()
        handles.append(slow_handle(store))
        handles[-1].append("old")
        turn(store, Smaller(), "*returns").write()
        return store

    for store, where in killed_at_each_write(prepare, lambda at: turn(at, Shop(), restores=True).write()):
        if "*returns" not in newest(store).depots:
            turn(store, Shop(), restores=True).write()
        handles[-1].append("new")
        assert records(store) == ["new", "old"], where


def test_depot_is_opened_once_when_the_client_that_opens_it_dies_at_any_write() -> None:
    def prepare() -> ObjectStore:
        store = with_records()
        turn(store, Smaller(), "*returns").write()
        turn(store, Shop(), restores=True).write()
        return store

    def append(at: ObjectStore) -> None:
        definition = newest(at)
        log = DepotLog(at, definition.depot_prefix("*returns"), 2)
        log.reopen(definition.number)
        log.append([(0, ["a"])], ("p", 1))

    for store, where in killed_at_each_write(prepare, append):
        slow_handle(store).append("b")
        append(store)
        assert records(store) == ["a", "b"], where


def test_deletion_is_decided_only_after_the_depot_is_closed(store: MemoryStore) -> None:
    """The update that deleted it died before it closed it."""
    definition = DefinitionLog(store, "Shop")
    before = newest(store)
    handle = slow_handle(store)
    planned = turn(store, Smaller(), "*returns").planned
    written = definition.append(planned, 0)
    handle.append("early")
    creates: list[str] = []
    faulty = FaultyObjectStore(store, FaultPlan(lambda verb, key: creates.append(key) if verb == "create" else None))
    assert Deletions(faulty, "Shop").confirm(written, 0)
    assert [key.split("/")[1] for key in creates] == ["depots", "deletions"]
    with pytest.raises(UnknownName):
        handle.append("late")
    assert records(store, definition=before) == ["early"]


def test_late_word_of_stability_does_no_harm_when_the_module_was_destroyed_since(store: MemoryStore) -> None:
    turn(store, Smaller(), "*returns").write()
    definition = newest(store)
    destroyed_and_launched(store)
    slow_handle(store).append("a")
    assert Deletions(store, "Shop").confirm(definition, 0)
    assert records(store) == ["a"]


# --- what else looks at what is gone ---------------------------------------------------------------------------------


def test_reader_goes_on_in_the_new_depot_when_it_knows_the_old_one(store: MemoryStore) -> None:
    handle = slow_handle(store, "*orders")
    handle.append("old")
    destroyed_and_launched(store)
    assert handle.get_partition_info(0).end_offset + handle.get_partition_info(1).end_offset == 0
    destroy(store, "Shop")
    for ask in (lambda: handle.get_partition_info(0), lambda: handle.read(0, 0, 0)):
        with pytest.raises(UnknownName, match="was destroyed"):
            ask()


def test_pstate_is_that_of_the_new_module_when_the_reader_knows_the_old_one(tmp_path: Folder) -> None:
    store = FaultyObjectStore(LocalStore(tmp_path))
    launch(store)
    handle = PStateHandle(ModuleClient(store, "Shop", clock=Still()), "$$counts")
    pinned = handle.at(handle.current_entry())
    assert handle.select(Path.key("a")) == [None]
    destroyed_and_launched(store)
    assert handle.select(Path.key("a")) == [None]
    assert handle._resolve()[0] == newest(store)
    with pytest.raises(SnapshotExpired):
        pinned.select(Path.key("a"))
    destroy(store, "Shop")
    with pytest.raises(UnknownName, match="was destroyed"):
        handle.select(Path.key("a"))


def test_wait_ends_in_a_sentence_when_the_module_is_destroyed_under_it(store: MemoryStore) -> None:
    handle = slow_handle(store, "*orders")
    definition, offsets = handle.append_column_async(["a"]).result()
    destroyed_and_launched(store)
    with pytest.raises(Deleted, match="was deleted"):
        ProcessedWatch(store, definition, [barrier_of(definition, "count", "*orders", offsets)]).look()


def test_nothing_of_the_old_module_holds_when_somebody_paused_it_while_it_was_destroyed(store: MemoryStore) -> None:
    """He did not know it yet."""
    destroy(store, "Shop")
    OptionsLog(store, "Shop").pause("count")
    launch(store)
    assert OptionsLog(store, "Shop").read().paused == {}


@pytest.mark.parametrize("is_after", [False, True])
def test_new_life_is_left_alone_when_a_destroy_goes_on_late(is_after: bool) -> None:
    """Its destroyer sleeps at each of its requests in turn, while somebody else launches the module anew."""
    launched = 0
    for step in count():
        store, lives = with_records(), [0]
        OptionsLog(store, "Shop").pause("keep")

        def launch_anew(store: ObjectStore = store, lives: list[int] = lives) -> None:
            if newest(store).is_destroyed:
                launch(store)
                slow_handle(store).append("a")
                OptionsLog(store, "Shop").pause("count")
                lives[0] += 1

        faulty, requests = struck(store, step, is_after, launch_anew)
        destroy(faulty, "Shop")
        launched += lives[0]
        if lives[0]:
            assert records(store) == ["a"], requests[step]
            assert [*OptionsLog(store, "Shop").read().paused] == ["count"], requests[step]
        if step >= len(requests):
            assert left(store) == []
            assert launched, "no request was late enough for a new life"
            return


def test_reader_is_told_that_the_depot_was_deleted_when_it_goes_under_its_look(store: MemoryStore) -> None:
    """At each request of a look that begins from nothing."""
    slow_handle(store).append("a")
    definition = newest(store)
    log_of = lambda at: DepotLog(at, definition.depot_prefix("*returns"), 2)  # noqa: E731 - two uses
    counting, requests = struck(store, -1, False, lambda: None)
    log_of(counting).follow()
    for step in range(len(requests)):
        fresh = MemoryStore()
        for key in store.list(""):
            fresh.create(key, store.get(key))
        faulty, _ = struck(fresh, step, False, lambda at=fresh: destroy(at, "Shop"))  # type: ignore[misc]
        with pytest.raises(Deleted):
            log_of(faulty).follow()


def test_check_finds_a_depot_that_was_closed_when_its_definition_is_lost(store: MemoryStore) -> None:
    """As where an older copy of the definitions alone is put back."""
    definition = newest(store)
    DepotLog(store, definition.depot_prefix("*returns"), 2).close(2)
    assert [str(finding) for finding in check_module(store, "Shop") if "definitions are lost" in str(finding)]


def test_depot_takes_appends_when_a_backup_was_made_while_an_update_deleted_it(tmp_path: Folder) -> None:
    """Its log is copied after the definition: a copy that has it closed has the definition that closed it as well."""
    whole = 0
    for step in count():
        store = open_store((tmp_path / f"store-{step}").as_uri())
        launch(store)
        slow_handle(FaultyObjectStore(store)).append("a")
        faulty, requests = struck(store, step, False, lambda at=store: turn(at, Smaller(), "*returns").write())  # type: ignore[misc]
        folder = BackupFolder(connect((tmp_path / f"backup-{step}").as_uri()))
        backup = BackupRun(faulty, folder, 0, lambda key, copied: None).take()
        closed = [key for key in backup.objects if "/returns-" in key and key.endswith("2.arrow")]
        numbers = [key for key in backup.objects if "/definition/" in key]
        assert len(numbers) == 2 or not closed, requests[step]
        whole += len(numbers) == 2
        if step >= len(requests):
            assert whole
            return


def test_leader_that_slept_commits_nothing_when_its_module_was_destroyed(store: MemoryStore) -> None:
    log = CommitLog(store, newest(store).topology_prefix("count")).log
    destroy(store, "Shop")
    with pytest.raises(Deleted, match="Shop/topologies/count-.* was deleted"):
        log.append(1, b"", "n")
    assert left(store) == []


def test_only_marks_are_left_when_a_module_was_launched_and_destroyed_often(store: MemoryStore) -> None:
    for _ in range(3):
        slow_handle(store).append("r")
        destroyed_and_launched(store)
    destroy(store, "Shop")
    before = set(store.list("Shop"))
    delete_data(store, "Shop")
    assert set(store.list("Shop")) == before
    assert left(store) == []
    assert len([key for key in before if is_deletion_mark(key)]) == 4 * 3
    assert replace(newest(store), number=0).is_destroyed
