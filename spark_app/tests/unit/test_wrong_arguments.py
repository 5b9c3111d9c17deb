"""What clients and handles say of arguments that cannot be: one of Tidemill's errors, never one from inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from gateways import launched

from tidemill import (
    Agg,
    BadInput,
    BadPath,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    OptionError,
    Path,
    PState,
    StoreRefused,
    TidemillError,
    UnknownName,
    scan,
    scan_depot,
)
from tidemill.client import Client

WRONG = [
    None, 5, -1, 1.5, float("nan"), True, "", "nope", "a/b", b"x", [], [1], {}, {(1, 2): 3}, set(), object, object(),
    len, 2**70, "\ud800", Path.key("a"), [object()], {"k": object()}, 1 + 2j, range(3), Ops.PLUS,
]  # fmt: skip
"""Values of every kind that a caller may mix up."""


class Words(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*notes", Depot.random())  # takes what nothing could process
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*word")
           .each(Ops.FIRST, "*word").out("*k")
           .compound_agg("$$counts", CompoundAgg.map("*k", Agg.count())))  # fmt: skip
        topologies.query("echo", "*a").out("*b").each(Ops.IDENTITY, "*a").out("*b").origin_partition()


@pytest.fixture(scope="module", params=["process", "http"])
def reached(request: pytest.FixtureRequest) -> Iterator[Any]:
    with launched(request.param, Words(), LaunchConfig(2, 2)) as cluster:
        cluster.cluster_depot("Words", "*words").append(["a", 1])
        cluster.wait_until_processed("Words")
        yield cluster


def handles(cluster: Any) -> tuple[Any, Any, Any, Any]:
    """What has equal methods in a process and over HTTP: depot, PState, query, quarantine."""
    quarantine = getattr(cluster, "client", cluster).quarantine("Words", "mb")
    return (
        cluster.cluster_depot("Words", "*notes"),
        cluster.cluster_pstate("Words", "$$counts"),
        cluster.cluster_query("Words", "echo"),
        quarantine,
    )


def refused(call: Callable[..., Any], *right: Any, **options: Any) -> list[str]:
    """Calls that raise what is no error of Tidemill's, with a wrong value at each place in turn."""
    found = []
    for place in [*range(len(right)), *options]:
        for wrong in WRONG:
            args = [wrong if place == index else value for index, value in enumerate(right)]
            named = {
                name: wrong if name == place else value for name, value in options.items() if value or name == place
            }
            try:
                call(*args, **named)
            except (TidemillError, TimeoutError):
                continue
            except Exception as error:  # noqa: BLE001 - this is what is looked for
                found.append(f"{wrong!r} at {place}: {type(error).__name__}: {error}")
    return found


def test_no_error_comes_from_inside_when_a_handle_gets_any_value_at_any_place(reached: Any) -> None:
    depot, pstate, query, quarantine = handles(reached)
    word, key = ["a", 1], Path.key("a")
    found = [
        *refused(depot.append, word, ack=None), *refused(depot.append, word, producer="p", sequence=1),
        *refused(depot.append_many, [word]), *refused(depot.append_many, [word], producer="p", sequence=1),
        *refused(depot.read, 0, 0, 1), *refused(depot.get_partition_info, 0),
        *refused(pstate.select, key, pkey=None, max_staleness_ms=None), *refused(pstate.select_one, key),
        *refused(lambda value: pstate.select(Path.key(value)), "a"),
        *refused(pstate.select_many, [key], max_staleness_ms=None),
        *refused(lambda path: pstate.select_many([path]), key),
        *refused(pstate.page, 10, path=None, after=None), *refused(pstate.at, 1), *refused(pstate.at, microbatch=1),
        *refused(pstate.diff_page, 0, 1, path=None, cursor=None, limit=None),
        *refused(query.invoke, "a"),
        *refused(quarantine.records, 10, -1), *refused(quarantine.record, 0),
        *refused(quarantine.retry, [0]), *refused(quarantine.drop, [0]), *refused(lambda n: quarantine.retry([n]), 0),
    ]  # fmt: skip
    assert found == []


def test_no_error_comes_from_inside_when_a_cluster_gets_any_value_at_any_place(reached: Any) -> None:
    found = [
        *refused(reached.cluster_depot, "Words", "*words"), *refused(reached.cluster_pstate, "Words", "$$counts"),
        *refused(reached.cluster_query, "Words", "echo"), *refused(reached.quarantine, "Words", "mb"),
        *refused(reached.microbatch_state, "Words", "mb"), *refused(reached.get_microbatch_depot_info, "Words", "mb"),
        *refused(reached.wait_for_microbatch_processed_count, "Words", "mb", 1, 1),
        *refused(reached.wait_until_processed, "Words", "mb", 1),
        *refused(reached.pause_microbatch_topology, "Words", "mb", 1),
        *refused(reached.resume_microbatch_topology, "Words", "mb"), *refused(reached.destroy_module, "Nothing"),
        *refused(lambda value: reached.update_module(Words, value), object()),
    ]  # fmt: skip
    reached.resume_microbatch_topology("Words", "mb")
    assert found == []


