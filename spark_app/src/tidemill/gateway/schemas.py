"""The OpenAPI document's parts that are not Python types: bodies of several formats, paths as JSON, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidemill.clients.module_history import KINDS
from tidemill.clients.status import TopologyStatus
from tidemill.gateway.formats import ARROW, JSON, MSGPACK, NDJSON

Schema = dict[str, Any]
SVG = "image/svg+xml"

ANYTHING: Schema = {"description": "Any JSON value."}
BINARY: Schema = {"type": "string", "format": "binary"}
KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-~]+$"}
SEQUENCE: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}

ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "Stable; what programs compare."},
                "message": {"type": "string", "description": "A sentence for people."},
                "index": {"type": "integer", "description": "Which record of an append is meant."},
                "at": {"type": "string", "description": "Where in a path."},
            },
        }
    },
}

RECORDS: Schema = {
    "description": "Exactly one of the two.",
    "examples": [{"record": ["ann", "/home"]}, {"records": [["ann", "/home"], ["bob", "/docs"]]}],
    "oneOf": [
        {
            "type": "object",
            "required": ["record"],
            "properties": {"record": ANYTHING},
            "additionalProperties": False,
        },
        {
            "type": "object",
            "required": ["records"],
            "properties": {"records": {"type": "array", "items": ANYTHING}},
            "additionalProperties": False,
        },
    ],
}

_SELECTED: Schema = {
    "path": {
        "description": 'Navigators: a key, or a list such as ["must", "a"] or ["sortedMapRange", 1, 9].',
        "type": "array",
        "items": {"anyOf": [{"type": ["string", "number", "boolean"]}, {"type": "array", "minItems": 1}]},
        "default": [],
    },
    "pkey": {"description": "The key whose partition is asked; the path's first key if it is left out."},
    "maxStalenessMs": {"type": "number", "minimum": 0, "maximum": 86_400_000, "default": 0},
    "at": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**53 - 1, "description": "A pinned entry."},
}

SELECT: Schema = {
    "anyOf": [{"type": "object", "properties": _SELECTED, "additionalProperties": False}, _SELECTED["path"]],
    "examples": [{"path": ["ann", "/home"]}, {"path": ["ann", ["sortedMapRangeFrom", "/a", {"maxAmt": 10}]]}],
}

SELECT_MANY: Schema = {
    "type": "object",
    "examples": [{"paths": [["ann", "/home"], ["bob", "/docs"]]}],
    "required": ["paths"],
    "properties": {
        "paths": {"type": "array", "maxItems": 1_000, "items": _SELECTED["path"]},
        "maxStalenessMs": _SELECTED["maxStalenessMs"],
        "at": _SELECTED["at"],
    },
    "additionalProperties": False,
}

PAGE_ASKED: Schema = {
    "type": "object",
    "examples": [{"limit": 100}],
    "properties": {
        "path": {**_SELECTED["path"], "type": ["array", "null"], "default": None},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000},
        "after": {"type": ["string", "null"], "description": "The cursor of the page before.", "default": None},
        "at": _SELECTED["at"],
    },
    "additionalProperties": False,
}

PAGE: Schema = {
    "type": "object",
    "required": ["items", "after", "entry"],
    "properties": {
        "items": {"type": "array", "description": "[key, value], or [key, what the path navigates to].", "items": {}},
        "after": {"type": ["string", "null"], "description": "The cursor of the next page, null at the end."},
        "entry": {"type": "integer", "description": "The entry of the commit log that all pages of a walk are of."},
    },
}

_WHOLE: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}

DIFF_ASKED: Schema = {
    "type": "object",
    "required": ["before", "after"],
    "properties": {
        "before": {**_WHOLE, "description": "A microbatch ID; 0 is the state before the first."},
        "after": {**_WHOLE, "description": "Another one."},
        "path": {**_SELECTED["path"], "type": ["array", "null"], "default": None},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000},
        "cursor": {"type": ["string", "null"], "description": "The `after` of the page before.", "default": None},
    },
    "additionalProperties": False,
}

DIFF: Schema = {
    "type": "object",
    "required": ["items", "after"],
    "properties": {
        "items": {
            "type": "array",
            "description": "[key, what the path found before, what it found after]; [] where the key was not there.",
            "items": {"type": "array", "items": {}},
        },
        "after": {"type": ["string", "null"], "description": "The cursor of the next page, null at the end."},
    },
}

SUBSCRIBE_QUERY: Schema = {
    "parameters": [
        {"name": "path", "in": "query", "schema": {"type": "string"}, "description": "A path as JSON; [] if left out."},
        {"name": "pkey", "in": "query", "schema": {"type": "string"}, "description": "The key of the partition, JSON."},
    ]
}

PATH_CHARS_MAX: Final = 2_000
"""Of a path in an address."""

NAVIGATORS_QUERY: Schema = {
    "parameters": [
        {
            "name": "path",
            "in": "query",
            "schema": {"type": "string", "maxLength": PATH_CHARS_MAX},
            "description": "A path as JSON.",
        }
    ]
}

HELD_ASKED: Schema = {
    "type": "object",
    "properties": {
        "after": {"type": "integer", "minimum": -1, "maximum": 2**53 - 1, "default": -1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 100},
    },
    "additionalProperties": False,
}

CHOSEN: Schema = {
    "type": "object",
    "properties": {
        "numbers": {
            "description": "Numbers of records; all that are there if it is left out.",
            "type": ["array", "null"],
            "items": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
            "maxItems": 100,
        }
    },
    "additionalProperties": False,
}

BARRIER: Schema = {"type": "string", "description": "What is waited for; sent back, it goes on waiting for the same."}

WAIT: Schema = {
    "type": "object",
    "properties": {
        "topology": {"type": ["string", "null"], "description": "All of the module's if it is left out."},
        "barrier": {**BARRIER, "type": ["string", "null"]},
        "timeoutMs": {"type": ["number", "null"], "minimum": 0, "maximum": 86_400_000},
    },
    "additionalProperties": False,
}

WAITED: Schema = {
    "type": "object",
    "required": ["processed", "barrier"],
    "properties": {"processed": {"type": "boolean"}, "barrier": BARRIER, "message": {"type": "string"}},
}

OPEN: Schema = {
    "type": "object",
    "required": ["producer"],
    "properties": {"producer": KEY},
    "additionalProperties": False,
}

OPENED: Schema = {
    "type": "object",
    "required": ["producer", "epoch", "sequence"],
    "properties": {"producer": KEY, "epoch": {"type": "integer", "minimum": 1}, "sequence": SEQUENCE},
}

SETTINGS: Schema = {
    "type": "object",
    "properties": {
        "topology": {"type": ["string", "null"], "minLength": 1},
        "depot": {"type": ["string", "null"], "minLength": 1},
        "pstate": {"type": ["string", "null"], "minLength": 1},
        "set": {"type": "object", "additionalProperties": ANYTHING},
        "unset": {"type": "array", "maxItems": 100, "items": {"type": "string"}},
    },
    "additionalProperties": False,
}

_COMPONENTS = msgspec.json.schema_components((TopologyStatus,), ref_template="#/components/schemas/{name}")
STATUS: Schema = _COMPONENTS[0][0]
COMPONENTS: dict[str, Schema] = {"Error": ERROR, **_COMPONENTS[1]}
"""What the schemas above and below refer to."""

COMPONENTS["TopologyStatus"]["properties"]["waiting"] = {"type": "integer", "description": "The sum of `lag`."}

APPENDED: Schema = {
    "type": "object",
    "required": ["appended", "partitions"],
    "properties": {
        "appended": {"type": "integer", "description": "How many records are durable now."},
        "partitions": {
            "description": "[partition, start offset, end offset] of these records.",
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
        },
        "processed": {"type": "boolean", "description": "With wait=processed: whether they were processed in time."},
        "message": {"type": "string", "description": "Why they were not, where that is known."},
    },
}


HISTORY_LINES_MAX: Final = 200
"""Lines of a module's log in one answer."""

