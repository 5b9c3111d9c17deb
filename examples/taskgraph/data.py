"""TPC-H tables as files of lines that end with their separator, made by `tpchgen-cli`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl

INT, FLOAT, TEXT, DATE = pl.Int64(), pl.Float64(), pl.String(), pl.Date()
TABLES: dict[str, dict[str, Any]] = {
    "region": {"r_regionkey": INT, "r_name": TEXT, "r_comment": TEXT},
    "nation": {"n_nationkey": INT, "n_name": TEXT, "n_regionkey": INT, "n_comment": TEXT},
    "supplier": {
        "s_suppkey": INT, "s_name": TEXT, "s_address": TEXT, "s_nationkey": INT, "s_phone": TEXT, "s_acctbal": FLOAT,
        "s_comment": TEXT,
    },
    "customer": {
        "c_custkey": INT, "c_name": TEXT, "c_address": TEXT, "c_nationkey": INT, "c_phone": TEXT, "c_acctbal": FLOAT,
        "c_mktsegment": TEXT, "c_comment": TEXT,
    },
    "part": {
        "p_partkey": INT, "p_name": TEXT, "p_mfgr": TEXT, "p_brand": TEXT, "p_type": TEXT, "p_size": INT,
        "p_container": TEXT, "p_retailprice": FLOAT, "p_comment": TEXT,
    },
    "partsupp": {
        "ps_partkey": INT, "ps_suppkey": INT, "ps_availqty": INT, "ps_supplycost": FLOAT, "ps_comment": TEXT,
    },
    "orders": {
        "o_orderkey": INT, "o_custkey": INT, "o_orderstatus": TEXT, "o_totalprice": FLOAT, "o_orderdate": DATE,
        "o_orderpriority": TEXT, "o_clerk": TEXT, "o_shippriority": INT, "o_comment": TEXT,
    },
    "lineitem": {
        "l_orderkey": INT, "l_partkey": INT, "l_suppkey": INT, "l_linenumber": INT, "l_quantity": FLOAT,
        "l_extendedprice": FLOAT, "l_discount": FLOAT, "l_tax": FLOAT, "l_returnflag": TEXT, "l_linestatus": TEXT,
        "l_shipdate": DATE, "l_commitdate": DATE, "l_receiptdate": DATE, "l_shipinstruct": TEXT, "l_shipmode": TEXT,
        "l_comment": TEXT,
    },
}  # fmt: skip


def scheme(table: str) -> list[str]:
    """The columns of a table, and one for what follows the last separator of a line: nothing."""
    return [*TABLES[table], "null"]


def generate(folder: Path, scale: float) -> None:
    """Make the tables in a folder; scale 1 is 1 GB."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    names = ",".join(TABLES)
    command = [str(program), "tbl", "--scale-factor", str(scale), "--tables", names, "--output-dir", str(folder)]
    subprocess.run([*command, "--overwrite"], check=True, stdout=subprocess.DEVNULL)
