"""PStates and depots as frames: which columns they have, that they say what selects say, and what is pushed down."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars import col
from scanned import DAY, TASKS, Shown

import tidemill
from tidemill import (
    Agg,
    BadInput,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    NeedsCode,
    NotSelectable,
    Ops,
    PState,
    SchemaMismatch,
    SnapshotExpired,
    UnknownName,
)
from tidemill.depot.retention import RollingLimits, roll
from tidemill.scans import table_rows
from tidemill.scans.bounds import Allowed, bounds_of, terms_of
from tidemill.scans.columns import check_fit
from tidemill.store.urls import forget_stores
from tidemill.tables.sorted_table import SortedTable


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with InProcessCluster.create(engine="local", store=tmp_path_factory.mktemp("store")) as cluster:
        shown = Shown(cluster)
        shown.put("counts", {f"k{i:03}": {j: i * j for j in range(i % 7)} for i in range(100)})
        shown.put("counts", {"k005": {1: -1, 9: -9}})
        shown.drop("counts", "k006", "k011")
        shown.put("sets", {"a": {3, 1}, "b": {2}})
        shown.put("lists", {"a": [1.5, 2.5]})
        shown.put("any", {1: "x", "k": {"a": [1, None]}, (1, 2): None})
        shown.put("times", {DAY: [{1: b"x"}, {}]})
        user = {"name": "Ann", "tags": {"b", "a"}, "seen": DAY, "scores": {"x": 1}, "k0": 5, "likes": {7, 8}}
        shown.put("users", {1: user, 2: {"name": None, "likes": set()}})
        shown.cluster.cluster_depot("Shapes", "*people").append_many(
            [{"id": i, "name": f"n{i}", "time": i / 2, "tags": ["t"] * (i % 3)} for i in range(40)]
        )
        yield shown


def rows(frame: pl.LazyFrame) -> list[tuple[Any, ...]]:
    return sorted(frame.drop("task").collect().rows(), key=repr)


def of(shown: Shown, name: str, **options: Any) -> pl.LazyFrame:
    return tidemill.scan(shown.store, "Shapes", name, **options)


# --- which columns ---------------------------------------------------------------------------------------------------


def test_each_key_of_subindexed_maps_is_a_column_when_a_pstate_is_scanned(shown: Shown) -> None:
    frame = of(shown, "counts")
    expected = {f"k{i:03}": {j: i * j for j in range(i % 7)} for i in range(100)}
    expected |= {"k005": {1: -1, 9: -9}, "k006": {}, "k011": {}}

    assert dict(frame.collect_schema()) == {"task": pl.Int32, "k0": pl.String, "k1": pl.Int64, "value": pl.Int64}
    assert rows(frame) == sorted(((k, j, n) for k, held in expected.items() for j, n in held.items()), key=repr)


def test_elements_of_subindexed_sets_and_lists_are_keys_when_they_are_scanned(shown: Shown) -> None:
    assert rows(of(shown, "sets")) == [("a", 1), ("a", 3), ("b", 2)]
    assert rows(of(shown, "lists")) == [("a", 0, 1.5), ("a", 1, 2.5)]


def test_values_without_a_type_are_json_when_they_are_scanned(shown: Shown) -> None:
    assert rows(of(shown, "any")) == [('"k"', '{"a": [1, null]}'), ("1", '"x"'), ("[1, 2]", None)]


def test_values_keep_their_types_when_they_are_nested(shown: Shown) -> None:
    frame = of(shown, "times")

    assert frame.collect_schema()["value"] == pl.List(pl.List(pl.Struct({"key": pl.Int64, "value": pl.Binary})))
    assert rows(frame) == [(DAY, [[{"key": 1, "value": b"x"}], []])]


def test_the_fields_of_a_record_are_columns_when_it_is_scanned(shown: Shown) -> None:
    frame = of(shown, "users")

    assert frame.collect_schema().names() == ["task", "k0", "name", "tags", "seen", "scores", "value.k0"]
    assert rows(frame) == [
        (1, "Ann", ["a", "b"], DAY, [{"key": "x", "value": 1}], 5),
        (2, None, None, None, None, None),
    ]


def test_a_subindexed_field_is_a_table_of_its_own_when_it_is_named(shown: Shown) -> None:
    assert rows(of(shown, "$$users", table="likes")) == [(1, 7), (1, 8)]
    with pytest.raises(UnknownName, match=r"counts has no table 'x'; leave table= out\."):
        of(shown, "counts", table="x")
    with pytest.raises(UnknownName, match="has no table 'liked'; it has '', 'likes'. Say which with table="):
        of(shown, "users", table="liked")


def test_a_plain_value_is_a_row_a_task_when_it_is_scanned(shown: Shown) -> None:
    assert of(shown, "total").collect().rows() == [(0, 7)]
    assert of(shown, "plain").collect().rows() == [(task, 1) for task in range(TASKS)]
    assert of(shown, "plain").filter(col("task") == 2).collect().rows() == [(2, 1)]


def test_a_scan_has_no_rows_but_its_columns_when_nothing_was_written(shown: Shown) -> None:
    frame = of(shown, "counts", at=0).collect()

    assert (frame.height, frame.columns) == (0, ["task", "k0", "k1", "value"])


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_a_scan_is_refused_when_its_names_are_wrong(shown: Shown, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="has no PState"):
        of(shown, "nothing")
    with pytest.raises(UnknownName, match="no module"):
        tidemill.scan(shown.store, "Nobody", "counts")
    with pytest.raises(UnknownName, match="There is no store at"):
        tidemill.scan(tmp_path / "none", "Shapes", "counts")
    assert not (tmp_path / "none").exists()
    with pytest.raises(NotSelectable, match="private"):
        of(shown, "hidden")
    with pytest.raises(BadInput, match="not committed yet"):
        of(shown, "counts", microbatch=10_000)
    with pytest.raises(SnapshotExpired):
        of(shown, "counts", at=100_000)
    with pytest.raises(BadInput, match="one whole number"):
        of(shown, "counts", at=1, microbatch=1)


# --- pins ------------------------------------------------------------------------------------------------------------


def test_a_scan_stays_as_of_its_entry_when_the_pstate_changes(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        shown = Shown(cluster)
        shown.put("counts", {"a": {1: 1}})
        before = of(shown, "counts")
        shown.put("counts", {"a": {1: 2}})

        assert rows(before) == [("a", 1, 1)]
        assert rows(of(shown, "counts")) == [("a", 1, 2)]
        assert rows(of(shown, "counts", microbatch=1)) == [("a", 1, 1)]
        assert rows(of(shown, "counts", microbatch=0)) == []


# --- what is pushed down ---------------------------------------------------------------------------------------------


@pytest.fixture
def read_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of levels each read took."""
    taken: list[int] = []
    before = SortedTable.rows

    def counted(self: SortedTable, start: int, end: int) -> pl.DataFrame:
        taken.append(end - start)
        return before(self, start, end)

    monkeypatch.setattr(SortedTable, "rows", counted)
    return taken


