"""The 22 TPC-H queries in SQL, with columns in the order in which the frames of examples/taskgraph give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from examples.taskgraph.data import TABLES

TYPES = {pl.Int64(): "bigint", pl.Float64(): "double", pl.String(): "varchar", pl.Date(): "date"}


def create_tables(database: Any, folder: Path) -> None:
    """The tables of a folder in DuckDB."""
    for table, columns in TABLES.items():
        types = {name: TYPES[kind] for name, kind in columns.items()} | {"nothing": "varchar"}
        text = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
        file = folder / f"{table}.tbl"
        database.execute(
            f"create table {table} as select * from read_csv('{file}', delim='|', header=false, quote='', "
            f"columns={{{text}}})"
        )


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
    2: """select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
          from part, supplier, partsupp, nation, region where p_partkey = ps_partkey and s_suppkey = ps_suppkey
          and p_size = 15 and p_type like '%BRASS' and s_nationkey = n_nationkey and n_regionkey = r_regionkey
          and r_name = 'EUROPE' and ps_supplycost = (select min(ps_supplycost) from partsupp, supplier, nation, region
          where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey
          and n_regionkey = r_regionkey and r_name = 'EUROPE')
          order by s_acctbal desc, n_name, s_name, p_partkey limit 100""",
    4: """select o_orderpriority, count(*) from orders where o_orderdate >= date '1993-07-01'
          and o_orderdate < date '1993-10-01' and exists (select * from lineitem where l_orderkey = o_orderkey
          and l_commitdate < l_receiptdate) group by o_orderpriority order by o_orderpriority""",
    7: """select n1.n_name, n2.n_name, year(l_shipdate) l_year, sum(l_extendedprice * (1 - l_discount))
          from supplier, lineitem, orders, customer, nation n1, nation n2 where s_suppkey = l_suppkey
          and o_orderkey = l_orderkey and c_custkey = o_custkey and s_nationkey = n1.n_nationkey
          and c_nationkey = n2.n_nationkey and ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY')
          or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
          and l_shipdate between date '1995-01-01' and date '1996-12-31' group by 1, 2, 3 order by 1, 2, 3""",
    8: """select year(o_orderdate),
          sum(case when n2.n_name = 'BRAZIL' then l_extendedprice * (1 - l_discount) else 0 end)
          / sum(l_extendedprice * (1 - l_discount)) from part, supplier, lineitem, orders, customer, nation n1,
          nation n2, region where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey
          and o_custkey = c_custkey and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey
          and r_name = 'AMERICA' and s_nationkey = n2.n_nationkey
          and o_orderdate between date '1995-01-01' and date '1996-12-31' and p_type = 'ECONOMY ANODIZED STEEL'
          group by 1 order by 1""",
    9: """select n_name, year(o_orderdate) o_year,
          sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity)
          from part, supplier, lineitem, partsupp, orders, nation where s_suppkey = l_suppkey
          and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey and o_orderkey = l_orderkey
          and s_nationkey = n_nationkey and p_name like '%green%' group by 1, 2 order by 1, 2 desc""",
    11: """select ps_partkey, sum(ps_supplycost * ps_availqty) v from partsupp, supplier, nation
          where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY' group by ps_partkey
          having v > (select sum(ps_supplycost * ps_availqty) * 0.0001 from partsupp, supplier, nation
          where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY') order by v desc""",
    13: """select c_count, count(*) custdist from (select c_custkey, count(o_orderkey) c_count from customer
          left join orders on c_custkey = o_custkey and o_comment not like '%special%requests%' group by c_custkey)
          group by c_count order by custdist desc, c_count desc""",
    15: """with revenue as (select l_suppkey, sum(l_extendedprice * (1 - l_discount)) total from lineitem
          where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-04-01' group by l_suppkey)
          select s_suppkey, s_name, s_address, s_phone, total from supplier, revenue where s_suppkey = l_suppkey
          and total >= (select max(total) from revenue) * (1 - 1e-12) order by s_suppkey""",
    16: """select p_brand, p_type, p_size, count(distinct ps_suppkey) n from partsupp, part where p_partkey = ps_partkey
          and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%'
          and p_size in (49, 14, 23, 45, 19, 3, 36, 9) and ps_suppkey not in (select s_suppkey from supplier
          where s_comment like '%Customer%Complaints%') group by 1, 2, 3 order by n desc, 1, 2, 3""",
    17: """select sum(l_extendedprice) / 7.0 from lineitem, part where p_partkey = l_partkey and p_brand = 'Brand#23'
          and p_container = 'MED BOX' and l_quantity < (select 0.2 * avg(l_quantity) from lineitem
          where l_partkey = p_partkey)""",
    18: """select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
          from customer, orders, lineitem
          where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)
          and c_custkey = o_custkey and o_orderkey = l_orderkey group by 1, 2, 3, 4, 5
          order by o_totalprice desc, o_orderdate limit 100""",
    20: """select s_name, s_address from supplier, nation where s_suppkey in (select ps_suppkey from partsupp
          where ps_partkey in (select p_partkey from part where p_name like 'forest%') and ps_availqty > (
          select 0.5 * sum(l_quantity) from lineitem where l_partkey = ps_partkey and l_suppkey = ps_suppkey
          and l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01')) and s_nationkey = n_nationkey
          and n_name = 'CANADA' order by s_name""",
    21: """select s_name, count(*) numwait from supplier, lineitem l1, orders, nation where s_suppkey = l1.l_suppkey
          and o_orderkey = l1.l_orderkey and o_orderstatus = 'F' and l1.l_receiptdate > l1.l_commitdate
          and exists (select * from lineitem l2 where l2.l_orderkey = l1.l_orderkey
          and l2.l_suppkey <> l1.l_suppkey) and not exists (select * from lineitem l3
          where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
          and l3.l_receiptdate > l3.l_commitdate) and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA'
          group by s_name order by numwait desc, s_name limit 100""",
    22: """select substring(c_phone from 1 for 2) code, count(*), sum(c_acctbal) from customer
          where code in ('13', '31', '23', '29', '30', '18', '17') and c_acctbal > (select avg(c_acctbal)
          from customer where c_acctbal > 0.00
          and substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17'))
          and not exists (select * from orders where o_custkey = c_custkey) group by code order by code""",
}
