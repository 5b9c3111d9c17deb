"""The gateway's HTTP: formats, negotiation, limits, tokens, errors, and keys of appends."""

from __future__ import annotations

import datetime
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from tidemill import Agg, BadInput, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.api.declaration import record_module
from tidemill.depot.log import DepotLog
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings, check_exposure
from tidemill.gateway.tokens import Tokens, tokens_from
from tidemill.journal.options_log import OptionsLog
from tidemill.values.errors import OutcomeUnknown, RecordRefused, StoreUnavailable
from tidemill.values.message_pack import pack, unpack

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
AT = "/api/v1/modules/Served"
APPEND = f"{AT}/depots/log/append"
MSGPACK = {"content-type": "application/msgpack"}
NDJSON = {"content-type": "application/x-ndjson"}
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


class Served(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*log", Depot.random()).global_()
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*custom", lambda record, partitions: 0)
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(object, int))
        (mb.source("*pairs").out("*microbatch").explode_microbatch("*microbatch").out("*pair")
           .each(Ops.EXPAND, "*pair").out("*k", "*n")
           .compound_agg("$$counts", CompoundAgg.map("*k", Agg.count())))  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Served(), LaunchConfig(4, 2))
        yield cluster


@pytest.fixture
def opened(cluster: InProcessCluster) -> Iterator[Callable[..., TestClient]]:
    """Gateways on the cluster's store, with settings of the test's."""
    clients: list[TestClient] = []

    def made(**settings: Any) -> TestClient:
        client = TestClient(make_app(Modules(cluster.store), GatewaySettings(**settings)))
        clients.append(client)
        return client.__enter__()

    yield made
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def http(opened: Callable[..., TestClient]) -> TestClient:
    return opened()


def appended(http: TestClient, response: Any) -> list[Any]:
    """The records that an append to `*log` answered with, as they were stored."""
    assert response.status_code == 200, response.text
    [[partition, start, end]] = response.json()["partitions"]
    found = http.get(
        f"{AT}/depots/log/partitions/{partition}/records?start={start}&end={end}",
        headers={"accept": "application/msgpack"},
    )
    records: list[Any] = unpack(found.content)
    return records


def refused(response: Any, status: int, code: str) -> str:
    """The message of an error of this status and code."""
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code), error
    return str(error["message"])


# --- bodies of records -----------------------------------------------------------------------------------------------


def test_records_are_stored_as_they_were_written_when_they_come_as_json(http: TestClient) -> None:
    values = [1, 2**63 - 1, -(2**63), 1.5, 1.0, "é", True, None, [1, [2]], {"a": {"b": None}}]
    assert appended(http, http.post(APPEND, json={"records": values})) == values
    assert appended(http, http.post(APPEND, json={"record": [1, 2]})) == [[1, 2]]
    [whole, real] = appended(http, http.post(APPEND, content=b'{"records": [1, 1.0]}'))
    assert (type(whole), type(real)) == (int, float)


