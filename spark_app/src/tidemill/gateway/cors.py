"""Pages of other origins that may use the API with a token (CORS); none by default, and never with a cookie.

A browser asks first (a preflight) before it sends a token for another origin. The answer names methods and headers, not
`X-Tidemill-Page`, and never allows credentials: so no page of another origin acts as somebody who signed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from tidemill.values.errors import BadInput

API: Final = "/api/v1/"
MAX_AGE_SECONDS: Final = 600
_ALLOWED: Final = {
    "access-control-allow-methods": "GET, POST, PATCH",
    "access-control-allow-headers": "accept, authorization, content-type, idempotency-key, idempotency-sequence",
    "access-control-max-age": str(MAX_AGE_SECONDS),
}
Headers = list[tuple[bytes, bytes]]


def checked_origins(given: Iterable[str]) -> frozenset[str]:
    """Origins as browsers send them.

    Raises:
        BadInput: one is no origin; `*` and `null` are none here.
    """
    return frozenset(_checked(origin) for origin in given)


def _checked(origin: str) -> str:
    try:
        parts = urlsplit(origin)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        parts, port = urlsplit(""), ""
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    if parts.scheme not in ("http", "https") or not parts.hostname or f"{parts.scheme}://{name}{port}" != origin:
        raise BadInput(
            f"{origin!r} is no origin: write it as browsers send it, in small letters and without a path, such as "
            "https://app.example.org or http://localhost:3000."
        )
    return origin


def origin_allowed(origins: frozenset[str], path: str, headers: Mapping[bytes, bytes]) -> str:
    """The origin that asks, where it may use the API; "" where none does, or another one."""
    given = headers.get(b"origin", b"").decode("latin-1")
    return given if given in origins and path.startswith(API) else ""


def is_preflight(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks what it may send."""
    return method == "OPTIONS" and b"access-control-request-method" in headers


def preflight_headers() -> Headers:
    """What it may send."""
    return [(name.encode(), value.encode()) for name, value in _ALLOWED.items()]


def answer_headers(origin: str) -> Headers:
    """What lets the page of an allowed origin read an answer; of others, only that answers differ by origin."""
    found = [(b"vary", b"origin")]
    if origin:
        found += [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"retry-after"),
        ]
    return found
