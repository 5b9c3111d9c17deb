"""The settings with which a gateway starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from tidemill.gateway.access import Rates
from tidemill.gateway.connections import ConnectionBounds
from tidemill.gateway.cors import checked_origins
from tidemill.gateway.tokens import Tokens
from tidemill.values.errors import BadInput

BODY_BYTES_MAX = 32 * 1024 * 1024
SECONDS_MAX = 30.0
IN_FLIGHT_MAX = 512
WAITING_MAX = 256
"""Of the requests under way: who waits for a microbatch leaves places for those who append and select."""

QUERIES_MAX = 8
"""Of the threads: queries leave others to selects, and their megabytes have a sum."""

THREADS = 16


@dataclass(frozen=True)
class GatewaySettings:
    """`module` restricts the gateway to one module. Without `tokens` everybody who reaches the port may do everything.

    Bounds: bytes of one body, bytes of all bodies under way, seconds of one request, requests under way, those of
    them that wait for records to be processed, queries at once, threads;
    those of connections follow from the process where none are given. `rates` bounds each token of its own.
    Pages of `cors_origins` may use the API (`gateway.cors`).
    """

    module: str | None = None
    tokens: Tokens | None = None
    body_bytes_max: int = BODY_BYTES_MAX
    seconds_max: float = SECONDS_MAX
    in_flight_max: int = IN_FLIGHT_MAX
    waiting_max: int = WAITING_MAX
    in_flight_bytes_max: int = 16 * BODY_BYTES_MAX
    queries_max: int = QUERIES_MAX
    threads: int = THREADS
    has_open_metrics: bool = False
    connection_bounds: ConnectionBounds | None = None
    rates: Rates = Rates()
    cors_origins: frozenset[str] = frozenset()


def check_exposure(host: str, tokens: Tokens | None) -> None:
    """Refuse to serve without a token where others than this machine can reach the port.

    Raises:
        BadInput: name a token, or bind to loopback.
    """
    if tokens is None and not is_loopback(host):
        raise BadInput(
            f"Without a token the gateway serves loopback only, not {host}: "
            "name a file with --token-file or TIDEMILL_TOKEN_FILE, or bind to 127.0.0.1."
        )


def check_origins(settings: GatewaySettings) -> None:
    """Refuse pages of other origins where whoever reaches the port may do everything.

    Raises:
        BadInput: name a token; or one of them is no origin.
    """
    checked_origins(settings.cors_origins)
    if settings.cors_origins and settings.tokens is None:
        raise BadInput(
            "Pages of other origins may use a gateway with tokens only: name a file with --token-file or "
            "TIDEMILL_TOKEN_FILE, or leave --cors-origin out."
        )


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach `host`: "localhost", or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
