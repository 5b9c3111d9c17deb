"""Events, each once: an event's name follows from its object, reason and text, so a repetition meets itself."""

from __future__ import annotations

import logging
from collections import OrderedDict
from datetime import datetime
from typing import Final

from tidemill_operator.apply.api import Api, ApiFailure, Conflict
from tidemill_operator.apply.metrics import EVENTS
from tidemill_operator.decide.actions import Announce
from tidemill_operator.resources import names
from tidemill_operator.resources.names import Json

log = logging.getLogger(__name__)

_REMEMBERED: Final = 2000
_REPEAT_SECONDS: Final = 600.0
_NOTE_LIMIT: Final = 1000


class EventRecorder:
    """Posts events; the same one at most each ten minutes. A failure to post is only logged."""

    def __init__(self, api: Api, instance: str) -> None:
        self._api, self._instance = api, instance
        self._posted: OrderedDict[str, datetime] = OrderedDict()

    async def post(self, announce: Announce, now: datetime) -> None:
        """Create the Kubernetes Event of an announcement, unless the same one was posted less than ten minutes ago."""
        event = event_of(announce, self._instance, now)
        name = names.name_of(event)
        last = self._posted.get(name)
        if last is not None and (now - last).total_seconds() < _REPEAT_SECONDS:
            return
        self._posted[name] = now
        while len(self._posted) > _REMEMBERED:
            self._posted.popitem(last=False)
        EVENTS.labels(reason=announce.reason).inc()
        await self._send(event)

    async def _send(self, event: Json) -> None:
        try:
            await self._api.create(event)
        except Conflict:
            return  # An earlier process said so already.
        except ApiFailure as error:
            log.warning("event not posted: %s", error.message)


def event_of(announce: Announce, instance: str, now: datetime) -> Json:
    """The core/v1 event of an announcement."""
    obj, stamp = announce.obj, now.strftime("%Y-%m-%dT%H:%M:%SZ")
    generation = obj["metadata"].get("generation")
    identity = [obj["metadata"].get("uid"), generation, announce.reason, announce.note, stamp[:13]]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{names.name_of(obj)}.{names.digest(identity, 16)}",
            "namespace": names.namespace_of(obj),
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": obj["kind"],
            "name": names.name_of(obj),
            "namespace": names.namespace_of(obj),
            "uid": obj["metadata"].get("uid", ""),
        },
        "reason": str(announce.reason),
        "message": announce.note[:_NOTE_LIMIT],
        "type": "Warning" if announce.is_warning else "Normal",
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": instance,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
