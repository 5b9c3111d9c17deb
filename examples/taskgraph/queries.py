"""TPC-H queries as frames: `python -m examples.taskgraph.queries` makes the tables, runs them and shows the results."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import polars as pl
from polars import col

from examples.taskgraph.data import TABLES, generate, scheme
from tidemill import GraphFrame, TaskGraph

REVENUE = col("l_extendedprice") * (1 - col("l_discount"))


class Tables:
    """The tables of a folder as frames of one graph."""

    def __init__(self, graph: TaskGraph, folder: str) -> None:
        self._graph, self._folder = graph, folder

    def __getattr__(self, table: str) -> GraphFrame:
        file = f"{self._folder}/{table}.tbl"
        rows = self._graph.read_csv(file, scheme(table), sep="|", schema=TABLES[table], quote_char=None)
        return rows.select(*TABLES[table])


def q1(t: Tables) -> GraphFrame:
    """Prices of what was shipped, by flag and status."""
    return (
        t.lineitem.filter(col("l_shipdate") <= date(1998, 9, 2))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=col("l_quantity").sum(),
            sum_base_price=col("l_extendedprice").sum(),
            sum_disc_price=REVENUE.sum(),
            sum_charge=(REVENUE * (1 + col("l_tax"))).sum(),
            avg_qty=col("l_quantity").mean(),
            avg_price=col("l_extendedprice").mean(),
            avg_disc=col("l_discount").mean(),
            count_order=pl.len(),
        )
        .sort(["l_returnflag", "l_linestatus"])
    )


def q3(t: Tables) -> GraphFrame:
    """The ten open orders of most value."""
    return (
        t.lineitem.filter(col("l_shipdate") > date(1995, 3, 15))
        .join(t.orders.filter(col("o_orderdate") < date(1995, 3, 15)), left_on="l_orderkey", right_on="o_orderkey")
        .join(t.customer.filter(col("c_mktsegment") == "BUILDING"), left_on="o_custkey", right_on="c_custkey")
        .group_by("l_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=REVENUE.sum())
        .top_k(10, ["revenue", "o_orderdate"], descending=[True, False])
    )


def q5(t: Tables) -> GraphFrame:
    """What suppliers of Asia sold in their own nation in 1994."""
    asia = t.nation.join(t.region.filter(col("r_name") == "ASIA"), left_on="n_regionkey", right_on="r_regionkey")
    year = col("o_orderdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
    return (
        t.lineitem.join(t.orders.filter(year), left_on="l_orderkey", right_on="o_orderkey")
        .join(t.customer, left_on="o_custkey", right_on="c_custkey")
        .join(
            t.supplier.join(asia, left_on="s_nationkey", right_on="n_nationkey"),
            left_on=["l_suppkey", "c_nationkey"],
            right_on=["s_suppkey", "s_nationkey"],
        )
        .group_by("n_name")
        .agg(revenue=REVENUE.sum())
        .sort("revenue", descending=True)
    )


def q6(t: Tables) -> GraphFrame:
    """The revenue of small discounts in 1994."""
    return t.lineitem.filter(
        col("l_shipdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left"),
        col("l_discount").is_between(0.05 - 1e-9, 0.07 + 1e-9),
        col("l_quantity") < 24,
    ).agg(revenue=(col("l_extendedprice") * col("l_discount")).sum())


def q10(t: Tables) -> GraphFrame:
    """The twenty customers who returned most."""
    quarter = col("o_orderdate").is_between(date(1993, 10, 1), date(1994, 1, 1), closed="left")
    return (
        t.lineitem.filter(col("l_returnflag") == "R")
        .join(t.orders.filter(quarter), left_on="l_orderkey", right_on="o_orderkey")
        .join(t.customer, left_on="o_custkey", right_on="c_custkey")
        .join(t.nation, left_on="c_nationkey", right_on="n_nationkey")
        .group_by(col("o_custkey").alias("c_custkey"), "c_name", "c_acctbal", "n_name")
        .agg(revenue=REVENUE.sum())
        .top_k(20, "revenue")
    )


def q12(t: Tables) -> GraphFrame:
    """Late lines of 1994 by mode and priority."""
    late = t.lineitem.filter(
        col("l_shipmode").is_in(["MAIL", "SHIP"]),
        col("l_commitdate") < col("l_receiptdate"),
        col("l_shipdate") < col("l_commitdate"),
        col("l_receiptdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left"),
    )
    high = col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return (
        late.join(t.orders, left_on="l_orderkey", right_on="o_orderkey")
        .group_by("l_shipmode")
        .agg(high_line_count=high.sum(), low_line_count=(~high).sum())
        .sort("l_shipmode")
    )


def q14(t: Tables) -> GraphFrame:
    """The share of revenue from promotions in a month."""
    month = col("l_shipdate").is_between(date(1995, 9, 1), date(1995, 10, 1), closed="left")
    promotion = pl.when(col("p_type").str.starts_with("PROMO")).then(REVENUE).otherwise(0.0)
    return (
        t.lineitem.filter(month)
        .join(t.part, left_on="l_partkey", right_on="p_partkey")
        .agg(promo=promotion.sum(), total=REVENUE.sum())
        .select(promo_revenue=100 * col("promo") / col("total"))
    )


def q19(t: Tables) -> GraphFrame:
    """The revenue of three kinds of parts, delivered by air and in person."""

    def kind(brand: str, containers: list[str], quantity: int, size: int) -> pl.Expr:
        return (
            (col("p_brand") == brand)
            & col("p_container").is_in(containers)
            & col("l_quantity").is_between(quantity, quantity + 10)
            & col("p_size").is_between(1, size)
        )

    small, medium, large = (
        [f"{size} {name}" for name in names]
        for size, names in (
            ("SM", ["CASE", "BOX", "PACK", "PKG"]),
            ("MED", ["BAG", "BOX", "PKG", "PACK"]),
            ("LG", ["CASE", "BOX", "PACK", "PKG"]),
        )
    )
    return (
        t.lineitem.filter(col("l_shipmode").is_in(["AIR", "AIR REG"]), col("l_shipinstruct") == "DELIVER IN PERSON")
        .join(t.part, left_on="l_partkey", right_on="p_partkey")
        .filter(kind("Brand#12", small, 1, 5) | kind("Brand#23", medium, 10, 10) | kind("Brand#34", large, 20, 15))
        .agg(revenue=REVENUE.sum())
    )


QUERIES: dict[int, Callable[[Tables], GraphFrame]] = {1: q1, 3: q3, 5: q5, 6: q6, 10: q10, 12: q12, 14: q14, 19: q19}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="1 is 1 GB of tables")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), scale)
        tables = Tables(TaskGraph(f"{folder}/store"), folder)
        for number, query in QUERIES.items():
            begin = time.perf_counter()
            rows = query(tables).collect()
            print(f"TPC-H {number}: {time.perf_counter() - begin:.2f} s\n{rows}")


if __name__ == "__main__":
    main()
