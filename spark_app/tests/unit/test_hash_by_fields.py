"""Depots that are partitioned by fields of dict records: who appends needs no code of the module."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from gateways import WAYS, served

from tidemill import Depot, InProcessCluster, LaunchConfig, Module, RecordRefused
from tidemill.api.declaration import record_module
from tidemill.cli.verdict import needs_code, partitioner_text
from tidemill.client import Client
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.clients.partition_choice import partition_of, partitions_of
from tidemill.definition import definition as definitions
from tidemill.definition.stored import StoredDepot
from tidemill.definition.stored_json import JSON
from tidemill.gateway.modules import Modules
from tidemill.values.columns import from_values
from tidemill.values.data import route
from tidemill.values.ids import Ids

TASKS = 4
BY_USER = StoredDepot("*d", "1", "hash_by", fields=("user",))
BY_BOTH = StoredDepot("*d", "1", "hash_by", fields=("user", "n"))


class Accounts(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*user", Depot.hash_by("user"))
        setup.declare_depot("*both", Depot.hash_by(["user", "n"]))


@pytest.mark.parametrize("way", WAYS)
def test_record_goes_where_its_field_hashes_when_appended_without_the_code(way: str) -> None:
    rows = [{"user": user, "n": n} for n, user in enumerate(["ann", "bob", "cy", "dan"])]
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Accounts(), LaunchConfig(TASKS, 2))
        with served(Modules(cluster.store)) as server, Client(server.url) as client:
            handles: dict[str, Any] = {name: _handle(way, cluster, client, name) for name in ("*user", "*both")}
            for handle in handles.values():
                handle.append(rows[0])
                handle.append_many(rows[1:])
                handle.append_many(pl.DataFrame(rows))
        for name, key in (("*user", lambda r: r["user"]), ("*both", lambda r: [r["user"], r["n"]])):
            read = cluster.cluster_depot("Accounts", name)
            for partition in range(TASKS):
                start, end = read.get_partition_info(partition)
                expected = [row for row in rows if route(key(row), TASKS) == partition]
                assert sorted(read.read(partition, start, end), key=str) == sorted(expected * 2, key=str)


def _handle(way: str, cluster: InProcessCluster, client: Client, name: str) -> Any:
    if way == "http":
        return client.depot("Accounts", name)
    return DepotHandle(ModuleClient(cluster.store, "Accounts"), name)


@pytest.mark.parametrize(
    ("records", "index", "text"),
    [
        ([{"user": "a"}, {"usr": "b", "n": 1}], 11, "Record 11: the record has no field 'user'; it has usr, n."),
        ([{"usr": "a"}, {"usr": "b"}], 10, "Record 10: the record has no field 'user'; it has usr."),
        ([{"user": "a"}, ["b"]], 11, "Record 11: the record is a list, not a dict with field 'user'."),
        (["a", "b"], 10, "Record 10: the record is a str, not a dict with field 'user'."),
        ([["a", 1], ["b", 2]], 10, "Record 10: the record is a list, not"),
        ([{}], 10, "no field at all"),
        ([None], 10, "is a NoneType"),
    ],
)
@pytest.mark.parametrize("partitions", [1, 4])
def test_append_is_refused_when_a_record_lacks_the_field(
    records: list[Any], index: int, text: str, partitions: int
) -> None:
    with pytest.raises(RecordRefused) as caught:
        partitions_of(BY_USER, None, from_values(records), partitions, 10)
    assert text in str(caught.value)
    assert "*d is partitioned by field 'user'." in str(caught.value)
    assert caught.value.context["index"] == index
    with pytest.raises(RecordRefused, match="^The record "):
        partition_of(BY_USER, None, records[index - 10], partitions)


def test_all_missing_fields_are_named_when_several_are() -> None:
    with pytest.raises(RecordRefused, match="has no fields 'user', 'n'; it has x. .* by fields 'user', 'n'"):
        partition_of(BY_BOTH, None, {"x": 1}, 4)


def test_nothing_is_appended_when_one_record_of_many_lacks_the_field() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Accounts(), LaunchConfig(TASKS, 2))
        handle = cluster.cluster_depot("Accounts", "*user")
        with pytest.raises(RecordRefused) as caught:
            handle.append_many([{"user": 1}, {"x": 1}])
        assert (caught.value.context["index"], caught.value.context["appended"]) == (1, 0)
        assert [handle.get_partition_info(p).end_offset for p in range(TASKS)] == [0] * TASKS


def test_fields_are_in_the_definition_when_it_is_stored_and_need_no_code() -> None:
    stored = definitions.launch(record_module(Accounts()), TASKS, 2, Ids(1))
    again = JSON.decode(JSON.encode(stored, "key"), "key")
    assert again == stored
    assert again.depot("*both").fields == ("user", "n")
    assert not needs_code(again)
    texts = [partitioner_text(depot) for depot in record_module(Accounts()).depots]
    assert texts == ["hash_by('user')", "hash_by('user', 'n')"]
