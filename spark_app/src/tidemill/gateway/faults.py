"""Errors as HTTP: a status for each class of `values.errors`, and one JSON body for everything bad."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.values import errors
from tidemill.values.errors import BadInput, DefinitionError, TidemillError
from tidemill.values.json import jsonable

RETRY_SECONDS = 1
_log = logging.getLogger(__name__)

_STATUS: Mapping[str, int] = {
    "UnknownName": 404,
    "ModuleExists": 409,
    "Managed": 409,
    "MirrorBroken": 409,
    "SnapshotExpired": 410,
    "OutcomeUnknown": 504,
}
"""By `code`; those that are not here go by their family."""


_HIDDEN: Mapping[str, str] = {
    "CorruptState": "Stored data is missing or is not what was written; the gateway's log says which.",
    "InvariantViolation": "The gateway failed in a way that it does not know; its log says more.",
    "MirrorBroken": "What it reads of another module is gone, or changed: update this module, to mirror what is there.",
    "NewerFormat": "The store was written by a newer Tidemill; the gateway's log says more.",
    "StoreRefused": "A store is refused; `tidemill status` says more.",
    "StoreUnavailable": "The store does not answer, or refuses; the gateway's log says more. Nothing was done.",
}
"""What clients read instead of texts that name objects, folders and hosts of the store."""
_DELETED = "It was deleted: its module was destroyed, or an update deleted it."


class HttpRefusal(BadInput):
    """A request that HTTP itself refuses: no token, a wrong type of body, too large, too late."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


def malformed(message: str) -> HttpRefusal:
    """The request is not of the documented form."""
    return HttpRefusal(400, "BadInput", message)


def unfitting(message: str) -> HttpRefusal:
    """The request is of the documented form, and cannot be carried out."""
    return HttpRefusal(422, "BadInput", message)


def status_of(error: TidemillError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, HttpRefusal):
        return error.status
    if error.code in _STATUS:
        return _STATUS[error.code]
    if isinstance(error, BadInput):
        return 422
    return 503 if isinstance(error, (errors.RetryableError, errors.Fenced, errors.StoreRestored)) else 500


def headers_of(error: TidemillError) -> dict[str, str]:
    """The headers that go with an error: 503 says when to try again."""
    if isinstance(error, HttpRefusal):
        return error.headers
    return {"retry-after": str(RETRY_SECONDS)} if status_of(error) == 503 else {}


def text_of(error: TidemillError) -> str:
    """What clients read of an error: nothing that names objects, folders and hosts of the store."""
    return _DELETED if isinstance(error, errors.Deleted) else _HIDDEN.get(error.code, str(error))


def told_failure(found: dict[str, Any]) -> dict[str, Any]:
    """A status, or a line of a log, as clients read it. Where an attempt failed because what is mirrored changed, its
    own text names another module and its store.
    """
    failure = found.get("failure")
    if not failure or failure["code"] != errors.SchemaOutdated.code:
        return found
    return {**found, "failure": {**failure, **dict.fromkeys(_QUOTED & failure.keys(), ""), "message": _OUTDATED}}


_OUTDATED = "What it reads is otherwise by now, of this module or of one that it mirrors; `tidemill status` says more."
_QUOTED = frozenset({"trace", "sample"})


def mirror_text_of(error: TidemillError) -> str:
    """What clients read where a depot that a topology mirrors cannot be read."""
    return f"A depot of another module, which it mirrors, cannot be read. {text_of(error)}"


def body_of(error: TidemillError) -> bytes:
    """`{"error": {"code", "message", …}}`; the facts of the error's context ride along."""
    body: dict[str, Any] = {"code": error.code, "message": text_of(error)}
    if isinstance(error, DefinitionError):
        body["faults"] = [vars(fault) for fault in error.faults]
    for name in ("index", "at"):
        if isinstance(error.context.get(name), (int, str)):
            body[name] = error.context[name]
    return msgspec.json.encode({"error": jsonable(body)})


def unexpected() -> TidemillError:
    """An unforeseen exception, as an error that gives clients no details; the log has them."""
    return errors.InvariantViolation(_HIDDEN["InvariantViolation"])


def log_failure(error: TidemillError) -> None:
    """Leave a trace of what a request met through no fault of its own."""
    _log.error("%s: %s", error.code, error, exc_info=error)
