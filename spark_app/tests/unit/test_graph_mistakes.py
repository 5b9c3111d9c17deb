"""Mistakes of users that show only when a graph runs, or that no check could see: each is said in words."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from graph_executors import Pass
from polars.exceptions import PanicException

from tidemill import (
    Dataset,
    DefinitionError,
    Executor,
    OutputParquetExecutor,
    PostgresPublishExecutor,
    PublishExecutor,
    RangePartition,
    StatelessExecutor,
    StorageExecutor,
    TaskGraph,
    TumblingWindowExecutor,
    UserCodeError,
)
from tidemill.graphs import run
from tidemill.graphs.inputs.csv_input import CsvFormat, CsvInput
from tidemill.graphs.inputs.files import find_files
from tidemill.graphs.run_log import RunLog
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput

FRAMES = [pl.DataFrame({"k": [n, n + 1]}) for n in range(6)]


class Locked(Executor):
    """Takes up something that cannot be saved when it meets the first batch, or at once."""

    def __init__(self, at_once: bool) -> None:
        self.lock = threading.Lock() if at_once else None

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.lock = self.lock or threading.Lock()
        return batches


class Leaves(Executor):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        raise self.error


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskGraph:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    return TaskGraph(tmp_path / "store", id="job", checkpoint_waves=1)


def test_an_executor_is_refused_before_anything_runs_when_it_cannot_be_copied(graph: TaskGraph) -> None:
    graph.new_blocking_node({0: graph.new_input_frames(FRAMES, 1)}, Locked(True), 1, {0: None})
    with pytest.raises(DefinitionError, match=r"Locked cannot be copied .*lock"):
        graph.run()


def test_state_that_cannot_be_saved_is_said_with_its_node_when_a_checkpoint_is_due(graph: TaskGraph) -> None:
    graph.new_blocking_node({0: graph.new_input_frames(FRAMES, 1)}, Locked(False), 1, {0: None})
    with pytest.raises(UserCodeError, match=r"state of node 1 .* cannot be saved: .*lock.* serialize"):
        graph.run()
    assert [entry.kind for entry in RunLog(open_store(graph.store), "job").all()][-1] == "fail"


@pytest.mark.parametrize("kind", [PublishExecutor, lambda folder: PostgresPublishExecutor(folder, "rows")])
def test_what_brings_a_whole_result_is_refused_when_it_has_two_channels(
    graph: TaskGraph, tmp_path: Path, kind: Any
) -> None:
    written = graph.new_non_blocking_node(
        {0: graph.new_input_frames(FRAMES, 1)}, OutputParquetExecutor(tmp_path / "out"), 1
    )
    graph.new_blocking_node({0: written}, kind(tmp_path / "out"), 2, {0: "file"})
    with pytest.raises(
        DefinitionError, match=r"PublishExecutor has 2 channels, and brings only the rows of one. Use 1"
    ):
        graph.run()


@pytest.mark.parametrize(
    ("error", "said"),
    [(SystemExit(3), "raised SystemExit: 3"), (PanicException("impossible"), "raised PanicException: impossible")],
)
def test_what_would_end_the_program_is_an_error_when_a_function_raises_it(
    graph: TaskGraph, error: BaseException, said: str
) -> None:
    graph.new_blocking_node({0: graph.new_input_frames(FRAMES, 1)}, Leaves(error), 1, {0: None})
    with pytest.raises(UserCodeError, match=said):
        graph.run()


@pytest.mark.parametrize(
    ("function", "said"),
    [(lambda batch: batch["x"], "raised ColumnNotFoundError"), (lambda batch: [9, 9], "channel 9")],
)
def test_a_partition_function_is_named_when_it_fails(graph: TaskGraph, function: Any, said: str) -> None:
    graph.new_blocking_node({0: graph.new_input_frames(FRAMES, 1)}, Pass(), 2, {0: function})
    with pytest.raises(UserCodeError, match=f"partition_key of node 0 .* {said}"):
        graph.run()


@pytest.mark.parametrize(
    "options", [{"sep": "||"}, {"sep": ""}, {"quote_char": '""'}, {"stride": 0}, {"columns": ["z"]}]
)
def test_a_file_is_refused_when_it_cannot_be_read_so(graph: TaskGraph, tmp_path: Path, options: Any) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    graph.new_blocking_node({0: graph.new_input_csv(tmp_path, "a.csv", ["a", "b"], **options)}, Pass(), 1, {0: None})
    with pytest.raises(DefinitionError, match="new_input_csv: "):
        graph.initialize()


def test_a_dataset_can_be_asked_if_it_is_there_when_its_graph_has_not_run(graph: TaskGraph) -> None:
    out = graph.new_blocking_node({0: graph.new_input_frames(FRAMES, 1)}, Pass(), 1, {0: None})
    second = TaskGraph(graph.store)
    second.new_blocking_node({0: second.new_input_frames(FRAMES, 1)}, out, Pass(), 1, {0: None})

    assert bool(out)
    with pytest.raises(DefinitionError, match="is not complete"):
        second.initialize()
    assert repr(Dataset("a", "b")).endswith("/a', 'b')")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("names", [[1, 2], 1, "ab", b"ab"])
def test_names_of_columns_are_refused_when_they_are_no_list_of_texts(
    graph: TaskGraph, tmp_path: Path, kind: str, names: Any
) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    pl.DataFrame({"a": [1], "b": [2]}).write_parquet(tmp_path / "a.parquet")
    new_input = getattr(graph, f"new_input_{kind}")
    for arguments in ({"names": names}, {"names": ["a", "b"], "columns": names}):
        graph.new_blocking_node({0: new_input(tmp_path, f"a.{kind}", **arguments)}, Pass(), 1, {0: None})

    with pytest.raises(DefinitionError) as refused:
        graph.initialize()

    text = str(refused.value)
    assert "names is a list of names of columns" in text and "columns is a list of names of columns" in text


def test_a_stride_of_parquet_files_is_refused_when_it_is_no_number_of_bytes(graph: TaskGraph, tmp_path: Path) -> None:
    FRAMES[0].write_parquet(tmp_path / "a.parquet")
    read = graph.new_input_parquet(tmp_path, "a.parquet", stride=0)
    graph.new_blocking_node({0: read}, Pass(), 1, {0: None})

    with pytest.raises(DefinitionError, match="new_input_parquet: stride is a number of bytes"):
        graph.initialize()


class SharesAList(Executor):
    """Keeps rows on its class."""

    rows: ClassVar[list[pl.DataFrame]] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.rows.extend(batches)


class SharesANumber(Executor):
    """Counts on its class."""

    count = 0
    COLUMNS: ClassVar[list[str]] = ["k"]

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        type(self).count += len(self.COLUMNS)


class AppendsWithoutState(StatelessExecutor):
    """Keeps rows, though it says that it keeps none."""

    def __init__(self) -> None:
        self.rows: list[pl.DataFrame] = []

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Any:
        self.rows.append(batch)


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        (SharesAList(), r"set SharesAList\.rows, and all channels share a class"),
        (SharesANumber(), r"set SharesANumber\.count, and all channels share a class"),
        (AppendsWithoutState(), "set rows, and a StatelessExecutor keeps no state"),
    ],
)
def test_state_that_would_be_shared_or_lost_is_refused_when_it_changes(
    graph: TaskGraph, executor: Any, said: str
) -> None:
    source = graph.new_input_frames([pl.DataFrame({"k": [0, 1]})], 1)
    graph.new_blocking_node({0: source}, executor, 2, {0: "k"})

    with pytest.raises(UserCodeError, match=said):
        graph.run()


@pytest.mark.parametrize("bounds", [(8, 2), (1, None)])
def test_a_range_is_refused_when_its_bounds_do_not_rise(graph: TaskGraph, bounds: Any) -> None:
    source = graph.new_input_frames([pl.DataFrame({"k": [0, 1]})], 1)
    graph.new_blocking_node({0: source}, StorageExecutor(), 3, {0: RangePartition("k", bounds)})

    with pytest.raises(DefinitionError, match="do not rise"):
        graph.initialize()


def test_a_window_is_refused_when_its_spans_do_not_fit() -> None:
    made = TumblingWindowExecutor("t", timedelta(microseconds=500), aggregations={"n": "len"})
    with pytest.raises(BadInput, match="parts of a millisecond"):
        made.execute([pl.DataFrame({"t": [datetime(2024, 1, 1)]}).cast(pl.Datetime("ms"))], 0, 0)
    for lateness, size in ((-1, 10), (timedelta(-1), timedelta(1))):
        with pytest.raises(BadInput, match="0 or more"):
            TumblingWindowExecutor("t", size, aggregations={"n": "len"}, allowed_lateness=lateness)


@pytest.mark.parametrize("id", ["key", "topology"])
def test_id_is_refused_when_appends_of_the_graph_would_have_others_numbers(tmp_path: Path, id: str) -> None:
    with pytest.raises(BadInput, match="Call it otherwise"):
        TaskGraph(store=tmp_path, id=id)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sep": ","}, "two letters"),
        ({"sep": "\n"}, "sep is one letter"),
        ({"sep": ";;"}, "sep is one letter"),
        ({"quote_char": "\r"}, "quote_char is one letter"),
    ],
)
def test_a_frame_of_csv_is_refused_when_signs_do_not_tell_its_values_apart(
    tmp_path: Path, options: Any, said: str
) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(BadInput, match=said):
        TaskGraph(tmp_path / "store").read_csv(str(tmp_path / "a.csv"), **{"quote_char": ",", **options})


def test_a_file_is_refused_when_its_lines_end_with_a_carriage_return_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\r1,2\r3,4\r")
    with pytest.raises(BadInput, match="Lines end with a newline"):
        TaskGraph(tmp_path / "store").read_csv(str(tmp_path / "a.csv"))


def test_types_of_a_file_are_those_of_polars_when_they_are_named_without_their_unit(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n2024-01-01 10:00:00,a\n")
    types: Any = {"x": pl.Datetime, "y": pl.Categorical}
    found = TaskGraph(tmp_path / "store").read_csv(str(tmp_path / "a.csv"), schema=types).collect()
    assert found.rows() == [(datetime(2024, 1, 1, 10), "a")]


@pytest.mark.parametrize("left", ["a,b\n1,2\n3", "a,b\n", "a,b", ""])
@pytest.mark.parametrize("stride", [2, 1000])
def test_a_file_is_refused_when_it_became_shorter(tmp_path: Path, left: str, stride: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 20)
    (file,) = find_files("", str(path))
    found = CsvInput((file,), {"a": pl.Int64(), "b": pl.Int64()}, CsvFormat(has_header=True), stride)
    (cursor,) = found.plan(1)
    path.write_text(left)

    with pytest.raises(BadInput, match="is shorter than it was"):
        while cursor is not None:
            _, cursor = found.read(cursor)
    with pytest.raises(BadInput, match="is shorter than it was"):
        found.plan(3)
