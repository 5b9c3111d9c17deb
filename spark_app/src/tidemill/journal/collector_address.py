"""Where the environment says that a collector of traces is, and what of that may be told."""

from __future__ import annotations

from typing import Final

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's variables that name a collector; one of them turns tracing on."""


def shown(url: str) -> str:
    """The address without what may be secret in it: a password before the host, a key behind the path."""
    scheme, mark, rest = url.partition("://")
    place = rest.partition("?")[0].partition("#")[0]
    host, slash, path = place.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else "the collector that is named"