HISTORY: Schema = {
    "type": "object",
    "required": ["lines", "before"],
    "properties": {
        "lines": {"type": "array", "items": ANYTHING},
        "before": {"type": ["string", "null"], "description": "Sent back, it gives the lines behind these."},
    },
}

HISTORY_QUERY: list[Schema] = [
    {"name": name, "in": "query", "required": False, "schema": schema}
    for name, schema in (
        ("before", {"type": "string"}),
        ("limit", {"type": "integer", "minimum": 1, "maximum": HISTORY_LINES_MAX}),
        ("kind", {"type": "string", "enum": [*KINDS]}),
        ("topology", {"type": "string"}),
    )
]


def body(schema: Schema, **others: Schema) -> Schema:
    """A request body that is JSON or MessagePack of the same shape, and other types."""
    content = {JSON: {"schema": schema}, MSGPACK: {"schema": BINARY}}
    content |= {kind: {"schema": other} for kind, other in others.items()}
    return {"requestBody": {"required": True, "content": content}}


def records_body() -> Schema:
    """The body of an append."""
    return body(RECORDS, **{NDJSON: {"type": "string"}, ARROW: BINARY})


def answers(schema: Schema, text: str = "Done.") -> dict[int | str, dict[str, Any]]:
    """The answers of an operation: what it gives, and errors."""
    found: dict[int | str, dict[str, Any]] = {
        200: {"description": text, "content": {JSON: {"schema": schema}, MSGPACK: {"schema": BINARY}}}
    }
    for status, meaning in _ERRORS.items():
        found[status] = _error(meaning)
    return found