@pytest.mark.parametrize(
    ("predicate", "rows_max"),
    [
        (col("k0") == "k013", 8),
        (col("k0").is_in(["k013", "k005", "nope"]), 20),
        ((col("k0") == "k013") & (col("k1") >= 4), 2),
        ((col("k0") == "k013") & (col("k1").is_between(1, 2)) & (col("value") > 0), 2),
        ((col("k0") >= "k095") & (col("value") != 0), 40),
        (col("k0") < "k003", 20),
        (pl.lit("k003") > col("k0"), 20),
        (pl.lit("k013") == col("k0"), 8),
        (col("k0") == "", 0),
        ((col("k0") == "k013") & (col("k0") == "k014"), 0),
        ((col("k0") == "k013") | (col("k1") == 1), None),
        (col("k1") == 1, None),
        (col("k1") > 1.5, None),
        (col("k0").str.ends_with("3"), None),
        (col("k0").is_null(), None),
        (~col("k0").is_in(["k013"]), None),
    ],
    ids=str,
)
def test_only_rows_within_the_bounds_are_read_when_a_filter_says_them(
    shown: Shown, read_rows: list[int], predicate: pl.Expr, rows_max: int | None
) -> None:
    everything = of(shown, "counts").collect()
    read_rows.clear()
    found = of(shown, "counts").filter(predicate)

    assert rows(found) == rows(everything.lazy().filter(predicate))
    assert rows_max is None or sum(read_rows) <= rows_max


