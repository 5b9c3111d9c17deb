"""Graphs and Datasets over HTTP: runs with their nodes, pictures, Datasets with their rows, and who may see them."""

from __future__ import annotations

import datetime
import decimal
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from gateways import served
from graph_executors import Count, Pass
from starlette.testclient import TestClient

from tidemill import KVDataset, TaskGraph, UserCodeError
from tidemill.gateway import graph_looks, graphs
from tidemill.gateway.app import make_app
from tidemill.gateway.graph_looks import GraphList, GraphLook
from tidemill.gateway.live import changes
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.graphs import dataset_rows
from tidemill.graphs.dataset import read_record
from tidemill.graphs.dataset_readers import delete_dataset, publish
from tidemill.graphs.run_log import FOLDER, RunLog
from tidemill.store.folders import folders_in
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, CorruptState

FRAME = pl.DataFrame({"k": [1, 2, 1, 3], "v": ["a", "b", "c", None]})


class Bad(Pass):
    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Any:
        raise ValueError("no good")


def daily(store: str, id: str = "daily", executor: Any = None) -> TaskGraph:
    """A graph that counts, and leaves the Datasets `<id>-1` of all rows and `<id>-2` of the counts."""
    graph = TaskGraph(store, id=id)
    source = graph.new_input_frames(FRAME, 1)
    graph.new_blocking_node({0: source}, executor or Pass(), 2, {0: "k"}, kind=KVDataset, key="k")
    graph.new_blocking_node({0: source}, Count("k"), 1, {0: "k"})
    return graph


@pytest.fixture
def http(store_url: str) -> Iterator[TestClient]:
    daily(store_url).run()
    with TestClient(make_app(Modules(open_store(store_url)), GatewaySettings())) as client:
        yield client


def test_graphs_are_listed_with_how_they_stand_when_some_failed(http: TestClient, store_url: str) -> None:
    with pytest.raises(UserCodeError):
        daily(store_url, "broken", Bad()).run()

    found = http.get("/api/v1/graphs").json()
    assert [(one["graph"], one["state"]) for one in found["graphs"]] == [("broken", "failed"), ("daily", "finished")]
    assert found["left_out"] == 0
    assert "no good" in found["graphs"][0]["text"]
    assert (found["graphs"][1]["rows_read"], found["graphs"][1]["datasets"]) == (4, ["daily-1", "daily-2"])


def test_a_graph_has_its_nodes_streams_and_log_when_it_is_asked_for(http: TestClient) -> None:
    found = http.get("/api/v1/graphs/daily").json()
    assert [(n["rows_in"], n["rows_out"], n["ended"], n["waiting_bytes"]) for n in found["nodes"]] == [
        (4, 4, 1, 0), (4, 4, 2, 0), (4, 3, 1, 0),
    ]  # fmt: skip
    assert [node["streams"] for node in found["nodes"]] == [
        [], [{"source": 0, "dealt": "by k"}], [{"source": 0, "dealt": "by k"}],
    ]  # fmt: skip
    assert found["nodes"][1]["title"] == "Pass" and "makes the Dataset daily-1" in found["nodes"][1]["text"]
    assert [line["kind"] for line in found["log"]] == ["begin", "finish"]


def test_a_graph_is_drawn_when_it_has_only_begun(http: TestClient, store_url: str) -> None:
    begun = RunLog(open_store(store_url), "daily").tail(1, 2)[0][1]
    assert [(node.title, node.rows_in, node.ended) for node in begun.nodes][1:] == [("Pass", 0, 0), ("Count", 0, 0)]
    drawn = http.get("/api/v1/graphs/daily/plan")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    for text in ('data-box="1"', "1: Pass", "by k"):
        assert text in drawn.text
    assert drawn.text.count('data-counts="0"') == 2  # the arrows from node 0 to nodes 1 and 2


