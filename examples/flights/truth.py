"""What the module's PStates must hold, computed directly with Polars over the same files."""

from __future__ import annotations

from typing import Any

import polars as pl

from examples.flights import data
from examples.flights.module import ON_TIME_MINUTES, TOP_ROUTES

DELAYS = [
    pl.len().cast(pl.Int64).alias("flights"),
    pl.col("arr_delay").is_not_null().sum().cast(pl.Int64).alias("arrived"),
    pl.col("arr_delay").fill_null(0).sum().alias("delaySum"),
    pl.col("arr_delay").max().alias("delayMax"),
]
ROUTE = (pl.col("origin") + "-" + pl.col("dest")).alias("route")


def _by(frame: pl.DataFrame, key: str, values: list[pl.Expr]) -> dict[Any, Any]:
    rows = frame.group_by(key).agg(values).iter_rows(named=True)
    return {row.pop(key): row for row in rows}


def _delays_by(frame: pl.DataFrame, key: str) -> dict[Any, Any]:
    return _by(frame, key, DELAYS)


def _top_routes(flights: pl.DataFrame) -> list[list[Any]]:
    late = flights.group_by("route").agg(pl.col("arr_delay").fill_null(0).clip(lower_bound=0).sum().alias("late"))
    return [list(row) for row in late.sort("late", descending=True).head(TOP_ROUTES).iter_rows()]


def _days(flights: pl.DataFrame) -> dict[str, dict[str, Any]]:
    date = pl.date("year", "month", "day").cast(pl.String).alias("date")
    rows = flights.group_by("origin", date).agg(DELAYS[:2]).iter_rows(named=True)
    days: dict[str, dict[str, Any]] = {}
    for row in rows:
        days.setdefault(row.pop("origin"), {})[row.pop("date")] = row
    return days


def compute() -> dict[str, Any]:
    """PState name -> its whole content."""
    flights = data.read("flights").with_columns(ROUTE)
    on_time = (pl.col("arr_delay") < ON_TIME_MINUTES).sum().cast(pl.Int64).alias("onTime")
    late = pl.col("arr_delay").fill_null(0).clip(lower_bound=0).sum().alias("late")
    weather: dict[str, dict[str, Any]] = {}
    for row in data.read("weather").iter_rows(named=True):
        weather.setdefault(row["origin"], {})[row["time_hour"]] = row
    return {
        "$$carriers": _delays_by(flights, "carrier"),
        "$$routes": _delays_by(flights, "route"),
        "$$hours": _delays_by(flights, "hour"),
        "$$arrivals": _by(flights, "dest", [DELAYS[1], on_time]),
        "$$days": _days(flights),
        "$$minutesLate": {key: value["late"] for key, value in _by(flights, "route", [late]).items()},
        "$$topRoutes": _top_routes(flights),
        "$$airlineNames": dict(data.read("airlines").select("carrier", "name").iter_rows()),
        "$$airportNames": dict(data.read("airports").select("faa", "name").iter_rows()),
        "$$planesByMaker": dict(data.read("planes")["manufacturer"].value_counts().iter_rows()),
        "$$weather": weather,
    }
