"""The life of the process: Lease, first list, workers, kopf; and its end, which frees the Lease first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import kopf

from tidemill_operator.apply.api import Api, ApiFailure, Missing
from tidemill_operator.apply.events import EventRecorder
from tidemill_operator.apply.lightkube_api import LightkubeApi
from tidemill_operator.apply.metrics import IS_LEADER
from tidemill_operator.apply.performer import Performer
from tidemill_operator.handlers import watches, web
from tidemill_operator.handlers.options import Options
from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.reconcile.leadership import Leadership
from tidemill_operator.reconcile.queue import WorkQueue
from tidemill_operator.reconcile.reconciler import Reconciler
from tidemill_operator.reconcile.wake_ups import wake
from tidemill_operator.reconcile.workers import WORKERS, work
from tidemill_operator.resources.kinds import WATCHED, Kind

log = logging.getLogger(__name__)

RELIST_SECONDS: Final = 600.0
"""Pace of listing everything anew: what a watch may have missed is found then."""

_GAP_SECONDS: Final = 2.0
"""Watches that break together begin anew together: one list is enough for all."""

_STOP_SECONDS: Final = 2.0
_LIST_RETRY_SECONDS: Final = 2.0
_FORBIDDEN: Final = 403
LOST_LEASE_CODE: Final = 3


class Operator:
    """Everything that one process has."""

    def __init__(self, options: Options, api: Api) -> None:
        self.options, self.api = options, api
        self.cache = ObjectCache()
        self.queue = WorkQueue(time.monotonic)
        self.cache.listen(lambda obj: wake(self.cache, self.queue, obj))
        identity = f"{options.identity}_{secrets.token_hex(4)}"
        self.leadership = Leadership(api, options.operator_namespace, options.lease, identity)
        events = EventRecorder(api, options.identity)
        performer = Performer(api, self.cache, events, _now)
        self.reconciler = Reconciler(self.cache, performer, options.defaults, _now)
        self._gap = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    async def run(self, stopped: asyncio.Event) -> int:
        """Until `stopped` is set or the Lease is lost; the exit code."""
        server = None
        if self.options.port:
            server = await web.serve(self.options.port, self.queue, self.cache, lambda: self.leadership.is_held)
        try:
            if not await _first(self.leadership.acquire(), stopped):
                return 0
            IS_LEADER.set(1)
            return await self._lead(stopped)
        finally:
            await self._stop_tasks()
            await self.leadership.release()
            IS_LEADER.set(0)
            if server is not None:
                await server.cleanup()

    async def _lead(self, stopped: asyncio.Event) -> int:
        keeping = self._start(self.leadership.keep(), "keep the Lease")
        if not await _first(self._list_all(), stopped) or not await _first(self._know_cluster(), stopped):
            return 0
        if keeping.done():
            os._exit(LOST_LEASE_CODE)
        self._start(self._relist(), "list again")
        for number in range(WORKERS):
            self._start(work(self.queue, self.reconciler), f"worker {number}")
        watching_task = self._start(self._watch(stopped), "watch")
        stopping = self._start(stopped.wait(), "stop")
        await asyncio.wait([keeping, watching_task, stopping], return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            # Another replica may start now: nothing of this process may act any more, not even to tidy up.
            log.error("the Lease is lost; ending at once")
            os._exit(LOST_LEASE_CODE)
        if watching_task.done() and not stopped.is_set() and watching_task.exception() is not None:
            log.error("watching ended: %s", watching_task.exception())
            return 1
        return 0

    async def _watch(self, stopped: asyncio.Event) -> None:
        """kopf, which sets its own signal handlers when it starts; ours come back after."""
        ready = asyncio.Event()
        namespaces = self.options.namespaces
        watching_all = kopf.operator(
            registry=watches.registry(self.cache, self._gap.set),
            settings=watches.settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=ready,
            stop_flag=stopped,
        )
        task = asyncio.create_task(watching_all)
        await asyncio.wait([task, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
        on_signals(stopped)
        await task

    async def _list_all(self) -> None:
        """Know everything before anything is decided."""
        for kind in WATCHED:
            while not await self._list(kind):
                await asyncio.sleep(_LIST_RETRY_SECONDS)
        log.info("knows %d Modules and %d Topologies", len(self.cache.all("Module")), len(self.cache.all("Topology")))

    async def _know_cluster(self) -> None:
        """Which cluster this is, before a Module's owner is named by it."""
        while not self.reconciler.defaults.cluster:
            try:
                self.reconciler.defaults = replace(self.reconciler.defaults, cluster=await self.api.cluster())
            except ApiFailure as error:
                log.warning("can not read the namespace kube-system: %s", error.message)
                if error.code == _FORBIDDEN:
                    log.warning("a Module that is made anew will need spec.store.takeOverFrom to use its store again")
                    return
                await asyncio.sleep(_LIST_RETRY_SECONDS)

    async def _list(self, kind: Kind) -> bool:
        """Whether the list worked, or is not needed."""
        try:
            for namespace in self.options.namespaces or (None,):
                before = self.cache.refs(kind.kind, namespace)
                self.cache.replace(kind.kind, await self.api.list(kind.kind, namespace), before)
        except Missing:
            if not kind.is_optional:
                log.warning("the kind %s is not there yet; install the custom resources", kind.kind)
            return kind.is_optional
        except ApiFailure as error:
            log.warning("can not list %s: %s", kind.plural, error.message)
            return kind.is_optional
        return True

    async def _relist(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELIST_SECONDS):
                    await self._gap.wait()
            await asyncio.sleep(_GAP_SECONDS)
            self._gap.clear()
            for kind in WATCHED:
                await self._list(kind)

    def _start(self, work_to_do: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work_to_do, name=name)
        self._tasks.append(task)
        return task

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            if task.get_name() != "watch":
                task.cancel()
        others = [task for task in self._tasks if task.get_name() != "watch"]
        if others:
            await asyncio.wait(others, timeout=_STOP_SECONDS)


def _now() -> datetime:
    return datetime.now(UTC)


async def _first(wanted: Awaitable[Any], stopped: asyncio.Event) -> bool:
    """Wait for `wanted`, unless a stop comes first; False then."""
    task, stop = asyncio.ensure_future(wanted), asyncio.create_task(stopped.wait())
    await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return False
    task.result()
    return True


def on_signals(stopped: asyncio.Event) -> None:
    """Set `stopped` on SIGTERM and SIGINT; call it in the event loop's thread."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)


async def run(options: Options) -> int:
    """Run the operator until a signal, or until it must end."""
    api, stopped = LightkubeApi(), asyncio.Event()
    on_signals(stopped)
    try:
        return await Operator(options, api).run(stopped)
    finally:
        await api.close()