def test_all_rows_are_read_when_that_is_less_work_than_to_look_up_many_keys(
    shown: Shown, read_rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    predicate = col("k0").is_in([f"k{i:03}" for i in range(90)])
    everything = of(shown, "counts").collect()
    read_rows.clear()

    assert rows(of(shown, "counts").filter(predicate)) == rows(everything.lazy().filter(predicate))
    assert len(read_rows) < 20
    monkeypatch.setattr(table_rows, "ROWS_PER_RANGE", 0)
    assert rows(of(shown, "counts").filter(predicate)) == rows(everything.lazy().filter(predicate))
    assert len(read_rows) > 60


KEYS = st.sampled_from([f"k{i:03}" for i in range(0, 101, 9)])
TERMS = st.one_of(
    st.builds(lambda key: col("k0") == key, KEYS),
    st.builds(lambda keys: col("k0").is_in(keys), st.lists(KEYS, max_size=3)),
    st.builds(lambda low, high: col("k0").is_between(pl.lit(low), pl.lit(high), closed="left"), KEYS, KEYS),
    st.builds(lambda key: col("k0") > key, KEYS),
    st.builds(lambda key: col("k0") <= key, KEYS),
    st.builds(lambda n: col("k1") == n, st.integers(-1, 9)),
    st.builds(lambda n: col("k1").is_in([n, n + 2]), st.integers(-1, 9)),
    st.builds(lambda n: col("k1") >= n, st.integers(-1, 9)),
    st.builds(lambda n: col("task") == n, st.integers(0, TASKS)),
    st.builds(lambda n: col("value") > n, st.integers(-1, 90)),
)


@given(st.lists(TERMS, min_size=1, max_size=4), st.integers(1, 7))
def test_a_filter_means_the_same_when_it_is_pushed_down(shown: Shown, terms: list[pl.Expr], batch_rows: int) -> None:
    predicate = pl.all_horizontal(terms) if batch_rows == 7 else terms[0]
    for term in terms[1:] if batch_rows != 7 else ():
        predicate = predicate & term
    everything = of(shown, "counts").collect().lazy()
    streamed = tidemill.scan_arrow(shown.store, "Shapes", "$$counts", where=predicate, batch_rows=batch_rows)

    assert rows(of(shown, "counts").filter(predicate)) == rows(everything.filter(predicate))
    assert rows(pl.DataFrame(streamed.read_all()).lazy()) == rows(everything.filter(predicate))


def test_values_are_not_decoded_when_only_keys_are_asked_for(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Any:
        raise AssertionError("a value was decoded")

    monkeypatch.setattr("tidemill.tables.codecs.decode_value", refuse)

    assert of(shown, "times").select("k0").collect().rows() == [(DAY,)]
    assert of(shown, "times").select(pl.len()).collect().item() == 1


def test_few_rows_are_read_when_the_frame_has_a_limit(shown: Shown, read_rows: list[int]) -> None:
    assert of(shown, "counts").head(3).collect().height == 3
    assert sum(read_rows) <= 30


def test_few_places_are_looked_up_when_a_large_table_is_read_in_small_batches(tmp_path: Path) -> None:
    looked_up = 0
    before = SortedTable.place

    def counted(self: SortedTable, row: int) -> tuple[Any, ...]:
        nonlocal looked_up
        looked_up += 1
        return before(self, row)

    with InProcessCluster.create(engine="local", store=tmp_path) as cluster, pytest.MonkeyPatch.context() as patch:
        shown = Shown(cluster)
        shown.put("counts", {"a": {n: n for n in range(40_000)}})
        patch.setattr(SortedTable, "place", counted)
        assert of(shown, "counts").head(1).collect().rows()[0][1:] == ("a", 0, 0)
        assert tidemill.scan_arrow(shown.store, "Shapes", "$$counts", batch_rows=7).read_all().num_rows == 40_000
    assert 0 < looked_up < 20_000


def test_batches_are_small_when_the_reader_says_so(shown: Shown) -> None:
    reader = tidemill.scan_arrow(shown.store, "Shapes", "$$counts", columns=["k1", "k0"], batch_rows=10)
    batches = list(reader)

    assert reader.schema.names == ["k1", "k0"]
    assert max(batch.num_rows for batch in batches) <= 10
    assert sum(batch.num_rows for batch in batches) == of(shown, "counts").collect().height
    assert tidemill.scan_arrow(shown.store, "Shapes", "$$counts", limit=4).read_all().num_rows == 4
    with pytest.raises(BadInput, match="no column 'k2'; there are task, k0, k1, value"):
        tidemill.scan_arrow(shown.store, "Shapes", "$$counts", columns=["k2"])


def test_terms_are_those_of_all_parts_of_a_filter_when_it_is_taken_apart() -> None:
    predicate = (col("a") == 1) & (col("b") > 2) & (col("b") <= 9) & (pl.lit(3) <= col("b")) & (col("c") + 1 == 2)

    assert bounds_of(terms_of(predicate)) == {"a": Allowed((1,)), "b": Allowed(None, 3, 9)}
    assert bounds_of(terms_of((col("a") > pl.lit("x")) & (col("a") > 5))) == {"a": Allowed(None, "x", None)}


# --- depots ----------------------------------------------------------------------------------------------------------


def test_the_fields_of_a_schema_are_columns_when_a_depot_is_scanned(shown: Shown) -> None:
    frame = tidemill.scan_depot(shown.store, "Shapes", "people")
    found = frame.sort("id").collect()

    assert found.columns == ["partition", "offset", "time", "id", "name", "record.time", "tags"]
    assert found["id"].to_list() == list(range(40))
    assert found.row(4)[3:] == (4, "n4", 2.0, ["t"])
    assert found.group_by("partition").agg(col("offset").sort()).height == TASKS
    age = datetime.datetime.now(datetime.UTC) - found["time"].min()  # type: ignore[operator]
    assert datetime.timedelta(0) <= age < datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    """Ten segments of ten events each, written at seconds 100, 110, …"""
    with InProcessCluster.create(engine="local", store=tmp_path_factory.mktemp("events")) as cluster:
        shown = Shown(cluster)
        log = cluster.cluster_depot("Shapes", "*events")._resolve().appender.depot
        for second in range(10):
            log.now_millis = lambda second=second: 100_000 + 10_000 * second
            shown.cluster.cluster_depot("Shapes", "*events").append_many(
                [{"id": 10 * second + i, "what": {"n": i}, "partition": "p"} for i in range(10)]
            )
        shown.cluster.cluster_depot("Shapes", "*events").append_many([{"id": 100}])
        yield cluster


def at(second: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(second, datetime.UTC)


def test_a_record_is_json_when_nothing_says_its_fields(events: InProcessCluster) -> None:
    frame = tidemill.scan_depot(events.store, "Shapes", "*events")

    assert frame.collect_schema()["record"] == pl.String
    assert '{"id": 100}' in frame.collect()["record"].to_list()


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("id", pl.Date()), ("id", pl.Time()), ("id", pl.Null()), ("id", pl.Boolean()), ("id", pl.String()),
        ("what", pl.Struct({"n": pl.String})), ("what", pl.List(pl.Int64)), ("partition", pl.Int64()),
    ],
    ids=str,
)  # fmt: skip
def test_a_field_of_another_type_is_refused_when_polars_would_make_another_value_of_it(
    events: InProcessCluster, field: str, kind: Any
) -> None:
    frame = tidemill.scan_depot(events.store, "Shapes", "*events", schema={field: kind})
    with pytest.raises((SchemaMismatch, pl.exceptions.ComputeError), match=f"has a field '{field}' that is no"):
        frame.collect()


@pytest.mark.parametrize(
    ("kind", "kept", "changed"),
    [
        (pl.Float64, [2**53, -(2**62), 0.1, float("nan"), float("inf"), 1e300], [2**53 + 1, 2**63 - 1]),
        (pl.Float32, [2**24, 0.1, float("nan"), float("-inf"), 1e38], [2**24 + 1, 1e39, -1e300]),
        (pl.Datetime("ms"), [at(5), at(5).replace(microsecond=7000)], [at(5).replace(microsecond=7001)]),
        (pl.List(pl.Float64), [[1, 0.5, None]], [[0.5, 2**53 + 1]]),
        (pl.Struct({"n": pl.Float64}), [{"n": 1}], [{"n": 2**53 + 1}]),
    ],
    ids=str,
)
def test_a_value_fits_a_column_when_it_stays_the_same_one(kind: Any, kept: list[Any], changed: list[Any]) -> None:
    check_fit(kind, [None, *kept])
    for value in changed:
        with pytest.raises(TypeError, match="found "):
            check_fit(kind, [value])


def test_named_fields_are_columns_when_the_caller_says_their_types(events: InProcessCluster) -> None:
    types = {"id": pl.Int64, "what": pl.Struct({"n": pl.Int8}), "partition": pl.String, "nothing": pl.String}
    found = tidemill.scan_depot(events.store, "Shapes", "*events", schema=types).sort("id").collect()

    assert found.row(7)[3:] == (7, {"n": 7}, "p", None)
    assert found.row(100)[3:] == (100, None, None, None)
    assert found.columns[3:] == ["id", "what", "record.partition", "nothing"]
    with pytest.raises(SchemaMismatch, match="a field 'what' that is no Int64"):
        tidemill.scan_depot(events.store, "Shapes", "*events", schema={"what": pl.Int64}).collect()


@pytest.mark.parametrize(
    ("predicate", "count", "read_max"),
    [
        (col("time") == at(150), 10, 10),
        (col("time") > at(150), 41, 51),
        ((col("time") >= at(120)) & (col("time") < at(140)), 20, 30),
        (col("time") < at(100), 0, 10),
        (col("time").is_in([at(110), at(130)]), 20, 30),
        (col("partition") == 1, None, 40),
        (col("partition") >= 9, 0, 0),
        ((col("partition") == 1) & (col("offset") < 3), 3, 4),
        ((col("partition") == 1) & col("offset").is_in([2, 4]), 2, 3),
        (col("offset") >= 1000, 0, 0),
    ],
    ids=str,
)
def test_only_records_within_the_bounds_are_read_when_a_filter_says_them(
    events: InProcessCluster, monkeypatch: pytest.MonkeyPatch, predicate: pl.Expr, count: int | None, read_max: int
) -> None:
    from tidemill.depot.log import DepotLog

    frame = tidemill.scan_depot(events.store, "Shapes", "*events", schema={"id": pl.Int64})
    expected = frame.collect().filter(predicate)
    taken: list[int] = []
    before = DepotLog.read_columns

    def counted(self: DepotLog, partition: int, start: int, end: int, *more: Any) -> Any:
        taken.append(end - start)
        return before(self, partition, start, end, *more)

    monkeypatch.setattr(DepotLog, "read_columns", counted)
    found = frame.filter(predicate).collect()

    assert found.equals(expected)
    assert count is None or found.height == count
    assert sum(taken) <= read_max


def test_times_are_those_of_their_segments_when_these_were_rolled(events: InProcessCluster) -> None:
    frame = tidemill.scan_depot(events.store, "Shapes", "*events", schema={"id": pl.Int64})
    before = frame.collect()
    rolled = roll(events.cluster_depot("Shapes", "*events")._resolve().appender.depot, RollingLimits(segments_min=2))
    forget_stores()

    assert rolled > 0
    assert tidemill.scan_depot(events.store, "Shapes", "*events", schema={"id": pl.Int64}).collect().equals(before)
    assert before.filter(col("time") == at(120))["id"].sort().to_list() == list(range(20, 30))


def test_records_that_come_later_are_not_seen_when_the_depot_was_scanned_before(shown: Shown) -> None:
    before = tidemill.scan_depot(shown.store, "Shapes", "ticks")
    count = before.collect().height
    shown.add(0, 0)

    assert before.collect().height == count
    assert tidemill.scan_depot(shown.store, "Shapes", "ticks").collect().height == count + 2


def test_a_depot_is_refused_when_it_keeps_no_records_or_names_no_fields(tmp_path: Path) -> None:
    class Ticking(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_tick_depot("*ticks", 1000)
            setup.declare_depot("*d", Depot.random())

    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        cluster.launch_module(Ticking(), LaunchConfig(1, 1))
        with pytest.raises(BadInput, match="keeps no records in the store"):
            tidemill.scan_depot(tmp_path, "Ticking", "ticks")
        with pytest.raises(BadInput, match="schema= names the fields"):
            tidemill.scan_depot(tmp_path, "Ticking", "d", schema={})
        with pytest.raises(UnknownName, match="no depot"):
            tidemill.scan_depot(tmp_path, "Ticking", "e")


# --- levels, clears, operands, migrations ----------------------------------------------------------------------------


class Sums(Module):
    def __init__(self, migrated: bool = False) -> None:
        self.migrated = migrated

    def define(self, setup: Any, topologies: Any) -> None:
        depot = setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        value: Any = int
        if self.migrated:
            depot.migration("negative", lambda record: [record[0], -record[1]])
            value = PState.migrated(str, "text", lambda number: f"={number}")
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", PState.map_schema(str, value))
        flow = mb.source("*in").out("*m").explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r").out("*k", "*n")
        if not self.migrated:
            flow.compound_agg("$$n", CompoundAgg.map("*k", Agg.sum("*n")))


def test_operands_of_many_levels_are_folded_when_they_are_scanned(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        cluster.launch_module(Sums(), LaunchConfig(2, 1))
        for count in range(1, 8):
            cluster.cluster_depot("Sums", "*in").append_many([["a", 1], ["b", count]])
            cluster.wait_for_microbatch_processed_count("Sums", "mb", 2 * count)
        frame = tidemill.scan(tmp_path, "Sums", "n")

        assert rows(frame) == [("a", 7), ("b", 28)]
        assert rows(frame.filter(col("k0") == "b")) == [("b", 28)]


def test_values_go_through_their_migration_when_the_code_is_given(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        cluster.launch_module(Sums(), LaunchConfig(2, 1))
        cluster.cluster_depot("Sums", "*in").append_many([["a", 1], ["b", 2]])
        cluster.wait_for_microbatch_processed_count("Sums", "mb", 2)
        before = cluster.cluster_pstate("Sums", "$$n").current_entry()
        cluster.update_module(Sums(migrated=True))

        found = tidemill.scan(tmp_path, "Sums", "n", at=before, code=Sums(migrated=True))
        assert rows(found) == [("a", "=1"), ("b", "=2")]
        assert rows(tidemill.scan(tmp_path, "Sums", "n", code=Sums(migrated=True))) == rows(found)
        with pytest.raises(NeedsCode):
            tidemill.scan(tmp_path, "Sums", "n", at=before).collect()
        records = tidemill.scan_depot(tmp_path, "Sums", "in", code=Sums(migrated=True)).collect()
        assert sorted(records["record"].to_list()) == ['["a", -1]', '["b", -2]']
        with pytest.raises(NeedsCode):
            tidemill.scan_depot(tmp_path, "Sums", "in").collect()
