"""Apache Iceberg, a real catalog in SQLite: what committed microbatches appended is in a table once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path as Folder
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import FloatType, IntegerType, NestedField, StringType
from rest_catalog import RestCatalogServer
from sink_modules import Selling, delivery
from waiting import eventually

from tidemill import (
    BadInput,
    CorruptState,
    ExternalUnavailable,
    IcebergSink,
    InProcessCluster,
    LaunchConfig,
    TaskGlobalContext,
)
from tidemill.sinks import iceberg

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def properties(tmp_path: Folder) -> dict[str, str]:
    """A catalog with the empty tables `shop.orders` and `shop.totals`."""
    found = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    (tmp_path / "warehouse").mkdir()
    catalog = load_catalog("test", **found)
    catalog.create_namespace("shop")
    schema = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("note", pa.string())])
    catalog.create_table("shop.orders", schema)
    catalog.create_table("shop.totals", pa.schema([("user", pa.string()), ("total", pa.int64())]))
    catalog.close()
    return found


@contextmanager
def opened(
    properties: dict[str, str], table: str = "shop.orders", timeout_seconds: float = 60.0, **columns: Any
) -> Iterator[IcebergSink]:
    columns = columns or {"user": str, "amount": int}
    sink = IcebergSink(table, columns=columns, catalog="test", properties=properties, timeout_seconds=timeout_seconds)
    sink.prepare_for_task(TaskGlobalContext("M", "*rows"))
    yield sink
    sink.close()


@contextmanager
def loaded(properties: dict[str, str], table: str = "shop.orders") -> Iterator[Table]:
    catalog: Catalog = load_catalog("test", **properties)
    yield catalog.load_table(table)
    catalog.close()


def rows(properties: dict[str, str], table: str = "shop.orders") -> list[dict[str, Any]]:
    with loaded(properties, table) as found:
        return found.scan().to_arrow().to_pylist()


def amounts(properties: dict[str, str]) -> list[int]:
    return sorted(row["amount"] for row in rows(properties))


def order(number: int) -> dict[str, Any]:
    return {"user": f"u{number % 3}", "amount": number}


def test_rows_are_in_a_table_once_when_a_delivery_is_repeated(properties: dict[str, str]) -> None:
    with opened(properties) as sink:
        for _ in range(2):
            sink.deliver(delivery(1, order(1), order(2), order(3)))
        sink.deliver(delivery(4, order(4)))
        sink.deliver(delivery(1, order(9)))
    assert amounts(properties) == [1, 2, 3, 4]
    with loaded(properties) as table:
        summaries = [snapshot.summary for snapshot in table.snapshots()]
        assert [summary and summary["tidemill.microbatch"] for summary in summaries] == ["1", "4"]
        assert table.properties["tidemill.M.mb-1.rows-1"] == '["s", 4, "1=d1 4=d4"]'
        assert "commit.retry.num-retries" not in table.properties


def test_a_microbatch_of_several_files_is_one_commit(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "FILE_BYTES_MAX", 1)
    with opened(properties) as sink:
        sink.deliver(delivery(1, *map(order, range(7))))
        with loaded(properties) as table:
            assert len(table.metadata.metadata_log) == 1
            assert len(table.snapshots()) == 4
    assert amounts(properties) == list(range(7))


def test_values_of_each_kind_come_back_from_a_table(properties: dict[str, str]) -> None:
    kinds = {"text": str, "whole": int, "real": float, "yes": bool, "raw": bytes, "at": datetime, "any": object}
    types = [pa.string(), pa.int32(), pa.float64(), pa.bool_(), pa.binary(), pa.timestamp("us", "UTC"), pa.string()]
    with loaded(properties) as table:
        made = pa.schema([*zip(kinds, types, strict=True), ("other", pa.int64())])
        table.catalog.create_table("shop.kinds", made)
    at = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    row = {"text": "é\0", "whole": -5, "real": 0.5, "yes": True, "raw": b"\0", "at": at, "any": {"a": [1, None]}}
    with opened(properties, "shop.kinds", **kinds) as sink:
        sink.check(row)
        sink.deliver(delivery(1, row, {}))
    nothing = dict.fromkeys((*kinds, "other"))
    assert rows(properties, "shop.kinds") == [{**row, "any": '{"a": [1, null]}', "other": None}, nothing]


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        ({"user": str, "price": int}, {"price": 1}, "has no column price; it has user, amount, note"),
        ({"user": str, "amount": str}, {"amount": "ten"}, "ArrowInvalid|ArrowTypeError"),
    ],
)
def test_a_table_that_does_not_take_a_row_is_told(
    properties: dict[str, str], columns: dict[str, Any], row: dict[str, Any], said: str
) -> None:
    with opened(properties, **columns) as sink, pytest.raises((ExternalUnavailable, BadInput), match=said):
        sink.deliver(delivery(1, row))
    with opened(properties, "shop.nowhere") as sink, pytest.raises(ExternalUnavailable, match="NoSuchTableError"):
        sink.deliver(delivery(1, order(1)))
    assert rows(properties) == []


@pytest.mark.parametrize(
    ("kind", "of", "values", "said"),
    [
        (float, pa.int64(), [2.0, 1.5], "the column value has whole numbers, and a row has 1.5"),
        (int, pa.timestamp("us", "UTC"), [5], "is timestamp.*, and a row has a number"),
        (int, pa.date32(), [5, None], "is date32.*, and a row has a number"),
        (
            datetime,
            pa.date32(),
            [NOON.replace(hour=0), NOON],
            "the column value has days, and a row has the time 2026-01-02T12",
        ),
        (str, pa.int32(), ["x"], "table shop.others: .*: the column value is int32: .*'x'"),
        (bytes, pa.string(), [None, b"ab"], "the column value is large_string, and a row has b'ab'"),
        (str, pa.binary(), ["ab"], "the column value is large_binary, and a row has 'ab'"),
        (str, pa.binary(16), ["0123456789abcdef"], r"is fixed_size_binary\[16\], and a row has '0123456789abcdef'"),
        (str, pa.uuid(), ["0123456789abcdef"], "is extension.*uuid.*, and a row has '0123456789abcdef'"),
        (object, pa.binary(), [{"a": 1}], "is large_binary, and a row has '{\"a\": 1}'"),
        (bytes, pa.list_(pa.int64()), [b"ab"], "is large_list.*, and a row has b'ab'"),
        (bool, pa.float64(), [0.5, True], "the column value is double, and a row has True"),
    ],
)
def test_a_value_is_refused_when_its_column_would_make_another_one_of_it(
    properties: dict[str, str], kind: Any, of: Any, values: list[Any], said: str
) -> None:
    with loaded(properties) as table:
        table.catalog.create_table("shop.others", pa.schema([("value", of)]))
    with (
        opened(properties, "shop.others", value=kind) as sink,
        pytest.raises((BadInput, ExternalUnavailable), match=said),
    ):
        sink.deliver(delivery(1, *({"value": value} for value in values)))
    assert rows(properties, "shop.others") == []


def test_bytes_are_taken_by_each_column_that_keeps_them(properties: dict[str, str]) -> None:
    names = {"raw": pa.binary(), "fixed": pa.binary(16), "id": pa.uuid()}
    with loaded(properties) as table:
        table.catalog.create_table("shop.raw", pa.schema(list(names.items())))
    with opened(properties, "shop.raw", **dict.fromkeys(names, bytes)) as sink:
        sink.deliver(delivery(1, dict.fromkeys(names, bytes(range(16))), {}))
    [row, nothing] = rows(properties, "shop.raw")
    assert row == {"raw": bytes(range(16)), "fixed": bytes(range(16)), "id": UUID(bytes=bytes(range(16)))}
    assert nothing == dict.fromkeys(names)


def test_a_time_is_a_day_when_it_is_midnight_of_it(properties: dict[str, str]) -> None:
    with loaded(properties) as table:
        table.catalog.create_table("shop.days", pa.schema([("day", pa.date32())]))
    with opened(properties, "shop.days", day=datetime) as sink:
        sink.deliver(delivery(1, {"day": NOON.replace(hour=0)}, {}))
    assert [row["day"] for row in rows(properties, "shop.days")] == [NOON.date(), None]


def test_whole_floats_are_taken_by_a_column_of_whole_numbers(properties: dict[str, str]) -> None:
    with opened(properties, amount=float) as sink:
        sink.deliver(delivery(1, {"amount": 2.0}, {}))
    assert [row["amount"] for row in rows(properties)] == [2, None]


def test_a_required_column_is_never_empty_and_a_number_fits(properties: dict[str, str]) -> None:
    with loaded(properties) as table:
        user, amount = NestedField(1, "user", StringType(), True), NestedField(2, "amount", IntegerType())
        table.catalog.create_table("shop.strict", Schema(user, amount))
    with opened(properties, "shop.strict", user=str, amount=int) as sink:
        with pytest.raises(BadInput, match="the column user is required, and a row has none"):
            sink.deliver(delivery(1, {"amount": 1}))
        with pytest.raises(ExternalUnavailable, match="4000000000"):
            sink.deliver(delivery(1, {"user": "a", "amount": 4_000_000_000}))
        sink.deliver(delivery(1, {"user": "a", "amount": 4}))
    assert rows(properties, "shop.strict") == [{"user": "a", "amount": 4}]


def test_another_copy_of_the_store_is_refused_by_a_table(properties: dict[str, str]) -> None:
    with opened(properties) as sink:
        sink.deliver(delivery(5, order(5)))
        with pytest.raises(
            CorruptState, match="up to microbatch 5; .* set the table's property tidemill.M.mb-1.rows-1 to"
        ) as found:
            sink.deliver(replace(delivery(4, order(4), store="t"), restored_at=3))
        with pytest.raises(CorruptState, match="Other records of microbatch 5 are there"):
            sink.deliver(delivery(5, order(6), digest="other"))
        with loaded(properties) as table, table.transaction() as transaction:
            mark = str(found.value).partition(" to [")[2].rpartition(".")[0]
            transaction.set_properties({"tidemill.M.mb-1.rows-1": f"[{mark}"})
        sink.deliver(delivery(3, order(3), store="t"))
        sink.deliver(delivery(4, order(4), store="t"))
    assert amounts(properties) == [4, 5]


def test_two_leaders_commit_a_microbatch_once(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that it is not there before either of them commits."""
    commit, both, first = Table._do_commit, threading.Barrier(2), iter([True, True])

    def together(*given: Any, **named: Any) -> None:
        if next(first, False):
            both.wait(60)
        commit(*given, **named)

    monkeypatch.setattr(Table, "_do_commit", together)
    with opened(properties) as one, opened(properties) as other, ThreadPoolExecutor(2) as threads:
        made = delivery(1, order(1), order(2))
        for done in [threads.submit(sink.deliver, made) for sink in (one, other)]:
            done.result(60)
    assert amounts(properties) == [1, 2]


