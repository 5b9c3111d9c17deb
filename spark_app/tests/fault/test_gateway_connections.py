"""Connections that send too much, too slowly, or nothing, on real sockets: they end, and others are answered."""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import served

from tidemill.gateway.connections import (
    BODY_BYTES_MIN,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    ConnectionBounds,
    connections_allowed,
)
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.store.urls import open_store
from tidemill.testing.memory_store import MemoryStore

TIDEMILL = [sys.executable, "-c", "from tidemill.cli.main import app; app()"]
FILES = 256
PROBE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST /api/v1/modules/M/depots/d/append HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\n"
WAIT_SECONDS = 60.0
SMALL = ConnectionBounds(request_seconds=2.0, connections_max=8, head_seconds=0.2, body_seconds=0.2, idle_seconds=0.4)
LONG = ConnectionBounds(request_seconds=WAIT_SECONDS, connections_max=8)


@contextlib.contextmanager
def gateway(bounds: ConnectionBounds) -> Iterator[int]:
    """The port of a gateway with these bounds and the token `secret`."""
    settings = GatewaySettings(tokens=Tokens(token="secret"), connection_bounds=bounds)
    with served(Modules(MemoryStore()), settings) as server:
        yield server.port


@contextlib.contextmanager
def connected(port: int, data: bytes = b"") -> Iterator[socket.socket]:
    """A connection that has sent this."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as made:
        made.sendall(data)
        yield made


def heard(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def told(connection: socket.socket) -> tuple[int, str]:
    """Status and code of the error that a connection ends with."""
    head, _, body = heard(connection).partition(b"\r\n\r\n")
    assert head, "closed without a word"
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def probe(port: int) -> bytes:
    """The first line of what the health probe answers."""
    with connected(port, PROBE) as connection:
        return connection.recv(15)


ENDLESS: dict[str, list[bytes]] = {
    "headers": [b"x-%d: %s\r\n" % (number, b"v" * 1_000) for number in range(200)],
    "many small headers": [b"a: b\r\n" * 50] * 20,
    "one header": [b"x: "] + [b"v" * 10_000] * 100,
    "a line": [b"/" * 10_000] * 100,
}


@pytest.mark.parametrize("parts", ENDLESS.values(), ids=ENDLESS)
def test_a_request_is_refused_when_its_head_has_no_end(parts: list[bytes]) -> None:
    begin = b"GET /" if parts[0].startswith(b"/") else b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with gateway(LONG) as port, connected(port, begin) as connection:
        sent = 0
        with contextlib.suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
                sent += len(part)
            connection.sendall(b"\r\n\r\n")
        assert b" 431 " in heard(connection)[:30] or sent < 20 * HEAD_BYTES_MAX
        assert probe(port) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("headers", [HEADERS_MAX - 1, HEADERS_MAX])
def test_a_request_is_answered_when_it_has_as_many_headers_as_are_allowed(headers: int) -> None:
    data = PROBE[:-2] + b"a: b\r\n" * headers + b"\r\n"
    with gateway(LONG) as port, connected(port, data) as connection:
        assert connection.recv(12) == (b"HTTP/1.1 200" if headers < HEADERS_MAX else b"HTTP/1.1 431")


def test_a_request_is_refused_when_what_follows_its_body_has_no_end() -> None:
    begin = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    with gateway(LONG) as port, connected(port, begin) as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(1_000):
                connection.sendall(b"x-trailer: " + b"v" * 1_000 + b"\r\n")
        heard(connection)  # returns, since the other side closes
        assert probe(port) == b"HTTP/1.1 200 OK"


SLOW: dict[str, tuple[bytes, tuple[int, str]]] = {
    "nothing": (b"", (408, "Timeout")),
    "half a head": (b"GET /healthz HT", (408, "Timeout")),
    "half the headers": (PROBE[:-2], (408, "Timeout")),
    "half a body": (POST + b"Content-Length: 10\r\n\r\n12345", (408, "Timeout")),
    "half a chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12", (408, "Timeout")),
}


@pytest.mark.parametrize(("data", "answer"), SLOW.values(), ids=SLOW)
def test_a_connection_ends_when_its_client_stops_in_the_middle(data: bytes, answer: tuple[int, str]) -> None:
    with gateway(SMALL) as port, connected(port, data) as connection:
        assert told(connection) == answer


@pytest.mark.parametrize("begin", [b"GET /healthz HTTP/1.1\r\nx: ", POST + b"Content-Length: 100000\r\n\r\n"])
def test_a_connection_ends_when_its_client_sends_a_byte_now_and_then(begin: bytes) -> None:
    with gateway(SMALL) as port, connected(port, begin) as connection:
        while not select.select([connection], [], [], 0.02)[0]:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"x")
        assert told(connection) == (408, "Timeout")


def test_a_body_is_taken_when_it_comes_slowly_but_steadily() -> None:
    bounds = ConnectionBounds(request_seconds=WAIT_SECONDS, body_seconds=5.0)
    size = 4 * BODY_BYTES_MIN
    with (
        gateway(bounds) as port,
        connected(port, POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size) as connection,
    ):
        for _ in range(4):
            connection.sendall(b"x" * BODY_BYTES_MIN)
        assert told(connection)[0] == 404


def test_a_connection_is_kept_for_its_next_request_when_one_is_answered_and_closed_when_none_comes() -> None:
    with gateway(SMALL) as port, connected(port) as connection:
        for _ in range(3):
            connection.sendall(PROBE)
            assert connection.recv(65_536).endswith(b"ok\n")
        assert heard(connection) == b""


def test_two_requests_are_answered_in_order_when_they_come_at_once() -> None:
    with gateway(LONG) as port, connected(port, PROBE + PROBE.replace(b"healthz", b"nothing")) as connection:
        found = b""
        while found.count(b"HTTP/1.1") < 2 or not found.endswith(b"}"):
            found += connection.recv(65_536)
        assert found.index(b"200 OK") < found.index(b" 401 ")


def test_there_is_room_for_a_probe_when_silent_connections_hold_every_place() -> None:
    with gateway(LONG) as port, contextlib.ExitStack() as held:
        waiting = [held.enter_context(connected(port, b"GET /healthz HT")) for _ in range(3 * LONG.connections_max)]
        for _ in range(5):
            assert probe(port) == b"HTTP/1.1 200 OK"
        closed = select.select(waiting, [], [], WAIT_SECONDS)[0]
        assert closed


def test_no_more_than_half_of_the_open_files_are_connections() -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert connections_allowed() == min(CONNECTIONS_MAX, files // 2)


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[int]:
    """The port of a gateway process that may open few files."""
    open_store(f"file://{tmp_path}/store")
    (tmp_path / "token").write_text("secret\n")
    arguments = ["gateway", "--store", f"file://{tmp_path}/store", "--port", "0", "--json", "--host", "127.0.0.1"]
    command = [*TIDEMILL, *arguments, "--token-file", str(tmp_path / "token")]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=limit) as process:
        try:
            assert process.stdout is not None
            yield int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        finally:
            process.terminate()


HELD: dict[str, Any] = {
    "half requests": b"GET /healthz HTTP/1.1\r\n",
    "nothing": b"",
    "half bodies with a token": POST + b"Content-Length: 100\r\n\r\nx",
    "half bodies without a token": POST.replace(b"secret", b"wrong") + b"Content-Length: 100\r\n\r\nx",
}


@pytest.mark.parametrize("data", HELD.values(), ids=HELD)
def test_others_are_answered_when_more_connections_hang_than_a_process_may_open(limited: int, data: bytes) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(2 * FILES):
            held.enter_context(connected(limited, data))
        assert [probe(limited) for _ in range(3)] == 3 * [b"HTTP/1.1 200 OK"]
