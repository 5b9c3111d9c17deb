"""Whether a gateway can do its work: asked by probes that carry no token, so it costs the store one look a second."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.modules import Modules
from tidemill.gateway.work import is_done, late
from tidemill.runtime.definition_log import DefinitionLog
from tidemill.store.objects import NotFound
from tidemill.store.urls import FORMAT_KEY

READY_SECONDS = 5.0
FRESH_SECONDS = 1.0
"""How old an answer may be: all who ask meanwhile get the same."""


class Readiness:
    """Looks at the store in a thread of its own, so that probes and requests do not wait for each other."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidemill-ready")
        self._asked: Future[None] | None = None
        self._asked_at = float("-inf")

    async def check(self) -> None:
        """Return when the store answers, and holds the module if the gateway serves only one.

        Raises:
            HttpRefusal: 503, it does not; 504, it took too long.
            TidemillError: what the store met.
        """
        now = asyncio.get_running_loop().time()
        asked = self._asked
        if asked is None or (asked.done() and now - self._asked_at >= FRESH_SECONDS):
            asked = self._asked = self._thread.submit(self._look)
            self._asked_at = now
        if not await is_done(asked, now + READY_SECONDS):
            raise late("The store took longer than {} s.", READY_SECONDS)
        asked.result()

    def _look(self) -> None:
        name = self._modules.only
        try:
            self._modules.store.get(FORMAT_KEY)
        except NotFound:
            raise _not_ready("The store is not there, or empty.") from None
        if name is not None and DefinitionLog(self._modules.store, name).newest() is None:
            raise _not_ready(f"The module {name} is not in the store yet.")

    def close(self) -> None:
        self._thread.shutdown(wait=False)


def _not_ready(text: str) -> HttpRefusal:
    return HttpRefusal(503, "NotReady", text, {"retry-after": "1"})
