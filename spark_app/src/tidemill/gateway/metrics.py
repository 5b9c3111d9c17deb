"""Prometheus metrics of one gateway: what it was asked, how long it took, and how the topologies it serves stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemill.clients.status import TopologyStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STATES = (
    ("microbatch_id", "microbatch_id", "ID of the last committed microbatch."),
    ("is_paused", "paused", "Whether the topology is paused."),
    ("is_running", "led", "Whether a leader runs the topology."),
    ("state_bytes", "state_bytes", "Bytes of the topology's PStates in the store."),
    ("in_quarantine", "in_quarantine", "Records in quarantine that wait for a decision."),
    (
        "unpublished",
        "unpublished_appends",
        "Appends of committed microbatches that are not in their depots or sinks yet.",
    ),
)


class GatewayMetrics:
    """The metrics of one gateway; names of modules and depots are labels only once they were found in the store."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        depot, pstate = ("module", "depot"), ("module", "pstate")
        self.requests = self._counter("gateway_requests", "HTTP requests answered.", ("route", "status"))
        self.errors = self._counter("gateway_errors", "Requests answered by an error.", ("code",))
        self.request_seconds = self._histogram("gateway_request_seconds", "Time to answer.", ("route",))
        self.in_flight = Gauge("tidemill_gateway_requests_in_flight", "Requests under way.", registry=self.registry)
        self.appends = self._counter("gateway_appends", "Appends that are durable.", depot)
        self.records = self._counter("gateway_appended_records", "Records that are durable.", depot)
        self.append_seconds = self._histogram("gateway_append_seconds", "From request to durable.", depot)
        self.selects = self._counter("gateway_selects", "Selects answered.", pstate)
        self.select_seconds = self._histogram("gateway_select_seconds", "Time of a select.", pstate)
        self.subscribers = Gauge("tidemill_gateway_subscribers", "Open subscriptions.", registry=self.registry)
        query = ("module", "query")
        self.queries = self._counter("gateway_queries", "Calls of queries answered.", query)
        self.query_seconds = self._histogram("gateway_query_seconds", "Time of a call of a query.", query)
        self.topologies = TopologyCollector()
        self.registry.register(self.topologies)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"tidemill_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Sequence[str]) -> Histogram:
        return Histogram(f"tidemill_{name}", text, labels, buckets=_SECONDS, registry=self.registry)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return bytes(generate_latest(self.registry))


class TopologyCollector(Collector):
    """The topologies as they were when somebody looked last; `show` sets them before each scrape."""

    def __init__(self) -> None:
        self._shown: Sequence[TopologyStatus] = ()
        self._is_store_up = False

    def show(self, statuses: Sequence[TopologyStatus], is_store_up: bool) -> None:
        """Set the topologies and whether the store answered, for the scrapes that follow."""
        self._shown, self._is_store_up = statuses, is_store_up

    def collect(self) -> Iterator[Metric]:
        """The metrics of the topologies that were shown last."""
        yield GaugeMetricFamily("tidemill_store_up", "Whether the store answered.", value=float(self._is_store_up))
        lag = GaugeMetricFamily(
            "tidemill_topology_lag_records", "Records waiting, by source.", labels=("module", "topology", "source")
        )
        processed = CounterMetricFamily(
            "tidemill_topology_processed_records", "Records processed.", labels=("module", "topology")
        )
        skipped = CounterMetricFamily(
            "tidemill_topology_skipped_records",
            "Records that retention deleted before they were read.",
            labels=("module", "topology"),
        )
        quarantined = CounterMetricFamily(
            "tidemill_topology_quarantined_records",
            "Records at which the module's code raised, left out of their microbatches.",
            labels=("module", "topology"),
        )
        states = {
            field: GaugeMetricFamily(f"tidemill_topology_{name}", text, labels=("module", "topology"))
            for field, name, text in _STATES
        }
        for one in self._shown:
            place = (one.module, one.topology)
            for source, waiting in (one.lag or {}).items():
                lag.add_metric((*place, source), waiting)
            processed.add_metric(place, one.processed)
            skipped.add_metric(place, one.skipped)
            quarantined.add_metric(place, one.quarantined)
            for field, family in states.items():
                family.add_metric(place, float(getattr(one, field) or 0))
        yield from (lag, processed, skipped, quarantined, *states.values())