_ERRORS: Mapping[int, str] = {
    400: "The request is not of the documented form.",
    401: "No token, or a wrong one.",
    403: "The token may not do this, or not with this module.",
    404: "There is no such module, depot, PState, query or topology.",
    405: "This path has no such method.",
    406: "No type of answer that the client accepts.",
    409: "Something else decides this.",
    410: "The pinned entry is no longer kept.",
    408: "The request came too slowly.",
    413: "The body is too large.",
    415: "The body has a type that is not read here.",
    429: "The token asks too much in a second; try again after Retry-After.",
    431: "The headers are too large.",
    422: "Understood, but it does not fit the module.",
    500: "A fault of the module's code, of the stored data or of Tidemill.",
    503: "Try again after Retry-After; nothing was done.",
    504: "Too late; the error says whether something may have been done.",
}


def probe_answers() -> dict[int | str, dict[str, Any]]:
    """The answers of `/readyz` for the OpenAPI document, by status."""
    return _text_answers("Ready.", (503, 504))


def event_answers() -> dict[int | str, dict[str, Any]]:
    """The answers of a subscription for the OpenAPI document, by status."""
    text = "Server-sent events: `resync` with the value, `diff` with what changed in it, `end` with a reason."
    found = answers(ANYTHING)
    found[200] = {"description": text, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    return found


def picture_answers() -> dict[int | str, dict[str, Any]]:
    """The answers of a picture for the OpenAPI document, by status."""
    found = answers(ANYTHING)
    found[200] = {"description": "A picture.", "content": {SVG: {"schema": {"type": "string"}}}}
    return found


def metrics_answers() -> dict[int | str, dict[str, Any]]:
    """The answers of `/metrics` for the OpenAPI document, by status."""
    return _text_answers("Metrics in Prometheus' text format.", (401, 403, 429, 503, 504))


def _text_answers(text: str, statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {200: {"description": text, "content": {"text/plain": {"schema": {}}}}}
    return found | {status: _error(_ERRORS[status]) for status in statuses}


def _error(text: str) -> dict[str, Any]:
    return {"description": text, "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