@pytest.mark.parametrize(
    ("body", "records"),
    [
        (b'{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
        (b'{"a":1}\r\n\r\n{"b":null}', [{"a": 1}, {"b": None}]),
        (b"\n\n7\n", [7]),
        (b'1\n1.0\n"x"\n', [1, 1.0, "x"]),
    ],
)
def test_each_line_is_a_record_when_they_come_as_json_lines(http: TestClient, body: bytes, records: list[Any]) -> None:
    assert appended(http, http.post(APPEND, content=body, headers=NDJSON)) == records


def test_values_keep_their_kind_when_they_come_as_messagepack(http: TestClient) -> None:
    values = [b"x", WHEN, {1, 2}, {1: "a", (1, 2): "b"}, float("inf"), [None]]
    assert appended(http, http.post(APPEND, content=pack({"records": values}), headers=MSGPACK)) == values


def arrow_stream(frame: pl.DataFrame) -> bytes:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_times_without_a_zone_are_refused_as_by_the_library_when_they_come_as_an_arrow_stream(
    http: TestClient, cluster: InProcessCluster
) -> None:
    frame = pl.DataFrame({"n": [1], "when": [WHEN.replace(tzinfo=None)]})
    with pytest.raises(RecordRefused) as by_library:
        cluster.cluster_depot("Served", "*log").append_many(frame)
    text = refused(http.post(APPEND, content=arrow_stream(frame), headers=ARROW), 422, "RecordRefused")
    assert text == str(by_library.value)
    assert "The column 'when' holds datetimes without a time zone" in text


def test_rows_become_dicts_when_they_come_as_an_arrow_stream(http: TestClient) -> None:
    body = arrow_stream(pl.DataFrame({"n": [1, 2], "s": ["x", None]}))
    assert appended(http, http.post(APPEND, content=body, headers=ARROW)) == [
        {"n": 1, "s": "x"},
        {"n": 2, "s": None},
    ]
    for broken in (b"", b"x" * 100, body[: len(body) // 2]):
        refused(http.post(APPEND, content=broken, headers=ARROW), 400, "BadInput")


def test_nothing_is_appended_when_there_are_no_records(http: TestClient) -> None:
    for body, headers in ((b'{"records": []}', {}), (b"", NDJSON)):
        response = http.post(APPEND, content=body, headers=headers)
        assert response.json() == {"appended": 0, "partitions": []}


@pytest.mark.parametrize(
    ("body", "headers", "status", "code", "says"),
    [
        (b"{", {}, 400, "BadInput", "not JSON"),
        (b"[1]", {}, 400, "BadInput", "documented form"),
        (b"{}", {}, 400, "BadInput", "record"),
        (b'{"record": 1, "records": []}', {}, 400, "BadInput", "record"),
        (b'{"record": 1, "more": 2}', {}, 400, "BadInput", "more"),
        (b"\xc1", MSGPACK, 400, "BadInput", "not MessagePack"),
        (b"", MSGPACK, 400, "BadInput", "not MessagePack"),
        (b'1\n{"a"\n', NDJSON, 422, "RecordRefused", "Line 2"),
        (b"1\nNaN\n", NDJSON, 422, "RecordRefused", "Line 2"),
        (b"1 2\n", NDJSON, 422, "RecordRefused", "Line 1"),
        (b'"\xff"\n', NDJSON, 422, "RecordRefused", "Line 1"),
        (b"1\n18446744073709551616\n", NDJSON, 422, "RecordRefused", "Record 1"),
        (b"[" * 5000, {}, 400, "BadInput", "not JSON"),
        (b"[" * 200 + b"]" * 200 + b"\n", NDJSON, 422, "RecordRefused", "nested"),
        (b"x", {"content-type": "text/csv"}, 415, "UnsupportedMediaType", "text/csv"),
    ],
)
def test_an_append_is_refused_whole_when_its_body_is_wrong(
    http: TestClient, body: bytes, headers: dict[str, str], status: int, code: str, says: str
) -> None:
    before = http.get(f"{AT}/depots/log/partitions/0").json()
    assert says in refused(http.post(APPEND, content=body, headers=headers), status, code)
    assert http.get(f"{AT}/depots/log/partitions/0").json() == before


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/msgpack", "application/msgpack"),
        ("application/x-msgpack;q=0.9, application/json;q=0.2", "application/msgpack"),
        ("text/html, application/*;q=0.1", "application/json"),
    ],
)
def test_an_answer_has_the_type_that_the_client_likes_best(http: TestClient, accept: str | None, kind: str) -> None:
    headers = {} if accept is None else {"accept": accept}
    response = http.get(f"{AT}/depots/log", headers=headers)
    assert response.headers["content-type"] == kind
    read = unpack(response.content) if kind.endswith("msgpack") else response.json()
    assert read == {"module_name": "Served", "name": "*log", "num_partitions": 1}


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/*;q=x"])
def test_nothing_is_appended_when_no_answer_would_be_accepted(http: TestClient, accept: str) -> None:
    before = http.get(f"{AT}/depots/log/partitions/0").json()
    refused(http.post(APPEND, json={"record": 1}, headers={"accept": accept}), 406, "NotAcceptable")
    assert http.get(f"{AT}/depots/log/partitions/0").json() == before


def test_values_that_json_lacks_are_shown_as_documented(http: TestClient) -> None:
    record = [b"\x01\xff", WHEN, {2, 1}, {1: "a"}, float("nan"), float("-inf"), 2**60 + 1]
    answer = http.post(APPEND, content=pack({"record": record}), headers=MSGPACK).json()["partitions"][0]
    shown = http.get(f"{AT}/depots/log/partitions/0/records?start={answer[1]}&end={answer[2]}").json()
    assert shown == [["01ff", "2026-01-02T03:04:05.000006+00:00", [1, 2], {"1": "a"}, None, None, 2**60 + 1]]


# --- selects ---------------------------------------------------------------------------------------------------------


def test_values_are_found_by_json_and_by_messagepack_when_keys_are_of_any_kind(
    cluster: InProcessCluster, http: TestClient
) -> None:
    pairs = [["#__odd", 1], [7, 1], [b"\x00", 1], [WHEN, 1], ["a", 1], ["a", 2]]
    response = http.post(f"{AT}/depots/*pairs/append", content=pack({"records": pairs}), headers=MSGPACK)
    assert response.json()["appended"] == 6
    cluster.wait_for_microbatch_processed_count("Served", "mb", 6)
    where = f"{AT}/pstates/counts/selectOne"
    for path, count in ((["a"], 2), ([7], 1), (["#__L7"], 1), (["#__S#__odd"], 1), ([["key", "none"]], None)):
        assert http.post(where, json={"path": path}).json() == count
    for key in (b"\x00", WHEN):
        assert http.post(where, content=pack({"path": [["key", key]]}), headers=MSGPACK).json() == 1
    assert http.post(f"{AT}/pstates/$$counts/select", json={"path": [["pkey", "a"], ["must", "b"]]}).json() == []
    assert http.post(f"{AT}/pstates/counts/select", json={"path": [["mapKeys"]], "pkey": "a"}).json().count("a") == 1


def test_a_body_is_the_path_when_it_is_a_list(cluster: InProcessCluster, http: TestClient) -> None:
    http.post(f"{AT}/depots/*pairs/append", json={"record": ["alone", 1]}, params={"wait": "processed"})
    where = f"{AT}/pstates/counts"
    assert http.post(f"{where}/selectOne", json=["alone"]).json() == 1
    assert http.post(f"{where}/select", content=pack(["alone"]), headers=MSGPACK).json() == [1]
    assert http.post(f"{where}/select", json=[["pkey", "alone"], ["mapKeys"]]).json().count("alone") == 1
    refused(http.post(f"{where}/select", json=[["nonsense"]]), 422, "BadPath")
    refused(http.post(f"{where}/select", json="alone"), 400, "BadInput")


@pytest.mark.parametrize("body", [{"data": 1}, {"record": 1, "records": [1]}, {"record": 1, "key": 2}, {}, [1], 1])
def test_an_append_is_told_the_form_when_its_body_has_another(http: TestClient, body: Any) -> None:
    text = refused(http.post(APPEND, json=body), 400, "BadInput")
    assert '{"record": …}' in text and '{"records": […]}' in text


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"path": "a"}, 400, "BadInput"),
        ({"paths": []}, 400, "BadInput"),
        ({"maxStalenessMs": -1}, 400, "BadInput"),
        ({"maxStalenessMs": True}, 400, "BadInput"),
        ({"at": 1.5}, 400, "BadInput"),
        ({"at": -1}, 400, "BadInput"),
        ({"path": [["nonsense"]]}, 422, "BadPath"),
        ({"path": [["term", "#__fOps.INC"]]}, 422, "BadPath"),
        ({"path": [["all"]]}, 422, "BadPath"),
        ({"path": [["must", "nobody"]]}, 422, "NotOneValue"),
        ({"path": ["a"], "at": 10_000}, 410, "SnapshotExpired"),
    ],
)
def test_a_select_is_refused_when_it_cannot_be_answered(
    http: TestClient, body: dict[str, Any], status: int, code: str
) -> None:
    refused(http.post(f"{AT}/pstates/counts/selectOne", json=body), status, code)


# --- names and methods -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "NotFound"),
        ("GET", f"{AT}/", 404, "NotFound"),
        ("GET", "/api/v1/modules/Nobody", 404, "UnknownName"),
        ("GET", "/api/v1/modules/..", 404, "NotFound"),
        ("GET", "/api/v1/modules/%2e%2e%2fsecret/depots/x", 404, "NotFound"),
        ("GET", "/api/v1/modules/.hidden", 404, "UnknownName"),
        ("GET", f"{AT}/depots/nothing", 404, "UnknownName"),
        ("GET", f"{AT}/pstates/nothing", 404, "UnknownName"),
        ("GET", f"{AT}/topologies/nothing", 404, "UnknownName"),
        ("POST", f"{AT}/topologies/nothing/pause", 404, "UnknownName"),
        ("DELETE", f"{AT}/options", 405, "MethodNotAllowed"),
        ("GET", APPEND, 405, "MethodNotAllowed"),
        ("GET", f"{AT}/depots/log/partitions/x", 400, "BadInput"),
        ("GET", f"{AT}/depots/log/partitions/9", 422, "BadInput"),
        ("GET", f"{AT}/depots/log/partitions/0/records?start=0", 400, "BadInput"),
        ("GET", f"{AT}/depots/log/partitions/0/records?start=0&end=999999", 422, "BadInput"),
        ("GET", f"{AT}/depots/log/partitions/0/records?start=0&end=0&limit=1", 400, "BadInput"),
        ("POST", f"{APPEND}?wiat=processed", 400, "BadInput"),
        ("POST", f"{APPEND}?wait=processed&=", 400, "BadInput"),
    ],
)
def test_a_request_is_refused_in_json_when_nothing_is_there(
    http: TestClient, method: str, path: str, status: int, code: str
) -> None:
    response = http.request(method, path)
    refused(response, status, code)
    assert ("allow" in response.headers) == (status == 405)


def test_only_one_module_is_there_when_the_gateway_is_restricted(opened: Callable[..., TestClient]) -> None:
    http = opened()
    assert http.get("/api/v1/modules").json() == ["Served"]
    assert http.get(AT).json()["depots"][0]["name"] == "*log"
    assert http.get(f"{AT}/topologies/mb").json()["topology"] == "mb"


def test_an_append_needs_the_modules_code_when_its_partitioner_is_a_function_of_it(
    cluster: InProcessCluster, http: TestClient
) -> None:
    where = f"{AT}/depots/custom/append"
    assert "--module" in refused(http.post(where, json={"record": 1}), 422, "RecordRefused")
    with TestClient(make_app(Modules(cluster.store, None, record_module(Served())), GatewaySettings())) as with_code:
        assert with_code.post(where, json={"record": 1}).json()["partitions"] == [[0, 0, 1]]
        assert with_code.get("/api/v1/modules").json() == ["Served"]
        refused(with_code.get("/api/v1/modules/Other"), 404, "UnknownName")


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_requests_need_the_token_when_there_is_one(opened: Callable[..., TestClient]) -> None:
    http = opened(tokens=Tokens(token="good"))
    for given in (None, "Bearer bad", "good", "Basic good", "Bearer"):
        response = http.get(AT, headers={} if given is None else {"authorization": given})
        refused(response, 401, "Unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
    assert http.get(AT, headers={"authorization": "bearer good"}).status_code == 200
    assert [http.get(path).status_code for path in ("/healthz", "/readyz", "/openapi.json")] == [200] * 3
    refused(http.get("/metrics"), 401, "Unauthorized")
    assert opened(tokens=Tokens(token="good"), has_open_metrics=True).get("/metrics").status_code == 200


@pytest.mark.parametrize("tokens", [None, Tokens(token="good")])
def test_the_page_of_the_interface_needs_no_other_host_when_it_is_opened(
    opened: Callable[..., TestClient], tokens: Tokens | None
) -> None:
    http = opened(tokens=tokens)
    page = http.get("/docs")
    assert page.status_code == 200
    assert "://" not in page.text
    assert '"validatorUrl": null' in page.text
    wanted = re.findall(r"(?:src|href)=\"([^\"]+)\"", page.text)
    assert len(wanted) == 3
    kinds = {http.get(path).headers["content-type"].partition(";")[0] for path in wanted}
    assert kinds == {"text/css", "text/javascript", "image/png"}
    assert all(http.get(path).status_code == 200 for path in wanted)
    refused(http.get("/docs/files/nothing.js"), 404, "NotFound")


def test_a_new_token_counts_at_once_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    tokens = Tokens(file=file)
    assert tokens.fits(b"old") and not tokens.fits(b"new")
    (tmp_path / "next").write_text("old\nnew\n")
    os.replace(tmp_path / "next", file)
    assert tokens.fits(b"old") and tokens.fits(b"new")
    file.write_text("new\n")
    os.utime(file, ns=(1, 1))
    assert not tokens.fits(b"old") and tokens.fits(b"new")
    file.unlink()
    assert tokens.fits(b"new") and not tokens.fits(b"")


def test_a_gateway_is_refused_when_others_could_reach_it_without_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "10.0.0.1", "::", "example.org"):
        with pytest.raises(BadInput, match="token"):
            check_exposure(host, None)
        check_exposure(host, Tokens(token="t"))
    for host in ("127.0.0.1", "localhost", "::1"):
        check_exposure(host, None)
    (tmp_path / "empty").write_text("\n")
    for environment in ({"TIDEMILL_TOKEN_FILE": str(tmp_path / "empty")}, {"TIDEMILL_TOKEN_FILE": "/nowhere"}):
        with pytest.raises(BadInput):
            tokens_from("", environment)
    assert tokens_from("", {}) is None
    found = tokens_from("", {"TIDEMILL_TOKEN": " t "})
    assert found is not None and found.fits(b"t")


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_body_is_refused_when_it_is_too_large_with_or_without_a_length(opened: Callable[..., TestClient]) -> None:
    http = opened(body_bytes_max=100)
    large = json.dumps({"record": "x" * 100}).encode()
    refused(http.post(APPEND, content=large), 413, "TooLarge")
    refused(http.post(APPEND, content=iter([large[:50], large[50:]])), 413, "TooLarge")
    assert http.post(APPEND, json={"record": "x"}).status_code == 200


class Stuck:
    """Group commits of a depot that wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_writing, self.may_go_on = threading.Event(), threading.Event()
        before = DepotLog.append_group

        def append_group(log: DepotLog, batches: Any) -> Any:
            self.is_writing.set()
            self.may_go_on.wait(10)
            return before(log, batches)

        monkeypatch.setattr(DepotLog, "append_group", append_group)


def test_a_late_append_says_whether_it_may_be_done_when_time_is_up(
    opened: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    http = opened(seconds_max=0.05)
    before = http.get(f"{AT}/depots/log/partitions/0").json()["end_offset"]
    stuck = Stuck(monkeypatch)
    refused(http.post(APPEND, json={"record": "under way"}), 504, "OutcomeUnknown")
    assert stuck.is_writing.wait(10)
    assert "nothing was appended" in refused(http.post(APPEND, json={"record": "waiting"}), 504, "Timeout")
    stuck.may_go_on.set()
    assert appended(opened(), opened().post(APPEND, json={"record": "after"})) == ["after"]
    assert http.get(f"{AT}/depots/log/partitions/0").json()["end_offset"] == before + 2


def test_a_request_is_sent_away_when_as_many_are_under_way_as_may_be(
    opened: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    http, stuck = opened(in_flight_max=1), Stuck(monkeypatch)
    answers: Future[Any] = Future()
    thread = threading.Thread(target=lambda: answers.set_result(http.post(APPEND, json={"record": 1})))
    thread.start()
    assert stuck.is_writing.wait(10)
    response = http.get(AT)
    refused(response, 503, "Busy")
    assert response.headers["retry-after"] == "1"
    assert http.get("/healthz").status_code == 200
    stuck.may_go_on.set()
    assert answers.result(10).status_code == 200
    thread.join()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreUnavailable("down"), 503, "StoreUnavailable"),
        (OutcomeUnknown("who knows"), 504, "OutcomeUnknown"),
        (RuntimeError("secret"), 504, "OutcomeUnknown"),
    ],
)
def test_the_error_of_the_store_reaches_the_client_when_an_append_fails(
    http: TestClient, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(DepotLog, "append_group", fail)
    response = http.post(APPEND, json={"record": 1})
    refused(response, status, code)
    assert ("retry-after" in response.headers) == (status == 503)


def test_a_stranger_learns_nothing_when_the_gateway_fails(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(OptionsLog, "read", fail)
    assert "secret" not in refused(http.get(f"{AT}/options"), 500, "InvariantViolation")


# --- keys ------------------------------------------------------------------------------------------------------------


def test_an_append_is_done_once_when_its_key_comes_again(http: TestClient) -> None:
    headers = {"idempotency-key": '"order-17"'}
    first = http.post(APPEND, json={"records": ["a", "b"]}, headers=headers).json()
    assert http.post(APPEND, json={"records": ["a", "b"]}, headers=headers).json() == first
    assert http.post(APPEND, json={"records": ["a", "b"]}, headers={"idempotency-key": "order-17"}).json() == first
    for other in (["a"], ["a", "c"]):
        refused(http.post(APPEND, json={"records": other}, headers=headers), 422, "KeyReused")
    assert http.post(APPEND, json={"record": "c"}, headers={"idempotency-key": "order-18"}).json() != first


def test_a_producers_numbers_rise_when_it_names_them(http: TestClient) -> None:
    def send(sequence: int) -> Any:
        headers = {"idempotency-key": "p", "idempotency-sequence": str(sequence)}
        return http.post(APPEND, json={"record": sequence}, headers=headers).json()["partitions"]

    first, second = send(1), send(2)
    assert second == [[0, first[0][2], first[0][2] + 1]]
    assert (send(1), send(2)) == (first, second)
    headers = {"idempotency-key": "p", "idempotency-sequence": "0"}
    refused(http.post(APPEND, json={"record": 0}, headers=headers), 422, "SequenceUnknown")
    headers = {"idempotency-key": "p", "idempotency-sequence": "2"}
    refused(http.post(APPEND, json={"record": "of another process"}, headers=headers), 422, "KeyReused")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"idempotency-key": "with space"}, 400),
        ({"idempotency-key": "x" * 256}, 400),
        ({"idempotency-key": "k", "idempotency-sequence": "-1"}, 400),
        ({"idempotency-key": "k", "idempotency-sequence": "1.5"}, 400),
        ({"idempotency-sequence": "1"}, 422),
    ],
)
def test_a_key_is_refused_when_it_is_none(http: TestClient, headers: dict[str, str], status: int) -> None:
    refused(http.post(APPEND, json={"record": 1}, headers=headers), status, "BadInput")


# --- options and status ----------------------------------------------------------------------------------------------


def test_options_hold_when_they_are_patched_and_none_when_one_is_wrong(http: TestClient) -> None:
    name = "depot.microbatch.max.records"
    where = f"{AT}/options"
    set_ = [{"scope": "module", "object": "", "name": name, "value": 7}]
    assert http.patch(where, json={"set": {name: 7}}).json()["set"] == set_
    refused(http.patch(where, json={"set": {name: 8, "no.such": 1}}), 422, "BadOption")
    refused(http.patch(where, json={"topology": "nothing", "set": {name: 8}}), 404, "UnknownName")
    refused(http.patch(where, json={"topology": "mb", "depot": "log"}), 422, "BadInput")
    assert http.get(where).json()["set"] == set_
    assert http.patch(where, json={"unset": [name]}).json()["set"] == []


def test_an_edit_is_refused_when_a_resource_decides(cluster: InProcessCluster, http: TestClient) -> None:
    log = OptionsLog(cluster.store, "Served")
    name = "topology.microbatch.phase.timeout.seconds"
    log.manage("Topology demo/mb", {("topology", "mb", name): 60, ("topology", "mb", "paused"): False})
    try:
        edit = {"topology": "mb", "set": {name: 70}}
        assert "demo/mb" in refused(http.patch(f"{AT}/options", json=edit), 409, "Managed")
        assert "demo/mb" in refused(http.post(f"{AT}/topologies/mb/pause"), 409, "Managed")
        assert len(http.get(f"{AT}/options").json()["managed"]) == 2
    finally:
        log.manage("Topology demo/mb", {})


def test_a_topology_pauses_and_goes_on_when_it_is_asked_to(http: TestClient) -> None:
    assert http.post(f"{AT}/topologies/mb/pause").json() == {"topology": "mb", "is_paused": True}
    assert http.get(f"{AT}/topologies/mb").json()["is_paused"]
    assert http.post(f"{AT}/topologies/mb/resume").json() == {"topology": "mb", "is_paused": False}
    assert not http.get(f"{AT}/topologies/mb").json()["is_paused"]


def test_metrics_count_what_was_done_when_they_are_scraped(http: TestClient) -> None:
    http.post(APPEND, json={"records": [1, 2, 3]})
    http.post(f"{AT}/pstates/counts/selectOne", json={"path": ["a"]})
    http.get("/api/v1/modules/Nobody")
    text = http.get("/metrics").text
    assert 'tidemill_gateway_appended_records_total{depot="*log",module="Served"} 3.0' in text
    assert 'tidemill_gateway_selects_total{module="Served",pstate="$$counts"} 1.0' in text
    assert 'tidemill_gateway_errors_total{code="UnknownName"} 1.0' in text
    assert 'tidemill_topology_lag_records{module="Served",source="*pairs",topology="mb"}' in text
    assert "tidemill_store_up 1.0" in text and "Nobody" not in text
    assert 'tidemill_topology_skipped_records_total{module="Served",topology="mb"} 0.0' in text