def test_rows_are_in_a_table_once_when_a_delivery_without_rows_comes_late(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at the table, and commits when the microbatch after it is there."""
    commit, is_first = Table._do_commit, iter([True])
    with opened(properties) as late, opened(properties) as sink:

        def overtaken(*given: Any, **named: Any) -> None:
            if next(is_first, False):
                sink.deliver(delivery(2, order(2)))
            commit(*given, **named)

        monkeypatch.setattr(Table, "_do_commit", overtaken)
        late.deliver(delivery(1))
        for number in (2, 1):
            sink.deliver(delivery(number, *[order(2)] * (number == 2)))
    assert amounts(properties) == [2]


def test_what_others_append_stays_when_they_are_faster(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, others = IcebergSink._tables, iter(range(100, 102))

    def overtaken(*given: Any) -> Iterator[pa.Table]:
        yield from tables(*given)
        for number in others:
            with loaded(properties) as table:
                table.append(pa.Table.from_pylist([{**order(number), "note": "theirs"}], table.schema().as_arrow()))
            break

    monkeypatch.setattr(IcebergSink, "_tables", overtaken)
    with opened(properties) as sink:
        sink.deliver(delivery(1, order(1)))
    assert amounts(properties) == [1, 100, 101]
    with loaded(properties) as table:
        assert len(table.snapshots()) == 3


@pytest.mark.parametrize("is_done", [False, True])
def test_rows_are_in_a_table_once_when_the_answer_to_a_commit_is_lost(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    commit, lost = Table._do_commit, iter([True])

    def cut(*given: Any, **named: Any) -> None:
        if not next(lost, False):
            return commit(*given, **named)
        if is_done:
            commit(*given, **named)
        raise OSError("the line is cut")

    monkeypatch.setattr(Table, "_do_commit", cut)
    with opened(properties) as sink:
        with pytest.raises(ExternalUnavailable, match="OSError: the line is cut"):
            sink.deliver(delivery(1, order(1)))
        sink.deliver(delivery(1, order(1)))
    assert amounts(properties) == [1]


@pytest.mark.parametrize(
    "faults",
    [["503"], ["before"], ["after"], ["500 after"], ["502 after"], ["504 after"], ["409"], ["409 after"], ["401 after"],
     ["419 after"], ["after", "503", "409 after"]],
    ids=str,
)  # fmt: skip
def test_rows_are_in_a_table_once_when_a_rest_catalog_answers_wrongly(tmp_path: Folder, faults: list[str]) -> None:
    server = RestCatalogServer(f"file://{tmp_path}")
    with load_catalog("test", **server.properties) as catalog:
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", pa.schema([("user", pa.string()), ("amount", pa.int64())]))
    with opened(server.properties) as sink:
        sink.deliver(delivery(1, order(1)))
        server.faults += faults
        for number in (2, 3):
            delivered = False
            while not delivered:
                with suppress(ExternalUnavailable):
                    sink.deliver(delivery(number, order(number)))
                    delivered = True
    assert amounts(server.properties) == [1, 2, 3]
    assert not server.faults
    server.close()


def test_a_table_can_be_read_when_a_commit_that_counted_is_called_refused(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a client repeats a request by itself, because the answer to the first one was lost."""
    commit, lost = Table._do_commit, iter([True])

    def repeated(*given: Any, **named: Any) -> None:
        commit(*given, **named)
        if next(lost, False):
            raise CommitFailedException("another version is there")

    monkeypatch.setattr(Table, "_do_commit", repeated)
    with opened(properties) as sink:
        for number in (1, 2):
            sink.deliver(delivery(number, order(number)))
    assert amounts(properties) == [1, 2]


def test_a_catalog_that_is_silent_is_not_waited_for(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load, answers = SqlCatalog.load_table, threading.Event()

    def silent(*given: Any) -> Table:
        found = load(*given)
        assert answers.wait(60)
        return found

    with opened(properties, timeout_seconds=0.05) as sink:
        monkeypatch.setattr(SqlCatalog, "load_table", silent)
        for _ in range(iceberg.LATE_MAX):
            with pytest.raises(ExternalUnavailable, match=r"took longer than timeout_seconds, 0\.05"):
                sink.deliver(delivery(1, order(1)))
        with pytest.raises(ExternalUnavailable, match="4 commits still wait .* start the process anew"):
            sink.deliver(delivery(1, order(1)))
        late = list(sink._late)
        answers.set()
        monkeypatch.undo()
        for each in late:  # they had seen the table before any of them wrote to it
            each.result(60)
    with opened(properties) as sink:
        sink.deliver(delivery(1, order(1)))
    assert amounts(properties) == [1]


def test_catalogs_are_closed_when_they_fail_and_with_their_sink(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, closing, events = iceberg.IcebergSink._connected, SqlCatalog.close, list[str]()
    monkeypatch.setattr(IcebergSink, "_connected", lambda sink: events.append("open") or opening(sink))
    monkeypatch.setattr(SqlCatalog, "close", lambda catalog: events.append("close") or closing(catalog))
    with opened(properties) as sink:
        for number in (1, 2):
            sink.deliver(delivery(number, order(number)))
        assert events == ["open"]
        with pytest.raises(ExternalUnavailable):
            sink.deliver(delivery(3, {"amount": "no number"}))
        assert events == ["open", "close"]
        sink.deliver(delivery(3, order(3)))
    assert events == ["open", "close"] * 2


def test_a_number_that_is_too_large_for_a_column_is_told(properties: dict[str, str]) -> None:
    with loaded(properties) as table:
        table.catalog.create_table("shop.small", Schema(NestedField(1, "real", FloatType())))
    with opened(properties, "shop.small", real=float) as sink:
        with pytest.raises(BadInput, match=r"the column real is a float of 32 bits, and a row has 1e\+300"):
            sink.deliver(delivery(1, {"real": 1e300}))
        sink.deliver(delivery(1, {"real": float("inf")}, {"real": None}, {"real": 0.5}))
    assert [row["real"] for row in rows(properties, "shop.small")] == [float("inf"), None, 0.5]


def test_a_module_appends_each_row_once_when_its_leader_dies_between_commits(
    properties: dict[str, str], tmp_path: Folder
) -> None:
    def module() -> Selling:
        given = {"catalog": "test", "properties": properties}
        orders = IcebergSink("shop.orders", columns={"user": str, "amount": int}, **given)
        return Selling(orders, IcebergSink("shop.totals", columns={"user": str, "total": int}, **given))

    for first in (0, 10):
        with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
            cluster.launch_module(module(), LaunchConfig(4, 2))
            depot = cluster.cluster_depot("Selling", "*in")
            depot.append_many([[f"u{n % 3}", n] for n in range(first, first + 10)])
            if first == 0:
                eventually(lambda: cluster.microbatch_state("Selling", "mb")[0] > 0, 60)
                cluster._running.pop("Selling").kill()
            else:
                cluster.wait_for_microbatch_processed_count("Selling", "mb", 20, 120_000)
    assert amounts(properties) == list(range(20))
    newest: dict[str, int] = {}
    for row in rows(properties, "shop.totals"):
        newest[row["user"]] = max(newest.get(row["user"], 0), row["total"])
    assert newest == {f"u{k}": sum(range(k, 20, 3)) for k in range(3)}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: IcebergSink("orders", columns={"a": int}), "The name of a table is a text such as 'namespace.table'"),
        (lambda: IcebergSink("shop.orders", columns={1: int}), "The name of a column is a text"),  # type: ignore[dict-item] # the mistake
    ],
)  # fmt: skip
def test_a_wrong_argument_of_an_iceberg_table_is_refused_where_it_is_written(make: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        make()
