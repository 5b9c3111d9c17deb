"""Performs actions one after the other, and puts what the API server answers into the cache at once."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from tidemill_operator.apply.api import Api, ApiFailure, Conflict, Missing
from tidemill_operator.apply.comparison import Applied
from tidemill_operator.apply.events import EventRecorder
from tidemill_operator.apply.metrics import REPAIRS
from tidemill_operator.decide.actions import (
    Action,
    Announce,
    ClearStatus,
    CreateToken,
    Delete,
    Ensure,
    ReadVerdict,
    SetFinalizer,
    SetStatus,
)
from tidemill_operator.observe.object_cache import ObjectCache, ref_of
from tidemill_operator.observe.verdict import parse_verdict
from tidemill_operator.resources import gateway, names, revision
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.reasons import Happening

log = logging.getLogger(__name__)

TOKEN_CHECK_SECONDS = 300.0
"""A token Secret can not be seen (we may only create Secrets), so creating it is tried at this pace."""


_NO_LOG = "unable to retrieve container logs"
"""What a kubelet answers, as if it were the log, where the container's log is gone."""

_NO_VERDICT = revision.Verdict(
    module="",
    base=0,
    is_valid=False,
    faults=("the describe Job printed no verdict (build the image FROM the Tidemill runner, with its entrypoint)",),
)


class Performer:
    """Does what was decided. Counts the actions that changed something, so that one can look again."""

    def __init__(self, api: Api, cache: ObjectCache, events: EventRecorder, now: Callable[[], datetime]) -> None:
        self._api, self._cache, self._events, self._now = api, cache, events, now
        self._applied = Applied()
        self._tokens: dict[str, datetime] = {}

    async def perform(self, actions: Iterable[Action]) -> int:
        """How many of the actions changed something.

        Raises:
            ApiFailure: the rest was not tried; decide again after a while (Conflict: at once).
        """
        changes = 0
        for action in actions:
            changes += await self._one(action)
        return changes

    async def _one(self, action: Action) -> int:
        match action:
            case SetStatus():
                await self._set_status(action)
                return 1
            case ClearStatus():
                self._cache.put(await self._api.clear_status(action.obj, action.fields))
                return 1
            case Ensure():
                return await self._ensure(action.obj)
            case CreateToken():
                return await self._create_token(action.module)
            case Delete():
                return await self._delete(action.obj)
            case ReadVerdict():
                return await self._read_verdict(action)
            case SetFinalizer():
                await self._set_finalizer(action)
                return 1
            case Announce():
                await self._events.post(action, self._now())
                return 0

    async def _set_status(self, action: SetStatus) -> None:
        metadata = {**_identity(action.obj)}
        if action.is_exclusive:
            metadata["resourceVersion"] = action.obj["metadata"]["resourceVersion"]
        answer = await self._api.apply_status(
            {
                "apiVersion": names.API_VERSION,
                "kind": action.obj["kind"],
                "metadata": metadata,
                "status": action.status,
            }
        )
        self._cache.put(answer)

    async def _ensure(self, wanted: Json) -> int:
        live = self._cache.get(*ref_of(wanted))
        if self._applied.is_as_wanted(wanted, live):
            return 0
        if live is not None and live["metadata"].get("deletionTimestamp"):
            return 0  # It has to be gone before it can come again; its deletion wakes us.
        is_repair = self._applied.was_known(wanted)
        answer = await self._api.apply(wanted)
        self._cache.put(answer)
        self._applied.remember(wanted, answer)
        has_changed = live is None or live["metadata"].get("resourceVersion") != answer["metadata"]["resourceVersion"]
        if is_repair and has_changed:
            await self._repaired(wanted, is_gone=live is None)
        return int(has_changed)

    async def _repaired(self, wanted: Json, is_gone: bool) -> None:
        REPAIRS.labels(kind=wanted["kind"]).inc()
        owner = next(iter(wanted["metadata"].get("ownerReferences", ())), {"kind": "", "name": ""})
        obj = self._cache.get(owner["kind"], names.namespace_of(wanted), owner["name"])
        if obj is None:
            return
        note = f"{wanted['kind']} {names.name_of(wanted)} was {'gone' if is_gone else 'changed'} and is put right"
        await self._events.post(Announce(obj, Happening.DRIFT_REPAIRED, note), self._now())

    async def _create_token(self, module: Json) -> int:
        key, now = module["metadata"]["uid"], self._now()
        last = self._tokens.get(key)
        if last is not None and (now - last).total_seconds() < TOKEN_CHECK_SECONDS:
            return 0
        self._tokens[key] = now
        try:
            await self._api.create(gateway.token_secret(module, secrets.token_urlsafe(32)))
        except Conflict:
            return 0
        return 1

    async def _delete(self, obj: Json) -> int:
        ref = ref_of(obj)
        if self._cache.get(*ref) is None:
            return 0
        self._applied.forget(obj)
        await self._api.delete(*ref)
        return 0  # Its deletion is seen by the watch, which wakes us.

    async def _read_verdict(self, action: ReadVerdict) -> int:
        namespace = names.namespace_of(action.module)
        try:
            text = await self._api.log(namespace, action.pod, "describe")
        except Missing:
            return 0
        verdict = parse_verdict(text)
        if verdict is None and _NO_LOG in text:
            raise ApiFailure(0, text.strip())
        verdict = verdict or _NO_VERDICT
        stored = self._cache.get(
            "ControllerRevision", namespace, names.revision_name(names.name_of(action.module), action.number)
        )
        if stored is None:
            return 0
        described = replace(revision.read_revision(stored), verdict=verdict)
        changes = await self._ensure(revision.controller_revision(action.module, described))
        if verdict.is_valid:
            note = f"Revision {action.number} may follow definition {verdict.base} of the store"
            await self._events.post(Announce(action.module, Happening.DEFINITION_VALID, note), self._now())
        return changes

    async def _set_finalizer(self, action: SetFinalizer) -> None:
        metadata = {**_identity(action.obj), "finalizers": [names.FINALIZER] if action.is_wanted else []}
        answer = await self._api.apply(
            {"apiVersion": names.API_VERSION, "kind": action.obj["kind"], "metadata": metadata}
        )
        self._cache.put(answer)


def _identity(obj: Json) -> Json:
    """The uid makes sure that an object which is gone does not come back as an empty one."""
    metadata = obj["metadata"]
    return {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