def test_no_error_comes_from_inside_when_a_scan_gets_any_value_at_any_place(reached: Any) -> None:
    store = reached.store
    found = [
        *refused(lambda *args: scan(*args), store, "Words", "counts"),
        *refused(lambda value: scan_depot(store, "Words", "words", schema=value), {}),
        *refused(lambda *args: scan_depot(*args), store, "Words", "words"),
        *refused(lambda value: scan(store, "Words", "counts", table=value), ""),
        *refused(lambda value: scan(store, "Words", "counts", microbatch=value), 1),
    ]  # fmt: skip
    assert found == []


def test_nothing_is_written_to_the_current_folder_when_a_scan_names_no_store(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreRefused, match="store= is a folder or a URL such as s3://bucket/prefix, not ''"):
        scan("", "Words", "counts")
    assert list(tmp_path.iterdir()) == []


def test_no_error_comes_from_inside_when_a_client_gets_any_value_at_any_place() -> None:
    option = "depot.microbatch.max.records"
    with launched("http", Words(), LaunchConfig(2, 2)) as cluster:
        client = cluster.client
        found = [
            *refused(client.depot, "Words", "words"), *refused(client.pstate, "Words", "counts"),
            *refused(client.query, "Words", "echo", "local"), *refused(client.quarantine, "Words", "mb"),
            *refused(client.definition, "Words"), *refused(client.status, "Words", "mb"),
            *refused(client.options, "Words"),
            *refused(client.set_option, "Words", option, 5, topology=None, depot=None, pstate=None),
            *refused(client.unset_option, "Words", option, topology=None, depot=None, pstate=None),
            *refused(client.pause_microbatch_topology, "Words", "mb"),
            *refused(client.resume_microbatch_topology, "Words", "mb"),
            *refused(client.wait_until_processed, "Words", "mb", 0.001),
            *refused(lambda url, **options: Client(url, **options).close(), "http://h:1", token=None, retry_seconds=1),
        ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda pstate, **_: pstate.select_many(Path.key("a")), BadPath, "takes a list of paths, such as [Path.key"),
        (lambda pstate, **_: pstate.select(Path.key("a"), max_staleness_ms="5"), BadInput, "max_staleness_ms= is a n"),
        (lambda quarantine, **_: quarantine.drop(5), BadInput, "a list, such as [0, 1], or None for all; not 5"),
        (lambda quarantine, **_: quarantine.record("1"), BadInput, "a whole number of 64 bits, not '1'"),
        (lambda reached, **_: reached.cluster_depot(None, "*words"), UnknownName, "of a module is a text, not None"),
        (lambda reached, **_: reached.cluster_pstate("Words", ["x"]), UnknownName, "name of a PState is a text, not"),
        (lambda reached, **_: reached.cluster_depot("Words", "\ud800"), UnknownName, "a name has no lone surrogate"),
        (lambda reached, **_: reached.pause_microbatch_topology("Words", "mb", "x"), BadInput, "timeout_millis= is"),
    ],
)  # fmt: skip
def test_the_argument_is_named_when_it_is_of_a_wrong_kind(
    reached: Any, call: Callable[..., Any], kind: type[BadInput], told: str
) -> None:
    _, pstate, _, quarantine = handles(reached)
    with pytest.raises(kind, match=re.escape(told)):
        call(reached=reached, pstate=pstate, quarantine=quarantine)


def test_no_pause_is_left_when_its_timeout_is_no_number(reached: Any) -> None:
    with pytest.raises(BadInput, match="timeout_millis"):
        reached.pause_microbatch_topology("Words", "mb", None)
    reached.cluster_depot("Words", "*words").append(["b", 1])
    reached.wait_until_processed("Words")
    assert reached.cluster_pstate("Words", "$$counts").select_one(Path.key("b")) >= 1


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda client: client.set_option("Words", ["x"], 5), OptionError, "name of an option is a text, not ['x']"),
        (lambda client: client.set_option("Words", "a", object()), BadInput, "The option holds what is no data"),
        (lambda client: client.wait_until_processed("Words", timeout_seconds=None), BadInput, "timeout_seconds= is"),
        (lambda client: client.status(5, "mb"), UnknownName, "The name of a module is a text, not 5"),
        (lambda client: Client("http://h", token=b"secret"), BadInput, "A token is a text, not a bytes"),  # type: ignore[arg-type]
        (lambda client: Client("http://h", retry_seconds="3"), BadInput, "retry_seconds= is a num"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_client_names_the_argument_when_it_is_of_a_wrong_kind(
    call: Callable[[Client], object], kind: type[BadInput], told: str
) -> None:
    with Client("http://127.0.0.1:9", retry_seconds=0) as client, pytest.raises(kind, match=re.escape(told)):
        call(client)


@pytest.mark.parametrize("store", [5, b"x", "\ud800", ["s3://a"]])
def test_a_store_is_refused_by_a_sentence_when_it_is_no_folder_and_no_url(store: Any) -> None:
    with pytest.raises(StoreRefused, match="store= is a folder or a URL"):
        InProcessCluster.create(store=store)
