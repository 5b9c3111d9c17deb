"""Parquet inputs of task graphs: each row once, only what is wanted, and row groups that have nothing of it never."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from graph_executors import Pass
from polars.testing import assert_frame_equal

from tidemill import DefinitionError, TaskGraph
from tidemill.graphs.inputs.files import find_files
from tidemill.graphs.inputs.parquet_input import check_types, parquet_input
from tidemill.values.errors import BadInput

DAY = datetime.date(2024, 1, 1)
ROWS = pl.DataFrame(
    {
        "n": range(1000),
        "day": [DAY + datetime.timedelta(days=n // 10) for n in range(1000)],
        "t": [f"t{n % 9}" for n in range(1000)],
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    ROWS.slice(0, 550).write_parquet(tmp_path / "data" / "a.parquet", row_group_size=100)
    ROWS.slice(550).write_parquet(tmp_path / "data" / "b.parquet", row_group_size=70)
    return tmp_path


@pytest.mark.parametrize("channels", [1, 3, 20])
@pytest.mark.parametrize("stride", [1, 3000, 1 << 26])
def test_each_row_is_read_once_and_in_order_when_files_have_row_groups(
    folder: Path, channels: int, stride: int
) -> None:
    found = parquet_input(find_files(str(folder), "data"), None, None, stride)
    frames = []
    for cursor in found.plan(channels):
        while cursor is not None:
            batch, cursor = found.read(cursor)
            frames.append(batch.collect())

    assert pl.concat(frames).equals(ROWS)


@pytest.mark.parametrize(
    "conditions",
    [
        [("n", ">=", 900)], [("n", ">", 899), ("t", "==", "t1")], [("day", "<", DAY + datetime.timedelta(days=5))],
        [("n", "in", [3, 700])], [("n", "not in", list(range(995)))], [("t", "!=", "t0"), ("n", "<=", 20)],
        pl.col("n") * 2 < 50, [("n", "=", 5000)], [], None,
    ],
)  # fmt: skip
def test_rows_are_those_that_the_conditions_let_pass(folder: Path, conditions: Any) -> None:
    graph = TaskGraph(folder / "store")
    source = graph.new_input_parquet(folder, "data", None, 2, ["t", "n"], conditions)
    out = graph.new_blocking_node({0: source}, Pass(), 2, {0: "n"})
    graph.run()

    table = {"n": ROWS["n"], "t": ROWS["t"], "day": ROWS["day"]}
    tests = {
        ">=": lambda a, b: a >= b, ">": lambda a, b: a > b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
        "==": lambda a, b: a == b, "=": lambda a, b: a == b, "!=": lambda a, b: a != b, "in": lambda a, b: a in b,
        "not in": lambda a, b: a not in b,
    }  # fmt: skip
    if isinstance(conditions, pl.Expr):
        expected = ROWS.filter(conditions)["n"].to_list()
    else:
        expected = [
            n for n in range(1000) if all(tests[how](table[name][n], value) for name, how, value in conditions or ())
        ]
    assert (sorted(out.to_polars()["n"]) if out.num_rows else []) == expected
    assert out.schema.names() in (["t", "n"], [])


def test_row_groups_are_never_read_when_their_statistics_exclude_them(folder: Path) -> None:
    files = find_files(str(folder), "data")
    few, every = parquet_input(files, None, [("n", ">=", 930)], 1), parquet_input(files, None, None, 1)

    assert [(group.file, group.number) for group in few.groups] == [(1, 5), (1, 6)]
    assert len(every.groups) == 13


def test_a_stride_has_as_many_rows_when_the_file_has_columns_that_nobody_reads(tmp_path: Path) -> None:
    wide = ROWS.select("n").with_columns(pl.lit(f"text {number}" * 9).alias(f"c{number}") for number in range(30))
    ROWS.select("n").write_parquet(tmp_path / "narrow.parquet", row_group_size=100)
    wide.write_parquet(tmp_path / "wide.parquet", row_group_size=100)

    def read(name: str, stride: int) -> list[int]:
        found, heights = parquet_input(find_files(str(tmp_path), name), ["n"], None, stride), list[int]()
        (cursor,) = found.plan(1)
        while cursor is not None:
            batch, cursor = found.read(cursor)
            heights.append(batch.collect().height)
        return heights

    assert read("wide.parquet", 3000) == read("narrow.parquet", 3000) == [300, 300, 300, 100]


def test_a_stride_is_bounded_by_what_rows_take_in_memory_when_little_of_them_is_stored(tmp_path: Path) -> None:
    pl.DataFrame({"t": ["a text"] * 100_000}).write_parquet(tmp_path / "same.parquet", row_group_size=10_000)
    assert (tmp_path / "same.parquet").stat().st_size < 10_000

    found = parquet_input(find_files(str(tmp_path), "same.parquet"), None, None, 400_000)
    (cursor,) = found.plan(1)
    batch, _ = found.read(cursor)

    assert batch.collect().estimated_size() <= 400_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"columns": ["x"]}, "no column x"),
        ({"skip_conditions": [("y", "<", 3)]}, "no column y"),
        ({"skip_conditions": [("n", "~", 3)]}, "is no condition"),
        ({"skip_conditions": 5}, "a list of"),
        ({"key": "no.parquet"}, "no file"),
    ],
)
def test_an_input_is_refused_when_it_cannot_be_read_so(folder: Path, arguments: Any, said: str) -> None:
    graph = TaskGraph(folder / "store")
    graph.new_blocking_node({0: graph.new_input_parquet(folder, **{"key": "data"} | arguments)}, Pass(), 1, {0: None})
    with pytest.raises(DefinitionError, match=said):
        graph.initialize()


def test_a_file_is_refused_when_it_is_no_parquet_or_of_other_columns(folder: Path) -> None:
    for content in (b"no parquet", None):
        path = folder / "data" / "z.parquet"
        if content is None:
            ROWS.rename({"n": "m"}).write_parquet(path)
        else:
            path.write_bytes(content)
        graph = TaskGraph(folder / "store")
        graph.new_blocking_node({0: graph.new_input_parquet(folder, "data")}, Pass(), 1, {0: None})
        with pytest.raises(DefinitionError, match="no Parquet file" if content else "other columns"):
            graph.initialize()


@pytest.mark.parametrize("how", [">", ">="])
def test_a_row_group_is_read_when_it_may_have_nan_which_is_above_all_numbers(tmp_path: Path, how: str) -> None:
    pl.DataFrame({"f": [1.0, float("nan")]}).write_parquet(tmp_path / "a.parquet")

    found = parquet_input(find_files(str(tmp_path), "a.parquet"), None, [("f", how, 5.0)], 1 << 26)

    assert [found.read(cursor)[0].collect()["f"].is_nan().to_list() for cursor in found.plan(1)] == [[True]]


def test_files_of_a_folder_and_of_a_bucket_give_the_same_rows_when_columns_are_of_all_kinds(tmp_path: Path) -> None:
    days = [DAY + datetime.timedelta(days=n) for n in range(6)]
    rows = pl.DataFrame(
        {
            "day": days, "at": [datetime.datetime(2024, 1, 1, n) for n in range(6)], "n": [1, None, 3, 4, 5, 6],
            "small": pl.Series(range(6), dtype=pl.Int8), "price": pl.Series(["1.5"] * 6).cast(pl.Decimal(10, 2)),
            "list": [[n, n + 1] for n in range(6)], "pair": [{"a": n, "b": "x"} for n in range(6)],
            "kind": pl.Series(["a", "b"] * 3, dtype=pl.Categorical), "raw": [b"\x00", None] * 3,
            "span": [datetime.timedelta(seconds=n) for n in range(6)], "f": [0.5, float("nan"), None] * 2,
        }
    )  # fmt: skip
    rows.write_parquet(tmp_path / "a.parquet", row_group_size=2)
    found = parquet_input(find_files(str(tmp_path), "a.parquet"), None, None, 1 << 20)

    assert found.is_local
    for groups in (found.groups, found.groups[1:2], found.groups[1:]):
        scanned, loaded = (read(found.files[0], groups).collect() for read in (found._scanned, found._loaded))
        assert_frame_equal(scanned, loaded)
        assert dict(scanned.schema) == found.types


def test_groups_behind_one_that_is_left_out_are_a_batch_of_their_own(folder: Path) -> None:
    files = find_files(str(folder), "data/a.parquet")
    found = parquet_input(files, None, [("n", "not in", [])], 1 << 26)
    left_out = replace(found, groups=(found.groups[0], *found.groups[2:]))

    read, cursor = [], left_out.plan(1)[0]
    while cursor is not None:
        batch, cursor = left_out.read(cursor)
        read.append(batch.collect()["n"].to_list())

    assert read == [list(range(100)), list(range(200, 550))]


def test_rows_fulfil_conditions_and_the_predicate_when_both_are_given(folder: Path) -> None:
    graph = TaskGraph(folder / "store")
    source = graph.new_input_parquet(
        folder, "data", None, 2, ["t"], [("n", "<", 40)], predicate=pl.col("t").str.ends_with("3")
    )
    out = graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    graph.run()

    assert out.to_polars()["t"].to_list() == ["t3"] * 5


def test_a_damaged_footer_is_said_with_its_file_when_types_of_it_contradict_each_other(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": range(100), "s": [f"v{n % 7}" for n in range(100)]})
    rows.write_parquet(tmp_path / "good.parquet", row_group_size=25)
    content = (tmp_path / "good.parquet").read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    said = set()
    for at in range(begin, len(content), 61):
        for bit in (0, 3, 6):
            damaged = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
            (tmp_path / "damaged.parquet").write_bytes(damaged)
            try:
                parquet_input(find_files(str(tmp_path), "damaged.parquet"), None, [("a", ">", 50), ("s", "<", "v")], 1)
            except BadInput as error:
                said.add("damaged.parquet" in str(error))

    assert said == {True}


def test_a_row_group_of_another_type_than_its_file_is_refused_before_its_statistics_are_asked() -> None:
    group = SimpleNamespace(physical_type="INT96")
    footer = SimpleNamespace(
        schema=SimpleNamespace(column=lambda number: SimpleNamespace(physical_type="INT64", path="a")),
        num_row_groups=1,
        row_group=lambda number: SimpleNamespace(column=lambda number: group),
    )
    with pytest.raises(ValueError, match="'a' is INT64 and INT96"):
        check_types(footer, 0)
