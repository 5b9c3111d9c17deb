"""The 22 TPC-H queries as frames: `python -m examples.taskgraph.queries` makes the tables and shows the results."""

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


def nations_of(t: Tables, region: str) -> GraphFrame:
    """The nations of a region."""
    return t.nation.join(
        t.region.filter(col("r_name") == region), left_on="n_regionkey", right_on="r_regionkey", how="semi"
    )


def with_row(rows: GraphFrame, single: GraphFrame) -> GraphFrame:
    """Rows with the columns of the one row of another frame, as a subquery that gives one value."""
    return rows.with_columns(one=pl.lit(1)).join(single.with_columns(one=pl.lit(1)), "one")


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


def q2(t: Tables) -> GraphFrame:
    """The European suppliers that offer brass parts of size 15 for least."""
    brass = t.part.filter(col("p_size") == 15, col("p_type").str.ends_with("BRASS"))
    offers = (
        t.partsupp.join(brass, left_on="ps_partkey", right_on="p_partkey")
        .join(t.supplier, left_on="ps_suppkey", right_on="s_suppkey")
        .join(nations_of(t, "EUROPE"), left_on="s_nationkey", right_on="n_nationkey")
    )
    least = offers.group_by("ps_partkey").agg(least=col("ps_supplycost").min())
    return (
        offers.join(least, "ps_partkey")
        .filter(col("ps_supplycost") == col("least"))
        .select("s_acctbal", "s_name", "n_name", "ps_partkey", "p_mfgr", "s_address", "s_phone", "s_comment")
        .top_k(100, ["s_acctbal", "n_name", "s_name", "ps_partkey"], descending=[True, False, False, False])
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


def q4(t: Tables) -> GraphFrame:
    """Orders of a quarter of which something came late, by priority."""
    quarter = col("o_orderdate").is_between(date(1993, 7, 1), date(1993, 10, 1), closed="left")
    late = t.lineitem.filter(col("l_commitdate") < col("l_receiptdate"))
    return (
        t.orders.filter(quarter)
        .join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .group_by("o_orderpriority")
        .agg(order_count=pl.len())
        .sort("o_orderpriority")
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


def q7(t: Tables) -> GraphFrame:
    """What France and Germany sold to each other, by year."""
    both = t.nation.filter(col("n_name").is_in(["FRANCE", "GERMANY"]))
    sellers = t.supplier.join(both, left_on="s_nationkey", right_on="n_nationkey")
    buyers = t.customer.join(both, left_on="c_nationkey", right_on="n_nationkey")
    return (
        t.lineitem.filter(col("l_shipdate").is_between(date(1995, 1, 1), date(1996, 12, 31)))
        .join(sellers.select("s_suppkey", seller="n_name"), left_on="l_suppkey", right_on="s_suppkey")
        .join(t.orders, left_on="l_orderkey", right_on="o_orderkey")
        .join(buyers.select("c_custkey", buyer="n_name"), left_on="o_custkey", right_on="c_custkey")
        .filter(col("seller") != col("buyer"))
        .group_by("seller", "buyer", col("l_shipdate").dt.year().alias("l_year"))
        .agg(revenue=REVENUE.sum())
        .sort(["seller", "buyer", "l_year"])
    )


def q8(t: Tables) -> GraphFrame:
    """Brazil's share of a kind of steel that America bought, by year."""
    brazilian = pl.when(col("seller") == "BRAZIL").then(REVENUE).otherwise(0.0)
    sellers = t.supplier.join(t.nation, left_on="s_nationkey", right_on="n_nationkey")
    buyers = t.customer.join(nations_of(t, "AMERICA"), left_on="c_nationkey", right_on="n_nationkey", how="semi")
    return (
        t.lineitem.join(
            t.part.filter(col("p_type") == "ECONOMY ANODIZED STEEL"), left_on="l_partkey", right_on="p_partkey"
        )
        .join(
            t.orders.filter(col("o_orderdate").is_between(date(1995, 1, 1), date(1996, 12, 31))),
            left_on="l_orderkey", right_on="o_orderkey",
        )
        .join(buyers, left_on="o_custkey", right_on="c_custkey", how="semi")
        .join(sellers.select("s_suppkey", seller="n_name"), left_on="l_suppkey", right_on="s_suppkey")
        .group_by(col("o_orderdate").dt.year().alias("o_year"))
        .agg(own=brazilian.sum(), total=REVENUE.sum())
        .select("o_year", mkt_share=col("own") / col("total"))
        .sort("o_year")
    )  # fmt: skip


def q9(t: Tables) -> GraphFrame:
    """The profit of green parts, by nation and year."""
    profit = REVENUE - col("ps_supplycost") * col("l_quantity")
    sellers = t.supplier.join(t.nation, left_on="s_nationkey", right_on="n_nationkey")
    return (
        t.lineitem.join(t.part.filter(col("p_name").str.contains("green")), left_on="l_partkey", right_on="p_partkey")
        .join(t.partsupp, left_on=["l_partkey", "l_suppkey"], right_on=["ps_partkey", "ps_suppkey"])
        .join(sellers.select("s_suppkey", nation="n_name"), left_on="l_suppkey", right_on="s_suppkey")
        .join(t.orders, left_on="l_orderkey", right_on="o_orderkey")
        .group_by("nation", col("o_orderdate").dt.year().alias("o_year"))
        .agg(sum_profit=profit.sum())
        .sort(["nation", "o_year"], descending=[False, True])
    )


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


def q11(t: Tables) -> GraphFrame:
    """The parts that are a ten thousandth of the value of Germany's stock, or more."""
    german = t.supplier.join(
        t.nation.filter(col("n_name") == "GERMANY"), left_on="s_nationkey", right_on="n_nationkey", how="semi"
    )
    stock = t.partsupp.join(german, left_on="ps_suppkey", right_on="s_suppkey", how="semi").with_columns(
        value=col("ps_supplycost") * col("ps_availqty")
    )
    parts = stock.group_by("ps_partkey").agg(value=col("value").sum())
    return (
        with_row(parts, stock.agg(total=col("value").sum()))
        .filter(col("value") > col("total") * 0.0001)
        .select("ps_partkey", "value")
        .sort("value", descending=True)
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


def q13(t: Tables) -> GraphFrame:
    """How many customers have so many orders without special requests."""
    ordinary = t.orders.filter(~col("o_comment").str.contains("special.*requests"))
    return (
        t.customer.join(ordinary, left_on="c_custkey", right_on="o_custkey", how="left")
        .group_by("c_custkey")
        .agg(c_count=col("o_orderkey").count())
        .group_by("c_count")
        .agg(custdist=pl.len())
        .sort(["custdist", "c_count"], descending=True)
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


def q15(t: Tables) -> GraphFrame:
    """The supplier of most revenue in a quarter."""
    quarter = col("l_shipdate").is_between(date(1996, 1, 1), date(1996, 4, 1), closed="left")
    revenues = t.lineitem.filter(quarter).group_by("l_suppkey").agg(total_revenue=REVENUE.sum())
    best = with_row(revenues, revenues.agg(best=col("total_revenue").max()))
    # The sums are made twice, and the order in which floats are added shows in their last digits.
    return (
        best.filter(col("total_revenue") >= col("best") * (1 - 1e-12))
        .join(t.supplier, left_on="l_suppkey", right_on="s_suppkey")
        .select("l_suppkey", "s_name", "s_address", "s_phone", "total_revenue")
        .sort("l_suppkey")
    )


def q16(t: Tables) -> GraphFrame:
    """How many suppliers without complaints offer parts of some kinds."""
    chosen = t.part.filter(
        col("p_brand") != "Brand#45",
        ~col("p_type").str.starts_with("MEDIUM POLISHED"),
        col("p_size").is_in([49, 14, 23, 45, 19, 3, 36, 9]),
    )
    refused = t.supplier.filter(col("s_comment").str.contains("Customer.*Complaints"))
    return (
        t.partsupp.join(chosen, left_on="ps_partkey", right_on="p_partkey")
        .join(refused, left_on="ps_suppkey", right_on="s_suppkey", how="anti")
        .group_by("p_brand", "p_type", "p_size")
        .agg(supplier_cnt=col("ps_suppkey").n_unique())
        .sort(["supplier_cnt", "p_brand", "p_type", "p_size"], descending=[True, False, False, False])
    )


def q17(t: Tables) -> GraphFrame:
    """What would be lost in a year without orders of few pieces."""
    chosen = t.part.filter(col("p_brand") == "Brand#23", col("p_container") == "MED BOX")
    lines = t.lineitem.join(chosen, left_on="l_partkey", right_on="p_partkey", how="semi")
    usual = lines.group_by("l_partkey").agg(usual=col("l_quantity").mean())
    return (
        lines.join(usual, "l_partkey")
        .filter(col("l_quantity") < 0.2 * col("usual"))
        .agg(total=col("l_extendedprice").sum())
        .select(avg_yearly=col("total") / 7.0)
    )


def q18(t: Tables) -> GraphFrame:
    """The hundred most expensive orders of more than 300 pieces."""
    large = t.lineitem.group_by("l_orderkey").agg(quantity=col("l_quantity").sum()).filter(col("quantity") > 300)
    return (
        t.orders.join(large, left_on="o_orderkey", right_on="l_orderkey")
        .join(t.customer, left_on="o_custkey", right_on="c_custkey")
        .select("c_name", "o_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "quantity")
        .top_k(100, ["o_totalprice", "o_orderdate"], descending=[True, False])
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


def q20(t: Tables) -> GraphFrame:
    """The Canadian suppliers that have more of a forest part than half of what they sold of it in 1994."""
    year = col("l_shipdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
    sold = t.lineitem.filter(year).group_by("l_partkey", "l_suppkey").agg(sold=col("l_quantity").sum())
    stock = (
        t.partsupp.join(
            t.part.filter(col("p_name").str.starts_with("forest")), left_on="ps_partkey", right_on="p_partkey",
            how="semi",
        )
        .join(sold, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
        .filter(col("ps_availqty") > 0.5 * col("sold"))
    )  # fmt: skip
    return (
        t.supplier.join(stock, left_on="s_suppkey", right_on="ps_suppkey", how="semi")
        .join(t.nation.filter(col("n_name") == "CANADA"), left_on="s_nationkey", right_on="n_nationkey", how="semi")
        .select("s_name", "s_address")
        .sort("s_name")
    )


def q21(t: Tables) -> GraphFrame:
    """The Saudi suppliers that were the only late one of several in most orders."""
    late = t.lineitem.filter(col("l_receiptdate") > col("l_commitdate"))
    suppliers = col("l_suppkey").n_unique()
    several = t.lineitem.group_by("l_orderkey").agg(suppliers=suppliers).filter(col("suppliers") > 1)
    alone = late.group_by("l_orderkey").agg(suppliers=suppliers).filter(col("suppliers") == 1)
    saudi = t.supplier.join(
        t.nation.filter(col("n_name") == "SAUDI ARABIA"), left_on="s_nationkey", right_on="n_nationkey", how="semi"
    )
    return (
        late.join(saudi, left_on="l_suppkey", right_on="s_suppkey")
        .join(t.orders.filter(col("o_orderstatus") == "F"), left_on="l_orderkey", right_on="o_orderkey", how="semi")
        .join(several, "l_orderkey", how="semi")
        .join(alone, "l_orderkey", how="semi")
        .group_by("s_name")
        .agg(numwait=pl.len())
        .top_k(100, ["numwait", "s_name"], descending=[True, False])
    )


def q22(t: Tables) -> GraphFrame:
    """Customers of some countries with money and without orders."""
    code = col("c_phone").str.slice(0, 2)
    chosen = t.customer.with_columns(cntrycode=code).filter(
        col("cntrycode").is_in(["13", "31", "23", "29", "30", "18", "17"])
    )
    usual = chosen.filter(col("c_acctbal") > 0).agg(usual=col("c_acctbal").mean())
    return (
        with_row(chosen, usual)
        .filter(col("c_acctbal") > col("usual"))
        .join(t.orders, left_on="c_custkey", right_on="o_custkey", how="anti")
        .group_by("cntrycode")
        .agg(numcust=pl.len(), totacctbal=col("c_acctbal").sum())
        .sort("cntrycode")
    )


QUERIES: dict[int, Callable[[Tables], GraphFrame]] = {
    1: q1, 2: q2, 3: q3, 4: q4, 5: q5, 6: q6, 7: q7, 8: q8, 9: q9, 10: q10, 11: q11, 12: q12, 13: q13, 14: q14,
    15: q15, 16: q16, 17: q17, 18: q18, 19: q19, 20: q20, 21: q21, 22: q22,
}  # fmt: skip


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
