"""Orders get the region of their zip code from a service on the network: asked in parallel, and once a zip code."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from urllib.parse import quote

import httpx2

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
)

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
ORDER = PState.fixed_keys_schema("id", str, "zip", str, "cents", int)
ENRICHED = PState.fixed_keys_schema("zip", str, "cents", int, "region", str)
ATTEMPTS = 3
TRY_SECONDS = 2.0
"""How long one request may take."""
PAUSE_SECONDS = 0.05
"""Before the second attempt; doubled before each further one."""
UNKNOWN = "unknown"


def fields(block: Block, record: str, *names: str) -> Block:
    """Bind each field of a record to a variable of its name."""
    for name in names:
        block = block.each(Ops.GET, record, name).out(f"*{name}")
    return block


def enriched(zip_code: str, cents: int, region: str) -> dict[str, Any]:
    return {"zip": zip_code, "cents": cents, "region": region}


async def region_of(address: str, zip_code: str) -> str:
    """The region that the service at `address` knows for a zip code, `unknown` if it knows none.

    Raises:
        RuntimeError: the service did not answer, ATTEMPTS times; the microbatch fails then, and is tried again later.
    """
    trouble = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            async with httpx2.AsyncClient(timeout=TRY_SECONDS, trust_env=False) as client:
                answer = await client.get(f"{address}/zip/{quote(zip_code, safe='')}")
        except httpx2.TransportError as error:
            trouble = type(error).__name__
            continue
        if answer.status_code == 404:
            return UNKNOWN
        if answer.is_success:
            region: str = answer.json()["region"]
            return region
        trouble = f"status {answer.status_code}"
    raise RuntimeError(f"the service at {address} gave no answer for {zip_code}: {trouble}, {ATTEMPTS} times")


class RestEnrichment(Module):
    """The service is at `address`, or where the environment variable REGIONS_URL says."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address or os.environ.get("REGIONS_URL", "http://127.0.0.1:8099")

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*orders", Depot.hash_by("id")).schema(ORDER)
        mb = topologies.microbatch("enrich")
        mb.pstate("$$regions", PState.map_schema(str, str))
        mb.pstate("$$orders", PState.map_schema(str, ENRICHED))
        mb.pstate("$$revenue", PState.map_schema(str, int))

        orders = (
            Block.explode_microbatch("*microbatch").out("*order")
            .macro(fields, "*order", "id", "zip", "cents")
            .keep_true(Expr(Ops.AND, "*id", "*zip", "*cents"))
        )  # fmt: skip
        # 1. The zip codes of this microbatch, each once, and the regions that are known already.
        needed = (
            orders.group_by("*zip", Block.agg(Agg.count()).out("*count"))
            .local_select("$$regions", Path.key("*zip")).out("*known")
            .if_true("*known", Block.materialize("*zip", "*known").out("$$answers"),
                     Block.materialize("*zip").out("$$missing"))
        )  # fmt: skip
        # 2. The service is asked for the others, up to 16 at once.
        asked = (
            Block.explode_materialized("$$missing").out("*zip")
            .each_async(region_of, self.address, "*zip", concurrency=16, timeout_seconds=60).out("*region")
            .local_transform("$$regions", Path.key("*zip").term_val("*region"))
            .materialize("*zip", "*region").out("$$answers")
        )  # fmt: skip
        # 3. Orders and answers are joined on their zip code; an order that was stored before is not counted again.
        joined = (
            orders
            .explode_materialized("$$answers").out("*zip", "*region")
            .each(enriched, "*zip", "*cents", "*region").out("*enriched")
            .hash_partition("*id")
            .local_select("$$orders", Path.key("*id")).out("*before")
            .keep_true(Expr(Ops.IS_NULL, "*before"))
            .local_transform("$$orders", Path.key("*id").term_val("*enriched"))
            .hash_partition("*region")
            .compound_agg("$$revenue", CompoundAgg.map("*region", Agg.sum("*cents")))
        )  # fmt: skip
        (mb.source("*orders", BEGINNING).out("*microbatch")
           .batch_block(needed).batch_block(asked).batch_block(joined))  # fmt: skip
