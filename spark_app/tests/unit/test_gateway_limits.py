"""The limits that the documentation promises are those of the code; each has a test that tries to pass it."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, PState
from tidemill.clients import changes, module_history, pages, quarantine, quarantined, task_sizes
from tidemill.depot import rows as depot_rows
from tidemill.engine.query_budget import DEPTH_MAX
from tidemill.gateway import (
    compression,
    connections,
    depot_facts,
    depots,
    exchange,
    formats,
    graph_looks,
    graphs,
    guard,
    live,
    module_looks,
    observation,
    page,
    pstates,
    schemas,
    settings,
    subscriptions,
    topologies,
    waits,
    weights,
)
from tidemill.gateway.app import make_app
from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.formats import ANSWERS, ARROW, encoded, records_of
from tidemill.gateway.modules import Modules
from tidemill.graphs import dataset_rows
from tidemill.language.options import find_option
from tidemill.paths import budget, json
from tidemill.values import data, message_pack, names
from tidemill.values.errors import BadInput

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "reference" / "http.md"
TESTS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "spark_app" / "tests").glob("*/test_*.py"))
LIMITS: dict[str, tuple[float, str]] = {
    "bytes of a body (": (
        settings.BODY_BYTES_MAX,
        "test_a_body_is_refused_when_it_is_too_large_with_or_without_a_length",
    ),
    "bytes that a body takes in memory": (
        weights.DECODED_BYTES_MAX,
        "test_an_arrow_stream_is_refused_when_its_rows_are_far_larger_than_it",
    ),
    "records of an append": (
        weights.RECORDS_MAX,
        "test_a_body_is_refused_when_its_values_take_far_more_memory_than_it",
    ),
    "columns of an Arrow stream": (
        weights.ARROW_COLUMNS_MAX,
        "test_an_arrow_stream_is_refused_when_it_has_too_many_columns_or_messages",
    ),
    "messages of an Arrow stream": (
        weights.ARROW_MESSAGES_MAX,
        "test_an_arrow_stream_is_refused_when_it_has_too_many_columns_or_messages",
    ),
    "sets in sets": (
        message_pack.DEPTH_MAX,
        "test_bytes_are_refused_when_sets_are_nested_deeper",
    ),
    "bytes of one record": (
        depot_rows.RECORD_BYTES_MAX,
        "test_a_request_is_refused_when_it_passes_a_limit",
    ),
    "records that one read gives": (
        depots.RECORDS_MAX,
        "test_a_request_is_refused_when_it_passes_a_limit",
    ),
    "bytes of the records that one read gives": (
        formats.ANSWER_BYTES_MAX,
        "test_a_read_ends_when_its_records_are_large",
    ),
    "paths of a `selectMany`": (
        pstates.PATHS_MAX,
        "test_a_request_is_refused_when_it_passes_a_limit",
    ),
    "keys of a `page`": (
        pages.PAGE_KEYS_MAX,
        "test_a_request_is_refused_when_it_passes_a_limit",
    ),
    "navigators of a path": (
        json.NAVIGATORS_MAX,
        "test_the_place_is_named_when_a_path_is_wrong",
    ),
    "arguments of a path": (
        json.ARGUMENTS_MAX,
        "test_the_place_is_named_when_a_path_is_wrong",
    ),
    "paths in paths": (
        json.PATHS_DEPTH_MAX,
        "test_paths_in_paths_are_refused_when_they_are_too_deep",
    ),
    "lists and dicts in lists and dicts of a path": (
        json.VALUES_DEPTH_MAX,
        "test_values_in_a_path_are_refused_when_they_are_too_deep",
    ),
    "places that a select visits": (
        budget.STEPS_MAX,
        "test_the_work_ends_when_a_path_asks_for_more_than_any_machine_has",
    ),
    "values that a select gives": (
        budget.RESULTS_MAX,
        "test_the_work_ends_when_a_path_asks_for_more_than_any_machine_has",
    ),
    "bytes of the values": (
        budget.BYTES_MAX,
        "test_the_work_ends_when_a_path_asks_for_more_than_any_machine_has",
    ),
    "seconds of a request (": (
        settings.SECONDS_MAX,
        "test_a_connection_ends_when_its_client_sends_a_byte_now_and_then",
    ),
    "seconds of a request's headers": (
        connections.HEAD_SECONDS,
        "test_a_connection_ends_when_its_client_stops_in_the_middle",
    ),
    "bytes of a body that must come in each 5": (
        connections.BODY_BYTES_MIN,
        "test_a_connection_ends_when_its_client_sends_a_byte_now_and_then",
    ),
    "bytes of a request's line": (
        connections.HEAD_BYTES_MAX,
        "test_a_request_is_refused_when_its_head_has_no_end",
    ),
    "headers of a request": (
        connections.HEADERS_MAX,
        "test_a_request_is_answered_when_it_has_as_many_headers_as_are_allowed",
    ),
    "requests under way": (
        settings.IN_FLIGHT_MAX,
        "test_a_request_is_sent_away_when_as_many_are_under_way_as_may_be",
    ),
    "of them, queries that run": (
        settings.QUERIES_MAX,
        "test_a_query_is_refused_when_as_many_run_as_the_gateway_takes",
    ),
    "milliseconds of a query": (
        find_option("topology.query.timeout.millis").default,
        "test_a_query_ends_when_its_time_is_over",
    ),
    "rows that a query makes": (
        find_option("topology.query.max.rows").default,
        "test_a_query_ends_when_it_makes_too_many_rows",
    ),
    "megabytes of the values that a query makes": (
        find_option("topology.query.max.mb").default,
        "test_a_query_ends_when_it_makes_too_many_bytes",
    ),
    "queries that call each other": (
        DEPTH_MAX,
        "test_a_query_ends_when_it_calls_itself_too_deep",
    ),
    "of them, requests that wait": (
        settings.WAITING_MAX,
        "test_others_are_served_when_as_many_requests_wait_as_may",
    ),
    "bytes of all requests": (
        settings.GatewaySettings().in_flight_bytes_max,
        "test_no_more_bytes_are_taken_than_there_are_when_many_requests_grow_at_once",
    ),
    "connections; no more": (
        connections.CONNECTIONS_MAX,
        "test_others_are_answered_when_more_connections_hang_than_a_process_may_open",
    ),
    "subscriptions at once": (
        guard.SUBSCRIBERS_MAX,
        "test_others_are_refused_when_there_are_as_many_as_may_be",
    ),
    "bytes in memory of a value that is subscribed": (
        subscriptions.VALUE_BYTES_MAX,
        "test_a_value_is_refused_when_it_is_too_large",
    ),
    "bytes of events": (
        subscriptions.PENDING_BYTES_MAX,
        "test_a_slow_client_is_sent_away_when_too_much_waits_for_it",
    ),
    "seconds of a subscription": (
        subscriptions.LIFE_SECONDS,
        "test_a_life_is_bounded_when_a_client_stays",
    ),
    "connections beyond": (
        connections.PROBES_MAX,
        "test_others_are_answered_when_more_connections_hang_than_a_process_may_open",
    ),
    "seconds of a connection": (
        connections.IDLE_SECONDS,
        "test_a_connection_is_kept_for_its_next_request_when_one_is_answered_and_closed_when_none_comes",
    ),
    "letters of an `Idempotency-Key`": (
        depots.KEY_CHARS_MAX,
        "test_a_key_is_refused_when_it_is_none",
    ),
    "`timeoutMs`": (
        waits.TIMEOUT_MS_MAX,
        "test_a_request_is_done_up_to_a_limit_and_refused_beyond_it",
    ),
    "`maxStalenessMs`": (
        pstates.STALENESS_MS_MAX,
        "test_a_request_is_done_up_to_a_limit_and_refused_beyond_it",
    ),
    "keys that one page of a `diff`": (
        changes.COMPARED_MAX,
        "test_a_page_goes_on_when_few_of_many_keys_changed",
    ),
    "rows of a Dataset in one answer": (
        graphs.ROWS_MAX,
        "test_a_list_is_bounded_when_there_are_many",
    ),
    "bytes in memory of the rows of a Dataset": (
        graphs.ROWS_BYTES_MAX,
        "test_a_list_is_bounded_when_there_are_many",
    ),
    "bytes of an object of a Dataset": (
        dataset_rows.OBJECT_BYTES_MAX,
        "test_an_object_is_refused_when_too_much_of_it_would_be_fetched",
    ),
    "bytes from which on an answer": (
        compression.BYTES_MIN,
        "test_a_body_is_sent_as_it_is_when_it_is_small_or_grows",
    ),
    "bytes of an overview or a list": (
        exchange.HERE_BYTES_MAX,
        "test_a_list_is_sent_as_it_is_when_others_would_wait_for_it",
    ),
    "stored bytes that a look at a PState's tasks": (
        task_sizes.BYTES_MAX,
        "test_tasks_are_left_out_when_there_is_no_time_or_too_many_bytes",
    ),
    "rows of a PState whose values": (
        task_sizes.SCANNED_MAX,
        "test_the_rows_compared_are_bounded_when_there_are_many",
    ),
    "names in `unset`": (
        topologies.UNSET_MAX,
        "test_a_request_is_done_up_to_a_limit_and_refused_beyond_it",
    ),
    "changes of options": (
        topologies.CHANGES_MAX,
        "test_as_many_changes_are_looked_at_as_are_allowed_when_there_are_more",
    ),
    "lines of a log in one": (
        observation.LINES_MAX,
        "test_the_log_is_read_in_pages_when_it_is_long",
    ),
    "records of one page of a quarantine": (
        quarantined.PAGE_RECORDS,
        "test_a_quarantine_is_read_and_decided_on_within_limits",
    ),
    "bytes of the records of one page": (
        formats.ANSWER_BYTES_MAX,
        "test_a_quarantine_is_read_and_decided_on_within_limits",
    ),
    "records that one `retry`": (
        quarantine.DECIDED_MAX,
        "test_a_quarantine_is_read_and_decided_on_within_limits",
    ),
    "bytes of the records that one `retry`": (
        quarantine.RETRIED_BYTES_MAX,
        "test_a_quarantine_is_read_and_decided_on_within_limits",
    ),
    "letters of a cursor": (
        pages.CURSOR_CHARS_MAX,
        "test_a_cursor_is_refused_when_it_is_longer_than_allowed",
    ),
    "bytes of a name in a path": (
        names.NAME_BYTES_MAX,
        "test_a_module_is_unknown_when_its_name_is_too_long_for_any_folder",
    ),
    "lists and dicts in lists and dicts of a record": (
        data.DEPTH_MAX,
        "test_a_request_is_refused_when_it_passes_a_limit",
    ),
    "bytes of a set in sets": (
        message_pack.NESTED_BYTES_MAX,
        "test_nested_sets_are_refused_when_the_copies_of_all_levels_would_be_large",
    ),
    "bytes of a sign-in": (
        page.TOKEN_BYTES_MAX,
        "test_a_sign_in_is_refused_when_it_is_long",
    ),
    "graphs in a list": (
        graph_looks.GRAPHS_MAX,
        "test_a_list_of_graphs_is_bounded_when_there_are_many",
    ),
    "entries of a graph": (
        graph_looks.ENTRIES_MAX,
        "test_a_log_is_bounded_when_it_is_long",
    ),
    "Datasets in a list": (
        graphs.DATASETS_MAX,
        "test_a_list_is_bounded_when_there_are_many",
    ),
    "Datasets of windows": (
        graphs.WINDOWS_MAX,
        "test_windows_are_datasets_when_a_graph_keeps_one_for_each",
    ),
    "objects of a Dataset that are listed": (
        graphs.OBJECTS_MAX,
        "test_a_list_is_bounded_when_there_are_many",
    ),
    "topologies that are followed": (
        live.FOLLOWED_MAX,
        "test_followers_share_a_look_and_are_bounded_when_many_come",
    ),
    "characters of a path": (
        schemas.PATH_CHARS_MAX,
        "test_the_gateway_tells_what_follows_and_where_rows_lie_when_it_is_asked",
    ),
    "lines of a module's log": (
        schemas.HISTORY_LINES_MAX,
        "test_a_log_is_refused_when_it_is_asked_for_wrongly",
    ),
    "topologies whose entries a module's log": (
        module_history.LOGS_MAX,
        "test_an_answer_has_fewer_lines_and_goes_on_when_it_would_read_too_much",
    ),
    "entries that are read for one answer of a module's log": (
        module_history.READ_MAX,
        "test_an_answer_has_fewer_lines_and_goes_on_when_it_would_read_too_much",
    ),
    "readers of a depot": (
        depot_facts.KEPT_READERS_MAX,
        "test_a_module_that_mirrors_a_depot_is_told_by_name_when_the_token_may_see_it",
    ),
    "objects of a depot whose bytes are summed": (
        depot_facts.SIZED_OBJECTS_MAX,
        "test_bytes_are_not_told_yet_when_more_objects_are_there_than_one_look_asks_for",
    ),
    "objects of a depot whose size": (
        depot_facts.SIZES_MAX,
        "test_bytes_are_not_told_yet_when_more_objects_are_there_than_one_look_asks_for",
    ),
    "depots of a module that no topology reads": (
        module_looks.UNREAD_MAX,
        "test_a_client_is_told_of_a_module_when_its_definition_its_options_or_its_depots_change",
    ),
    "lines of a log with which": (
        live.LINES_MAX,
        "test_a_follower_is_given_the_newest_lines_when_the_log_is_longer",
    ),
}

NO_LIMITS_OF_REQUESTS = {
    "access._TOKENS_MAX",
    "modules._ABSENT_MAX",
    "shared_answers.ANSWERS_MAX",
    "waits.LOOK_SECONDS_MAX",
}
"""Bounds of what the gateway remembers, and of its own pace."""


def bounds() -> set[str]:
    """All constants of the gateway that are bounds by their names."""
    found = set()
    for path in Path(formats.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            found |= {f"{path.stem}.{name}" for name in names if name.endswith(("_MAX", "_MIN"))}
    return found


def test_every_bound_of_the_gateway_is_a_documented_limit() -> None:
    table = Path(__file__).read_text(encoding="utf-8").split("LIMITS: dict")[1].split("NO_LIMITS_OF_REQUESTS")[0]
    missing = {name for name in bounds() if re.search(rf"\b{re.escape(name)}\b", table) is None}
    assert len(bounds()) > 20
    assert missing == NO_LIMITS_OF_REQUESTS


def rows() -> dict[str, str]:
    """What the documentation bounds, and its limit."""
    table = DOCS.read_text(encoding="utf-8").split("## Limits")[1].split("\n## ")[0]
    found = re.findall(r"^\| (?!what|---)(.+?) \| ([\d,]+) \|", table, re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("begin", LIMITS)
def test_a_limit_is_documented_as_it_is_when_read(begin: str) -> None:
    limit, tested = LIMITS[begin]
    [written] = [value for name, value in rows().items() if name.startswith(begin)]

    assert written == f"{limit:,.0f}"
    assert f"def {tested}(" in TESTS


def test_every_documented_limit_is_one_of_the_code_when_listed() -> None:
    assert len(rows()) == len(LIMITS)
    assert connections.BODY_SECONDS == 5


DEEP: Any = 1
for _ in range(data.DEPTH_MAX + 1):
    DEEP = [DEEP]
REQUESTS: dict[str, tuple[str, str, Any, int, str]] = {
    "a record": ("POST", "depots/log/append", {"record": "x" * depot_rows.RECORD_BYTES_MAX}, 422,
                 f"{depot_rows.RECORD_BYTES_MAX:,}"),
    "a deep record": ("POST", "depots/log/append", {"record": DEEP}, 422, f"deeper than {data.DEPTH_MAX} levels"),
    "records": ("GET", f"depots/log/partitions/0/records?start=0&end={depots.RECORDS_MAX + 1}", None, 422,
                f"at most {depots.RECORDS_MAX:,} records"),
    "keys": ("POST", "pstates/kept/page", {"limit": pages.PAGE_KEYS_MAX + 1}, 422, f"{pages.PAGE_KEYS_MAX:,} keys"),
    "paths": ("POST", "pstates/kept/selectMany", {"paths": [["a"]] * (pstates.PATHS_MAX + 1)}, 400,
              f"at most {pstates.PATHS_MAX:,} paths"),
}  # fmt: skip


class Limited(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*log", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$kept", PState.map_schema(object, int))
        (mb.source("*log").out("*microbatch").explode_microbatch("*microbatch").out("*v").hash_partition("*v")
           .compound_agg("$$kept", CompoundAgg.map("*v", Agg.count())))  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_refused_when_it_passes_a_limit(method: str, path: str, body: Any, status: int, text: str) -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Limited(), LaunchConfig(1, 1))
        with TestClient(make_app(Modules(cluster.store), settings.GatewaySettings())) as http:
            answer = http.request(method, f"/api/v1/modules/Limited/{path}", json=body)
    assert (answer.status_code, text in answer.json()["error"]["message"]) == (status, True), answer.text[:300]


def test_a_cursor_is_refused_when_it_is_longer_than_allowed() -> None:
    short, long = (pages.Cursor(1, 0, ("k" * letters,)).text() for letters in (700_000, 800_000))
    assert pages.Cursor.of(short).keys == ("k" * 700_000,)
    assert len(long) > pages.CURSOR_CHARS_MAX
    with pytest.raises(BadInput, match="cursor"):
        pages.Cursor.of(long)


NUMBERS: dict[str, tuple[str, str, Callable[[float], Any], float]] = {
    "timeoutMs": ("POST", "wait", lambda most: {"timeoutMs": most}, waits.TIMEOUT_MS_MAX),
    "select": ("POST", "pstates/kept/select", lambda most: {"path": ["a"], "maxStalenessMs": most},
               pstates.STALENESS_MS_MAX),
    "selectMany": ("POST", "pstates/kept/selectMany", lambda most: {"paths": [["a"]], "maxStalenessMs": most},
                   pstates.STALENESS_MS_MAX),
    "unset": ("PATCH", "options", lambda most: {"unset": ["depot.max.fetch"] * int(most)}, topologies.UNSET_MAX),
}  # fmt: skip


def test_a_request_is_done_up_to_a_limit_and_refused_beyond_it() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Limited(), LaunchConfig(1, 1))
        with TestClient(make_app(Modules(cluster.store), settings.GatewaySettings())) as http:
            for name, (method, path, body, most) in NUMBERS.items():
                url = f"/api/v1/modules/Limited/{path}"
                allowed, refused = (http.request(method, url, json=body(number)) for number in (most, most + 1))
                assert (name, allowed.status_code) == (name, 200)
                assert (name, refused.status_code, refused.json()["error"]["code"]) == (name, 400, "BadInput")


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1_000, 70_000])
def test_a_read_gives_one_list_when_it_is_read_in_parts(kind: str, count: int) -> None:
    asked: list[tuple[int, int]] = []

    def read(start: int, end: int) -> list[Any]:
        asked.append((start, end))
        return [{"n": number, "s": []} for number in range(start, end)]

    body = depots._encoded_range(read, 5, 5 + count, kind)
    assert body == encoded(read(5, 5 + count), kind)
    assert len(asked) <= 4


def test_a_read_ends_when_its_records_are_large() -> None:
    large, given = "x" * 2**20, []

    def read(start: int, end: int) -> list[Any]:
        given.append(end - start)
        return [large] * (end - start)

    with pytest.raises(HttpRefusal, match="fewer at once"):
        depots._encoded_range(read, 0, 100_000, ANSWERS[0])
    assert sum(given) <= 2 * formats.ANSWER_BYTES_MAX // len(large)


def _stream(table: pa.Table, batches: int) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        for _ in range(batches):
            stream.write_table(table)
    return sink.getvalue()


WIDE = pa.table({f"c{number}": [1] for number in range(weights.ARROW_COLUMNS_MAX + 1)})


@pytest.mark.parametrize(
    ("body", "status"),
    [(_stream(WIDE, 1), 400), (_stream(pa.table({"a": [1]}), weights.ARROW_MESSAGES_MAX + 1), 413)],
    ids=["columns", "messages"],
)
def test_an_arrow_stream_is_refused_when_it_has_too_many_columns_or_messages(body: bytes, status: int) -> None:
    with pytest.raises(HttpRefusal) as refused:
        records_of(body, ARROW, lambda size: None)
    assert refused.value.status == status
