"""Two depots joined as streams: flights and the weather of the hour and the airport of their departure.

`python -m examples.taskgraph.streams` appends some flights and all weather of 2013 to the depots of a module, and shows
how many minutes late planes left in clear and in foggy hours.
"""

from __future__ import annotations

import tempfile
from typing import Any

import polars as pl
from polars import col

from examples.flights import data
from tidemill import AggExecutor, Dataset, Depot, InProcessCluster, JoinExecutor, LaunchConfig, Module, TaskGraph

HOUR = ["origin", "year", "month", "day", "hour"]
FLIGHT = {"origin": pl.String, **dict.fromkeys(HOUR[1:], pl.Int64), "dep_delay": pl.Int64}
WEATHER = {"origin": pl.String, **dict.fromkeys(HOUR[1:], pl.Int64), "visib": pl.Float64}


class DeparturesModule(Module):
    """Two depots, and nothing that reads them: a task graph does."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*flights", Depot.random())
        setup.declare_depot("*weather", Depot.random())


def append_all(store: str, flights: pl.DataFrame, weather: pl.DataFrame) -> None:
    """Launch the module and append the tables to its depots."""
    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(DeparturesModule(), LaunchConfig(4, 2))
        cluster.cluster_depot("DeparturesModule", "*flights").append_many(flights.select(list(FLIGHT)))
        cluster.cluster_depot("DeparturesModule", "*weather").append_many(weather.select(list(WEATHER)))


def delays(pairs: pl.DataFrame) -> pl.DataFrame:
    """Of flights with their weather how many left, and their minutes of delay, by miles of visibility."""
    left = pairs.filter(col("dep_delay").is_not_null())
    return left.group_by("visib").agg(flights=pl.len().cast(pl.Int64), minutes=col("dep_delay").sum())


def delays_by_visibility(store: str, channels: int = 2) -> Dataset:
    """A row per visibility: `visib`, `flights`, `minutes`.

    Neither stream waits for the other: a pair goes on when the second of its rows comes, whichever that is. Both are
    partitioned by airport and hour, so that rows that fit meet in one channel.
    """
    graph = TaskGraph(store)
    flights = graph.new_input_depot("DeparturesModule", "*flights", channels, schema=FLIGHT)
    weather = graph.new_input_depot("DeparturesModule", "*weather", channels, schema=WEATHER)
    pairs = graph.new_non_blocking_node(
        {0: flights, 1: weather}, JoinExecutor(HOUR, batch_func=delays), channels, {0: HOUR, 1: HOUR}
    )
    summed = graph.new_blocking_node({0: pairs}, AggExecutor("visib"), 1, {0: None})
    graph.run()
    return summed


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        append_all(folder, data.read("flights").head(50_000), data.read("weather"))
        found = delays_by_visibility(folder).to_polars()
        print(found.with_columns(late=col("minutes") / col("flights")).sort("visib"))


if __name__ == "__main__":
    main()
