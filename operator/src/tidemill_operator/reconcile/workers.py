"""Workers take objects from the queue and reconcile them, until they are stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from tidemill_operator.apply.api import ApiFailure, Conflict
from tidemill_operator.apply.metrics import QUEUE_LENGTH, QUEUE_SECONDS, RECONCILE_SECONDS, RECONCILES
from tidemill_operator.reconcile.queue import WorkKey, WorkQueue
from tidemill_operator.reconcile.reconciler import Reconciler

log = logging.getLogger(__name__)

WORKERS: Final = 4
"""Reconciles wait for the API server most of the time; more workers would only ask more of it at once."""


async def work(queue: WorkQueue, reconciler: Reconciler) -> None:
    """One worker's life."""
    while True:
        key, due = await queue.take()
        QUEUE_LENGTH.set(len(queue))
        QUEUE_SECONDS.observe(max(0.0, time.monotonic() - due))
        with RECONCILE_SECONDS.labels(kind=key.kind).time():
            await _one(queue, reconciler, key)


async def _one(queue: WorkQueue, reconciler: Reconciler, key: WorkKey) -> None:
    try:
        again = await reconciler.reconcile(key)
    except Conflict as error:
        _failed(queue, key, "conflict", error)
    except ApiFailure as error:
        _failed(queue, key, "api", error)
        log.warning("%s; trying again", error.message, extra={"object": key, "code": error.code})
    except asyncio.CancelledError:
        queue.done(key)
        raise
    except Exception as error:  # one object's trouble, or our bug with it, must not stop the others
        _failed(queue, key, "bug", error)
        log.exception("reconcile failed; this is a fault of the operator", extra={"object": key})
    else:
        queue.done(key, again)


def _failed(queue: WorkQueue, key: WorkKey, result: str, error: Exception) -> None:
    RECONCILES.labels(kind=key.kind, result=result).inc()
    delay = queue.failed(key)
    log.debug("again in %.1f s: %s", delay, error, extra={"object": key})
