"""PostgreSQL, a real server: what committed microbatches appended is in its tables once, whatever dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest
from killed_delivery import STEPS
from postgres_process import PostgresProcess
from sink_modules import Selling, WithoutOrders, delivery, selling
from waiting import eventually

from tidemill import (
    BadInput,
    CorruptState,
    ExternalUnavailable,
    InProcessCluster,
    LaunchConfig,
    MicrobatchFails,
    OutputParquetExecutor,
    PostgresPublishExecutor,
    PostgresSink,
    PState,
    TaskGlobalContext,
    TaskGraph,
    UpdateOptions,
    UserCodeError,
)
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.restore import plan_restore, restore
from tidemill.sinks import postgres_server
from tidemill.sinks.deliveries import KNOWN_MAX
from tidemill.sinks.postgres_server import PostgresServer
from tidemill.sinks.postgres_table import PostgresTable
from tidemill.store.urls import connect, forget_stores, open_store

KINDS = {
    "text": str, "whole": int, "real": float, "yes": bool, "raw": bytes, "at": datetime, "any": object,
    "many": PState.list_schema(int),
}  # fmt: skip


@pytest.fixture
def database(postgres: PostgresProcess) -> Iterator[PostgresProcess]:
    """Empty tables `orders` and `totals`."""
    made = ('orders ("user" text, amount bigint)', 'totals ("user" text PRIMARY KEY, total bigint)')
    postgres.fresh(*(f"CREATE TABLE {each}" for each in made))
    yield postgres


@contextmanager
def opened(database: PostgresProcess, **options: Any) -> Iterator[PostgresSink]:
    given: dict[str, Any] = {"table": "orders", "columns": {"user": str, "amount": int}, **options}
    sink = PostgresSink(conninfo=database.conninfo, **given)
    sink.prepare_for_task(TaskGlobalContext("M", "*rows"))
    yield sink
    sink.close()


def order(number: int) -> dict[str, Any]:
    return {"user": f"u{number % 3}", "amount": number}


def amounts(database: PostgresProcess) -> list[int]:
    return [amount for (amount,) in database.rows("SELECT amount FROM orders ORDER BY amount")]


def statements_of(text: str) -> list[str]:
    """What a person is told to run."""
    return re.findall(r"To go on with this one, run (UPDATE .*? AND sink = '[^']*')", text)


# --- deliveries ---


def test_rows_are_there_once_when_a_delivery_is_repeated(database: PostgresProcess) -> None:
    with opened(database) as sink:
        for _ in range(2):
            sink.deliver(delivery(1, order(1), order(2), order(3)))
        sink.deliver(delivery(4, order(4)))
        sink.deliver(delivery(1, order(9)))  # a leader that was replaced
    assert amounts(database) == [1, 2, 3, 4]
    assert database.rows("SELECT module, topology, sink, store, microbatch FROM tidemill_progress") == [
        ("M", "mb-1", "rows-1", "s", 4)
    ]


def test_the_last_row_of_a_key_counts_when_rows_take_the_place_of_others(database: PostgresProcess) -> None:
    with opened(database, table="public.totals", columns={"total": int, "user": str}, key="user") as sink:
        rows = [{"user": f"u{n % 3}", "total": n} for n in range(7)]
        sink.deliver(delivery(1, *rows))
        sink.deliver(delivery(2, {"user": "u1", "total": None}, {"user": "u9"}))
    assert database.rows('SELECT * FROM totals ORDER BY "user"') == [("u0", 6), ("u1", None), ("u2", 5), ("u9", None)]


def test_rows_that_are_only_a_key_are_there_once(database: PostgresProcess) -> None:
    with opened(database, table="totals", columns={"user": str}, key=("user",)) as sink:
        sink.deliver(delivery(1, {"user": "a"}, {"user": "a"}))
        sink.deliver(delivery(2, {"user": "a"}, {"user": "b"}))
    assert database.rows('SELECT * FROM totals ORDER BY "user"') == [("a", None), ("b", None)]


def test_values_of_each_kind_come_back(database: PostgresProcess) -> None:
    database.run(
        "CREATE TABLE kinds (text text, whole bigint, real float8, yes bool, raw bytea, at timestamptz, any_ jsonb, "
        "many text)"
    )
    columns = {"any_" if name == "any" else name: kind for name, kind in KINDS.items()}
    row = {
        "text": 'tab\t"quote"\\N\nnext é', "whole": -(2**63), "real": float("inf"), "yes": True, "raw": b"\0\\x",
        "at": datetime(2026, 1, 2, 3, 4, 5, 678, UTC), "any_": {"a": [1, None, "\\u0000"]}, "many": [1, 2],
    }  # fmt: skip
    with opened(database, table="kinds", columns=columns) as sink:
        sink.check(row)
        sink.deliver(delivery(1, row, {}))
    assert database.rows("SELECT * FROM kinds") == [(*row.values(),)[:-1] + ("[1, 2]",), (None,) * 8]


NIGHT = datetime(2024, 1, 1, 23, 30, tzinfo=UTC)
SPLIT = datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    ("column", "kind", "value", "said"),
    [
        ("date", datetime, NIGHT, "has days"),
        ("time", datetime, NIGHT, "has times of a day"),
        ("timetz", datetime, NIGHT, "has times of a day"),
        ("float8", int, 2**53 + 1, "has floats"),
        ("real", int, 2**24 + 1, "has floats of 32 bits"),
        ("bytea", str, "\\x41", "has bytes"),
        ("text", bytes, b"A", "has texts"),
        ("varchar(9)", bool, True, "has texts"),
        ("bytea", int, 41, "has bytes"),
        ("bool", int, 1, "has truths"),
        ("date", int, 20260102, "has days"),
        ("time", int, 120000, "has times of a day"),
        ("timestamp", int, 20260102, "has times"),
        ("timestamptz", float, 20260102.0, "has times"),
        ("interval", int, 5, "has times"),
        ("money_", int, 2**53 + 1, "has floats"),
    ],
)
@pytest.mark.parametrize("key", [(), "id"])
def test_a_value_is_refused_when_the_column_would_change_it(
    database: PostgresProcess, column: str, kind: Any, value: Any, said: str, key: Any
) -> None:
    database.fresh("CREATE DOMAIN money_ AS float8", f"CREATE TABLE changing (id int PRIMARY KEY, v {column})")
    with opened(database, table="changing", columns={"id": int, "v": kind}, key=key) as sink:
        with pytest.raises(BadInput, match=f"the column v {said}"):
            sink.deliver(delivery(1, {"id": 1, "v": value}))
        sink.deliver(delivery(1, {"id": 1, "v": None}))
    assert database.rows("SELECT * FROM changing") == [(1, None)]


@pytest.mark.parametrize(
    ("column", "kind", "value", "held"),
    [
        ("date", datetime, datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1)),
        ("timestamptz(3)", datetime, SPLIT, SPLIT.replace(microsecond=123000)),
        ("timestamptz", datetime, SPLIT, SPLIT),
        ("float8", int, 2**53 + 2, 2**53 + 2),
        ("real", int, 2**24, 2**24),
        ("real", float, 0.1, pytest.approx(0.1)),
        ("numeric(10, 2)", float, 0.254, Decimal("0.25")),
        ("numeric(10, 2)", int, 7, 7),
        ("numeric", float, 0.1, Decimal("0.1")),
        ("text", str, "é", "é"),
        ("bytea", bytes, b"\0A", b"\0A"),
        ("smallint", int, -3, -3),
        ("bool", bool, True, True),
        ("varchar(3)", str, "abc", "abc"),
    ],
)
def test_a_value_is_written_when_the_column_keeps_it(
    database: PostgresProcess, column: str, kind: Any, value: Any, held: Any
) -> None:
    database.fresh(f"CREATE TABLE kept (v {column})")
    with opened(database, table="kept", columns={"v": kind}) as sink:
        sink.deliver(delivery(1, {"v": value}))
    assert database.rows("SELECT v FROM kept") == [(held,)]


def test_rows_are_written_when_nobody_may_read_the_table(database: PostgresProcess) -> None:
    database.fresh("DROP ROLE IF EXISTS writer", "CREATE ROLE writer LOGIN", "CREATE TABLE secret (v date)",
                   "GRANT INSERT ON secret TO writer", "GRANT ALL ON SCHEMA public TO writer")  # fmt: skip
    with opened(database, table="secret", columns={"v": datetime}) as sink:
        sink._settings |= {"user": "writer"}
        sink.deliver(delivery(1, {"v": datetime(2024, 1, 1, tzinfo=UTC)}))
    assert database.rows("SELECT count(*) FROM secret") == [(1,)]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"user": None, "note": "x"}, "The column 'user' of the key is None."),
        ({"user": "a\0b"}, "The column 'user' holds the character 0"),
        ({"user": "a", "note": {"deep": ["\0"]}}, "The column 'note' holds the character 0"),
        ({"user": "a", "note": {"deep": float("nan")}}, "The column 'note' goes as JSON, which does not hold this"),
        ({"user": "a", "note": b"x"}, "The column 'note' goes as JSON, which does not hold this"),
        ({"user": "a", "note": [{1: "x", "1": "y"}]}, "does not hold this: two of the keys 1, '1' are the same text"),
    ],
)
def test_a_row_that_no_table_takes_is_refused_before_it_is_committed(
    database: PostgresProcess, record: Any, said: str
) -> None:
    sink = PostgresSink("t", columns={"user": str, "note": object}, key="user")
    with pytest.raises(BadInput, match=said):
        sink.check(record)


@pytest.mark.parametrize(
    ("options", "rows", "said"),
    [
        ({"table": "nowhere"}, [order(1)], 'relation "nowhere" does not exist'),
        ({"columns": {"user": str, "price": int}}, [{"price": 1}], 'column "price" of relation "orders" does'),
        ({"table": "small"}, [{"amount": 1}, {"amount": 40_000}], "out of range .*; COPY small, line 2, column amount"),
        ({"columns": {"user": int, "amount": str}}, [{"amount": "ten"}], "invalid input syntax for type bigint"),
        ({"key": "user"}, [order(1)], "table orders: .*no unique or exclusion constraint.*; make a unique index"),
        ({"table": "totals", "columns": {"user": float, "total": str}, "key": "user"},
         [{"user": 1.0, "total": "many"}], 'table totals: invalid input .*"many".*, line 1, column total'),
        ({"table": "nowhere"}, [order(1)], 'table nowhere: .* does not exist; make the table'),
        ({"table": "totals", "columns": {"total": int}}, [{"total": 1}], 'null value in column "user"'),
    ],
)  # fmt: skip
def test_a_table_that_does_not_take_a_row_is_told_and_keeps_none(
    database: PostgresProcess, options: dict[str, Any], rows: list[Any], said: str
) -> None:
    database.run('CREATE TABLE small ("user" text, amount smallint)')
    with opened(database, **options) as sink, pytest.raises(ExternalUnavailable, match=f"PostgreSQL: .*{said}"):
        sink.deliver(delivery(1, *rows))
    assert [database.rows(f"SELECT * FROM {table}") for table in ("orders", "totals", "small")] == [[], [], []]


def test_another_copy_of_the_store_is_refused_until_a_person_lets_it_go_on(database: PostgresProcess) -> None:
    with opened(database) as sink:
        sink.deliver(delivery(5, order(5)))
        said = (
            r"id s\) has delivered up to microbatch 5; this one \(id t\) was restored at microbatch 3. What .* 4 to 5 "
        )
        with pytest.raises(CorruptState, match=said) as found:
            sink.deliver(replace(delivery(4, order(4), store="t"), restored_at=3))
        with pytest.raises(CorruptState, match="Other records of microbatch 5 are there"):
            sink.deliver(delivery(5, order(6), digest="other"))
        database.run(*statements_of(str(found.value)))
        with pytest.raises(CorruptState, match="Another copy"):
            sink.deliver(delivery(6, order(6)))
        sink.deliver(delivery(3, order(3), store="t"))
        sink.deliver(delivery(4, order(4), store="t"))
    assert amounts(database) == [4, 5]


@pytest.mark.parametrize(
    ("restored_at", "said"),
    [
        (7, "this one .id t. was restored at microbatch 7, so all that is there is its own.* LEAST.microbatch, 7. "),
        (0, "this one .id t. is none of its copies. Modules of one name cannot share a sink.* LEAST.microbatch, 0. "),
    ],
)
def test_another_store_is_told_what_is_there(database: PostgresProcess, restored_at: int, said: str) -> None:
    with opened(database) as sink:
        sink.deliver(delivery(5, order(5)))
        with pytest.raises(CorruptState, match=said):
            sink.deliver(replace(delivery(8, order(8), store="t"), restored_at=restored_at))


@pytest.mark.parametrize(
    ("number", "digest"), [(38, "other"), (39, "d39"), (2, "d2")], ids=["other records", "none then", "too long ago"]
)
def test_an_older_copy_of_the_store_that_was_put_back_by_hand_is_found_out(
    database: PostgresProcess, number: int, digest: str
) -> None:
    with opened(database) as sink:
        for done in range(2, 2 * KNOWN_MAX + 4, 2):
            sink.deliver(delivery(done, order(done)))
        sink.deliver(delivery(40, order(40)))
        sink.deliver(delivery(6, order(6)))
        said = f"Other records of microbatch {number} are there .* delete what microbatches {number} to 66 brought"
        with pytest.raises(CorruptState, match=said) as found:
            sink.deliver(delivery(number, order(number), digest=digest))
        statement = str(found.value).partition("; then run ")[2].rstrip(".")
        database.run(f"DELETE FROM orders WHERE amount >= {number}", statement)
        sink.deliver(delivery(number, order(number), digest=digest))
        sink.deliver(delivery(number, order(number), digest=digest))
    assert amounts(database) == [*range(2, number, 2), number]


def test_two_leaders_write_a_microbatch_once(database: PostgresProcess) -> None:
    with opened(database) as one, opened(database) as other, ThreadPoolExecutor(4) as threads:
        for number in range(1, 9):
            made = delivery(number, *map(order, range(10 * number, 10 * number + 3)))
            for done in [threads.submit(sink.deliver, made) for sink in (one, other, one, other)]:
                done.result(60)
    assert amounts(database) == [10 * number + n for number in range(1, 9) for n in range(3)]


def test_all_deliver_when_they_make_the_table_of_progress_at_one_moment(database: PostgresProcess) -> None:
    with ThreadPoolExecutor(8) as threads:
        for number in range(40):
            database.run("DROP TABLE IF EXISTS tidemill_progress")
            with ExitStack() as stack:
                sinks = [stack.enter_context(opened(database)) for _ in range(8)]
                made = [replace(delivery(1, order(8 * number + n)), topology=f"mb-{n}") for n in range(8)]
                list(threads.map(lambda sink, each: sink.deliver(each), sinks, made))
    assert amounts(database) == list(range(320))


def test_the_server_is_believed_when_something_else_has_the_name_of_the_table_of_progress(
    database: PostgresProcess,
) -> None:
    database.run("CREATE TYPE tidemill_progress AS ENUM ('a')")
    with opened(database) as sink, pytest.raises(ExternalUnavailable, match='type "tidemill_progress" already exists'):
        sink.deliver(delivery(1, order(1)))


def test_a_leader_waits_shortly_for_one_that_hangs_in_its_transaction(
    database: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def rows() -> Iterator[list[Any]]:
        yield [order(1)]
        reached.set()
        assert go_on.wait(60)

    held = delivery(1)
    object.__setattr__(held, "rows", rows)
    with opened(database) as old, opened(database) as new, ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(old.deliver, held)
        assert reached.wait(60)
        monkeypatch.setattr(postgres_server, "ANSWER_SECONDS", 0.6)
        with pytest.raises(ExternalUnavailable, match="lock timeout|terminated|closed"):
            new.deliver(delivery(1, order(1)))
        monkeypatch.undo()
        go_on.set()
        hanging.result(60)
        new.deliver(delivery(1, order(1)))
    assert amounts(database) == [1]


def test_a_server_that_is_silent_is_not_waited_for(database: PostgresProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(database, timeout_seconds=0.5) as sink:
        sink.deliver(delivery(1, order(1)))
        monkeypatch.setattr(postgres_server, "ANSWER_SECONDS", 1.5)
        database.stop()
        try:
            with pytest.raises(ExternalUnavailable, match="it took longer than 1.5 s; "):
                sink.deliver(delivery(2, order(2)))
        finally:
            database.go_on()
        monkeypatch.undo()
    with opened(database) as sink:
        sink.deliver(delivery(2, order(2)))
    assert amounts(database) == [1, 2]


def test_texts_of_all_languages_come_through_when_the_environment_says_another_encoding(
    database: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with opened(database) as sink:
        sink.deliver(delivery(1, {"user": "漢字"}))
    monkeypatch.undo()
    assert database.rows('SELECT "user" FROM orders') == [("漢字",)]


def test_a_user_who_may_not_make_the_table_of_progress_is_told(database: PostgresProcess) -> None:
    database.run("DROP ROLE IF EXISTS poor", "CREATE ROLE poor LOGIN", "GRANT USAGE ON SCHEMA public TO poor")
    sink = PostgresSink("orders", database.conninfo.replace("user=tidemill", "user=poor"), columns={"amount": int})
    sink.prepare_for_task(TaskGlobalContext("M", "*rows"))
    with pytest.raises(ExternalUnavailable, match="permission denied for schema public"):
        sink.deliver(delivery(1, {"amount": 1}))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PostgresSink("", columns={"a": int}), "The name of a table is a text"),
        (lambda: PostgresSink("s..t", columns={"a": int}), "The name of a table is a text"),
        (lambda: PostgresSink("tidemill_rows", columns={"a": int}), "tidemill_rows is the name of a temporary table"),
        (
            lambda: PostgresSink("t", columns={"a": int, "tidemill_row": int}, key="a"),
            "cannot have a column tidemill_row",
        ),
        (lambda: PostgresSink("t", columns={}), "columns is a dict such as"),
        (lambda: PostgresSink("t", columns={"a": int}, key="b"), "key names columns, each once: a; not 'b'."),
        (lambda: PostgresSink("t", "secret", columns={"a": int}), "conninfo is a URL such as"),
        (
            lambda: PostgresSink("t", columns={"a": int}, timeout_seconds=0),
            "timeout_seconds is a number of seconds above",
        ),
    ],
)
def test_a_wrong_argument_of_a_table_is_refused_where_it_is_written(make: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said) as found:
        make()
    assert "secret" not in str(found.value)


# --- graphs ---


def publishing(database: PostgresProcess, folder: Folder, run: str, frames: list[pl.DataFrame], **options: Any) -> None:
    graph = TaskGraph(store=str(folder / f"store-{run}"), id="result")
    source = graph.new_input_frames(frames, 2)
    output = OutputParquetExecutor(folder / "result", file_bytes=1)
    staged = graph.new_non_blocking_node({0: source}, output, 2, {0: "user"})
    publish = PostgresPublishExecutor(folder / "result", "orders", database.conninfo, run=run, **options)
    found = graph.new_blocking_node({0: staged}, publish, 1, {0: None})
    graph.run()
    assert found.to_polars().to_dicts() == [{"table": "orders", "rows": sum(frame.height for frame in frames)}]


def test_a_result_is_seen_whole_and_once_for_each_run(database: PostgresProcess, tmp_path: Folder) -> None:
    frames = [pl.DataFrame([order(n) for n in range(first, first + 5)]) for first in (0, 5)]
    publishing(database, tmp_path, "one", frames)
    publishing(database, tmp_path, "one", frames)
    assert amounts(database) == list(range(10))
    bad = [*frames, pl.DataFrame({"user": ["x"], "amount": ["no number"]})]
    with pytest.raises(ExternalUnavailable, match="PostgreSQL: table orders: invalid input syntax for type bigint"):
        publishing(database, tmp_path / "bad", "two", [frame.cast({"amount": pl.String}) for frame in bad])
    assert amounts(database) == list(range(10))


def test_a_result_is_there_once_when_its_run_dies_at_the_commit(
    database: PostgresProcess, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [pl.DataFrame([order(n) for n in range(5)])]
    write, dies = PostgresServer.write, iter(["before", "after"])

    def dying(*given: Any) -> None:
        when = next(dies, "")
        if when != "before":
            write(*given)
        if when:
            raise RuntimeError("it dies")

    monkeypatch.setattr(PostgresServer, "write", dying)
    for _ in range(2):
        with pytest.raises(UserCodeError, match="it dies"):
            publishing(database, tmp_path, "one", frames)
    publishing(database, tmp_path, "one", frames)
    assert amounts(database) == list(range(5))


# --- whole modules ---


class Story:
    """A module that appends to two tables, and what must have come of its records so far."""

    def __init__(self, database: PostgresProcess, folder: Folder) -> None:
        self.database, self.folder, self.sent = database, folder, 0

    def module(self) -> Selling:
        return selling(self.database.conninfo)

    @contextmanager
    def running(self, engine: Any = "local") -> Iterator[InProcessCluster]:
        forget_stores()
        with InProcessCluster.create(store=self.folder / "store", engine=engine) as cluster:
            cluster.launch_module(self.module(), LaunchConfig(4, 2))
            yield cluster

    def append(self, cluster: InProcessCluster, count: int) -> None:
        records = [[f"u{n % 7}", n] for n in range(self.sent, self.sent + count)]
        cluster.cluster_depot("Selling", "*in").append_many(records)
        self.sent += count

    def wait(self, cluster: InProcessCluster) -> None:
        cluster.wait_for_microbatch_processed_count("Selling", "mb", self.sent, 120_000, fail_fast=False)

    def check(self, cluster: InProcessCluster) -> None:
        self.wait(cluster)
        assert amounts(self.database) == list(range(self.sent))
        totals: dict[str, int] = {}
        for n in range(self.sent):
            totals[f"u{n % 7}"] = totals.get(f"u{n % 7}", 0) + n
        assert dict(self.database.rows("SELECT * FROM totals")) == totals


@pytest.fixture
def story(database: PostgresProcess, tmp_path: Folder) -> Story:
    return Story(database, tmp_path)


def trouble(cluster: InProcessCluster) -> str:
    return cluster._running["Selling"].topologies["mb"].state.report.publishing_trouble


@pytest.mark.spark
def test_each_row_is_there_once_when_workers_of_spark_append_them(story: Story, spark: Any) -> None:
    with story.running("spark") as cluster:
        OptionsLog(cluster.store, "Selling").set("topology", "mb", "topology.microbatch.placement", "spread")
        story.append(cluster, 60)
        story.check(cluster)


def test_each_row_is_there_once_when_the_server_is_killed_between_microbatches(story: Story) -> None:
    with story.running() as cluster:
        story.append(cluster, 30)
        story.wait(cluster)
        story.database.kill()
        story.append(cluster, 30)
        eventually(lambda: "PostgreSQL: " in trouble(cluster), 60)
        with pytest.raises(TimeoutError, match="its appends cannot be published: .*PostgreSQL: "):
            cluster.wait_for_microbatch_processed_count("Selling", "mb", story.sent, 100)
        story.database.start()
        story.append(cluster, 30)
        story.check(cluster)


def test_each_row_is_there_once_when_the_leader_is_killed_at_each_step(story: Story) -> None:
    with story.running():
        pass
    for step in STEPS:
        command = [sys.executable, str(Folder(__file__).with_name("killed_delivery.py")), str(story.folder / "store")]
        path = os.pathsep.join(each for each in sys.path if each)
        done = subprocess.run(
            [*command, story.database.conninfo, step, str(story.sent)],
            check=False, timeout=120, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr
        story.sent += 20
    with story.running() as cluster:
        story.append(cluster, 20)
        story.check(cluster)


def test_each_row_is_there_once_when_the_server_is_killed_in_a_transaction(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, kills = PostgresTable.write, [story.database.kill]

    def killed(*given: Any) -> None:
        write(*given)
        if kills:
            kills.pop()()

    monkeypatch.setattr(PostgresTable, "write", killed)
    with story.running() as cluster:
        story.append(cluster, 30)
        eventually(lambda: "PostgreSQL: " in trouble(cluster), 60)
        story.database.start()
        story.append(cluster, 30)
        story.check(cluster)


def test_a_row_that_the_table_refuses_waits_until_the_table_takes_it(story: Story) -> None:
    story.database.run("ALTER TABLE orders ADD CHECK (amount <> 7)")
    with story.running() as cluster:
        story.append(cluster, 10)
        eventually(lambda: 'violates check constraint "orders_amount_check"' in trouble(cluster), 60)
        assert "Failing row contains (u0, 7)" in trouble(cluster) and amounts(story.database) == []
        story.database.run("ALTER TABLE orders DROP CONSTRAINT orders_amount_check")
        story.check(cluster)


def test_a_row_that_no_table_takes_goes_to_the_quarantine(story: Story) -> None:
    with story.running() as cluster:
        cluster.cluster_depot("Selling", "*in").append(["bad\0", 1])
        with pytest.raises(MicrobatchFails, match=r"\*orders cannot take it: .* character 0"):
            cluster.wait_for_microbatch_processed_count("Selling", "mb", 1, 60_000)
        OptionsLog(cluster.store, "Selling").set("topology", "mb", "topology.on.record.error", "quarantine")
        cluster.wait_for_microbatch_processed_count("Selling", "mb", 1, 60_000, fail_fast=False)
        (held,) = cluster.quarantine("Selling", "mb").records()
        assert held.record == ["bad\0", 1]
        assert amounts(story.database) == []


def test_an_update_without_a_sink_gives_up_what_waits_for_it(story: Story) -> None:
    story.database.run("ALTER TABLE orders RENAME TO elsewhere")
    with story.running() as cluster:
        story.append(cluster, 10)
        eventually(lambda: 'relation "orders" does not exist' in trouble(cluster), 60)
        totals = story.module().totals
        cluster.update_module(WithoutOrders(totals), UpdateOptions.objects_to_delete("*orders"))
        story.wait(cluster)
        assert sum(total for _, total in story.database.rows("SELECT * FROM totals")) == sum(range(10))


def test_a_restored_store_delivers_again_when_a_person_lets_it(story: Story) -> None:
    url = (story.folder / "store").as_uri()
    with story.running() as cluster:
        story.append(cluster, 10)
        story.wait(cluster)
        restored_at, _ = cluster.microbatch_state("Selling", "mb")
    folder = BackupFolder(connect((story.folder / "backups").as_uri()))
    BackupRun(open_store(url), folder, 1, lambda *_: None).take()
    with story.running() as cluster:
        story.append(cluster, 10)
        story.wait(cluster)
    forget_stores()
    restore(plan_restore(folder), folder, url, replaces=True, now_ms=1, tell=lambda *_: None)
    story.sent = 10
    with story.running() as cluster:
        story.append(cluster, 5)
        eventually(lambda: trouble(cluster).count("Another copy of the store") == 2, 60)
        assert amounts(story.database) == list(range(20))
        assert trouble(cluster).count(f"was restored at microbatch {restored_at}. What microbatches") == 2
        story.database.run("DELETE FROM orders WHERE amount >= 10", *statements_of(trouble(cluster)))
        story.append(cluster, 5)
        story.check(cluster)
