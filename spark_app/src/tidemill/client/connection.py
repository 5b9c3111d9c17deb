"""Requests to a gateway: kept-alive connections, retries of what is safe to repeat, and Tidemill's own errors."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx2 as httpx
import msgspec

from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.spans import own_headers
from tidemill.values import errors
from tidemill.values.call_checks import checked_name, checked_time
from tidemill.values.errors import BadInput, DefinitionError, OutcomeUnknown, StoreUnavailable, TidemillError
from tidemill.values.message_pack import pack, unpack

MSGPACK = "application/msgpack"
RETRY_SECONDS = 30.0
REQUEST_SECONDS = 35.0
"""More than a gateway's own bound, which says what became of an append."""

_CONNECTIONS_MAX = 64
_THREADS = 16
_T = TypeVar("_T")
_FIRST_PAUSE_MS = 50.0
_PAUSE_MS_MAX = 3_000.0
_RETRIED = frozenset({408, 429, 502, 503, 504})
_BEFORE_ANY_WORK = frozenset({"Busy", "TooManyRequests"})
"""What a gateway says of a request that it did not begin with: it has no place for it, or its token asks too much."""

_CLASSES: Mapping[str, type[TidemillError]] = {
    kind.code: kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TidemillError)
}


@dataclass(frozen=True)
class Request:
    """One request; `is_write` is whether a repeat needs a key, which `headers` then has. `is_once`: a repeat may get
    another answer, so it is sent again only while no gateway began with it.
    """

    method: str
    path: str
    body: bytes | None = None
    kind: str = MSGPACK
    headers: Mapping[str, str] | None = None
    params: Mapping[str, Any] | None = None
    is_write: bool = False
    is_once: bool = False


