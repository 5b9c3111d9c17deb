"""Filters on keys that are NaN, None or zero, and columns whose names meet: a scan says what its whole frame says."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars import col
from polars.testing import assert_frame_equal
from pyspark.sql import datasource as api

import tidemill
from tidemill import BadInput, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill import Path as Key
from tidemill.scans.bounds import Allowed, Bound, bounds_of
from tidemill.spark import folded_maps
from tidemill.spark.data_source import TidemillDataSource

FLOATS = [math.nan, -math.inf, -1.5, -0.0, 0.0, 1.0, 2.0**53, math.inf]
RECORD = PState.fixed_keys_schema("task", int, "value.task", str)
SCHEMAS = {
    "floats": (PState.map_schema(PState.nullable(float), int), Key.key("*k").term_val("*v")),
    "deep": (PState.map_schema(float, PState.map_schema(int, int).subindexed()), Key.key("*k", "*v").term_val("*v")),
    "named": (PState.map_schema(str, RECORD), Key.key("*k").term_val("*v")),
}  # fmt: skip


class Odd(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        fields = PState.fixed_keys_schema("time", str, "record.time", str, "Time", str)
        setup.declare_depot("*times", Depot.random()).schema(fields)
        mb = topologies.microbatch("mb")
        for name, (schema, path) in SCHEMAS.items():
            setup.declare_depot(f"*{name}", Depot.hash_by(Ops.FIRST))
            mb.pstate(f"$${name}", schema)
            put = mb.source(f"*{name}").out("*m").explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r")
            put.out("*k", "*v").local_transform(f"$${name}", path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("store")
    with InProcessCluster.create(engine="local", store=folder) as cluster:
        cluster.launch_module(Odd(), LaunchConfig(2, 1))
        cluster.cluster_depot("Odd", "*floats").append_many([[key, n] for n, key in enumerate([None, *FLOATS])])
        deep = [[key, n] for key in (math.nan, 0.0, -0.0, 1.0) for n in range(3)]
        cluster.cluster_depot("Odd", "*deep").append_many(deep)
        cluster.cluster_depot("Odd", "*named").append(["a", {"task": 1, "value.task": "x"}])
        cluster.cluster_depot("Odd", "*times").append({"time": "noon", "record.time": "night", "Time": "dusk"})
        cluster.wait_for_microbatch_processed_count("Odd", "mb", len(FLOATS) + 1 + len(deep) + 1)
        yield folder


KEYS = st.sampled_from(FLOATS)
COMPARED = st.one_of(
    st.builds(lambda key: col("k0") == key, KEYS),
    st.builds(lambda key: col("k0") >= key, KEYS),
    st.builds(lambda key: col("k0") < key, KEYS),
    st.builds(lambda low, high: col("k0").is_between(low, high), KEYS, KEYS),
    st.builds(lambda key: col("k0").eq_missing(pl.lit(key, dtype=pl.Float64)), st.one_of(st.none(), KEYS)),
    st.builds(
        lambda keys, equal: col("k0").is_in(pl.Series(keys, dtype=pl.Float64).implode(), nulls_equal=equal),
        st.lists(st.one_of(st.none(), KEYS), max_size=4),
        st.booleans(),
    ),
)


@given(terms=st.lists(COMPARED, min_size=1, max_size=3))
def test_a_filter_lets_the_same_rows_pass_when_keys_are_nan_or_none(store: Path, terms: list[pl.Expr]) -> None:
    expected = tidemill.scan(store, "Odd", "floats").collect().filter(terms)

    assert_frame_equal(tidemill.scan(store, "Odd", "floats").filter(terms).collect(), expected)
    where = pl.all_horizontal(terms) if len(terms) == 1 else terms[0] & terms[-1]
    batches = tidemill.scan_arrow(store, "Odd", "$$floats", where=where)
    whole = tidemill.scan(store, "Odd", "floats").collect().filter(where)
    assert_frame_equal(pl.DataFrame(pl.from_arrow(batches.read_all())), whole)


def test_none_bounds_nothing_when_a_key_is_compared_with_it() -> None:
    assert bounds_of([Bound("k0", "==", None), Bound("k0", ">=", None)]) == {"k0": Allowed()}
    both = bounds_of([Bound("k0", "in", [math.nan, 1.0]), Bound("k0", "in", [2.0, float("nan")])])["k0"]
    assert [math.isnan(value) for value in both.values or ()] == [True]


def test_each_row_is_there_once_when_several_values_are_one_key(store: Path) -> None:
    numbers = api.In(("k0",), (2**53, 2**53 + 1, math.nan, float("nan"), 0, -0.0))
    found = [row["k0"] for row in spark_rows(store, numbers, pstate="floats") if row["k0"] is not None]

    assert sorted(map(str, found)) == ["0.0", "9007199254740992.0", "nan"]


def spark_rows(store: Path, *filters: api.Filter, **options: Any) -> list[dict[str, Any]]:
    given = {"store": str(store), "module": "Odd", **{name: str(value) for name, value in options.items()}}
    found = TidemillDataSource(api.CaseInsensitiveDict(given))
    reader = found.reader(found.schema())
    reader.pushFilters(list(filters))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("most", [1, 4, 1_000_000])
def test_a_map_stays_whole_when_its_key_is_nan(store: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_maps, "HELD_MAX", most)
    found = spark_rows(store, pstate="deep", maps=True)

    assert sorted(str(row["k0"]) for row in found) == ["0.0", "1.0", "nan"]
    assert all(row["value"] == [(0, 0), (1, 1), (2, 2)] for row in found)


def test_a_predicate_of_many_rows_is_refused_when_it_would_be_asked_batch_by_batch(store: Path) -> None:
    for where in (col("value") == col("value").max(), (col("value") > 1) & (col("value").cum_sum() > 2), pl.len() > 1):
        with pytest.raises(BadInput, match="does not look at one row at a time"):
            tidemill.scan_arrow(store, "Odd", "$$floats", where=where, batch_rows=1)
    plain = tidemill.scan_arrow(store, "Odd", "$$floats", where=pl.lit(True), batch_rows=1)
    assert plain.read_all().num_rows == len(FLOATS)
    with pytest.raises(BadInput, match="an expression of Polars"):
        tidemill.scan_arrow(store, "Odd", "$$floats", where="value > 0")  # type: ignore[arg-type]


def test_a_predicate_of_rows_is_taken_when_a_part_of_it_might_fail(store: Path) -> None:
    """Polars asks such a part behind the scan, where it is joined to others; it is one of single rows all the same."""
    where = col("task").is_between(-0.5, math.nan) & (col("value") >= 2)
    found = tidemill.scan_arrow(store, "Odd", "$$floats", where=where, batch_rows=1).read_all()

    assert sorted(found["value"].to_pylist()) == [2, 3, 5, 6, 7, 8]  # -0.0 and 0.0 are one key


def test_rows_are_those_of_the_whole_frame_when_texts_are_compared_in_an_order_of_their_own(store: Path) -> None:
    sizes = pl.Enum(["b", "a", "A"])
    whole = tidemill.scan(store, "Odd", "named").collect()
    for where in (col("k0") >= pl.lit("b", dtype=sizes), col("k0") <= pl.lit("a", dtype=sizes)):
        expected = whole.lazy().filter(where).collect()
        assert_frame_equal(tidemill.scan(store, "Odd", "named").filter(where).collect(), expected)
        assert expected.height == 1


@pytest.mark.parametrize("options", [{"limit": -1}, {"limit": True}, {"limit": "3"}, {"batch_rows": 0}], ids=str)
def test_a_number_of_rows_is_refused_when_it_is_none(store: Path, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="= is a whole number from [01] on, not"):
        tidemill.scan_arrow(store, "Odd", "$$floats", **options)


def test_places_bound_nothing_when_they_are_compared_with_what_is_no_place(store: Path) -> None:
    wide = [
        col("offset") <= math.inf, col("offset") >= -math.inf, col("time") >= datetime.date(2020, 1, 1),
        col("partition") > -0.5, col("partition") <= math.nan, col("offset") <= math.nan,
    ]  # fmt: skip
    for where in wide:
        assert tidemill.scan_arrow(store, "Odd", "*times", where=where).read_all().num_rows == 1
    assert tidemill.scan_arrow(store, "Odd", "*times", where=col("offset") >= math.nan).read_all().num_rows == 0


def test_no_field_is_lost_when_its_name_is_that_of_another_column(store: Path) -> None:
    named = tidemill.scan(store, "Odd", "named").drop("task", "k0").collect()
    times = tidemill.scan_depot(store, "Odd", "times").drop("partition", "offset", "time").collect()

    assert named.to_dicts() == [{"value.value.task": 1, "value.task": "x"}]
    assert times.to_dicts() == [{"record.record.time": "noon", "record.time": "night", "record.Time": "dusk"}]
