"""Requests that schemathesis makes of the gateway's OpenAPI document: all that it answers, it says there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import polars as pl
import pytest
import requests
import schemathesis
from gateways import served
from graph_executors import Count
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState, TaskGraph
from tidemill.api.declaration import record_module
from tidemill.gateway import schemas
from tidemill.gateway.modules import Modules
from tidemill.gateway.pstates import DiffAsked, PageAsked, SelectBody, SelectMany
from tidemill.gateway.quarantines import DecidedRecords
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.gateway.topologies import Settings
from tidemill.gateway.waits import WaitBody

TOKEN = "a-token"
EXAMPLES = 30

# 422 is the answer to what is well formed and does not fit this module: a navigator that the PState's schema has no
# place for, a record that its partitioner cannot take. 406: a generated Accept. The document says so, and no schema can
# tell a fitting path from another.
CONFIG = {
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ["2xx", 401, 404, 406, 409, 410, 422]},
        "negative_data_rejection": {"expected-statuses": [400, 401, 404, 405, 406, 415, 422]},
    }
}


class Documented(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*events", Depot.random())
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(object, int))
        mb.pstate("$$total", int).global_().initial_value(0)
        (mb.source("*pairs").out("*microbatch").explode_microbatch("*microbatch").out("*pair")
           .each(Ops.EXPAND, "*pair").out("*k", "*n")
           .compound_agg("$$counts", CompoundAgg.map("*k", Agg.count())))  # fmt: skip
        topologies.query("doubled", "*n").out("*r").each(Ops.TIMES, "*n", 2).out("*r").origin_partition()


NAMES = {
    "module": "Documented",
    "depot": "events",
    "pstate": "total",
    "topology": "mb",
    "query": "doubled",
    "graph": "daily",
    "dataset": "daily-1",
}
"""The names that are there, for path parameters: else nearly all requests would end in 404."""

OPERATIONS = (
    "GET /api/v1/modules/{module}/pstates/{pstate}/tasks",
    "GET /healthz", "GET /readyz", "GET /metrics", "GET /api/v1/modules", "GET /api/v1/modules/{module}",
    "GET /api/v1/graphs", "GET /api/v1/graphs/{graph}", "GET /api/v1/graphs/{graph}/plan", "GET /api/v1/datasets",
    "GET /api/v1/datasets/{dataset}", "GET /api/v1/datasets/{dataset}/rows",
    "GET /api/v1/overview", "GET /api/v1/options", "GET /api/v1/modules/{module}/topologies/{topology}/log",
    "GET /api/v1/modules/{module}/topologies/{topology}/plan",
    "POST /api/v1/modules/{module}/wait",
    "POST /api/v1/modules/{module}/depots/{depot}/append", "POST /api/v1/modules/{module}/depots/{depot}/producers",
    "GET /api/v1/modules/{module}/log", "GET /api/v1/modules/{module}/depots/{depot}/facts",
    "GET /api/v1/modules/{module}/pstates/{pstate}/navigators", "GET /api/v1/modules/{module}/pstates/{pstate}/levels",
    "GET /api/v1/modules/{module}/depots/{depot}", "GET /api/v1/modules/{module}/depots/{depot}/offsets",
    "GET /api/v1/modules/{module}/depots/{depot}/partitions/{partition}",
    "GET /api/v1/modules/{module}/depots/{depot}/partitions/{partition}/records",
    "POST /api/v1/modules/{module}/pstates/{pstate}/select",
    "POST /api/v1/modules/{module}/pstates/{pstate}/selectOne",
    "POST /api/v1/modules/{module}/pstates/{pstate}/selectMany",
    "POST /api/v1/modules/{module}/pstates/{pstate}/page",
    "POST /api/v1/modules/{module}/pstates/{pstate}/diff",
    "GET /api/v1/modules/{module}/pstates/{pstate}",
    "GET /api/v1/modules/{module}/queries/{query}",
    "POST /api/v1/modules/{module}/queries/{query}/invoke",
    "GET /api/v1/modules/{module}/topologies/{topology}",
    "POST /api/v1/modules/{module}/topologies/{topology}/pause",
    "POST /api/v1/modules/{module}/topologies/{topology}/resume",
    "POST /api/v1/modules/{module}/topologies/{topology}/quarantine/page",
    "POST /api/v1/modules/{module}/topologies/{topology}/quarantine/retry",
    "POST /api/v1/modules/{module}/topologies/{topology}/quarantine/drop",
    "GET /api/v1/modules/{module}/options",
    "PATCH /api/v1/modules/{module}/options",
)  # fmt: skip

ENDLESS = {
    "GET /api/v1/modules/{module}/pstates/{pstate}/subscribe", "GET /api/v1/overview/subscribe",
    "GET /api/v1/modules/{module}/topologies/{topology}/subscribe", "GET /api/v1/graphs/subscribe",
    "GET /api/v1/graphs/{graph}/subscribe", "GET /api/v1/modules/{module}/subscribe",
}  # fmt: skip
"""An answer that does not end would not be read to its end; unit/test_subscriptions.py and test_page.py ask these."""


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Documented(), LaunchConfig(2, 1))
        cluster.cluster_depot("Documented", "*pairs").append(["a", 1])
        graph = TaskGraph(cluster.store.url, id=NAMES["graph"])
        graph.new_blocking_node({0: graph.new_input_frames(pl.DataFrame({"k": [1, 2]}), 1)}, Count("k"), 1, {0: "k"})
        graph.run()
        modules = Modules(cluster.store, declaration=record_module(Documented()))
        modules.only = None  # graphs are of no module
        with served(modules, GatewaySettings(tokens=Tokens(token=TOKEN))) as server:
            config = SchemathesisConfig.from_dict(CONFIG)
            yield schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=config)


def not_lost(case: Any) -> bool:
    """Whether each query parameter is on the wire: an empty list is not, and what was wrong with it is gone with it."""
    prepared = requests.Request(**case.as_transport_kwargs()).prepare()
    sent = {name for name, _ in parse_qsl(urlsplit(str(prepared.url)).query, keep_blank_values=True)}
    return len(sent) == len(case.query or {})


def test_every_operation_is_generated_when_the_document_is_read(schema: Any) -> None:
    assert {found.ok().label for found in schema.get_all_operations()} == {*OPERATIONS, *ENDLESS}


@pytest.mark.parametrize(
    ("form", "told"),
    [(SelectBody, schemas.SELECT), (SelectMany, schemas.SELECT_MANY), (PageAsked, schemas.PAGE_ASKED),
     (DiffAsked, schemas.DIFF_ASKED), (DecidedRecords, schemas.CHOSEN), (WaitBody, schemas.WAIT),
     (Settings, schemas.SETTINGS)],
)  # fmt: skip
def test_null_is_documented_where_a_body_takes_it(form: type[Any], told: dict[str, Any]) -> None:
    takes = {field.encode_name for field in msgspec.structs.fields(form) if field.default is None}
    fields = (told["anyOf"][0] if "anyOf" in told else told)["properties"]  # a path alone is a body of a select, too
    says = {name for name, about in fields.items() if "null" in about.get("type", ())}
    assert takes == says


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_is_documented_when_requests_are_generated(
    schema: Any, operation: str, mode: GenerationMode
) -> None:
    found = next(o.ok() for o in schema.get_all_operations() if o.ok().label == operation)

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck), phases=(Phase.generate,))  # fmt: skip
    @given(found.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.path_parameters = {name: NAMES.get(name, given) for name, given in (case.path_parameters or {}).items()}
        assume(not_lost(case))
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

    try:
        check()
    except Unsatisfiable:  # nothing about it can be wrong: it takes no argument
        assert mode is GenerationMode.NEGATIVE and "parameters" not in found.definition.raw
