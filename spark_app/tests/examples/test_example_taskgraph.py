"""The programs of examples/taskgraph come to what DuckDB, Polars or a dense matrix come to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from examples.flights import data as flights_data
from examples.taskgraph import pagerank, queries, seed_programs
from examples.taskgraph.data import generate
from examples.taskgraph.streams import append_all, delays_by_visibility
from examples.taskgraph.wordcount import wordcount
from tpch_sql import SQL, create_tables

from tidemill import TaskGraph
from tidemill.testing import check_confluence


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    made: Path = tmp_path_factory.mktemp("tpch")
    generate(made, 0.02)
    return made


@pytest.fixture(scope="module")
def database(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        create_tables(made, folder)
        yield made


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TIDEMILL_STORE", str(tmp_path / "store"))
    return str(tmp_path / "store")


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        for value, wanted in zip(one, other, strict=True):
            assert value == wanted or math.isclose(value, wanted, rel_tol=1e-9)


@pytest.mark.parametrize("number", list(queries.QUERIES))
def test_a_query_gives_what_sql_gives(number: int, folder: Path, database: Any, store: str) -> None:
    tables = queries.Tables(TaskGraph(store, parallelism=2), str(folder))

    found = queries.QUERIES[number](tables).collect()

    expected = database.execute(SQL[number]).fetchall()
    assert expected
    assert expected[0][0] is not None
    assert_equal(found.rows(), expected)


def test_the_programs_of_the_document_give_what_sql_gives(folder: Path, database: Any) -> None:
    assert_equal(seed_programs.tpch_6(str(folder)).to_polars().rows(), database.execute(SQL[6]).fetchall())
    twelve = seed_programs.tpch_12(str(folder)).to_polars().sort("l_shipmode")
    assert_equal(twelve.rows(), database.execute(SQL[12]).fetchall())


def test_the_counts_of_channels_add_up_to_the_rows_of_the_join(tmp_path: Path) -> None:
    keys = pl.Series("key", [number * 7 % 400 for number in range(2_000)])
    for name, side in (("a", keys), ("b", keys.head(900))):
        values = [pl.lit(number).alias(f"{name}{number}") for number in range(100)]
        side.to_frame().with_columns(values).write_csv(tmp_path / f"{name}-big.csv", include_header=False)

    counted = seed_programs.join_and_count(str(tmp_path)).to_polars()

    one, other = Counter(keys), Counter(keys.head(900))
    assert counted.height == 4
    assert counted["count"].sum() == sum(one[key] * other[key] for key in one)


def links_of(pages: int, count: int) -> pl.DataFrame:
    chosen = np.random.default_rng(7)
    made = {"source": chosen.integers(0, pages - 20, count), "target": chosen.zipf(1.5, count) % pages}
    return pl.DataFrame(made).unique()


def test_ranks_are_those_of_a_dense_matrix(store: str) -> None:
    pages = 200
    links = links_of(pages, 2_000)
    matrix = np.zeros((pages, pages))
    for source, target in links.rows():
        matrix[target, source] = 1
    degrees = matrix.sum(axis=0)
    assert (degrees == 0).any()
    matrix = np.where(degrees > 0, matrix / np.maximum(degrees, 1), 1 / pages)
    rank = np.full(pages, 1 / pages)
    for _ in range(200):
        rank = 0.85 * matrix @ rank + 0.15 / pages

    found, rounds = pagerank.pagerank(links, pages, store)

    assert found["y"].to_list() == list(range(pages))
    assert np.allclose(found["val"].to_numpy(), rank, atol=1e-9)
    assert math.isclose(found["val"].sum(), 1.0)
    assert 10 < rounds < 200


def test_a_round_of_ranks_is_confluent(store: str) -> None:
    datasets = pagerank.matrix_of(links_of(50, 200), 50, store)
    vector = pl.DataFrame({"y": range(50), "val": [0.02] * 50})

    check_confluence(pagerank.PageRankExecutor(50, 0.85), {0: vector}, datasets=datasets, trials=20)


def test_words_are_counted(tmp_path: Path, store: str) -> None:
    (tmp_path / "a.txt").write_text('The mill turns,\nthe "tide" turns\n\nthe mill\n')

    found = wordcount(str(tmp_path), "a.txt", store).to_polars()

    assert dict(found.rows()) == {"the": 3, "mill": 2, "turns": 2, "tide": 1}


def test_flights_meet_the_weather_of_their_hour_when_both_are_streams(store: str) -> None:
    flights = flights_data.read("flights").filter(pl.col("day") == 8, pl.col("month").is_in([1, 2]))
    weather = flights_data.read("weather").filter(pl.col("month").is_in([1, 2, 3]))
    append_all(store, flights, weather)

    found = delays_by_visibility(store).to_polars().sort("visib")

    expected = duckdb.sql(
        """select visib, count(*), sum(dep_delay) from flights join weather using (origin, year, month, day, hour)
           where dep_delay is not null group by visib order by visib"""
    ).fetchall()
    assert len(expected) > 3
    assert found.rows() == expected
