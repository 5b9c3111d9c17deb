"""Spans of microbatches and requests, as a collector gets them by OTLP over HTTP, and one that is away."""

from __future__ import annotations

import gzip
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from gateways import served
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import use_span
from starlette.testclient import TestClient
from waiting import eventually

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module, Path
from tidemill.client import Client
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.journal import otlp, tracing
from tidemill.journal.spans import TracedSpan, handing_to, own_headers, tracer
from tidemill.leader.attempt_spans import AttemptSpans

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""A traceparent as the W3C's document has it: trace, span, and that it is sampled."""


@dataclass
class Collector:
    """A receiver of OTLP over HTTP; `spans` are those of all requests, in the order in which they came."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    resources: list[Any] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)

    def named(self, name: str) -> list[Any]:
        return [span for span in list(self.spans) if span.name == name]

    def below(self, span: Any) -> list[Any]:
        return [part for part in self.spans if part.parent_span_id == span.span_id]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    made.answers.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.answers.wait(60)
            asked = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            if self.path == "/v1/traces":
                for group in ExportTraceServiceRequest.FromString(asked).resource_spans:
                    made.resources.append(group.resource)
                    made.spans += [span for scope in group.scope_spans for span in scope.spans]
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setattr(otlp, "CLOSE_MS", 60_000)  # it answers, and a machine may be slow
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


class Fragile(Module):
    """Counts numbers; its function raises as long as `is_broken`."""

    is_broken = False

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*numbers", Depot.random())
        mb = topologies.microbatch("add")
        mb.pstate("$$sum", int).global_().initial_value(0)
        (mb.source("*numbers").out("*m").explode_microbatch("*m").out("*n").each(checked, "*n").out("*c")
           .global_partition().agg("$$sum", Agg.sum("*c")))  # fmt: skip


def checked(number: int) -> int:
    if Fragile.is_broken:
        raise ValueError("the number is not liked")
    return number


@pytest.fixture
def broken() -> Iterator[None]:
    Fragile.is_broken = True
    yield
    Fragile.is_broken = False


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def added(cluster: InProcessCluster, *numbers: int) -> None:
    cluster.cluster_depot("Fragile", "*numbers").append_many(list(numbers))
    cluster.wait_until_processed("Fragile")


# --- microbatches ----------------------------------------------------------------------------------------------------


def test_a_microbatch_is_a_span_with_its_phases_when_a_collector_is_named(collector: Collector) -> None:
    with tracing.tracing() as told, InProcessCluster.create() as cluster:
        cluster.launch_module(Fragile(), LaunchConfig(2, 1))
        added(cluster, 1, 2, 3)
    assert told == f"Traces go to {collector.url}."
    [span] = collector.named("microbatch")

    assert attributes(span) == {
        "tidemill.module": "Fragile", "tidemill.topology": "add",
        "tidemill.microbatch.id": 1, "tidemill.microbatch.version": 1, "tidemill.microbatch.records": 3,
    }  # fmt: skip
    assert span.status.code != 2
    assert [part.name for part in sorted(collector.below(span), key=lambda part: part.start_time_unix_nano)] == [
        "prime", "process", "commit",
    ]  # fmt: skip
    for part in collector.below(span):
        assert part.trace_id == span.trace_id
        assert span.start_time_unix_nano <= part.start_time_unix_nano <= part.end_time_unix_nano
        assert part.end_time_unix_nano <= span.end_time_unix_nano
    names = [one.value.string_value for one in collector.resources[0].attributes if one.key == "service.name"]
    assert names == ["tidemill"]


@pytest.mark.usefixtures("broken")
def test_a_failed_attempt_is_a_span_with_its_error_when_the_microbatch_is_tried_again(collector: Collector) -> None:
    with tracing.tracing(), InProcessCluster.create() as cluster:
        cluster.launch_module(Fragile(), LaunchConfig(2, 1))
        cluster.cluster_depot("Fragile", "*numbers").append(7)
        eventually(lambda: collector.named("microbatch"), 60)
        Fragile.is_broken = False
        cluster.wait_until_processed("Fragile", timeout_millis=60_000)
    *failed, done = sorted(collector.named("microbatch"), key=lambda span: span.start_time_unix_nano)

    assert failed and done.status.code != 2
    for span in failed:
        told = attributes(span)
        assert (span.status.code, told["error.type"], told["tidemill.microbatch.id"]) == (2, "UserCodeFailed", 1)
        assert "the number is not liked" in span.status.message
        [event] = span.events
        assert 'raise ValueError("the number is not liked")' in attributes(event)["exception.stacktrace"]
        assert [part.name for part in collector.below(span) if part.status.code == 2] == ["process"]
        assert span.trace_id == done.trace_id
    versions = [attributes(span)["tidemill.microbatch.version"] for span in (*failed, done)]
    assert versions == list(range(1, len(versions) + 1))
    assert {part.name for part in collector.below(done)} == {"prime", "back-off", "process", "commit"}


STORED: Any = SimpleNamespace(module="M", topology_prefix=lambda topology: f"M/topologies/{topology}-1")


def machine(phase: str, known: tuple[int, int] = (0, 0), failure: Any = None, prime_ms: float = 0.0) -> Any:
    done = SimpleNamespace(microbatch_id=known[0], version=known[1], records=5, metrics={"prime_ms": prime_ms})
    entry = SimpleNamespace(last_id=known[0], last_version=known[1], committed=[done], attempt=None)
    return SimpleNamespace(entry=entry, failure=failure, phase=phase)


class Kept:
    """A tracer that keeps what it is given."""

    def __init__(self) -> None:
        self.spans: list[TracedSpan] = []
        self.is_closed = False

    def record(self, span: TracedSpan) -> None:
        self.spans.append(span)

    def close(self) -> None:
        self.is_closed = True


def test_prime_is_told_when_the_commit_before_began_the_microbatch() -> None:
    kept = Kept()
    spans = AttemptSpans(kept, STORED, "t")
    for phase, known, at, prime in (
        ("idle", (1, 1), 0, 0), ("prime", (1, 1), 10, 0), ("process", (1, 1), 15, 0), ("commit", (1, 1), 30, 0),
        ("process", (2, 1), 40, 5), ("commit", (2, 1), 60, 0), ("idle", (3, 1), 70, 8),
    ):  # fmt: skip
        spans.observe(machine(phase, known, prime_ms=prime), at, 1_000 + at)
    first, second = kept.spans

    assert [(part.name, part.begin_ms, part.end_ms) for part in first.children] == [
        ("prime", 1010, 1015), ("process", 1015, 1030), ("commit", 1030, 1040),
    ]  # fmt: skip
    assert [(part.name, part.begin_ms) for part in second.children] == [
        ("prime", 1032), ("process", 1040), ("commit", 1060),
    ]  # fmt: skip
    assert (second.begin_ms, second.end_ms) == (1032, 1070)
    assert len({first.trace_id, second.trace_id}) == 2


def test_nothing_is_told_when_an_attempt_changes_nothing_or_another_leader_committed() -> None:
    kept = Kept()
    spans = AttemptSpans(kept, STORED, "t")
    for phase, known in (("standby", (4, 1)), ("claiming", (9, 1)), ("idle", (9, 1)), ("process", (9, 1)),
                         ("commit", (9, 1)), ("idle", (9, 1)), ("process", (9, 1)), ("over", (9, 1))):  # fmt: skip
        spans.observe(machine(phase, known), 0, 0)

    assert kept.spans == []


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_request_goes_on_the_trace_of_its_sender_when_it_names_one(collector: Collector) -> None:
    with tracing.tracing(), InProcessCluster.create() as cluster:
        cluster.launch_module(Fragile(), LaunchConfig(2, 1))
        provider = TracerProvider()
        span = provider.get_tracer("till").start_span("sale")
        with served(Modules(cluster.store)) as server, Client(server.url) as client:
            assert own_headers() == {}
            with use_span(span, end_on_exit=True):
                client.depot("Fragile", "*numbers").append(1)
            client.modules()
        eventually(lambda: collector.named("GET /modules"), 60)
    [append] = [one for one in collector.spans if one.name.endswith("/append")]
    [other] = collector.named("GET /modules")

    assert append.trace_id == span.get_span_context().trace_id.to_bytes(16)
    assert append.parent_span_id == span.get_span_context().span_id.to_bytes(8)
    assert other.parent_span_id == b""
    told = attributes(append)
    assert (told["http.response.status_code"], told["tidemill.module"], append.kind) == (200, "Fragile", 2)
    assert told["http.route"].endswith("/depots/{depot}/append")


@pytest.mark.parametrize("parent", ["", "00-zz-yy-01", "x" * 10_000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_new_trace_begins_when_the_header_is_none(collector: Collector, parent: str) -> None:
    with tracing.tracing():
        found = tracer()
        assert found is not None
        found.record(TracedSpan(name="asked", begin_ms=1, end_ms=2, asked_by={"traceparent": parent}))
    [span] = collector.named("asked")

    assert span.parent_span_id == b""


def test_nothing_is_logged_when_headers_are_none(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer secret")
    with tracing.tracing():
        found = tracer()
        assert found is not None
        for parent, state in (("x" * 10_000, ""), (PARENT, "\x1b[2J=b"), (PARENT, "a" * 10_000), (PARENT, "a=b=c,,")):
            found.record(TracedSpan(name="asked", asked_by={"traceparent": parent, "tracestate": state}))
        eventually(lambda: len(collector.named("asked")) == 4, 60)

    assert not [one for one in caplog.records if one.name.startswith(("opentelemetry.trace", "opentelemetry.util"))]


@pytest.mark.parametrize("token", ["", "wrong", "right"])
def test_a_request_goes_on_no_trace_when_its_sender_is_unknown(collector: Collector, token: str) -> None:
    settings = GatewaySettings(tokens=Tokens(token="right"))
    headers = {"traceparent": PARENT, "authorization": f"Bearer {token}"} if token else {"traceparent": PARENT}
    with (
        tracing.tracing(),
        InProcessCluster.create() as cluster,
        TestClient(make_app(Modules(cluster.store), settings)) as client,
    ):
        client.get("/api/v1/modules", headers=headers)
        eventually(lambda: any(one.kind == 2 for one in collector.spans), 60)
    [span] = [one for one in collector.spans if one.kind == 2]

    assert (span.trace_id.hex() == PARENT.split("-")[1]) == (token == "right")
    assert all("right" not in str(one) and "wrong" not in str(one) for one in collector.spans)


def test_the_trace_of_the_header_goes_before_when_both_are_named(collector: Collector) -> None:
    with tracing.tracing():
        found = tracer()
        assert found is not None
        found.record(TracedSpan(name="asked", trace_id=9, asked_by={"traceparent": PARENT}))
        found.record(TracedSpan(name="own", trace_id=9))
        found.record(TracedSpan(name="new"))
    traces = {name: collector.named(name)[0].trace_id.hex() for name in ("asked", "own", "new")}

    assert traces["asked"] == PARENT.split("-")[1]
    assert traces["own"] == f"{9:032x}"
    assert len(set(traces.values())) == 3


# --- a collector that is away, and none ------------------------------------------------------------------------------


@pytest.fixture(params=["refuses", "hangs"])
def away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A collector that refuses connections, or takes them and never answers."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        if request.param == "hangs":
            made.listen(64)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{made.getsockname()[1]}/v1/traces")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        monkeypatch.setattr(otlp, "CLOSE_MS", 100)
        yield


@pytest.mark.usefixtures("away")
def test_microbatches_go_on_when_the_collector_is_away() -> None:
    with tracing.tracing() as told, InProcessCluster.create() as cluster:
        assert told
        cluster.launch_module(Fragile(), LaunchConfig(2, 1))
        for number in range(10):
            added(cluster, number)
        assert cluster.cluster_pstate("Fragile", "$$sum").select_one(Path.stay()) == 45
        assert cluster.microbatch_state("Fragile", "add") == (10, 1)


def test_spans_are_dropped_when_too_many_wait(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
    collector.answers.clear()
    with tracing.tracing():
        found = tracer()
        assert found is not None
        for number in range(2_000):
            found.record(TracedSpan(name=f"{number}"))
        collector.answers.set()

    assert 16 <= len(collector.spans) <= 48  # those that wait, and those that were under way


def test_texts_are_cut_when_they_are_long(collector: Collector) -> None:
    with tracing.tracing():
        found = tracer()
        assert found is not None
        text = "x" * 100_000
        found.record(TracedSpan(name="long", attributes={"tidemill.step": text}, error=text, stack=text))
    [span] = collector.named("long")

    assert len(span.SerializeToString()) < 5 * otlp.TEXT_MAX


def test_no_span_is_lost_when_a_text_has_a_lone_surrogate(collector: Collector) -> None:
    with tracing.tracing():
        found = tracer()
        assert found is not None
        found.record(TracedSpan(name="odd", attributes={"tidemill.step": "a\ud800"}, error="b\ud800", stack="c\ud800"))
        found.record(TracedSpan(name="plain"))
        eventually(lambda: collector.named("odd") and collector.named("plain"), 60)
    [odd], [_] = collector.named("odd"), collector.named("plain")

    assert (attributes(odd)["tidemill.step"], odd.status.message) == (r"a\ud800", r"b\ud800")
    assert attributes(odd.events[0]) == {"exception.message": r"b\ud800", "exception.stacktrace": r"c\ud800"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),  # its batches are larger
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-3"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nobody"),
    ],
)
def test_a_process_goes_on_and_says_so_when_a_variable_of_opentelemetry_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(name, text)
    with tracing.tracing() as told:
        assert tracer() is None
    assert told.startswith("No traces go to http://127.0.0.1:9. OpenTelemetry refuses its variables")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://someone:secret@127.0.0.1:9/v1?key=secret#secret", "http://127.0.0.1:9/v1"),
        ("http://a@b:secret@127.0.0.1:9", "http://127.0.0.1:9"),
        ("http://127.0.0.1:9?key=secret", "http://127.0.0.1:9"),
        ("secret", "the collector that is named"),
    ],
)
def test_no_secret_is_told_when_the_address_of_the_collector_has_one(
    monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with tracing.tracing() as told:
        assert told == f"Traces go to {shown}."


@pytest.mark.parametrize("variables", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {"OTEL_SDK_DISABLED": "true"}])
def test_nothing_is_traced_and_loaded_when_nobody_asks(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "OTEL_SDK_DISABLED" in variables:
        variables = {**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with tracing.tracing() as told:
        assert (told, tracer()) == ("", None)


def test_no_package_of_opentelemetry_is_loaded_when_a_module_runs_untraced() -> None:
    program = (
        "import sys, tidemill\nfrom tidemill.journal.tracing import tracing\nfrom tidemill.leader.runner import "
        "TopologyRunner\nwith tracing(): pass\nprint([name for name in sys.modules if name.startswith('opentelem')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_a_process_goes_on_and_says_so_when_the_packages_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delitem(sys.modules, "tidemill.journal.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with tracing.tracing() as told:
        assert tracer() is None
    assert "pip install 'tidemill[otlp]'" in told


def test_the_tracer_is_closed_when_its_block_ends() -> None:
    kept = Kept()
    with pytest.raises(ValueError, match="x"), handing_to(kept):
        assert tracer() is kept
        raise ValueError("x")

    assert kept.is_closed and tracer() is None
