"""The cookie in which a browser keeps its token: no script can read it, and no other site can use it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final

from tidemill.gateway.faults import HttpRefusal

COOKIE: Final = "tidemill"
MARK: Final = "x-tidemill-page"
"""A header that a page of another site cannot send along without asking first, which is refused."""

_SAFE: Final = frozenset({"GET", "HEAD"})


def cookie_value(token: bytes) -> str:
    """The cookie of a token; tokens have characters that cookies have not."""
    return base64.urlsafe_b64encode(token).decode()


def cookie_token(headers: Mapping[bytes, bytes]) -> bytes:
    """The token of a browser that has signed in; empty where there is none."""
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
        return b"" if found is None else base64.urlsafe_b64decode(found.value)
    except (CookieError, binascii.Error, ValueError):
        return b""


def check_sent_by_page(method: str, headers: Mapping[bytes, bytes]) -> None:
    """Refuse a change that a cookie allows, and that another site may have asked for.

    Raises:
        HttpRefusal: 403, the page sends a header that is missing here.
    """
    if method not in _SAFE and MARK.encode() not in headers:
        raise HttpRefusal(403, "Forbidden", f"A request that a cookie signs sends the header {MARK}, too.")
