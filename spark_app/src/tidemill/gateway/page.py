"""The web page: its files, which hold no data and are the same for everybody, and how a browser signs in.

A browser keeps its token in a cookie that no script can read and no other site can use, and gateways keep nothing: a
token that is taken away ends all its sessions. The page asks for everything by the same routes as other clients do.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.gateway.access import Access
from tidemill.gateway.compression import HEADERS, VARY, takes_gzip
from tidemill.gateway.exchange import body_of, gateway_of, ticket_of
from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.formats import JSON, converted, decoded
from tidemill.gateway.guard import ACCESS, FILES_PATH, SESSION_PATH
from tidemill.gateway.sessions import COOKIE, check_sent_by_page, cookie_token, cookie_value

FILES: Final = Path(__file__).parent / "assets"
SESSION_SECONDS: Final = 12 * 3600
TOKEN_BYTES_MAX: Final = 4_096
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}

routes = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class PageFile:
    """One file of the page as it is sent."""

    content: bytes
    packed: bytes
    media_type: str
    tag: str

    def sent(self, accept: str | None) -> tuple[bytes, dict[str, str]]:
        """The file as it is sent to who takes these encodings; each form has a tag of its own."""
        if len(self.packed) < len(self.content) and takes_gzip(accept):
            return self.packed, {**VARY, **HEADERS, "etag": f'"{self.tag}-gz"'}
        return self.content, {**VARY, "etag": f'"{self.tag}"'}


@cache
def page_files() -> dict[str, PageFile]:
    """The files of the page by their path below its folder."""
    found = {}
    for file in sorted(path for path in FILES.rglob("*") if path.is_file()):
        content = file.read_bytes()
        kind = "text/javascript" if file.suffix == ".js" else mimetypes.guess_type(file.name)[0] or "text/plain"
        tag, packed = hashlib.sha256(content).hexdigest()[:16], gzip.compress(content, mtime=0)
        found[file.relative_to(FILES).as_posix()] = PageFile(content, packed, kind, tag)
    return found


@routes.get("/")
async def page(request: Request) -> Response:
    """The page; which view it shows stands behind the # of its address, which the server never sees."""
    return _sent(request, "index.html")


@routes.get(FILES_PATH + "{name:path}")
async def page_file(request: Request, name: str) -> Response:
    """A file of the page."""
    return _sent(request, name)


def _sent(request: Request, name: str) -> Response:
    file = page_files().get(name)
    if file is None:
        raise HttpRefusal(404, "NotFound", f"The page has no file {name[:200]!r}.")
    content, headers = file.sent(request.headers.get("accept-encoding"))
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers={**_HEADERS, **headers})
    return Response(content, headers={**_HEADERS, **headers}, media_type=file.media_type)


# --- signing in ------------------------------------------------------------------------------------------------------


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a sign-in."""

    token: str


@routes.get(SESSION_PATH)
async def session(request: Request) -> Response:
    """What whoever asks may do: roles, modules (null: all), `has_graphs`. 401 where a token is needed first."""
    tokens = gateway_of(request).settings.tokens
    access = Access() if tokens is None else tokens.access(cookie_token(dict(request.scope["headers"])))
    if access is None:
        raise _unknown()
    return Response(msgspec.json.encode(_shown(request, access)), media_type=JSON)


@routes.post(SESSION_PATH)
async def sign_in(request: Request) -> Response:
    """Keep a token in a cookie for the page; no other site may sign a browser in."""
    check_sent_by_page(request.method, dict(request.scope["headers"]))
    asked = converted(decoded(await body_of(request, TOKEN_BYTES_MAX), JSON, ticket_of(request).grow), SignIn)
    tokens = gateway_of(request).settings.tokens
    given = asked.token.strip().encode()
    access = Access() if tokens is None else tokens.access(given)
    if access is None:
        raise _unknown()
    request.scope[ACCESS] = access  # for the line of audit
    answer = Response(msgspec.json.encode(_shown(request, access)), media_type=JSON)
    _set(answer, request, cookie_value(given), SESSION_SECONDS)
    return answer


@routes.delete(SESSION_PATH)
async def sign_out(request: Request) -> Response:
    """Forget the token."""
    check_sent_by_page(request.method, dict(request.scope["headers"]))
    answer = Response(status_code=204)
    _set(answer, request, "", 0)
    return answer


def _shown(request: Request, access: Access) -> dict[str, Any]:
    gateway = gateway_of(request)
    modules = None if access.modules is None else sorted(access.modules)
    return {
        "version": version("tidemill"),
        "needs_token": gateway.settings.tokens is not None,
        "has_graphs": modules is None and gateway.modules.only is None,
        "who": access.who,
        "roles": sorted(access.roles),
        "modules": modules,
    }


def _set(answer: Response, request: Request, value: str, seconds: int) -> None:
    is_secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    answer.set_cookie(COOKIE, value, max_age=seconds, httponly=True, samesite="strict", secure=is_secure)


def _unknown() -> HttpRefusal:
    return HttpRefusal(401, "Unauthorized", "The gateway does not know this token.")
