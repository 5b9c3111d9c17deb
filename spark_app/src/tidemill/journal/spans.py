"""Spans of what this process does, for a collector of OpenTelemetry; where the environment names none, nothing.

`journal.tracing` turns them on for a process. Who has something to tell asks `tracer()`, which is None else: it costs a
look at a variable. Nothing here waits for a collector.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True, kw_only=True)
class TracedSpan:
    """Something that was done or, if `error` says why, failed; times are milliseconds since 1970.

    `children` are its parts, `stack` the stack trace of its error. `trace_id` is that of its trace, 0 for a new one;
    `asked_by` has the headers of W3C Trace Context (`traceparent`, `tracestate`) of who asked for it, and goes before.
    """

    name: str
    begin_ms: float = 0.0
    end_ms: float = 0.0
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    error: str = ""
    stack: str = ""
    kind: Literal["internal", "server"] = "internal"
    children: tuple[TracedSpan, ...] = ()
    trace_id: int = 0
    asked_by: Mapping[str, str] = field(default_factory=dict)


class Tracer(Protocol):
    """Where spans go."""

    def record(self, span: TracedSpan) -> None:
        """Hand in a span with its parts; returns at once, and drops it where too many wait."""

    def close(self) -> None:
        """Send what waits, for a short time."""


_current: list[Tracer] = []


def tracer() -> Tracer | None:
    """Where the spans of this process go; None where nobody wants them."""
    return _current[0] if _current else None


@contextmanager
def handing_to(wanted: Tracer) -> Iterator[None]:
    """Hand the spans of this process to a tracer while in the block, which is closed after it."""
    _current.insert(0, wanted)
    try:
        yield
    finally:
        _current.remove(wanted)
        wanted.close()


def own_headers() -> dict[str, str]:
    """The headers that name the span which this thread is in, for a request; empty where the program traces nothing."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(found)
    return found
