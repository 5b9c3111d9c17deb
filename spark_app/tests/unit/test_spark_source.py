"""What Spark's data source reads, follows and appends, asked as Spark asks it, without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as api
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType
from scanned import DAY, TASKS, Shown

from tidemill import BadInput, CorruptState, InProcessCluster, KeyReused, OutcomeUnknown, RecordRefused, UnknownName
from tidemill.clients.module import ModuleClient
from tidemill.scans.depots import depot_scan
from tidemill.spark import depot_batches, folded_maps
from tidemill.spark.data_source import SPAN_RECORDS, TidemillDataSource, cut_spans, dealt
from tidemill.spark.depot_batches import BATCH_MAX, DepotBatches
from tidemill.spark.staged import check_staged
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.tables.sorted_table import SortedTable
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore

Options = Any


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with InProcessCluster.create(engine="local", store=tmp_path_factory.mktemp("store")) as cluster:
        shown = Shown(cluster)
        shown.put("counts", {f"k{i:03}": {j: i * j for j in range(i % 7)} for i in range(30)})
        shown.put("times", {DAY: [{1: b"x"}, {}]})
        shown.put("users", {1: {"name": "Ann", "tags": {"b", "a"}, "seen": DAY, "scores": {"x": 1}, "likes": {7}}})
        cluster.cluster_depot("Shapes", "*events").append_many([{"id": i, "what": {"n": i}} for i in range(20)])
        yield shown


def source(shown: Shown, **options: Any) -> TidemillDataSource:
    given = {"store": shown.store.url.removeprefix("file://"), "module": "Shapes", **options}
    return TidemillDataSource(api.CaseInsensitiveDict({name: str(value) for name, value in given.items()}))


def rows(found: TidemillDataSource, *filters: api.Filter, schema: StructType | None = None) -> list[dict[str, Any]]:
    """What Spark would get, planned in one process and read in another one."""
    known = schema or found.schema()
    reader = pickle.loads(pickle.dumps(found)).reader(known)
    assert list(reader.pushFilters(list(filters))) == list(filters)
    parts = reader.partitions()
    reader = pickle.loads(pickle.dumps(reader))
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_columns_have_their_types_in_spark_when_a_pstate_is_read(shown: Shown) -> None:
    assert source(shown, pstate="counts").schema().simpleString() == "struct<task:int,k0:string,k1:bigint,value:bigint>"
    text = source(shown, pstate="times").schema().simpleString()
    assert text == "struct<task:int,k0:timestamp,value:array<map<bigint,binary>>>"
    (user,) = rows(source(shown, pstate="users"))
    assert (user["k0"], user["tags"], user["seen"], user["scores"]) == (1, ["a", "b"], DAY, [("x", 1)])
    assert [row["value"] for row in rows(source(shown, pstate="times"))] == [[[(1, b"x")], []]]
    assert [(row["k0"], row["k1"]) for row in rows(source(shown, pstate="users", table="likes"))] == [(1, 7)]


def test_subindexed_maps_are_maps_when_the_option_says_so(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    found = source(shown, pstate="counts", maps=True)
    expected = {f"k{i:03}": [(j, i * j) for j in range(i % 7)] for i in range(30) if i % 7}

    assert found.schema()["value"].dataType == MapType(LongType(), LongType())
    assert {row["k0"]: row["value"] for row in rows(found)} == expected
    key = rows(found, api.EqualTo(("k0",), "k013"), api.GreaterThan(("value",), 1))
    assert [row["k0"] for row in key] == ["k013"]
    with pytest.raises(BadInput, match="option maps is for maps with subindexed maps"):
        source(shown, pstate="users", maps=True).schema()
    monkeypatch.setattr(folded_maps, "MAP_ROWS_MAX", 5)
    with pytest.raises(BadInput, match="more than 5 elements at 'k0"):
        rows(found)


def test_only_rows_within_the_bounds_are_read_when_filters_are_pushed(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    before = SortedTable.rows

    def counted(self: SortedTable, start: int, end: int) -> Any:
        taken.append(end - start)
        return before(self, start, end)

    monkeypatch.setattr(SortedTable, "rows", counted)
    wanted = api.In(("k0",), ("k013", "k006")), api.GreaterThanOrEqual(("k1",), 4)

    found = rows(source(shown, pstate="counts"), *wanted)
    assert sorted((row["k0"], row["k1"]) for row in found) == [("k006", 4), ("k006", 5), ("k013", 4), ("k013", 5)]
    assert sum(taken) == 4
    taken.clear()
    others = api.Not(api.EqualTo(("k0",), "k013")), api.EqualNullSafe(("k0",), None), api.EqualTo(("a", "b"), 1)
    assert len(rows(source(shown, pstate="counts"), *others)) == len(rows(source(shown, pstate="counts")))


def test_a_read_stays_as_of_its_entry_when_the_pstate_changes(shown: Shown) -> None:
    found = source(shown, pstate="sets")
    schema = found.schema()
    shown.put("sets", {"late": {1}})

    assert rows(found, schema=schema) == []
    assert len(rows(source(shown, pstate="sets"))) == 1
    assert rows(source(shown, pstate="sets", microbatch=1)) == []


def test_a_read_stays_as_of_its_load_when_the_caller_names_columns(shown: Shown) -> None:
    """Spark asks for a reader at each use of a load, and for the columns only where the caller named none."""
    elements = StructType([StructField("k1", LongType())])
    fields = StructType([StructField("n", LongType())])
    loads = [source(shown, pstate="late"), source(shown, depot="drop_late")]
    before = [rows(loads[0], schema=elements), rows(loads[1], schema=fields)]
    shown.put("late", {"a": {1, 2}})
    shown.drop("late", "b")

    assert [rows(loads[0], schema=elements), rows(loads[1], schema=fields)] == before == [[], []]
    assert rows(source(shown, pstate="late"), schema=elements) == [{"k1": 1}, {"k1": 2}]
    assert rows(source(shown, depot="drop_late"), schema=fields) == [{"n": None}]


def test_tasks_are_dealt_over_partitions_when_there_are_fewer(shown: Shown) -> None:
    everything = rows(source(shown, pstate="counts"))
    found = source(shown, pstate="counts", partitions=3)
    reader = found.reader(found.schema())

    assert sorted(task for part in reader.partitions() for task in part.value) == list(range(TASKS))
    assert len(reader.partitions()) == 3
    assert len(rows(found)) == len(everything)
    assert cut_spans([(1, 5, 5 + 2 * SPAN_RECORDS + 1)])[-1] == (1, 5 + 2 * SPAN_RECORDS, 6 + 2 * SPAN_RECORDS)


def test_the_fields_of_records_are_columns_when_the_caller_names_them(shown: Shown) -> None:
    schema = StructType([StructField("offset", LongType()), StructField("id", LongType()),
                         StructField("what", StructType([StructField("n", LongType())]))])  # fmt: skip
    found = rows(source(shown, depot="events"), schema=schema)

    assert sorted(row["id"] for row in found) == list(range(20))
    assert all(row["what"] == {"n": row["id"]} for row in found)
    assert json.loads(rows(source(shown, depot="events"))[0]["record"]).keys() == {"id", "what"}
    with pytest.raises(BadInput, match="as a STRUCT, or as a STRING"):
        rows(source(shown, depot="events"), schema=StructType([StructField("what", MapType(StringType(), LongType()))]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the option pstate, or the option depot"),
        ({"pstate": "counts", "depot": "events"}, "the option pstate, or the option depot"),
        ({"pstate": "counts", "store": ""}, "needs the option store"),
        ({"pstate": "counts", "pstates": "x"}, "has no option pstates"),
        ({"pstate": "counts", "entry": "-1"}, "option entry is a whole number"),
        ({"pstate": "counts", "maps": "yes"}, "option maps is true or false"),
        ({"pstate": "nothing"}, "has no PState"),
        ({"depot": "nothing"}, "has no depot"),
    ],
)
def test_a_read_is_refused_when_its_options_are_wrong(shown: Shown, options: Options, text: str) -> None:
    with pytest.raises((BadInput, UnknownName), match=text):
        source(shown, **options).schema()
    with pytest.raises(BadInput, match="not a PState"):
        source(shown, pstate="counts").streamReader(StructType([]))
    with pytest.raises(BadInput, match="no column 'k9'"):
        source(shown, pstate="counts").reader(StructType([StructField("k9", LongType())]))


# --- following -------------------------------------------------------------------------------------------------------


def ids_between(reader: Any, start: Any, end: Any) -> list[int]:
    batches = (batch for part in reader.partitions(start, end) for batch in reader.read(part))
    return [json.loads(text)["id"] for batch in batches for text in batch.column("record").to_pylist()]


def test_each_record_is_in_one_batch_when_a_depot_is_followed(shown: Shown) -> None:
    found = source(shown, depot="events", maxRecordsPerBatch=6)
    reader = found.streamReader(found.schema())
    limit = reader.getDefaultReadLimit()
    at, seen = reader.initialOffset(), []
    while (end := json.loads(json.dumps(reader.latestOffset(at, limit)))) != at:
        batch = ids_between(reader, at, end)
        assert 0 < len(batch) <= 6
        assert ids_between(reader, at, end) == batch  # as after a restart
        seen += batch
        at = end

    assert limit == ReadMaxRows(6)
    assert sorted(seen) == list(range(20))
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == at == reader.reportLatestOffset()


def test_a_query_ends_where_the_depot_ended_when_it_takes_what_is_available(shown: Shown) -> None:
    found = source(shown, depot="ticks", startingOffsets="latest")
    reader = found.streamReader(found.schema())
    reader.prepareForTriggerAvailableNow()
    before = reader.initialOffset()
    shown.add(0)

    assert reader.latestOffset(before, ReadAllAvailable()) == before
    assert source(shown, depot="ticks").streamReader(found.schema()).latestOffset(before, ReadAllAvailable()) != before


def test_a_query_begins_where_the_option_says_when_it_has_no_checkpoint(shown: Shown) -> None:
    def first(starting: str) -> dict[str, int]:
        found = source(shown, depot="events", startingOffsets=starting)
        return dict(found.streamReader(found.schema()).initialOffset()["offsets"])

    assert set(first("earliest").values()) == {0}
    assert sum(first("latest").values()) == 20
    assert first('{"1": 2}') == {"0": 0, "1": 2, "2": 0, "3": 0}
    for wrong in ("yesterday", "[1]", '{"a": 1}', '{"1": null}'):
        with pytest.raises(BadInput, match="startingOffsets is earliest, latest, or JSON"):
            first(wrong)
    with pytest.raises(BadInput, match="has 4 partitions, and none 9"):
        first('{"9": 2}')
    with pytest.raises(BadInput, match='offsets from 0 on, not {"1": -2}'):
        first('{"0": 3, "1": -2}')


def test_a_checkpoint_is_refused_when_the_depot_was_made_anew(shown: Shown) -> None:
    found = source(shown, depot="events")
    reader = found.streamReader(found.schema())
    with pytest.raises(BadInput, match="made anew since this query's checkpoint"):
        reader.partitions({"depot": "other", "offsets": {}}, reader.reportLatestOffset())


def test_records_are_dealt_evenly_when_a_batch_is_limited() -> None:
    assert dealt({"0": 10, "1": 1, "2": 10}, 9) == {"0": 4, "1": 1, "2": 4}
    assert dealt({"0": 1, "1": 2}, 9) == {"0": 1, "1": 2}
    assert sum(dealt({str(n): 100 for n in range(7)}, 20).values()) == 20


# --- appending -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Shown]:
    with InProcessCluster.create(engine="local", store=tmp_path / "store") as cluster:
        yield Shown(cluster)


def batches(sink: Shown, producer: str = "p", column: str = "") -> DepotBatches:
    return DepotBatches(sink.store.url.removeprefix("file://"), "Shapes", "*events", producer, column)


def of(*ids: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": list(ids)})]


def appended(sink: Shown) -> list[Any]:
    frame = depot_scan(ModuleClient(sink.store, "Shapes"), "events")
    found = (text for rows in frame.read({}, ["record"], 1000) for text in rows["record"].to_list())
    return sorted((json.loads(text) for text in found), key=repr)


def staged(sink: Shown) -> list[str]:
    return [key for key in sink.store.list("Shapes") if "/staged/" in key]


def test_rows_are_appended_once_when_tasks_and_commits_are_tried_again(sink: Shown) -> None:
    mine = batches(sink)
    first = [*mine.stage(of(1, 2)), *mine.stage(of(3))]
    mine.stage(of(1, 2))  # a task that was tried twice, and whose first try Spark knows nothing of
    mine.commit(0, first)
    mine.commit(0, first)
    mine.commit(0, mine.stage(of(3, 2, 1)))  # a restarted query divides the rows in another way
    mine.commit(1, ())
    mine.commit(2, mine.stage(of(4)))

    assert [record["id"] for record in appended(sink)] == [1, 2, 3, 4]
    with pytest.raises(KeyReused):  # a driver that slept since then
        mine.commit(0, mine.stage(of(9)))
    mine.finish()
    assert staged(sink) == []


def test_a_batch_is_what_its_first_list_says_when_the_driver_died(sink: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver dies before and after each of its requests; the query is started again, and divides its rows anew."""
    store, deaths = sink.store, 0
    for number in range(60):
        mine = batches(sink, f"p{number}")
        mine.commit(6, mine.stage(of(100 * number)))
        names = [*mine.stage(of(100 * number + 1, 100 * number + 2)), *mine.stage(of(100 * number + 3))]
        died = _dies_at(number, store, monkeypatch, lambda mine=mine, names=names: mine.commit(7, names))
        assert check_staged(store, "Shapes") == []
        mine.commit(7, [*mine.stage(of(100 * number + 3, 100 * number + 1)), *mine.stage(of(100 * number + 2))])
        found = [record["id"] % 100 for record in appended(sink) if record["id"] // 100 == number]
        assert sorted(found) == [0, 1, 2, 3], number
        deaths += died

    assert 20 <= deaths < 60


@pytest.mark.parametrize("is_listed", [False, True])
def test_what_the_next_batch_is_stays_when_a_driver_that_was_replaced_ends_its_own_late(
    sink: Shown, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    mine, clean = batches(sink), DepotBatches._clean
    names: list[str] = []

    def late(*given: Any) -> None:
        """The other driver sees that the batch is appended, and begins the next one."""
        monkeypatch.undo()
        names.extend(mine.stage(of(2), 8))
        if is_listed:  # and dies before it cleans up
            with monkeypatch.context() as patch:
                patch.setattr(DepotBatches, "_clean", lambda *_: None)
                mine.commit(8, names)
        clean(*given)

    monkeypatch.setattr(DepotBatches, "_clean", late)
    mine.commit(7, mine.stage(of(1), 7))
    mine.commit(8, names if not is_listed else mine.stage(of(2), 8))
    assert [record["id"] for record in appended(sink)] == [1, 2]
    mine.commit(9, mine.stage(of(3), 9))
    assert len(staged(sink)) == 2, "the newest batch's list and mark"


@pytest.mark.parametrize("damage", ["changed", "cut", "lost", "list"])
def test_a_batch_that_is_to_be_appended_is_at_fault_when_what_was_staged_is_not_there_as_it_was_written(
    sink: Shown, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Rows whose bits had flipped were appended as other rows."""
    mine = batches(sink)
    names = [*mine.stage(of(1)), *mine.stage(of(2, 3))]
    assert _dies_at(13, sink.store, monkeypatch, lambda: mine.commit(0, names))
    assert any(key.endswith(".json") for key in staged(sink))
    assert not any(key.endswith(".done") for key in staged(sink))
    key = next(key for key in staged(sink) if key.endswith(".json" if damage == "list" else names[1]))
    content = bytearray(sink.store.get(key))
    content[content.find(bytes([3, 0, 0, 0, 0, 0, 0, 0]), len(content) // 2)] ^= 4
    sink.store.delete(key)
    if damage != "lost":
        sink.store.create(key, bytes(content[:-9] if damage in ("cut", "list") else content))

    (found,) = check_staged(sink.store, "Shapes")

    assert (found.invariant, found.place) == ("S6", "*events batch 0 of Spark")
    assert key in found.text
    with pytest.raises((CorruptState, NotFound)):
        mine.commit(0, names)
    assert [record["id"] for record in appended(sink)] in ([], [1])


def _dies_at(number: int, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, act: Any) -> bool:
    left = [number]

    def die(verb: str, key: str) -> None:
        if left[0] == 0:
            raise Crash
        left[0] -= 1

    faulty = FaultyObjectStore(store, FaultPlan(before=die, after=die))
    with monkeypatch.context() as patch:
        patch.setattr(depot_batches, "opened", lambda url: faulty)
        try:
            act()
        except (Crash, OutcomeUnknown):
            return True
    return False


def test_values_are_data_when_spark_writes_maps_times_and_one_column(sink: Shown) -> None:
    maps = pa.map_(pa.string(), pa.list_(pa.int64()))
    rows = pa.RecordBatch.from_pydict(
        {"id": [1, 2], "m": pa.array([[("a", [1])], None], maps), "t": pa.array([DAY, None], pa.timestamp("us", "UTC"))}
    )
    mine = batches(sink)
    mine.commit(0, mine.stage([rows]))
    assert appended(sink) == [
        {"id": 1, "m": {"a": [1]}, "t": DAY.isoformat()}, {"id": 2, "m": None, "t": None},
    ]  # fmt: skip
    whole = batches(sink, "q", "record")
    record = pa.array([{"id": 5}], pa.struct([("id", pa.int64())]))
    whole.commit(0, whole.stage([pa.RecordBatch.from_pydict({"record": record, "other": [1]})]))
    assert {"id": 5} in appended(sink)
    with pytest.raises(BadInput, match="no column 'nope'"):
        batches(sink, "r", "nope").commit(0, mine.stage(of(1)) and batches(sink, "r").stage(of(1)))


def test_rows_go_to_several_objects_when_a_task_has_many(sink: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depot_batches, "STAGED_BYTES", 100)
    mine = batches(sink)
    names = mine.stage(batch for n in range(10) for batch in of(*range(10 * n, 10 * n + 10)))
    mine.commit(0, names)

    assert len(names) > 3
    assert [record["id"] for record in appended(sink)] == sorted(range(100), key=lambda n: repr({"id": n}))
    with pytest.raises(BadInput, match="Batches have the numbers"):
        mine.commit(BATCH_MAX + 1, names)


def written(sink: Shown, messages_of: Iterable[list[int]], **options: Any) -> tuple[Any, list[Any]]:
    writer = source(sink, depot="events", **options).writer(StructType([]), False)
    writer = pickle.loads(pickle.dumps(writer))
    return writer, [writer.write(iter(of(*ids))) for ids in messages_of]


def test_nothing_is_left_or_appended_when_a_job_is_aborted(sink: Shown) -> None:
    writer, messages = written(sink, [[1], [2]])
    writer.abort([*messages, None])

    assert (appended(sink), staged(sink)) == ([], [])


@pytest.mark.parametrize("number", range(24))
def test_a_batch_is_appended_once_when_its_commit_failed_and_spark_aborted_it(
    sink: Shown, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Spark aborts a job whose commit raised; the driver lives, and the job, or the query, is started again."""
    writer, messages = written(sink, [[1, 2], [3]], producer="p", sequence=7)
    _dies_at(number, sink.store, monkeypatch, lambda: writer.commit(messages))
    writer.abort([*messages, None])
    writer, messages = written(sink, [[3], [2, 1]], producer="p", sequence=7)
    writer.commit(messages)

    assert [record["id"] for record in appended(sink)] == [1, 2, 3]
    writer.batches.commit(8, written(sink, [[4]], producer="p", sequence=8)[1][0].names)
    assert len(staged(sink)) <= 3  # the newest batch's list, rows and mark


def test_nothing_is_appended_when_a_row_is_no_record_of_the_depot(sink: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task fails that has the row, so the rows before it are not in the depot either."""
    monkeypatch.setattr(depot_batches, "STAGED_BYTES", 1)
    for late in ({"id": [1], "day": [DAY.date()]}, {"other": [1]}):
        with pytest.raises(RecordRefused):
            batches(sink).stage([*of(1, 2), pa.RecordBatch.from_pydict(late)])
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"])
    for wrong in (twice, pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))):
        with pytest.raises(BadInput, match="give each a name of its own"):
            batches(sink).stage([wrong])

    assert appended(sink) == []


def test_nothing_stays_when_the_commit_of_a_job_without_a_name_failed(
    sink: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, messages = written(sink, [[1, 2], [3]])
    assert _dies_at(9, sink.store, monkeypatch, lambda: writer.commit(messages))
    writer.abort(messages)

    assert staged(sink) == []


def test_filters_bound_nothing_when_the_caller_gave_a_column_another_type(shown: Shown) -> None:
    text = StructType([StructField("offset", StringType()), StructField("partition", StringType())])
    given = StructType([*text.fields, StructField("id", LongType())])
    found = source(shown, depot="events")
    filters = api.GreaterThanOrEqual(("offset",), "3"), api.LessThan(("partition",), "9")

    assert len(rows(found, *filters, schema=given)) == 20
    assert len(rows(found, api.GreaterThanOrEqual(("partition",), 4))) == 0


def test_options_that_would_promise_nothing_are_refused(sink: Shown) -> None:
    with pytest.raises(BadInput, match="go together"):
        written(sink, [], producer="", sequence=1)
    with pytest.raises(BadInput, match="Call it otherwise"):
        written(sink, [], producer="key/nightly", sequence=1)
    with pytest.raises(BadInput, match="from 1 on, not 0"):
        found = source(sink, depot="events", maxRecordsPerBatch=0)
        found.streamReader(found.schema())


def test_a_job_is_appended_once_when_it_is_run_again_as_the_same(sink: Shown) -> None:
    for _ in range(2):
        writer, messages = written(sink, [[1], [2]], producer="nightly", sequence=20261122)
        writer.commit(messages)
    for _ in range(2):
        writer, messages = written(sink, [[3]])
        writer.commit(messages)

    assert [record["id"] for record in appended(sink)] == [1, 2, 3, 3]
    with pytest.raises(BadInput, match="go together"):
        written(sink, [], producer="x")
    with pytest.raises(BadInput, match=r"use mode\('append'\)"):
        source(sink, depot="events").writer(StructType([]), True)
    with pytest.raises(BadInput, match="which streaming query"):
        source(sink, depot="events").streamWriter(StructType([]), False).write(iter(of(1)))
