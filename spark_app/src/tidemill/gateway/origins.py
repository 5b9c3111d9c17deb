"""Without a token, a gateway answers this machine's own programs only, and no web page that a browser has open here.

A page of anybody can send requests to loopback, and with a name of its own that leads to 127.0.0.1 it can read the
answers. Such requests have a foreign `Origin` or `Host`, or a type of body that browsers send without asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.settings import is_loopback

_WRITING = frozenset({"POST", "PATCH", "PUT", "DELETE"})


def check_local(method: str, headers: Mapping[bytes, bytes]) -> None:
    """Refuse what did not come from a program of this machine.

    Raises:
        HttpRefusal: 403, the host or the origin is not this machine; 415, a body says no type.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if not _is_here(f"//{host}"):
        raise _foreign(f"The host {host[:100]!r} is not this machine")
    origin = headers.get(b"origin")
    if origin is not None and not _is_here(origin.decode("latin-1")):
        raise _foreign("A page of another origin asks")
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    if method in _WRITING and has_body and b"content-type" not in headers:
        raise HttpRefusal(415, "UnsupportedMediaType", "Say what the body is: Content-Type: application/json.")


def _is_here(url: str) -> bool:
    try:
        name = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return is_loopback(name)


def _foreign(text: str) -> HttpRefusal:
    return HttpRefusal(403, "Forbidden", f"{text}; without a token the gateway answers loopback names only.")
