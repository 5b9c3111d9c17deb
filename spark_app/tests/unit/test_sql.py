"""SQL over a store: what it answers, that it can do nothing else, and its limits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scanned import DAY, TASKS, Shown
from typer.testing import CliRunner

from tidemill import (
    BadInput,
    BudgetExceeded,
    CorruptState,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    PState,
    UnknownName,
)
from tidemill.cli.main import app
from tidemill.scans import sql
from tidemill.scans.depots import DepotScan
from tidemill.scans.pstates import PStateScan
from tidemill.scans.sql import Limits, run_sql
from tidemill.store.objects import ObjectStore


class Other(Module):
    """A module of another name, with a depot and a PState of one name."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$words", PState.map_schema(str, int))
        mb.source("*words").out("*m").explode_microbatch("*m").out("*w").local_transform("$$words", _one())


def _one() -> Any:
    from tidemill import Path as Key

    return Key.key("*w").term_val(1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with InProcessCluster.create(engine="local", store=tmp_path_factory.mktemp("store")) as cluster:
        shown = Shown(cluster)
        shown.put("counts", {f"k{i:03}": {j: i * j for j in range(i % 7)} for i in range(100)})
        shown.put("users", {1: {"name": "Ann", "scores": {"x": 1}, "seen": DAY, "likes": {7, 8}}})
        cluster.cluster_depot("Shapes", "*people").append_many([{"id": i, "name": f"n{i}"} for i in range(9)])
        cluster.launch_module(Other(), LaunchConfig(1, 1))
        cluster.cluster_depot("Other", "*words").append("a")
        cluster.wait_for_microbatch_processed_count("Other", "mb", 1)
        yield cluster.store


def test_pstates_and_depots_are_tables_of_their_module_when_a_query_names_them(store: ObjectStore) -> None:
    query = """
        with best as (select k0, max(value) as most from Shapes.counts where k0 >= 'k09' group by k0)
        select k0, most, (select count(*) from Shapes.people) as people from best order by most desc, k0 limit 2
    """

    assert run_sql(store, query) == (["k0", "most", "people"], [["k097", 485, 9], ["k090", 450, 9]], False)


def test_each_kind_of_column_has_its_type_when_it_is_asked_for(store: ObjectStore) -> None:
    query = "select name, map_from_entries(scores)['x'] as x, seen, tags from Shapes.users"
    assert run_sql(store, query).rows == [["Ann", 1, DAY, None]]
    assert run_sql(store, 'select k1 from Shapes."users.likes" order by 1').rows == [[7], [8]]
    assert run_sql(store, "select sum(value) from shapes.TOTAL").rows == [[7]]


def test_a_depot_keeps_its_sigil_when_a_pstate_has_its_name(store: ObjectStore) -> None:
    assert run_sql(store, 'select w.k0, d.record from words w, "*words" d', "Other").rows == [["a", '"a"']]


def test_a_table_is_its_own_when_its_name_could_be_one_of_ours(tmp_path: Path) -> None:
    class Numbered(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*words", Depot.random())
            mb = topologies.microbatch("mb")
            for name in ("$$tidemill_1", "$$tidemill_0", "$$*"):
                mb.pstate(name, PState.map_schema(str, int))
            words = mb.source("*words").out("*m").explode_microbatch("*m").out("*w")
            words.local_transform("$$tidemill_0", _one())

    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        cluster.launch_module(Numbered(), LaunchConfig(1, 1))
        cluster.cluster_depot("Numbered", "*words").append("a")
        cluster.wait_for_microbatch_processed_count("Numbered", "mb", 1)
        assert run_sql(cluster.store, "select k0 from Numbered.tidemill_0").rows == [["a"]]
        assert run_sql(cluster.store, "select k0 from Numbered.tidemill_1").rows == []
        assert run_sql(cluster.store, 'from "$$*"').rows == []


def test_all_tables_are_listed_when_a_query_asks_for_them(store: ObjectStore) -> None:
    found = run_sql(
        store, "select table_schema, table_name from information_schema.tables where table_schema != 'main'"
    )

    names = {tuple(row) for row in found.rows}
    assert {("Shapes", "counts"), ("Shapes", "users.likes"), ("Other", "*words"), ("Other", "words")} <= names
    assert ("Shapes", "hidden") not in names
    assert ["k0", "VARCHAR"] in [row[:2] for row in run_sql(store, "describe Shapes.counts").rows]


def refused(store: ObjectStore, query: str, module: str = "") -> str:
    with pytest.raises(BadInput) as caught:
        run_sql(store, query, module)
    return str(caught.value)


class Alike(Module):
    """Three PStates and a depot, of whose names SQL takes two and two for one."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*Total", Depot.random())
        mb = topologies.microbatch("mb")
        for name in ("$$words", "$$Words", "$$total"):
            mb.pstate(name, PState.map_schema(str, int))


def test_only_tables_of_one_name_are_refused_when_a_module_has_some(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        cluster.launch_module(Other(), LaunchConfig(1, 1))
        cluster.launch_module(Alike(), LaunchConfig(1, 1))

        text = "'words' and 'Words' of module Alike have one name in SQL"
        for query in ("select * from Alike.words", "select count(*) from Alike.WORDS", "summarize alike.words"):
            assert text in refused(cluster.store, query)
        assert text in refused(cluster.store, "from words", "Alike")
        assert run_sql(cluster.store, 'select count(*) from Alike.total, Alike."*Total"').rows == [[0]]
        assert run_sql(cluster.store, "select count(*) from Other.words").rows == [[0]]


def test_only_modules_of_one_name_are_refused_when_a_store_has_some(tmp_path: Path) -> None:
    class Named(Other):
        def module_name(self) -> str:
            return "other"

    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        for module in (Other(), Named(), Alike()):
            cluster.launch_module(module, LaunchConfig(1, 1))

        found = refused(cluster.store, "select count(*) from Other.words")
        assert "'Other' and 'other' have one name in SQL: say by --module which" in found
        assert run_sql(cluster.store, "select count(*) from words", "other").rows == [[0]]
        assert run_sql(cluster.store, "select count(*) from Alike.total").rows == [[0]]


def test_other_modules_answer_when_one_is_damaged(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        for module in (Other(), Alike()):
            cluster.launch_module(module, LaunchConfig(1, 1))
    (definition,) = tmp_path.glob("Alike/definition/*.json")
    definition.write_text("{junk")

    assert run_sql(cluster.store, "select count(*) from Other.words").rows == [[0]]
    assert "left out: Alike/definition/" in refused(cluster.store, "from Alike.words")
    with pytest.raises(CorruptState, match="Alike/definition/"):
        run_sql(cluster.store, "select 1", "Alike")


def test_the_tables_are_named_when_a_query_has_another_one(store: ObjectStore) -> None:
    text = refused(store, "select * from nope")
    assert "Table with name nope does not exist" in text
    assert "Did you mean" in refused(store, "select flor(1.5)"), "functions are DuckDB's"
    assert "Other.words" in text and 'Other."*words"' in text and "pg_" not in text


def test_only_tables_of_modules_are_shown_when_all_are_asked_for(store: ObjectStore) -> None:
    found = run_sql(store, "SHOW ALL TABLES;")
    assert found.columns == ["module", "name", "column_names", "column_types"]
    assert {row[0] for row in found.rows} == {"Other", "Shapes"}
    assert ["Other", "words"] in [row[:2] for row in found.rows]


@pytest.mark.parametrize("name", ["Memory", "System", "Temp", "Pg_Catalog", "Information_Schema"])
def test_other_modules_answer_when_one_is_called_as_what_duckdb_has(tmp_path: Path, name: str) -> None:
    class Named(Other):
        def module_name(self) -> str:
            return name

    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        cluster.launch_module(Other(), LaunchConfig(1, 1))
        cluster.launch_module(Named(), LaunchConfig(1, 1))
        cluster.cluster_depot(name, "*words").append("a")
        cluster.wait_for_microbatch_processed_count(name, "mb", 1)

        assert run_sql(cluster.store, "select count(*) from Other.words").rows == [[0]]
        if "_" not in name:
            assert run_sql(cluster.store, f"select k0 from memory.{name}.words").rows == [["a"]]
            assert run_sql(cluster.store, "select k0 from words", name).rows == [["a"]]


def test_one_state_is_read_when_a_query_looks_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        shown = Shown(cluster)
        shown.put("counts", {"a": {1: 1}})
        before = PStateScan.read

        def read(self: PStateScan, *asked: Any) -> Iterator[pl.DataFrame]:
            yield from before(self, *asked)
            shown.put("counts", {"a": {1: 2}})

        monkeypatch.setattr(PStateScan, "read", read)
        query = "select (select sum(value) from counts), (select max(value) from counts), (select count(*) from sets)"

        assert run_sql(cluster.store, query, "Shapes").rows == [[1, 1, 0]]


def test_filters_and_columns_reach_the_scan_when_a_query_has_them(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    for kind in (PStateScan, DepotScan):
        monkeypatch.setattr(kind, "read", _noting(kind.read, asked))
    run_sql(store, "select k1 from Shapes.counts where k0 = 'k013' and k1 >= 2")
    run_sql(store, 'select "offset" from Shapes.people where partition = 1')

    assert [(sorted(columns), sorted(bounds)) for bounds, columns in asked] == [
        (["k0", "k1"], ["k0", "k1"]),
        (["offset", "partition"], ["partition"]),
    ]


def _noting(read: Any, asked: list[Any]) -> Any:
    def noted(self: Any, bounds: Any, columns: Any, rows: int) -> Any:
        asked.append((bounds, columns))
        return read(self, bounds, columns, rows)

    return noted


# --- attacks ---------------------------------------------------------------------------------------------------------

FORBIDDEN = [
    "copy (select 1) to 'FILE'",
    "attach 'FILE'",
    "create table t as select 1",
    "create view v as select 1",
    "drop view Shapes.counts",
    "insert into Shapes.counts values (1)",
    "set memory_limit = '100GB'",
    "reset lock_configuration",
    "pragma enable_profiling",
    "pragma database_list",
    "call enable_logging()",
    "install httpfs",
    "load httpfs",
    "export database 'FILE'",
    "import database 'FILE'",
    "use Other",
    "explain analyze copy (select 1) to 'FILE'",
    "prepare p as select 1",
    "checkpoint",
    "vacuum",
    "begin transaction",
    "select 1; drop view Shapes.counts",
    "",
    ";",
    "-- nothing",
    "selec 1",
    "select nope from Shapes.counts",
    "select $1",
    "select * from read_csv('FILE')",
    "select * from read_text('FILE')",
    "select * from read_blob('FILE')",
    "select * from read_parquet('FILE')",
    "select * from read_json('FILE')",
    "select * from read_csv('https://127.0.0.1:1/x.csv')",
    "select * from 'FILE'",
    "select * from glob('FILE*')",
    "select * from sniff_csv('FILE')",
    "from query('copy (select 1) to ''FILE''')",
    "select * from store",
    "select * from limits",
    "select getenv('HOME')",
    "select * from Shapes.hidden",
    "select * from parquet_metadata('FILE')",
    "select * from test_all_types()",
    "with x as (insert into Shapes.counts values (1) returning *) select * from x",
]


@pytest.mark.parametrize("query", FORBIDDEN)
def test_a_query_is_refused_when_it_does_more_than_read_tables(store: ObjectStore, tmp_path: Path, query: str) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a secret\n")

    with pytest.raises(BadInput) as refused:
        run_sql(store, query.replace("FILE", str(file)))
    assert "a secret" not in str(refused.value)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["a secret\n"]


ENDLESS = "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t"


@pytest.mark.parametrize(
    "query",
    [
        ENDLESS,
        "select count(*) from range(100000000) a, range(100000000) b where a.range + b.range = -1",
        "select sum(sin(range)) from range(1000000000000)",
    ],
)
def test_a_query_is_ended_when_its_time_is_up(store: ObjectStore, query: str) -> None:
    with pytest.raises(BudgetExceeded, match=r"took more than 0\.3 s"):
        run_sql(store, query, limits=Limits(seconds=0.3))


@pytest.mark.parametrize(
    "query",
    [
        "select string_agg(repeat('x', 1000) || range) from range(1000000)",
        "select * from range(10000000) a order by hash(range)",
        "select list(range) from range(100000000)",
        "select repeat('x', 1000000000)",
    ],
)
def test_a_query_is_ended_when_it_needs_too_much_memory(store: ObjectStore, query: str) -> None:
    with pytest.raises((BudgetExceeded, BadInput)):
        run_sql(store, query, limits=Limits(memory_mb=16, rows=10**9))


def test_a_query_is_ended_when_it_reads_too_many_rows(store: ObjectStore) -> None:
    limits = Limits()
    limits.left_bytes = 1_000
    with pytest.raises(BudgetExceeded, match="reads more than 1,024 MB of rows. Filter by key columns"):
        run_sql(store, "select * from Shapes.counts", limits=limits)


def test_the_answer_is_cut_when_it_has_more_rows_than_asked_for(store: ObjectStore) -> None:
    found = run_sql(store, "select range from range(1000000000000)", limits=Limits(rows=3))

    assert (found.rows, found.is_cut) == ([[0], [1], [2]], True)
    with pytest.raises(BadInput, match="bound of rows is above 0"):
        Limits(rows=0)


# --- the command -----------------------------------------------------------------------------------------------------


def run(store: ObjectStore, *words: str) -> Any:
    return CliRunner().invoke(app, ["sql", *words, "--store", store.url])


def test_the_command_prints_objects_when_json_is_asked_for(store: ObjectStore) -> None:
    query = """
        select c.k0, sum(c.value) as n, avg(c.value) as m, max(u.seen) as seen, uuid() is not null as u
        from Shapes.counts c, Shapes.users u where c.k0 = 'k013' group by all
    """
    done = run(store, query, "--json")

    assert json.loads(done.stdout) == [{"k0": "k013", "n": 195, "m": 32.5, "seen": DAY.isoformat(), "u": True}]
    assert json.loads(run(store, "select 1 as a, 2 as a", "--json").stdout) == [{"a": 1, "a_1": 2}]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ("timestamp '2026-01-02 04:00:01.5' - timestamp '2026-01-01 03:00:00'", "1 day 01:00:01.5"),
        ("timestamp '2026-01-01' - timestamp '2026-01-01 00:00:01'", "-00:00:01"),
        ("interval 14 month", "1 year 2 months"),
        ("interval 0 day", "00:00:00"),
    ],
)
def test_an_interval_is_told_as_text_when_times_are_compared(store: ObjectStore, interval: str, text: str) -> None:
    query = f"select {interval} as t"
    assert json.loads(run(store, query, "--json").stdout) == [{"t": text}]
    assert text in run(store, query).stdout


def test_a_table_is_the_same_at_each_look_when_a_query_names_it_twice(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the depot would find other records."""
    opened, looks = sql.depot_scan, []

    def late(client: Any, depot: str) -> DepotScan:
        looks.append(depot)
        found = opened(client, depot)
        return found.within([(number, start, end - len(looks)) for number, start, end in found.spans])

    monkeypatch.setattr(sql, "depot_scan", late)
    twice = 'select (select count(*) from people), (select count(*) from people where "offset" >= 0)'
    ((first, second),) = run_sql(store, twice, "Shapes").rows

    assert (first == second, looks) == (True, ["*people"])


def test_the_command_says_nothing_else_when_its_process_ends(store: ObjectStore) -> None:
    program = "from tidemill.cli.main import app; app()"
    words = ["sql", "select current_setting('enable_progress_bar') as a", "--json", "--store", store.url]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ('[{"a": false}]\n', "")


def test_the_command_prints_a_table_when_a_person_asks(store: ObjectStore) -> None:
    query = (
        "select name, 1234567 as big, 0.25::double as part, null as nothing, [1, 2] as list, date '2026-11-22' as day"
    )
    done = run(store, f"{query} from users", "--module", "Shapes", "--rows", "1")

    assert all(text in done.stdout for text in ("Ann", "1234567", "0.25", " - ", "[1, 2]", "2026-11-22"))
    assert "There are more rows" in run(store, "select * from counts", "--module", "Shapes", "--rows", "2").stderr


def test_the_command_says_what_is_wrong_when_it_cannot_answer(store: ObjectStore) -> None:
    done = run(store, "select * from Shapes.nothing")
    assert (done.exit_code, "nothing does not exist" in done.stderr) == (1, True)
    assert "no module" in run(store, "select 1", "--module", "Nobody").stderr
    with pytest.raises(UnknownName):
        run_sql(store, "select 1", "Nobody")
    assert len(run_sql(store, "select * from Shapes.plain").rows) == TASKS
