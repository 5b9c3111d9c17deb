"""The gateway's client: what it tries again and under which name, what it gives up, and how paths travel."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import BadInput, BadPath, Constant, Expr, KeyReused, Ops, Path, RecordRefused, UnknownName
from tidemill.api.path import path_of
from tidemill.client import Client
from tidemill.client.connection import Connection, Request
from tidemill.client.depot import ProducerPool
from tidemill.client.paths import path_to_json, value_to_json
from tidemill.journal.clock import ManualClock
from tidemill.language.dataflow import Const, Function, Nav, RecordedPath
from tidemill.paths.json import path_from_json
from tidemill.values.errors import OutcomeUnknown, SequenceUnknown, StoreUnavailable, TidemillError
from tidemill.values.message_pack import pack, unpack

APPEND = Request("POST", "/append", b"x", headers={"idempotency-key": "k"}, is_write=True)
SELECT = Request("POST", "/select", b"x")
DECISION = Request("POST", "/drop", b"x", is_write=True, is_once=True)
Answer = httpx.Response | Exception


def answer(status: int, code: str = "", headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": f"says {code}"}}, headers=headers)


def done() -> httpx.Response:
    return httpx.Response(200, content=pack([b"done"]), headers={"content-type": "application/msgpack"})


class Scripted:
    """A gateway that gives these answers, the last one for ever; remembers what it was asked, and when."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.times: list[float] = []
        self.clock = ManualClock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        self.times.append(self.clock.monotonic_ms())
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, Exception):
            raise given
        return given

    def send(self, request: Request, seconds: float = 30) -> Any:
        connection = Connection("http://gateway", "t", seconds, httpx.MockTransport(self), self.clock)
        return connection.send(request)


PASSING: list[Callable[[], Answer]] = [
    lambda: httpx.ConnectError("refused"),
    lambda: httpx.ReadTimeout("slow"),
    lambda: httpx.RemoteProtocolError("cut"),
    lambda: answer(503, "StoreUnavailable"),
    lambda: answer(503, "Busy"),
    lambda: answer(504, "OutcomeUnknown"),
    lambda: answer(504, "Timeout"),
    lambda: httpx.Response(502, text="a proxy's page"),
]


def test_an_append_is_sent_again_when_something_else_than_a_gateway_answered() -> None:
    """A page of a proxy's, which says 200 and did nothing."""
    page = httpx.Response(200, text="<h1>Sign in</h1>", headers={"content-type": "text/html"})
    gateway = Scripted(page, httpx.Response(200), done())
    assert gateway.send(APPEND) == [b"done"]
    assert len(gateway.asked) == 3
    with pytest.raises(OutcomeUnknown, match="answered 200 as no gateway does, with text/html: .*Sign in"):
        Scripted(page).send(APPEND)
    with pytest.raises(BadInput, match="http://gateway answered 200 as no gateway does"):
        Scripted(page).send(SELECT)


@pytest.mark.parametrize("failure", PASSING)
@pytest.mark.parametrize("request_", [APPEND, SELECT])
def test_a_request_is_sent_again_as_it_was_when_that_may_help(failure: Callable[[], Answer], request_: Request) -> None:
    gateway = Scripted(failure(), failure(), done())
    assert gateway.send(request_) == [b"done"]
    assert len(gateway.asked) == 3
    assert len({(r.content, r.headers.get("idempotency-key"), r.headers["authorization"]) for r in gateway.asked}) == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "UnknownName", UnknownName),
        (422, "BadPath", BadPath),
        (413, "TooLarge", BadInput),
        (401, "Unauthorized", BadInput),
    ],
)
def test_a_refusal_is_raised_at_once_when_trying_again_cannot_help(
    status: int, code: str, kind: type[Exception]
) -> None:
    gateway = Scripted(answer(status, code))
    with pytest.raises(kind, match=f"says {code}"):
        gateway.send(APPEND)
    assert len(gateway.asked) == 1


@pytest.mark.parametrize(
    ("answers", "request_", "kind"),
    [
        ([httpx.ConnectError("refused")], APPEND, StoreUnavailable),
        ([answer(503, "StoreUnavailable")], APPEND, StoreUnavailable),
        ([answer(504, "Timeout")], APPEND, StoreUnavailable),
        ([httpx.ReadTimeout("slow"), httpx.ConnectError("refused")], APPEND, OutcomeUnknown),
        ([httpx.ReadTimeout("slow")], SELECT, StoreUnavailable),
        ([httpx.Response(502, text="?")], APPEND, OutcomeUnknown),
        ([httpx.Response(502, text="?")], SELECT, StoreUnavailable),
        ([httpx.Response(500, text="?")], SELECT, TidemillError),
    ],
)
def test_an_error_says_whether_it_may_be_done_when_time_is_up(
    answers: list[Answer], request_: Request, kind: type[Exception]
) -> None:
    gateway = Scripted(*answers)
    with pytest.raises(kind) as raised:
        gateway.send(request_, seconds=5)
    assert type(raised.value) is kind
    assert gateway.clock.monotonic_ms() <= 5_000


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (lambda: httpx.ReadTimeout("slow"), OutcomeUnknown),
        (lambda: httpx.Response(502, text="?"), OutcomeUnknown),
        (lambda: answer(503, "StoreUnavailable"), StoreUnavailable),
    ],
)
def test_a_decision_is_not_sent_again_when_the_gateway_may_have_got_it(
    failure: Callable[[], Answer], kind: type[Exception]
) -> None:
    """A second one would find other records, and its answer would say nothing of the first."""
    gateway = Scripted(httpx.ConnectError("refused"), failure(), done())
    with pytest.raises(kind):
        gateway.send(DECISION)
    assert len(gateway.asked) == 2


