"""What a token may do: roles, modules, and how much a second; and a line of audit for each change.

A request's role follows from its method and path alone, before anything of it is read.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemill.gateway.faults import HttpRefusal

READ, APPEND, OPERATE = "read", "append", "operate"
ROLES = (READ, APPEND, OPERATE)
_READING_POSTS = frozenset({"select", "selectOne", "selectMany", "page", "diff", "invoke", "wait"})
_MODULES = ("api", "v1", "modules")
_OF_THE_STORE = ("/api/v1/graphs", "/api/v1/datasets")
_TOKENS_MAX = 1_000
_DIGITS = 12
_log = logging.getLogger("tidemill.audit")
_log.setLevel(logging.INFO)  # its lines are wanted wherever anything is logged


@dataclass(frozen=True)
class Access:
    """The rights of one token, or of everybody where there are none; `who` names it without telling it."""

    who: str = "anyone"
    roles: frozenset[str] = frozenset(ROLES)
    modules: frozenset[str] | None = None

    @property
    def signature(self) -> str:
        """How changes are signed that come from it."""
        return f"{self.who}, through the gateway"

    def may_see(self, module: str) -> bool:
        """Whether the token is of this module; one without a list of modules is of all."""
        return self.modules is None or module in self.modules


def name_of(token: bytes) -> str:
    """The beginning of a token's SHA-256, for logs."""
    return hashlib.sha256(token).hexdigest()[:_DIGITS]


def role_of(method: str, path: str) -> str:
    """The role that a request needs; what is not known changes something."""
    last = path.rpartition("/")[2]
    if method in ("GET", "HEAD", "OPTIONS") or (method == "POST" and last in _READING_POSTS):
        return READ
    return APPEND if method == "POST" and last in ("append", "producers") else OPERATE


def module_of(path: str) -> str | None:
    """The module that a path names."""
    parts = path.split("/")
    return parts[4] if tuple(parts[1:4]) == _MODULES and len(parts) > 4 else None


def check_access(access: Access, method: str, path: str) -> None:
    """Refuse what a token may not do.

    Raises:
        HttpRefusal: 403, says which role or module it has not.
    """
    role, module = role_of(method, path), module_of(path)
    if role not in access.roles:
        raise _forbidden(f"This token may {' and '.join(sorted(access.roles))}; this request needs the role {role}")
    if module is not None and not access.may_see(module):
        raise _forbidden("This token is of other modules")
    if path.startswith(_OF_THE_STORE) and access.modules is not None:
        raise _forbidden("Graphs and Datasets are of no module, and this token is of some")
    if path == "/metrics" and access.modules is not None:
        raise _forbidden("Metrics are of all modules, and this token is of some")


def _forbidden(text: str) -> HttpRefusal:
    return HttpRefusal(403, "Forbidden", f"{text}. Ask whoever runs the gateway for another token.")


# --- how much a second -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """How much each token may do in a second, after a burst of a second's worth; 0 is without bound."""

    requests: float = 0
    bytes: float = 0


class RateLimits:
    """What each token has left; used in one event loop. A body larger than what is left is taken, and waited for."""

    def __init__(self, rates: Rates, now: Callable[[], float]) -> None:
        self._rates = rates
        self._now = now
        self._left: OrderedDict[str, tuple[float, float, float]] = OrderedDict()

    def take_request(self, who: str) -> None:
        """One request.

        Raises:
            HttpRefusal: 429, says when to try again.
        """
        requests, size, _ = self._filled(who)
        wait = 0.0
        if self._rates.requests and requests < 1:
            wait = (1 - requests) / self._rates.requests
        if self._rates.bytes and size <= 0:
            wait = max(wait, (1 - size) / self._rates.bytes)
        if wait:
            text = "This token asks for more than its share of a second; nothing was done."
            raise HttpRefusal(429, "TooManyRequests", text, {"retry-after": str(math.ceil(wait))})
        self._keep(who, requests - 1, size)

    def take_bytes(self, who: str, size: int) -> None:
        """Bytes of a body; what is too much is owed, and refuses the requests after it."""
        requests, left, _ = self._filled(who)
        self._keep(who, requests, left - size)

    def _filled(self, who: str) -> tuple[float, float, float]:
        rates, now = self._rates, self._now()
        burst = max(1.0, rates.requests)
        requests, size, at = self._left.get(who, (burst, rates.bytes, now))
        since = max(0.0, now - at)
        return min(burst, requests + since * rates.requests), min(rates.bytes, size + since * rates.bytes), now

    def _keep(self, who: str, requests: float, size: float) -> None:
        self._left[who] = (requests, size, self._now())
        self._left.move_to_end(who)
        while len(self._left) > _TOKENS_MAX:
            self._left.popitem(last=False)


# --- audit -----------------------------------------------------------------------------------------------------------


def audit(who: str, client: str, method: str, path: str, status: int, facts: Mapping[str, Any]) -> None:
    """One line of JSON for a change, done or refused; appends are counted by the metrics instead."""
    line = {"audit": who, "from": client, "method": method, "path": path[:500], "status": status, **facts}
    _log.info("%s", msgspec.json.encode(line, enc_hook=str).decode())
