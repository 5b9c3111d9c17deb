"""The gateway's port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidemill.gateway.modules import Modules
from tidemill.gateway.server import GatewayServer
from tidemill.gateway.settings import GatewaySettings
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput


@contextmanager
def closing_of(server: GatewayServer) -> Iterator[None]:
    """Stops the server at the end."""
    try:
        yield
    finally:
        server.stop()


def test_a_client_waits_and_is_not_refused_when_the_url_is_known_before_the_server_runs(tmp_path: Path) -> None:
    server = GatewayServer(Modules(open_store(str(tmp_path))), GatewaySettings(), "127.0.0.1", 0)

    with closing_of(server), socket.create_connection((server.host, server.port), timeout=10):
        pass


def test_the_port_is_named_when_somebody_else_has_it(tmp_path: Path) -> None:
    modules = Modules(open_store(str(tmp_path)))
    taken = GatewayServer(modules, GatewaySettings(), "127.0.0.1", 0)

    with closing_of(taken), pytest.raises(BadInput, match=f"Port {taken.port} of 127.0.0.1"):
        GatewayServer(modules, GatewaySettings(), "127.0.0.1", taken.port)

    with closing_of(GatewayServer(modules, GatewaySettings(), "127.0.0.1", taken.port)):
        pass  # a server that never served gave its port back