def test_a_dataset_has_schema_rows_and_size_when_it_is_asked_for(http: TestClient) -> None:
    listed = http.get("/api/v1/datasets").json()
    assert {(one["dataset"], one["rows"], one["kind"]) for one in listed["datasets"]} == {
        ("daily-1", 4, "kv"), ("daily-2", 3, "dataset"),
    }  # fmt: skip
    found = http.get("/api/v1/datasets/daily-1").json()
    assert (found["columns"], found["key"], found["graph"], found["node"]) == (
        {"k": "Int64", "v": "String"}, ["k"], "daily", 1,
    )  # fmt: skip
    assert sum(part["bytes"] for part in found["parts"]) == found["bytes"] > 0


def test_rows_come_in_pages_when_they_are_in_several_objects(http: TestClient) -> None:
    at = "/api/v1/datasets/daily-1/rows"
    whole = http.get(at).json()
    assert whole["columns"] == ["k", "v"]
    assert sorted(whole["rows"], key=str) == sorted(map(list, FRAME.rows()), key=str)
    pages = [http.get(at, params={"start": start, "limit": 1}).json()["rows"] for start in range(5)]
    assert [row for page in pages for row in page] == whole["rows"]
    assert pages[4] == []


@pytest.mark.parametrize("path", [
    "graphs/absent", "graphs/absent/plan", "graphs/absent/subscribe", "datasets/absent", "datasets/absent/rows",
    "graphs/%2e%2e", "datasets/%2e%2e/rows", "graphs/%2e%2e/subscribe", "datasets/_x", "datasets/" + "x" * 300,
])  # fmt: skip
def test_a_name_is_unknown_when_there_is_no_such_folder(http: TestClient, path: str) -> None:
    answer = http.get(f"/api/v1/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "UnknownName")


def test_a_list_is_bounded_when_there_are_many(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "DATASETS_MAX", 1)
    found = http.get("/api/v1/datasets").json()
    assert ([one["dataset"] for one in found["datasets"]], found["left_out"]) == (["daily-2"], 1)
    for wrong in ({"limit": 0}, {"limit": graphs.ROWS_MAX + 1}, {"start": "x"}, {"other": 1}):
        assert http.get("/api/v1/datasets/daily-1/rows", params=wrong).status_code in (400, 422), wrong
    monkeypatch.setattr(graphs, "ROWS_BYTES_MAX", 1)
    assert http.get("/api/v1/datasets/daily-1/rows").json()["error"]["code"] == "BadInput"
    monkeypatch.setattr(graphs, "ROWS_BYTES_MAX", 10_000)
    parts = http.get("/api/v1/datasets/daily-1").json()["parts"]
    monkeypatch.setattr(graphs, "OBJECTS_MAX", 1)
    assert len(parts) > 1 and http.get("/api/v1/datasets/daily-1").json()["parts"] == parts[:1]


def test_values_are_shown_as_text_when_json_has_no_form_for_them(tmp_path: Path) -> None:
    frame = pl.DataFrame({
        "day": [datetime.date(2026, 1, 2)], "price": [decimal.Decimal("1.50")], "took": [datetime.timedelta(hours=1)],
        "deep": [{"at": [datetime.time(1, 2)]}], "raw": [b"\x01"], "none": [None], "far": [2.5],
    })  # fmt: skip
    graph = TaskGraph(tmp_path, id="kinds")
    graph.new_blocking_node({0: graph.new_input_frames(frame, 1)}, Pass(), 1, {0: None})
    graph.run()
    with TestClient(make_app(Modules(open_store(str(tmp_path))), GatewaySettings())) as client:
        for accept in ("application/json", "application/msgpack"):
            answer = client.get("/api/v1/datasets/kinds-1/rows", headers={"accept": accept})
            assert answer.status_code == 200
        [row] = client.get("/api/v1/datasets/kinds-1/rows").json()["rows"]
    assert row == ["2026-01-02", "1.50", "1:00:00", {"at": ["01:02:00"]}, "01", None, 2.5]


def test_an_object_is_refused_when_too_much_of_it_would_be_fetched(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily(s3_url).run()
    store, reserved = open_store(s3_url), list[int]()
    record = read_record(store, "daily-1")
    assert dataset_rows.read_rows(store, record, 0, 9, reserved.append, dataset_rows.Room(10**6)).height == 4
    assert reserved == [each.bytes for each in record.objects]
    monkeypatch.setattr(dataset_rows, "OBJECT_BYTES_MAX", 1)
    with pytest.raises(BadInput, match="datasets export"):
        dataset_rows.read_rows(store, record, 0, 9, reserved.append, dataset_rows.Room(10**6))


def test_few_rows_are_read_at_first_when_rows_could_be_large(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = pl.DataFrame({"n": range(5_000), "text": ["x"] * 5_000})
    large = pl.DataFrame({"n": range(500), "text": ["x" * 10_000] * 500})
    for name, frame in (("small", small), ("large", large)):
        graph = TaskGraph(store_url, id=name)
        graph.new_blocking_node({0: graph.new_input_frames(frame, 1)}, Pass(), 1, {0: None})
        graph.run()
    store, asked = open_store(store_url), list[int]()
    read = dataset_rows.read_slices

    def noted(store: Any, key: str, slices: Any, checksum: str) -> Iterator[pl.DataFrame]:
        for frame in read(store, key, slices, checksum):
            asked.append(frame.height)
            yield frame

    monkeypatch.setattr(dataset_rows, "read_slices", noted)
    for at, count in ((0, 1_000), (4_990, 1_000), (17, 0), (9_000, 10)):
        asked.clear()
        room = dataset_rows.Room(10**6)
        found = dataset_rows.read_rows(store, read_record(store, "small-1"), at, count, lambda size: None, room)
        assert found["n"].to_list() == list(range(at, min(5_000, at + count)))
        assert found.columns == ["n", "text"] and len(asked) <= 2
    asked.clear()
    with pytest.raises(BadInput, match="read fewer at once"):
        dataset_rows.read_rows(
            store, read_record(store, "large-1"), 0, 500, lambda size: None, dataset_rows.Room(10**6)
        )
    assert sum(asked) * 10_000 <= 2 * 10**6


def test_rows_are_refused_when_their_dataset_is_deleted_meanwhile(tmp_path: Path) -> None:
    daily(str(tmp_path)).run()
    store = open_store(str(tmp_path))
    record = read_record(store, "daily-1")
    delete_dataset(store, "daily-1")
    with pytest.raises(CorruptState, match="cannot be read"):
        dataset_rows.read_rows(store, record, 0, 9, lambda size: None, dataset_rows.Room(10**6))


def test_the_list_goes_on_when_graphs_begin_and_end(store_url: str) -> None:
    modules = Modules(open_store(store_url))
    looked = GraphList(modules)
    assert looked.look() == {"graphs": [], "left_out": 0}
    graph, seen = daily(store_url), list[str]()
    graph.observe(lambda waves: seen.extend(one["state"] for one in looked.look()["graphs"]))
    graph.run()
    assert set(seen) == {"running or killed"}
    asked = modules.store.counts.get("get", 0)
    assert [one["state"] for one in looked.look()["graphs"]] == ["finished"]
    looked.look()
    assert modules.store.counts.get("get", 0) <= asked + 1  # what has ended is not read again
    looked.close()


def test_nodes_are_followed_when_checkpoints_are_taken(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path, id="long", checkpoint_waves=1)
    source = graph.new_input_frames([FRAME] * 6, 1)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    look, tell, told = GraphLook(Modules(open_store(str(tmp_path))), "long"), changes("graph"), list[Any]()
    graph.observe(lambda waves: told.extend(tell(look.look())))
    graph.run()
    told.extend(tell(look.look()))
    assert list(tell(look.look())) == []
    assert {name for name, _ in told} == {"graph"}
    read = [found["nodes"][0]["rows_in"] for _, found in told]
    assert read == sorted(read) and read[0] == 0 and read[-1] == 24
    assert [line["entry"] for line in told[-1][1]["log"]] == list(range(1, len(told[-1][1]["log"]) + 1))


def test_a_list_of_graphs_is_bounded_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        daily(str(tmp_path), name).run()
    monkeypatch.setattr(graph_looks, "GRAPHS_MAX", 1)
    found = GraphList(Modules(open_store(str(tmp_path)))).look()
    assert ([one["graph"] for one in found["graphs"]], found["left_out"]) == (["second"], 1)


def test_a_log_is_bounded_when_it_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daily(str(tmp_path)).run()
    monkeypatch.setattr(graph_looks, "ENTRIES_MAX", 1)
    assert [line["kind"] for line in GraphLook(Modules(open_store(str(tmp_path))), "daily").look()["log"]] == ["finish"]


def test_folders_are_named_once_when_they_hold_many_keys(store_url: str) -> None:
    store = open_store(store_url)
    assert list(folders_in(store, "x")) == []
    for key in ("x/a/1", "x/a/2", "x/a.b/1", "x/a-b/deep/1", "x/z/1", "xy/c/1"):
        store.create(key, b"1")
    assert sorted(folders_in(store, "x")) == ["a", "a-b", "a.b", "z"]


def test_windows_are_datasets_when_a_graph_keeps_one_for_each(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    daily(str(tmp_path)).run()
    whole = read_record(store, "daily-1")
    for number in range(graphs.WINDOWS_MAX + 2):
        publish(store, "hours", [replace(whole, id=f"hours/{number:04}", kind="dataset")], 0)
    with TestClient(make_app(Modules(store), GatewaySettings())) as client:
        names = {one["dataset"] for one in client.get("/api/v1/datasets").json()["datasets"]}
        assert names == {"daily-1", "daily-2", *(f"hours/{n:04}" for n in range(2, graphs.WINDOWS_MAX + 2))}
        assert client.get("/api/v1/datasets/hours%2F0001").json()["rows"] == 4
        assert len(client.get("/api/v1/datasets/hours%2F0001/rows").json()["rows"]) == 4
        assert client.get("/api/v1/datasets/hours%2F0001%2Fx").status_code == 404


# --- who may see them ------------------------------------------------------------------------------------------------


def test_graphs_are_hidden_when_a_token_or_a_gateway_is_of_some_modules(tmp_path: Path) -> None:
    daily(str(tmp_path / "data")).run()
    store = open_store(str(tmp_path / "data"))
    (tmp_path / "tokens").write_text("all\nsome read Shop\nwriter append\n")
    settings = GatewaySettings(tokens=Tokens(file=tmp_path / "tokens"))
    for path in ("graphs", "graphs/daily", "graphs/daily/plan", "datasets", "datasets/daily-1/rows"):
        with TestClient(make_app(Modules(store), settings)) as client:
            asked = {
                token: client.get(f"/api/v1/{path}", headers={"authorization": f"Bearer {token}"}).status_code
                for token in ("all", "some", "writer")
            }
            assert asked == {"all": 200, "some": 403, "writer": 403}
        with TestClient(make_app(Modules(store, only="Shop"), GatewaySettings())) as client:
            assert client.get(f"/api/v1/{path}").status_code == 404
            assert client.get("/session").json()["has_graphs"] is False
    with TestClient(make_app(Modules(store), GatewaySettings())) as client:
        assert client.get("/session").json()["has_graphs"] is True


def test_events_tell_what_changed_when_a_graph_is_followed(tmp_path: Path) -> None:
    daily(str(tmp_path)).run()
    with served(Modules(open_store(str(tmp_path)))) as server:
        for path, name in (("graphs/subscribe", "graphs"), ("graphs/daily/subscribe", "graph")):
            assert first_event(f"{server.url}/api/v1/{path}") == name


def first_event(url: str) -> str:
    """The name of the first event of a subscription."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return next(line.decode().partition(":")[2].strip() for line in answer if line.startswith(b"event:"))


def test_graphs_have_a_folder_of_their_own_when_they_are_looked_for(tmp_path: Path) -> None:
    daily(str(tmp_path)).run()
    assert list(folders_in(open_store(str(tmp_path)), FOLDER)) == ["daily"]
