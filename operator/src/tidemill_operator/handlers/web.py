"""The web port: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.reconcile import health
from tidemill_operator.reconcile.queue import WorkQueue


async def serve(port: int, queue: WorkQueue, cache: ObjectCache, is_leader: Callable[[], bool]) -> web.AppRunner:
    """Start to serve; the caller cleans the runner up. A standby is ready as well: it is ready to take over."""

    async def healthz(_: web.Request) -> web.Response:
        found = health.report(queue, is_leader())
        return web.json_response(found, status=200 if found["isHealthy"] else 503)

    async def metrics(_: web.Request) -> web.Response:
        health.count_objects(cache)
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", healthz), web.get("/metrics", metrics)],
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner
