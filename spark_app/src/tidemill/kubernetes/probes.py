"""The driver's HTTP: `/healthz` and `/readyz` for the kubelet, `/metrics` for Prometheus."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from tidemill.clients.status import TopologyStatus

State = Literal["starting", "waiting", "standby", "leader", "superseded", "stopping"]
READY: tuple[State, ...] = ("waiting", "standby", "leader")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass
class DriverHealth:
    """What the probes answer; the driver writes it, requests read it. `lag` counts what waits by depot."""

    state: State = "starting"
    text: str = ""
    is_warm: bool = False
    status: Callable[[], TopologyStatus] | None = None
    lag: dict[str, int] = field(default_factory=dict)
    failures: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether the driver can do all of its work; one that leads before its engine is warm does some of it."""
        return self.is_warm and self.state in READY


class DriverMetrics(Collector):
    """The metrics of one driver; values are read when they are asked for."""

    def __init__(self, health: DriverHealth, labels: dict[str, str]) -> None:
        self.registry = CollectorRegistry()
        self._health = health
        self._labels = labels
        self._phases = Histogram(
            "tidemill_microbatch_phase_seconds", "Duration of a phase of a committed microbatch.",
            [*labels, "phase"], buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.registry.register(self)

    def observe(self, metrics: dict[str, float]) -> None:
        """A microbatch was committed; its phases took so many milliseconds."""
        for phase in ("prime", "process", "commit"):
            if f"{phase}_ms" in metrics:
                self._phases.labels(**self._labels, phase=phase).observe(metrics[f"{phase}_ms"] / 1000)

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now; of microbatches only once the topology's state is known."""
        health = self._health
        status = health.status() if health.status is not None else None
        yield self._gauge("tidemill_leader", "1 where this driver leads.", float(health.state == "leader"))
        yield self._gauge("tidemill_ready", "1 where this driver is ready.", float(health.is_ready))
        if status is None or not status.entry:
            return
        yield self._gauge("tidemill_microbatch_id", "ID of the newest committed microbatch.", status.microbatch_id)
        yield self._gauge("tidemill_microbatch_version", "The attempt that committed it.", status.version)
        yield self._gauge("tidemill_epoch", "How often the topology was claimed.", status.epoch)
        yield self._gauge("tidemill_failures_in_row", "Failed attempts since a commit.", status.failures_in_row or 0)
        yield self._counter("tidemill_processed_records", "Records processed since the first launch.", status.processed)
        yield self._counter("tidemill_skipped_records", "Records that retention deleted unread.", status.skipped)
        text = "Records at which the module's code raised, left out of their microbatches."
        yield self._counter("tidemill_quarantined_records", text, status.quarantined)
        if status.in_quarantine is not None:
            text = "Records in quarantine that wait for a decision."
            yield self._gauge("tidemill_in_quarantine", text, status.in_quarantine)
        yield self._counter("tidemill_failed_attempts", "Failed attempts seen by this driver.", health.failures)
        yield self._each("tidemill_lag_records", "Records that wait.", "depot", health.lag)
        phase = str(status.phase or status.role)
        yield self._each("tidemill_phase", "1 for what the runner does now.", "phase", {phase: 1})

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _each(self, name: str, text: str, label: str, values: dict[str, Any]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], value)
        return family


class ProbeServer:
    """Serves the probes in threads of its own until it is closed; port 0 takes any free one."""

    def __init__(
        self, port: int, health: DriverHealth, metrics: DriverMetrics, trouble: Callable[[], str], host: str = ""
    ) -> None:
        """`trouble` says why the driver is sick; empty is healthy."""

        class Handler(_Handler):
            pages = {
                "/healthz": lambda: _page(not (sick := trouble()), health, sick),
                "/readyz": lambda: _page(health.is_ready, health, health.text),
                "/metrics": lambda: (200, CONTENT_TYPE_LATEST, metrics.text()),
            }

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening; answers under way may be cut off."""
        self._server.shutdown()
        self._server.server_close()


Page = tuple[int, str, bytes]


def _page(is_good: bool, health: DriverHealth, text: str) -> Page:
    body = json.dumps({"state": health.state, "text": text}).encode()
    return 200 if is_good else 503, "application/json", body


class _Handler(BaseHTTPRequestHandler):
    pages: dict[str, Callable[[], Page]] = {}

    def do_GET(self) -> None:
        make = self.pages.get(self.path.partition("?")[0])
        status, kind, body = make() if make is not None else (404, "text/plain", b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come each second: nothing is logged."""
