"""How long pages took to render: count, least, greatest and mean of each minute, hour, day and 30 days."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    Setup,
    Topologies,
    operation,
)

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
MINUTES = {"minute": 1, "hour": 60, "day": 1_440, "30 days": 43_200}
"""The granularities, and how many minutes a bucket of each has; each divides the next one."""


def fields(block: Block, record: str, *names: str) -> Block:
    """Bind each field of a record to a variable of its name."""
    for name in names:
        block = block.each(Ops.GET, record, name).out(f"*{name}")
    return block


@operation
def buckets(at: int) -> Iterator[tuple[str, int]]:
    """The bucket of each granularity for a time in milliseconds since 1970."""
    for granularity, minutes in MINUTES.items():
        yield granularity, at // (60_000 * minutes)


@operation
def cover(start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """The fewest buckets that make up the minutes [start, end): (granularity, first, end) of each row of neighbours."""
    sizes = list(MINUTES.items())
    for (granularity, size), (_, larger) in zip(sizes, [*sizes[1:], ("", 0)], strict=True):
        inner_start, inner_end = (-(-start // larger) * larger, end // larger * larger) if larger else (end, end)
        if inner_start >= inner_end:
            inner_start = inner_end = end
        for first, last in ((start, inner_start), (inner_end, end)):
            if first < last:
                yield granularity, first // size, last // size
        start, end = inner_start, inner_end


def summary(count: int, total: int | None, least: int | None, greatest: int | None) -> dict[str, Any]:
    mean = total / count if total is not None and count else None
    return {"count": count, "min": least, "max": greatest, "mean": mean}


class TimeSeries(Module):
    """Records are {"url": text, "at": milliseconds since 1970, "millis": how long it took}."""

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*renders", Depot.hash_by("url")).schema(
            PState.fixed_keys_schema("url", str, "at", int, "millis", int)
        )
        mb = topologies.microbatch("series")
        window = PState.fixed_keys_schema("count", int, "sum", int, "min", int, "max", int)
        by_bucket = PState.map_schema(int, window).subindexed()
        mb.pstate("$$windows", PState.map_schema(str, PState.map_schema(str, by_bucket)))
        measured = CompoundAgg.map(
            "count", Agg.count(), "sum", Agg.sum("*millis"), "min", Agg.min("*millis"), "max", Agg.max("*millis")
        )
        (mb.source("*renders", BEGINNING).out("*microbatch")
           .explode_microbatch("*microbatch").out("*render")
           .macro(fields, "*render", "url", "at", "millis")
           .keep_true(Expr(Ops.AND, "*url", "*at", "*millis"))
           .each(buckets, "*at").out("*granularity", "*bucket")
           .compound_agg("$$windows", CompoundAgg.map(
               "*url", CompoundAgg.map("*granularity", CompoundAgg.map("*bucket", measured)))))  # fmt: skip

        found = Path.key("*url", "*granularity").sorted_map_range("*first", "*last").map_vals()
        (topologies.query("range", "*url", "*start", "*end").out("*summary")
            .hash_partition("*url")
            .each(cover, "*start", "*end").out("*granularity", "*first", "*last")
            .local_select("$$windows", found).out("*window")
            .macro(fields, "*window", "count", "sum", "min", "max")
            .origin_partition()
            .agg(Agg.sum("*count")).out("*renders")
            .agg(Agg.sum("*sum")).out("*total")
            .agg(Agg.min("*min")).out("*least")
            .agg(Agg.max("*max")).out("*greatest")
            .each(summary, "*renders", "*total", "*least", "*greatest").out("*summary"))  # fmt: skip
