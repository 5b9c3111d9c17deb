"""Turning traces on for a process, where its environment names a collector of OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.journal.collector_address import ENDPOINTS, shown
from tidemill.journal.spans import Tracer, handing_to
from tidemill.values.errors import BadInput, message_of
from tidemill.values.extras import needing


@contextmanager
def tracing() -> Iterator[str]:
    """Trace while in the block if the environment names a collector. Gives a sentence about it, empty without one.

    Where the packages for it are not installed, or its variables do not fit each other, the process runs without: a
    cluster may name a collector to all.
    """
    named = next(filter(None, map(os.environ.get, ENDPOINTS)), "")
    if not named or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield ""
        return
    url = shown(named)
    try:
        made = _made()
    except BadInput as error:
        yield f"No traces go to {url}. {error}"
        return
    with handing_to(made):
        yield f"Traces go to {url}."


def _made() -> Tracer:
    """Raises BadInput: packages are not there, or OpenTelemetry does not take one of its variables."""
    with needing("otlp"):
        from tidemill.journal.otlp import OtlpTracer  # who does not trace does without the packages
    try:
        return OtlpTracer()
    except Exception as error:
        text = f"OpenTelemetry refuses its variables (OTEL_…): {type(error).__name__}: {message_of(error)}"
        raise BadInput(text) from error
