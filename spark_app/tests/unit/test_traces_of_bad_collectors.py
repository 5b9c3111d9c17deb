"""Collectors of traces that do harm: answers without end, and troubles that would fill a log or show a secret."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from waiting import eventually

from tidemill.journal import otlp, tracing
from tidemill.journal.spans import TracedSpan, tracer

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
SENT_MAX = 64 * 1024 * 1024
"""More than any buffers of sockets hold: who takes so much of an answer would take all."""


@dataclass
class Answering:
    """A server that answers each request with the same bytes; if it `goes_on`, with more until nobody takes them."""

    answer: bytes = b""
    goes_on: bool = False
    connections: int = 0
    requests: int = 0
    sent: list[int] = field(default_factory=list)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def serve(self) -> None:
        while True:
            try:
                made, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(made,), daemon=True).start()

    def _talk(self, made: socket.socket) -> None:
        with made, made.makefile("rb") as lines:
            while True:
                length = 0
                while (line := lines.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                if not length:
                    return
                lines.read(length)
                self.requests += 1
                made.sendall(self.answer)
                if self.goes_on:
                    self.sent.append(_sent_until_closed(made))
                    return


def _sent_until_closed(made: socket.socket) -> int:
    """How many bytes somebody takes."""
    sent = 0
    try:
        while sent < SENT_MAX:
            sent += made.send(b"x" * 65_536)
    except OSError:
        return sent
    return sent


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    made = Answering()
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    url = f"http://somebody:secret@127.0.0.1:{made.listener.getsockname()[1]}/v1/traces?key=secret#secret"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setattr(otlp, "CLOSE_MS", 100)
    yield made
    made.listener.shutdown(socket.SHUT_RDWR)
    made.listener.close()
    thread.join()


def told(span: str) -> None:
    found = tracer()
    assert found is not None
    found.record(TracedSpan(name=span))


@pytest.mark.parametrize("head", ["200 OK", "400 Bad Request", "302 Found\r\nLocation: /elsewhere"])
def test_an_answer_is_cut_when_it_has_no_end(server: Answering, head: str) -> None:
    server.answer, server.goes_on = f"HTTP/1.1 {head}\r\n\r\n".encode(), True
    with tracing.tracing():
        for number in range(3):
            told(f"{number}")
            eventually(lambda wanted=number + 1: len(server.sent) >= wanted, 60)

    assert max(server.sent) < SENT_MAX


def test_one_connection_serves_all_when_answers_are_short(server: Answering) -> None:
    server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with tracing.tracing():
        for number in range(4):
            told(f"{number}")
            eventually(lambda wanted=number + 1: server.requests >= wanted, 60)

    assert server.connections == 1


def test_a_trouble_is_told_once_when_it_lasts(server: Answering, caplog: pytest.LogCaptureFixture) -> None:
    server.answer = b"HTTP/1.1 400 \x1b[2J" + b"n" * 5_000 + b"\r\nContent-Length: 0\r\n\r\n"
    with tracing.tracing():
        for number in range(4):
            told(f"{number}")
            eventually(lambda wanted=number + 1: server.requests >= wanted, 60)
    [line] = [one.getMessage() for one in caplog.records if one.name == EXPORTER]

    assert "400" in line and line.isprintable() and len(line) < 500


@pytest.mark.parametrize("address", ["", "somebody:secret", "secret", "http://somebody:secret@[host/?secret"])
def test_no_secret_of_the_address_is_logged_when_the_collector_cannot_be_reached(
    server: Answering, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    if address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
    server.answer = b"nonsense\r\n\r\n"
    with tracing.tracing():
        told("lost")
        eventually(lambda: [one for one in caplog.records if one.name == EXPORTER], 60)

    assert "secret" not in caplog.text


def test_no_secret_is_logged_when_nobody_listens(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://somebody:secret@127.0.0.1:9/?key=secret")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setattr(otlp, "CLOSE_MS", 100)
    with tracing.tracing():
        told("lost")
        eventually(lambda: [one for one in caplog.records if one.name == EXPORTER], 60)

    assert "secret" not in caplog.text and "Connection refused" in caplog.text


def test_nothing_is_logged_when_texts_are_cut(server: Answering, caplog: pytest.LogCaptureFixture) -> None:
    server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    text = "x" * 100_000
    with tracing.tracing():
        found = tracer()
        assert found is not None
        found.record(TracedSpan(name=text, attributes={"url.path": text}, error=text, stack=text))
        eventually(lambda: server.requests, 60)

    assert caplog.text == ""
