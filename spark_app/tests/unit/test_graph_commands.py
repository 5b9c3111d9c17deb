"""`tidemill graphs` and `tidemill datasets`, and graphs drawn and shown while they run."""

from __future__ import annotations

import io
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest
from graph_executors import Count, Pass
from typer.testing import CliRunner

from tidemill import BadInput, Dataset, Executor, KVDataset, TaskGraph, UserCodeError
from tidemill.cli.main import app
from tidemill.graphs import progress
from tidemill.graphs.dataset_readers import DatasetReader
from tidemill.journal.clock import SystemClock

FRAME = pl.DataFrame({"k": [1, 2, 1], "v": ["a", "b", "c"]})


@pytest.fixture
def store(tmp_path: Path) -> str:
    graph = TaskGraph(tmp_path / "store", id="daily")
    source = graph.new_input_frames(FRAME, 1)
    graph.new_blocking_node({0: source}, Pass(), 2, {0: "k"}, kind=KVDataset, key="k")
    graph.run()
    return str(tmp_path / "store")


def told(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output
    return done.stdout


def test_graphs_are_listed_with_what_became_of_them(store: str) -> None:
    class Bad(Executor):
        def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
            raise ValueError("no good")

    graph = TaskGraph(store, id="broken")
    graph.new_blocking_node({0: graph.new_input_frames(FRAME, 1)}, Bad(), 1, {0: None})
    with pytest.raises(UserCodeError):
        graph.run()

    daily, broken = json.loads(told("graphs", "--store", store, "--json"))
    assert (daily["graph"], daily["state"], daily["datasets"]) == ("daily", "finished", ["daily-1"])
    assert [node["rows_in"] for node in daily["nodes"]] == [3, 3]
    assert broken["state"] == "failed"
    assert "no good" in broken["text"]
    assert "daily" in told("graphs", "--store", store)


def test_a_dataset_is_listed_shown_exported_and_deleted(store: str, tmp_path: Path) -> None:
    (listed,) = json.loads(told("datasets", "list", "--store", store, "--json"))
    assert {name: listed[name] for name in ("dataset", "kind", "key", "rows", "objects")} == {
        "dataset": "daily-1", "kind": "kv", "key": ["k"], "rows": 3, "objects": 2,
    }  # fmt: skip
    assert "daily-1" in told("datasets", "list", "--store", store)
    shown = json.loads(told("datasets", "show", "daily-1", "--store", store, "--json"))
    assert shown["columns"] == {"k": "Int64", "v": "String"}
    assert all(Path(file).is_file() for file in shown["files"])
    assert "Int64" in told("datasets", "show", "daily-1", "--store", store)

    for name, read in {"a.parquet": pl.read_parquet, "a.csv": pl.read_csv, "a.jsonl": pl.read_ndjson}.items():
        told("datasets", "export", "daily-1", str(tmp_path / name), "--store", store)
        assert read(tmp_path / name).sort("v").equals(FRAME)
    told("datasets", "export", "daily-1", str(tmp_path / "a.csv"), "--store", store, code=1)
    told("datasets", "export", "daily-1", str(tmp_path / "a.doc"), "--store", store, code=1)

    told("datasets", "delete", "daily-1", "--store", store, code=1)
    assert json.loads(told("datasets", "delete", "daily-1", "--store", store, "--yes", "--json"))["objects"] == 2
    assert json.loads(told("datasets", "list", "--store", store, "--json")) == []
    told("datasets", "show", "daily-1", "--store", store, code=1)


def test_a_dataset_that_is_read_is_deleted_later(store: str) -> None:
    reader = DatasetReader([Dataset(store, "daily-1")], "weekly", SystemClock())
    reader.begin()

    assert "is deleted when weekly has read it" in said("datasets", "delete", "daily-1", "--yes", "--store", store)
    assert json.loads(told("datasets", "list", "--store", store, "--json")) == []
    assert json.loads(told("datasets", "collect", "--store", store, "--json"))["datasets"] == []
    told("datasets", "delete", "daily-1", "--yes", "--store", store, code=1)
    reader.end()
    assert not list((Path(store) / "_tidemill").rglob("*daily-1/*"))


def test_old_datasets_are_collected(store: str) -> None:
    assert json.loads(told("datasets", "collect", "--older-than", "1d", "--store", store, "--json"))["datasets"] == []
    assert "no age" in said("datasets", "collect", "--older-than", "1 day", "--store", store, code=1)
    assert "1 Dataset and 0 unfinished runs" in said("datasets", "collect", "--older-than", "0m", "--store", store)
    assert json.loads(told("datasets", "list", "--store", store, "--json")) == []


def said(*arguments: str, code: int = 0) -> str:
    """What is written for people, without its line ends."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code
    return " ".join(done.output.split())


def test_a_retention_is_refused_when_it_is_no_time(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="retention"):
        TaskGraph(tmp_path, retention=timedelta(0))


def test_a_graph_is_drawn_as_svg(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    source = graph.new_input_frames(FRAME, 2)
    graph.new_blocking_node({0: source, 1: source}, Count("<k>"), 3, {0: "k", 1: lambda batch: batch["k"]})
    graph.plot(tmp_path / "graph.svg")

    texts = [each.text or "" for each in ElementTree.parse(tmp_path / "graph.svg").iter() if each.tag.endswith("text")]
    assert {"0: input_frames", "1: Count", "by k", "by the function <lambda>"} <= set(texts)
    assert any(text.startswith("3 channels, makes the Dataset") for text in texts)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_graph_is_shown_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress.sys, "stderr", stream)
    graph = TaskGraph(tmp_path)
    graph.new_blocking_node({0: graph.new_input_frames([FRAME] * 5, 1)}, Count("k"), 1, {0: None})
    graph.run(progress=True)

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert ("1: Count" in text) if stream.isatty() else ("wave 2: 6 rows read" in text)
