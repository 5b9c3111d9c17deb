"""Spans to a collector by OTLP over HTTP, by OpenTelemetry's SDK (extra `otlp`), whose variables hold here, too."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidemill.journal.otlp_collector import BoundedSession, TroubleFilter
from tidemill.journal.spans import TracedSpan
from tidemill.values.data import with_utf8

# They warn of each header that is none, and show it: whoever reaches a gateway could fill its log, with texts of their
# own; and OTEL_EXPORTER_OTLP_HEADERS holds a collector's key.
for _name in ("opentelemetry.trace", "opentelemetry.util.re"):
    logging.getLogger(_name).setLevel(logging.ERROR)

TEXT_MAX: Final = 4_096
"""Characters of a text in a span, such as a message or a stack trace."""

CLOSE_MS: Final = 2_000
"""How long the end of a process waits for a collector."""

_CREDENTIALS: Final = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
"""Variables that name a session of somebody else, which then sends."""

_KINDS: Final = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER}


class _TraceIds:
    """Random ones, but where a span says of which trace it is: that is a hash, and as good as random."""

    def __init__(self) -> None:
        self.wanted = threading.local()
        self._random = RandomIdGenerator()

    def generate_span_id(self) -> int:
        return int(self._random.generate_span_id())

    def generate_trace_id(self) -> int:
        return getattr(self.wanted, "trace_id", 0) or int(self._random.generate_trace_id())

    def is_trace_id_random(self) -> bool:
        return True


class OtlpTracer:
    """Puts spans into the SDK's queue of 2,048 (OTEL_BSP_MAX_QUEUE_SIZE), which a thread of its own sends; of more it
    drops some.
    """

    def __init__(self) -> None:
        attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in attributes
        self._ids = _TraceIds()
        self._provider = TracerProvider(
            resource=Resource.create({} if is_named else {"service.name": "tidemill"}),
            id_generator=self._ids,
            span_limits=SpanLimits(max_attribute_length=TEXT_MAX),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(session=None if any(map(os.environ.get, _CREDENTIALS)) else BoundedSession())
        TroubleFilter.put_on(logging.getLogger(OTLPSpanExporter.__module__))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tidemill")

    def record(self, span: TracedSpan) -> None:
        """Put it into the queue, with its parts."""
        self._ids.wanted.trace_id = span.trace_id
        try:
            self._add(span, TraceContextTextMapPropagator().extract(span.asked_by, Context()))
        finally:
            self._ids.wanted.trace_id = 0

    def _add(self, span: TracedSpan, context: Context) -> None:
        begin, end = round(span.begin_ms * 1e6), round(span.end_ms * 1e6)
        told = _stored(span.attributes)
        made = self._tracer.start_span(_cut(span.name), context, _KINDS[span.kind], told, start_time=begin)
        if span.error:
            made.set_status(Status(StatusCode.ERROR, _cut(span.error)))
        if span.stack:
            told = _stored({"exception.message": span.error, "exception.stacktrace": span.stack})
            made.add_event("exception", told, timestamp=end)
        inside = set_span_in_context(made, context)
        for part in span.children:
            self._add(part, inside)
        made.end(end)

    def close(self) -> None:
        """Send what waits, for two seconds at most."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_MS / 1000)


def _stored(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Attributes that can be sent. The SDK would cut them, too, but with a line in the log for each."""
    return {name: _cut(value) if isinstance(value, str) else value for name, value in attributes.items()}


def _cut(text: str) -> str:
    """A text that can be sent: one with a lone surrogate would lose all spans that are sent with it."""
    return with_utf8(text[:TEXT_MAX])[:TEXT_MAX]
