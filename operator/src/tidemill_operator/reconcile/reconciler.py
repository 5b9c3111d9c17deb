"""Reconciles one object: observe, decide, apply, and again at once while something changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from tidemill_operator.apply.api import ApiFailure, Conflict, Going, Invalid
from tidemill_operator.apply.metrics import LAST_RECONCILE, RECONCILES
from tidemill_operator.apply.performer import Performer
from tidemill_operator.decide.actions import Announce, Decision
from tidemill_operator.decide.module import decide_module
from tidemill_operator.decide.topology import decide_topology
from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.observe.problems import Problem
from tidemill_operator.observe.views import module_view, topology_unit
from tidemill_operator.reconcile.queue import WorkKey
from tidemill_operator.resources.reasons import Happening, Reason
from tidemill_operator.resources.settings import Defaults

log = logging.getLogger(__name__)

PASSES: Final = 20
"""Steps of one reconcile; a healthy one needs three. More would mean that two decisions undo each other."""

RESYNC_SECONDS: Final = 300.0
"""Every object is looked at this often even if nothing happens. It costs no API call as long as all is well."""

REFUSED_RETRY_SECONDS: Final = 30.0
SERVER_TROUBLE: Final = 500
"""HTTP statuses from here on are no refusal of what was asked: the same call may succeed later."""


class Reconciler:
    """`refused` remembers, by object, what the API server said no to, at which generation, until when."""

    def __init__(
        self, cache: ObjectCache, performer: Performer, defaults: Defaults, now: Callable[[], datetime]
    ) -> None:
        self._cache, self._performer, self.defaults, self._now = cache, performer, defaults, now
        self._refused: dict[WorkKey, tuple[int, datetime, Problem]] = {}

    async def reconcile(self, key: WorkKey) -> float | None:
        """Bring an object to where nothing is left to do now; returns after how many seconds to look again.

        Raises:
            ApiFailure: try again later, with back-off.
        """
        for _ in range(PASSES):
            decision = self._decide(key)
            if decision is None:
                self._refused.pop(key, None)
                return None
            try:
                changes = await self._performer.perform(decision.actions)
            except Conflict as error:
                log.info("decided on something stale, looking again", extra={"object": key, "cause": error.message})
                raise
            except Invalid as error:
                self._refuse(key, error)
                continue
            except ApiFailure as error:
                await self._tell(key, error)
                raise
            if not changes:
                RECONCILES.labels(kind=key.kind, result="done").inc()
                LAST_RECONCILE.set_to_current_time()
                return min(RESYNC_SECONDS, decision.again_seconds or RESYNC_SECONDS)
        RECONCILES.labels(kind=key.kind, result="unsettled").inc()
        log.error("no end after %d steps", PASSES, extra={"object": key})
        return 5.0

    def _decide(self, key: WorkKey) -> Decision | None:
        now, refused = self._now(), self._refusal(key)
        if key.kind == "Module":
            view = module_view(self._cache, key.namespace, key.name, now, refused)
            return None if view is None else decide_module(view, now, self.defaults)
        unit = topology_unit(self._cache, key.namespace, key.name, now, refused)
        return None if unit is None else decide_topology(unit, now)

    def _refuse(self, key: WorkKey, error: Invalid) -> None:
        obj = self._cache.get(*key)
        generation = obj["metadata"]["generation"] if obj is not None else 0
        reason = Reason.NAMESPACE_GOING if isinstance(error, Going) else Reason.INVALID_OBJECT
        problem = Problem(reason, error.message)
        self._refused[key] = (generation, self._now(), problem)
        log.warning("refused by the API server: %s", error.message, extra={"object": key})

    async def _tell(self, key: WorkKey, error: ApiFailure) -> None:
        """Trouble of the server, such as a webhook that it can not call, is reported in the status and the events."""
        obj = self._cache.get(*key)
        if obj is not None and error.code >= SERVER_TROUBLE:
            note = f"The API server answered {error.code}, it is asked again: {error.message}"
            await self._performer.perform([Announce(obj, Happening.API_FAILED, note, is_warning=True)])

    def _refusal(self, key: WorkKey) -> Problem | None:
        """What was refused, until the spec changes or it is time to try again."""
        found, obj = self._refused.get(key), self._cache.get(*key)
        if found is None or obj is None:
            return None
        generation, since, problem = found
        is_old = (self._now() - since).total_seconds() > REFUSED_RETRY_SECONDS
        if is_old or generation != obj["metadata"]["generation"]:
            del self._refused[key]
            return None
        return problem
