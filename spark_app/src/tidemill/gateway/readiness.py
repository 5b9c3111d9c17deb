"""Whether a gateway can do its work: what its readiness probe asks of the store."""

from __future__ import annotations

from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.looks import SharedLook
from tidemill.gateway.modules import Modules
from tidemill.journal.definition_log import DefinitionLog
from tidemill.store.objects import NotFound
from tidemill.store.urls import FORMAT_KEY

READY_SECONDS = 5.0


def readiness_of(modules: Modules) -> SharedLook[None]:
    """A look that returns when the store answers, and holds the module if the gateway serves only one.

    It raises HttpRefusal (503) where the store does not, and TidemillError as the store met it.
    """
    return SharedLook("ready", lambda: _check(modules), READY_SECONDS)


def _check(modules: Modules) -> None:
    try:
        modules.store.get(FORMAT_KEY)
    except NotFound:
        raise _not_ready("The store is not there, or empty.") from None
    if modules.only is not None and DefinitionLog(modules.store, modules.only).newest() is None:
        raise _not_ready(f"The module {modules.only} is not in the store yet.")


def _not_ready(text: str) -> HttpRefusal:
    return HttpRefusal(503, "NotReady", text, {"retry-after": "1"})
