"""The results as a person wants to see them, and the whole content of a PState for the comparison."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from tidemill import Path
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle

NESTED = ("$$days", "$$weather")
COMMANDS = (
    "status",
    "select FlightsModule '$$carriers' '[\"UA\"]'",
    'select FlightsModule \'$$days\' \'["JFK", ["sortedMapRange", "2013-07-01", "2013-07-04"]]\'',
    "log FlightsModule flights",
    "export FlightsModule '$$routes'",
    "check",
)


def content(pstate: PStateHandle, tasks: int) -> Any:
    """The whole PState: one value, or a dict over all tasks."""
    if pstate.name == "$$topRoutes":
        return pstate.select_one(Path.stay())
    keys = [key for task in range(tasks) for key in pstate.select(Path.map_keys(), pkey=_key_of(pstate, task, tasks))]
    if pstate.name in NESTED:
        return {key: dict(pstate.select(Path.key(key).all())) for key in keys}
    return {key: pstate.select_one(Path.key(key)) for key in keys}


def _key_of(pstate: PStateHandle, task: int, tasks: int) -> Any:
    """Some key that is routed to `task`."""
    from tidemill.values.data import route

    return next(key for key in range(10_000) if route(key, tasks) == task)


def size(value: Any) -> int:
    """Elements, those of nested structures included."""
    if isinstance(value, dict) and value and all(isinstance(inner, dict) for inner in value.values()):
        is_record = all("flights" in inner or "arrived" in inner for inner in value.values())
        return len(value) if is_record else sum(len(inner) for inner in value.values())
    return len(value)


def show(console: Console, client: ModuleClient) -> None:
    """Carriers, hours, top routes, punctual airports."""
    tasks = client.definition().tasks
    names = content(PStateHandle(client, "$$airlineNames"), tasks)
    airports = content(PStateHandle(client, "$$airportNames"), tasks)
    carriers = content(PStateHandle(client, "$$carriers"), tasks)
    console.print(_delays("By carrier", {f"{code} {names[code]}": stats for code, stats in carriers.items()}))
    hours = content(PStateHandle(client, "$$hours"), tasks)
    console.print(_delays("By hour of day", {f"{hour:02}": stats for hour, stats in sorted(hours.items())}))
    console.print(_top_routes(content(PStateHandle(client, "$$topRoutes"), tasks), airports))
    console.print(_punctual(content(PStateHandle(client, "$$arrivals"), tasks), airports))


def _delays(title: str, stats: dict[str, dict[str, int]]) -> Table:
    table = Table(title=title)
    for column in ("", "flights", "arrived", "mean delay (min)", "max (min)"):
        table.add_column(column, justify="right" if column else "left")
    for key, row in stats.items():
        mean = f"{row['delaySum'] / row['arrived']:.1f}" if row["arrived"] else "-"
        table.add_row(key, f"{row['flights']:,}", f"{row['arrived']:,}", mean, str(row["delayMax"]))
    return table


def _top_routes(routes: list[list[Any]], airports: dict[str, str]) -> Table:
    table = Table(title="The ten most delayed routes")
    table.add_column("route")
    table.add_column("to")
    table.add_column("hours late", justify="right")
    for route, minutes in routes:
        table.add_row(route, airports.get(route.split("-")[1], "?"), f"{minutes / 60:,.0f}")
    return table


def _punctual(arrivals: dict[str, dict[str, int]], airports: dict[str, str]) -> Table:
    table = Table(title="On time (less than 15 minutes late), airports with 5,000 arrivals or more")
    table.add_column("airport")
    table.add_column("share", justify="right")
    shares = {code: row["onTime"] / row["arrived"] for code, row in arrivals.items() if row["arrived"] >= 5_000}
    for code, share in sorted(shares.items(), key=lambda item: -item[1]):
        table.add_row(f"{code} {airports.get(code, '')}", f"{share:.1%}")
    return table
