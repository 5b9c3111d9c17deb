"""Stories of depots whose records an update migrates: everybody reads them through the function, and offsets stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill import (
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
)
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.leader.check import check_module
from tidemill.testing.fault_points import FaultPoints
from tidemill.values.errors import MicrobatchFails, NeedsCode, UserCodeError

NAME, AT = "Sales", ("Sales", "mb")
BEGINNING = MicrobatchSourceOptions.start_from_beginning()


def in_euro(sale: Any) -> Any:
    """Adds a currency to the records that have none, and takes those away that sold nothing."""
    if sale["amount"] == 0:
        return Depot.TOMBSTONE
    return sale if "currency" in sale else {**sale, "currency": "EUR"}


class Sales(Module):
    """Sales by number; `source_id` names another source, which reads all of them again."""

    def __init__(self, migration: Any = None, source_id: str = "first", schema: Any = None) -> None:
        self.migration, self.source_id, self.schema = migration, source_id, schema

    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        depot = setup.declare_depot("*sales", Depot.random()).global_()
        if self.schema is not None:
            depot.schema(self.schema)
        if self.migration is not None:
            depot.migration(*self.migration)
        mb = topologies.microbatch("mb")
        mb.pstate("$$sales", PState.map_schema(int, object))
        (
            mb.source("*sales", BEGINNING.source_id(self.source_id)).out("*m")
            .explode_microbatch("*m").out("*sale")
            .each(Ops.GET, "*sale", "number").out("*number")
            .hash_partition("*number")
            .local_transform("$$sales", Path.key("*number").term_val("*sale"))
        )  # fmt: skip


def sale(number: int, **fields: Any) -> dict[str, Any]:
    return {"number": number, "amount": number * 10, **fields}


def euro(number: int) -> dict[str, Any]:
    return sale(number, currency="EUR")


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Sales(), LaunchConfig(4, 2))
        yield cluster


def append(cluster: InProcessCluster, *records: Any) -> None:
    for record in records:
        cluster.cluster_depot(NAME, "*sales").append(record)


def stored(cluster: InProcessCluster, *numbers: int) -> list[Any]:
    return [cluster.cluster_pstate(NAME, "$$sales").select_one(Path.key(number)) for number in numbers]


def test_readers_see_migrated_records_and_the_same_offsets_when_the_module_was_updated(cluster: Any) -> None:
    append(cluster, sale(1), sale(0), sale(2))
    cluster.wait_for_microbatch_processed_count(*AT, 3)
    cluster.update_module(Sales(("euro", in_euro), "again"))
    append(cluster, sale(3), sale(4, currency="USD"))
    cluster.wait_for_microbatch_processed_count(*AT, 3 + 5)
    assert stored(cluster, 1, 2, 3, 4) == [euro(1), euro(2), euro(3), sale(4, currency="USD")]
    depot = cluster.cluster_depot(NAME, "*sales")
    assert depot.read(0, 0, 5) == [euro(1), euro(2), euro(3), sale(4, currency="USD")]
    assert depot.read(0, 1, 2) == []
    assert depot.read(0, 2, 3) == [euro(2)]
    info = depot.get_partition_info(0)
    assert (info.start_offset, info.end_offset) == (0, 5)
    assert check_module(cluster.store, NAME) == []


def test_records_are_as_if_stored_when_a_migration_returns_tuples_or_what_it_keeps(cluster: Any) -> None:
    append(cluster, sale(1), sale(2))
    kept: dict[str, Any] = {}

    def shared(found: Any) -> Any:
        kept.update(number=found["number"], at=(found["amount"], [(1, 2)], frozenset({3})))
        return kept

    cluster.update_module(Sales(("shared", shared)))

    assert cluster.cluster_depot(NAME, "*sales").read(0, 0, 2) == [
        {"number": number, "at": [number * 10, [[1, 2]], {3}]} for number in (1, 2)
    ]


def test_retry_reads_the_same_when_an_attempt_fails_behind_the_migration(cluster: Any) -> None:
    points = FaultPoints()

    class Failing(Sales):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*sales", Depot.random()).global_().migration("euro", in_euro)
            mb = topologies.microbatch("mb")
            mb.pstate("$$sales", PState.map_schema(int, object))

            def passed(record: Any) -> Any:
                points.reach("record")
                return record

            (
                mb.source("*sales", BEGINNING.source_id("again")).out("*m")
                .explode_microbatch("*m").out("*sale")
                .each(passed, "*sale").out("*same")
                .each(Ops.GET, "*same", "number").out("*number")
                .hash_partition("*number")
                .local_transform("$$sales", Path.key("*number").term_val("*same"))
            )  # fmt: skip

    append(cluster, sale(1), sale(0), sale(2))
    cluster.wait_for_microbatch_processed_count(*AT, 3)
    points.arm("record", times=2)
    cluster.update_module(Failing())
    cluster.wait_for_microbatch_processed_count(*AT, 6)
    assert stored(cluster, 1, 2) == [euro(1), euro(2)]


def test_microbatch_waits_with_a_clear_error_when_the_function_raises(cluster: Any) -> None:
    def picky(record: Any) -> Any:
        return {**record, "share": 100 // record["amount"]} if "share" not in record else record

    append(cluster, sale(1), sale(0))
    cluster.wait_for_microbatch_processed_count(*AT, 2)
    cluster.update_module(Sales(("share", picky), "again"))
    with pytest.raises(MicrobatchFails, match=r"migration 'share' of \*sales at .* raised ZeroDivisionError"):
        cluster.wait_for_microbatch_processed_count(*AT, 4)
    with pytest.raises(UserCodeError, match=r"at offset 1 of partition 0 of \*sales"):
        cluster.cluster_depot(NAME, "*sales").read(0, 0, 2)
    assert cluster.cluster_depot(NAME, "*sales").read(0, 0, 1) == [{**sale(1), "share": 10}]
    cluster.update_module(Sales(("euro", in_euro), "again"))
    cluster.wait_for_microbatch_processed_count(*AT, 4)
    assert stored(cluster, 1) == [euro(1)]


def test_result_is_refused_when_it_is_no_record_of_the_depot(cluster: Any) -> None:
    append(cluster, sale(1))
    cluster.update_module(Sales(("none", lambda record: object())))
    with pytest.raises(UserCodeError, match="returned no record"):
        cluster.cluster_depot(NAME, "*sales").read(0, 0, 1)
    cluster.update_module(Sales(("text", lambda record: "text"), schema=PState.fixed_keys_schema("number", int)))
    with pytest.raises(UserCodeError, match="returned no record"):
        cluster.cluster_depot(NAME, "*sales").read(0, 0, 1)


def test_new_migration_begins_with_the_records_as_they_were_appended(cluster: Any) -> None:
    append(cluster, sale(1))
    cluster.update_module(Sales(("euro", in_euro)))
    cluster.update_module(Sales(("short", lambda record: {"n": record["number"]} if "n" not in record else record)))
    assert cluster.cluster_depot(NAME, "*sales").read(0, 0, 1) == [{"n": 1}]


def test_schema_of_records_may_change_when_a_migration_makes_the_new_ones(cluster: Any) -> None:
    old = PState.fixed_keys_schema("number", int, "amount", int)
    new = PState.fixed_keys_schema("number", int, "price", float)

    def priced(record: Any) -> Any:
        return record if "price" in record else {"number": record["number"], "price": record["amount"] / 100}

    with InProcessCluster.create() as fresh:
        fresh.launch_module(Sales(schema=old), LaunchConfig(1, 1))
        append(fresh, sale(1))
        with pytest.raises(DefinitionError, match="changes the schema of its records"):
            fresh.update_module(Sales(schema=new))
        fresh.update_module(Sales(("priced", priced), schema=new))
        append(fresh, {"number": 2, "price": 0.5})
        assert fresh.cluster_depot(NAME, "*sales").read(0, 0, 2) == [
            {"number": 1, "price": 0.1}, {"number": 2, "price": 0.5},
        ]  # fmt: skip


def test_update_is_refused_when_it_would_lose_the_migration(cluster: Any) -> None:
    append(cluster, sale(1))
    cluster.update_module(Sales(("euro", in_euro)))
    with pytest.raises(DefinitionError, match=r"\*sales: loses its migration 'euro'"):
        cluster.update_module(Sales())
    assert cluster.cluster_depot(NAME, "*sales").read(0, 0, 1) == [euro(1)]


def test_reader_without_the_code_is_told_so(tmp_path: Folder) -> None:
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Sales(("euro", in_euro)), LaunchConfig(1, 1))
        append(cluster, sale(1))
        foreign = DepotHandle(ModuleClient(cluster.store, NAME), "*sales")
        with pytest.raises(NeedsCode, match=r"The migration 'euro' of \*sales is a function of the module's code"):
            foreign.read(0, 0, 1)


def test_records_are_migrated_again_when_the_module_was_restarted(tmp_path: Folder) -> None:
    for module in (Sales(), Sales(("euro", in_euro), "again")):
        with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
            if module.migration is None:
                cluster.launch_module(module, LaunchConfig(4, 2))
                append(cluster, sale(1), sale(0))
                cluster.wait_for_microbatch_processed_count(*AT, 2)
                cluster.update_module(Sales(("euro", in_euro)))
            else:
                cluster.launch_module(Sales(("euro", in_euro)), LaunchConfig(4, 2))
                cluster.update_module(module)
                cluster.wait_for_microbatch_processed_count(*AT, 4)
                assert stored(cluster, 1) == [euro(1)]