@pytest.mark.parametrize("refusal", [(503, "Busy"), (429, "TooManyRequests")])
def test_a_decision_is_sent_again_when_the_gateway_did_not_begin_with_it(refusal: tuple[int, str]) -> None:
    gateway = Scripted(answer(*refusal), httpx.ConnectError("refused"), answer(*refusal), done())
    assert gateway.send(DECISION) == [b"done"]
    with pytest.raises(StoreUnavailable, match=f"says {refusal[1]}"):
        Scripted(answer(*refusal)).send(DECISION)
    with pytest.raises(OutcomeUnknown):  # a proxy says so, of which nothing is known
        Scripted(httpx.Response(refusal[0], text="busy"), done()).send(DECISION)


def test_pauses_grow_and_heed_the_gateway_when_it_stays_busy() -> None:
    gateway = Scripted(answer(503, "Busy"))
    with pytest.raises(StoreUnavailable):
        gateway.send(SELECT, seconds=20)
    pauses = [after - before for before, after in zip(gateway.times, gateway.times[1:], strict=False)]
    assert 25 <= pauses[0] <= 50 and max(pauses) <= 3_000 and pauses[-1] > 1_000
    told = Scripted(answer(503, "Busy", {"retry-after": "1"}), done())
    told.send(SELECT)
    assert told.times[1] >= 250


def test_a_name_has_one_append_under_way_when_several_are_sent_at_once() -> None:
    lanes = ProducerPool()
    first, second = lanes.take(), lanes.take()
    assert first[0] != second[0] and (first[1], second[1]) == (0, 0)
    lanes.give_back(*first)
    assert lanes.take() == (first[0], 1)
    assert lanes.take()[0] not in (first[0], second[0])