def check_url(url: str) -> None:
    """Refuse a text that is no URL of a gateway. Raises BadInput."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (TypeError, ValueError, AttributeError):
        is_url = False
    if not is_url:
        raise BadInput(f"The URL of a gateway is http://HOST:PORT or https://HOST, not {url!r}.")


class Connection:
    """The connections to one gateway; safe for several threads."""

    def __init__(
        self,
        url: str,
        token: str | None,
        retry_seconds: float,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_url(url)
        # Nothing is compressed: near a gateway that costs more time than it spares.
        known = {"accept": MSGPACK, "accept-encoding": "identity"}
        headers = known | ({"authorization": f"Bearer {token}"} if token else {})
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers=headers,
            timeout=httpx.Timeout(REQUEST_SECONDS, connect=5.0),
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=_CONNECTIONS_MAX),
            transport=transport,
            trust_env=False,
        )
        self.url = url
        self._retry_ms = 1000 * checked_time("retry_seconds", retry_seconds)
        self._clock = clock or SystemClock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidemill-client")
        self._is_closed = False

    def close(self) -> None:
        """Settle what is under way and close the connections."""
        self._is_closed = True
        self._threads.shutdown()
        self._http.close()

    def later(self, call: Callable[[], _T]) -> Future[_T]:
        """Call it in a thread of this connection, in the context of the caller. Raises BadInput if it is closed."""
        try:
            return self._threads.submit(copy_context().run, call)
        except RuntimeError as error:
            if not self._is_closed:
                raise
            raise self._closed() from error

    def _closed(self) -> BadInput:
        return BadInput(f"This client of {self.url} is closed; open a new one.")

    def send(self, request: Request) -> Any:
        """The answer; tried again while the gateway does not answer or says that it may.

        Raises:
            StoreUnavailable: nothing was done, and no time is left to try again.
            OutcomeUnknown: it is not known whether a write was done.
            TidemillError: as the library, by what the gateway says.
        """
        deadline = self._clock.monotonic_ms() + self._retry_ms
        pause_ms, is_unknown = _FIRST_PAUSE_MS, False
        while True:
            error, hint_ms, is_begun = self._tried(request)
            if not isinstance(error, TidemillError):
                return error
            is_unknown = is_unknown or isinstance(error, OutcomeUnknown)
            if not isinstance(error, (errors.RetryableError, OutcomeUnknown)):
                # Only these two say that the try before was not done either. Others do not: a token that was taken back
                # meanwhile, or so many appends under its name that nothing is known of this one any more.
                is_final = isinstance(error, (errors.RecordRefused, errors.KeyReused))
                raise error if is_final else _given_up(error, is_unknown)
            if request.is_once and is_begun:
                raise error
            pause = max(pause_ms * (0.5 + int.from_bytes(os.urandom(2), "big") / 2**17), hint_ms)
            if self._clock.monotonic_ms() + pause > deadline:
                raise _given_up(error, is_unknown)
            self._clock.wait(threading.Event(), pause)
            pause_ms = min(2 * pause_ms, _PAUSE_MS_MAX)

    def _tried(self, request: Request) -> tuple[Any, float, bool]:
        """The answer or an error, how long the gateway wants to be left alone, in milliseconds, and whether it may have
        begun with the request.
        """
        kind = {"content-type": request.kind} if request.body is not None else {}
        headers = {**own_headers(), **(request.headers or {}), **kind}
        try:
            found = self._http.request(
                request.method, request.path, content=request.body, headers=headers, params=request.params
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return StoreUnavailable(f"{self.url} does not answer: {error}"), 0.0, False
        except RuntimeError:  # what a closed httpx client raises
            if not self._is_closed:
                raise
            return self._closed(), 0.0, False
        except httpx.TransportError as error:
            text = f"{self.url} broke off: {type(error).__name__}: {error}"
            return (OutcomeUnknown(text) if request.is_write else StoreUnavailable(text)), 0.0, True
        if found.is_success:
            return self._answer(found, request.is_write), 0.0, True
        is_begun = _told(found.content).get("code") not in _BEFORE_ANY_WORK
        return error_of(found.status_code, found.content, request.is_write), _hint_ms(found.headers), is_begun

    def _answer(self, found: httpx.Response, is_write: bool) -> Any:
        """What a gateway answered, or an error: a proxy may show a page of its own, and do nothing."""
        kind = found.headers.get("content-type", "")
        if kind.startswith(MSGPACK):
            return unpack(found.content)
        text = f"{self.url} answered {found.status_code} as no gateway does, with {kind or 'no type'}:"
        return (OutcomeUnknown if is_write else BadInput)(f"{text} {found.content[:200]!r}")


def _hint_ms(headers: Mapping[str, str]) -> float:
    given = headers.get("retry-after", "")
    return min(1000.0 * int(given), _PAUSE_MS_MAX) / 4 if given.isdigit() else 0.0


def _given_up(error: TidemillError, is_unknown: bool) -> TidemillError:
    """What an earlier try left open stays open, whatever the last one said."""
    if is_unknown and not isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(f"{error} An earlier try may have been done.")
    return error


def error_of(status: int, content: bytes, is_write: bool) -> TidemillError:
    """The library's error for an answer of the gateway, or of a proxy in front of it."""
    given = _told(content)
    code, message = given.get("code", ""), given.get("message", f"The gateway answered {status}: {content[:200]!r}.")
    kind = _CLASSES.get(code)
    if kind is None:
        if status in _RETRIED:
            is_open = is_write and code not in _BEFORE_ANY_WORK | {"Timeout", "NotReady"}
            return OutcomeUnknown(message) if is_open else StoreUnavailable(message)
        kind = BadInput if status < 500 else TidemillError
    if issubclass(kind, DefinitionError):
        return kind(message)
    context = {name: given[name] for name in ("index", "at") if name in given}
    return kind(message, **context)


def _told(content: bytes) -> dict[str, Any]:
    """What a gateway says of an error; nothing where a proxy in front of it answered."""
    try:
        given = msgspec.json.decode(content)["error"]
        return {**given, "code": str(given["code"]), "message": str(given["message"])}
    except (ValueError, KeyError, TypeError):
        return {}


def packed(value: Any, what: str = "The request", refusal: type[BadInput] = BadInput) -> bytes:
    """A body of MessagePack. Raises `refusal`: `what` holds something that cannot be sent."""
    try:
        return pack(value)
    except UnicodeEncodeError as error:
        raise refusal(f"{what} holds a text with a lone surrogate, which has no UTF-8 form.") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise refusal(f"{what} holds what is no data: {error}.") from error


def in_url(kind: str, name: Any, safe: str = "") -> str:
    """The name of a `kind` as a part of a URL. Raises UnknownName: nothing can have such a name."""
    return quote(checked_name(kind, name), safe=safe)
