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
from examples.taskgraph import pagerank, queries, seed_programs
from examples.taskgraph.data import TABLES, generate
from examples.taskgraph.wordcount import wordcount

from tidemill import TaskGraph
from tidemill.testing import check_confluence

SQL = {
    1: """select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
          sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
          avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
          from lineitem where l_shipdate <= date '1998-09-02' group by all order by all""",
    3: """select l_orderkey, o_orderdate, o_shippriority, sum(l_extendedprice * (1 - l_discount)) revenue
          from customer, orders, lineitem where c_mktsegment = 'BUILDING' and c_custkey = o_custkey
          and l_orderkey = o_orderkey and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
          group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10""",
    5: """select n_name, sum(l_extendedprice * (1 - l_discount)) revenue
          from customer, orders, lineitem, supplier, nation, region where c_custkey = o_custkey
          and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey
          and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA'
          and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
          group by n_name order by revenue desc""",
    6: """select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01'
          and l_shipdate < date '1995-01-01' and l_discount between 0.0499 and 0.0701 and l_quantity < 24""",
    10: """select c_custkey, c_name, c_acctbal, n_name, sum(l_extendedprice * (1 - l_discount)) revenue
          from customer, orders, lineitem, nation where c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R'
          and c_nationkey = n_nationkey group by c_custkey, c_name, c_acctbal, n_name
          order by revenue desc limit 20""",
    12: """select l_shipmode, sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end),
          sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 0 else 1 end) from orders, lineitem
          where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
          and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
          and l_receiptdate < date '1995-01-01' group by l_shipmode order by l_shipmode""",
    14: """select 100.0 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
          / sum(l_extendedprice * (1 - l_discount)) from lineitem, part where l_partkey = p_partkey
          and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'""",
    19: """select sum(l_extendedprice * (1 - l_discount)) from lineitem, part where p_partkey = l_partkey
          and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON' and (
          (p_brand = 'Brand#12' and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
           and l_quantity between 1 and 11 and p_size between 1 and 5)
          or (p_brand = 'Brand#23' and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
           and l_quantity between 10 and 20 and p_size between 1 and 10)
          or (p_brand = 'Brand#34' and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
           and l_quantity between 20 and 30 and p_size between 1 and 15))""",
}
SQL_TYPES = {pl.Int64(): "bigint", pl.Float64(): "double", pl.String(): "varchar", pl.Date(): "date"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    made: Path = tmp_path_factory.mktemp("tpch")
    generate(made, 0.05)
    return made


@pytest.fixture(scope="module")
def database(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        for table, columns in TABLES.items():
            types = {name: SQL_TYPES[kind] for name, kind in columns.items()} | {"nothing": "varchar"}
            text = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
            file = folder / f"{table}.tbl"
            made.execute(
                f"create table {table} as select * from read_csv('{file}', delim='|', header=false, quote='', "
                f"columns={{{text}}})"
            )
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
