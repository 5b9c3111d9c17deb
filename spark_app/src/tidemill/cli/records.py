"""`tidemill records`: the records of a depot, such as the one that a failure names."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidemill.cli.loader import (
    STORE_DEFAULT,
    DepotArgument,
    JsonOption,
    ModuleArgument,
    StoreOption,
    client_of,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import command, show_json, to_json, wants_json
from tidemill.clients.depot import DepotHandle

LIMIT_MAX = 10_000


@command
def records(
    module: ModuleArgument,
    depot: DepotArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    partition: Annotated[int | None, typer.Option("--partition", help="This one only; all if left out.")] = None,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="The first offset to show; the newest records if left out.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=LIMIT_MAX, help="Of each partition.")] = 10,
    code: Annotated[str, typer.Option("--module", help="MODULE:CLASS, while records wait for a migration.")] = "",
) -> None:
    """Show records of a depot: partition, offset and record, one a line."""
    wants_json(json_)
    opened = existing_store(store)
    stored_definition(opened, module)
    handle = DepotHandle(client_of(opened, module, code), "*" + depot.removeprefix("*"))
    partitions = range(handle.get_object_info().num_partitions) if partition is None else (partition,)
    found = [record for number in partitions for record in _of_partition(handle, number, start, limit)]
    if json_:
        show_json(found)
        return
    for record in found:
        typer.echo(f"{record['partition']} {record['offset']} {to_json(record['record'])}")


def _of_partition(handle: DepotHandle, partition: int, start: int | None, limit: int) -> list[dict[str, Any]]:
    """Records that are still there, the oldest first."""
    kept = handle.get_partition_info(partition)
    first = max(kept.start_offset, kept.end_offset - limit if start is None else start)
    end = min(kept.end_offset, first + limit)
    if first >= end:
        return []
    values = handle.read(partition, first, end)
    if len(values) == end - first:
        return [_shown(partition, first + place, value) for place, value in enumerate(values)]
    # A migration took some away: each is asked for alone, so that it has its own offset.
    return [_shown(partition, at, value) for at in range(first, end) for value in handle.read(partition, at, at + 1)]


def _shown(partition: int, offset: int, record: Any) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "record": record}