# --- paths -----------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.binary()
    | st.text() | st.text().map("#__".__add__) | st.datetimes(timezones=st.just(datetime.UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(-9, 9), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
PLAIN = ("key", "must", "filter_equal", "sub_map", "null_to_val", "nth")


@given(st.lists(st.tuples(st.sampled_from(PLAIN), VALUES), max_size=4))
def test_a_path_arrives_as_it_was_when_its_values_are_of_any_kind(navs: list[tuple[str, Any]]) -> None:
    recorded = RecordedPath(tuple(Nav(name, (Const(value),)) for name, value in navs))
    found = path_from_json(unpack(pack(path_to_json(recorded))))
    assert found.path == recorded


@given(VALUES)
def test_a_partition_key_arrives_as_it_was_when_it_looks_like_a_mark(value: Any) -> None:
    assert path_from_json(unpack(pack([["pkey", value_to_json(value)]]))).pkey == value


@pytest.mark.parametrize(
    "path",
    [
        Path.all(),
        Path.key("a").sorted_map_range(1, 9, include_end=True),
        Path.sorted_map_range_from("a", max_amt=3),
        Path.sorted_set_range_to(5, include_end=True, max_amt=2),
        Path.if_path(Path.must("a"), Path.key("b"), Path.stop()),
        Path.multi_path(Path.key("a").all(), Path.filter_selected(Path.filter_pred(Ops.IS_EVEN))),
        Path.subselect(Path.map_vals().view(Ops.PLUS, 1)),
        Path.collect(Path.map_keys()).map_vals(),
        Path.sorted_map_range({"a": 1}, {"b": 2}),
    ],
)
def test_a_path_arrives_as_it_was_when_it_has_paths_options_and_operations(path: Path) -> None:
    assert navs_of(path_from_json(unpack(pack(path_to_json(path)))).path) == navs_of(path_of(path))


def navs_of(path: RecordedPath) -> list[Any]:
    """A path to compare: an option is a value, however it was recorded."""
    return [
        (nav.name, [_compared(arg) for arg in nav.args], {name: _compared(value) for name, value in nav.options})
        for nav in path.navs
    ]


def _compared(arg: Any) -> Any:
    if isinstance(arg, RecordedPath):
        return navs_of(arg)
    if isinstance(arg, Function):
        return arg.name
    return arg.value if isinstance(arg, Const) else arg


def test_arguments_are_worked_out_here_when_they_are_expressions_or_look_like_variables() -> None:
    path = Path.key(Expr(Ops.PLUS, 1, 2)).key("*a").key(Constant("*b"))
    assert path_to_json(path) == [["key", 3], ["key", "*a"], ["key", "*b"]]


@pytest.mark.parametrize("path", [Path.view(lambda value: value), Path.filter_pred(str.isupper), Path.view(len)])
def test_a_path_is_refused_when_it_calls_a_function_of_the_callers(path: Path) -> None:
    with pytest.raises(BadPath, match="does not travel"):
        path_to_json(path)


@pytest.mark.parametrize("token", ["a\nb", "se cret", "\u00e9", "a\x00"])
def test_a_token_is_refused_without_being_repeated_when_it_can_be_none(token: str) -> None:
    with pytest.raises(BadInput) as caught:
        Client("http://gateway", token)
    assert token not in str(caught.value)


def test_blanks_around_a_token_are_left_out_when_a_file_brought_them() -> None:
    asked: list[str] = []

    def look(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        return done()

    with Client("http://gateway", "secret\n", transport=httpx.MockTransport(look)) as client:
        client.modules()
    assert asked == ["Bearer secret"]


@pytest.mark.parametrize(
    "url",
    [
        "gateway",
        "gateway:8080",
        "127.0.0.1:8080",
        "",
        "http://",
        "http:gateway",
        "ftp://gateway",
        "http://a:b",
        8080,
        None,
    ],
)
def test_a_client_is_refused_when_its_url_is_none_of_a_gateway(url: Any) -> None:
    with pytest.raises(BadInput, match="The URL of a gateway is http://HOST:PORT or https://HOST, not"):
        Client(url)


def info(request: httpx.Request) -> httpx.Response:
    found = {"module_name": "M", "name": "*d", "num_partitions": 1}
    return httpx.Response(200, content=pack(found), headers={"content-type": "application/msgpack"})


CLOSED: dict[str, Callable[[Client, Any, Any], object]] = {
    "modules": lambda client, depot, pstate: client.modules(),
    "depot": lambda client, depot, pstate: client.depot("M", "d"),
    "append": lambda client, depot, pstate: depot.append(1),
    "append_async": lambda client, depot, pstate: depot.append_async(1),
    "append_many": lambda client, depot, pstate: depot.append_many([1, 2]),
    "read": lambda client, depot, pstate: depot.read(0, 0, 1),
    "read_async": lambda client, depot, pstate: depot.read_async(0, 0, 1),
    "select": lambda client, depot, pstate: pstate.select(Path.key("a")),
    "select_async": lambda client, depot, pstate: pstate.select_async(Path.key("a")),
    "wait": lambda client, depot, pstate: client.wait_until_processed("M"),
}


@pytest.mark.parametrize("call", CLOSED.values(), ids=CLOSED)
def test_a_call_is_refused_in_a_sentence_when_its_client_is_closed(call: Callable[[Client, Any, Any], object]) -> None:
    client = Client("http://gateway/", transport=httpx.MockTransport(info))
    depot, pstate = client.depot("M", "d"), client.pstate("M", "p")
    client.close()
    client.close()
    with pytest.raises(BadInput, match="This client of http://gateway/ is closed; open a new one"):
        call(client, depot, pstate)


def test_an_append_may_be_done_when_its_client_is_closed_between_two_tries() -> None:
    def breaks_off(request: httpx.Request) -> httpx.Response:
        connection.close()
        raise httpx.ReadTimeout("slow")

    connection = Connection("http://gateway", None, 30, httpx.MockTransport(breaks_off), ManualClock())
    with pytest.raises(OutcomeUnknown, match=r"is closed.*An earlier try may have been done"):
        connection.send(APPEND)


def test_an_append_may_be_done_when_its_repeat_is_no_longer_known() -> None:
    """An answer that was lost, and then so many appends under the same name that nobody knows this one any more."""
    gateway = Scripted(httpx.ReadTimeout("slow"), answer(422, "SequenceUnknown"))
    with pytest.raises(OutcomeUnknown, match=r"says SequenceUnknown An earlier try may have been done"):
        gateway.send(APPEND)
    with pytest.raises(SequenceUnknown):
        gateway.send(APPEND)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "Unauthorized", OutcomeUnknown),
        (403, "Forbidden", OutcomeUnknown),
        (404, "UnknownName", OutcomeUnknown),
        (500, "CorruptState", OutcomeUnknown),
        (422, "RecordRefused", RecordRefused),
        (422, "KeyReused", KeyReused),
    ],
)
def test_an_append_may_be_done_when_its_repeat_is_refused_for_what_changed_meanwhile(
    status: int, code: str, kind: type[TidemillError]
) -> None:
    gateway = Scripted(httpx.RemoteProtocolError("restarted"), answer(status, code))
    with pytest.raises(TidemillError, match=f"says {code}") as raised:
        gateway.send(APPEND)
    assert type(raised.value) is kind
