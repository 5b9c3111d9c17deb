"""Serving the application: in this process until a signal comes, or beside a runner on a thread."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn

from tidemill.gateway.app import make_app
from tidemill.gateway.connections import ConnectionBounds, Connections, connections_allowed
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings, check_exposure, check_origins
from tidemill.gateway.subscriptions import Subscriptions
from tidemill.values.errors import BadInput, RetryableError

GRACE_SECONDS = 20
"""How long requests under way may take to end after a SIGTERM."""

START_SECONDS = 30.0
_BACKLOG = 2048
_log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it: after an asked stop the process ends as one that did its work."""

    def __init__(self, config: uvicorn.Config, subscriptions: Subscriptions) -> None:
        super().__init__(config)
        self._subscriptions = subscriptions

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's; subscriptions, which would go on for ever, end first."""
        self._subscriptions.end()
        await super().shutdown(sockets)


class GatewayServer:
    """A gateway on one port; `port` 0 takes a free one.

    Raises:
        BadInput: the port is taken, or others could reach it and there is no token.
    """

    def __init__(self, modules: Modules, settings: GatewaySettings, host: str, port: int) -> None:
        check_exposure(host, settings.tokens)
        check_origins(settings)
        self._socket = _bound(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        bounds = settings.connection_bounds or ConnectionBounds(settings.seconds_max, connections_allowed())
        app = make_app(modules, settings, is_local_only=settings.tokens is None)
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=cast(Any, Connections(bounds).made),  # a class in uvicorn's types, something to call in its code
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = _Server(config, app.state.gateway.subscriptions)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C; what is under way then is finished. For the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._server.handle_exit)
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Serve on a thread of its own; returns when requests are answered.

        Raises:
            RetryableError: it did not start in time.
        """
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_here, args=(started.set,), name="gateway", daemon=True)
        self._thread.start()
        if not started.wait(START_SECONDS) or not self._server.started:
            raise RetryableError(f"The gateway did not start on port {self.port}.")

    def stop(self) -> None:
        """Stop accepting, finish the requests under way, and give the port back, also where nothing was served yet."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._socket.close()

    def _run_here(self, started: Callable[[], None]) -> None:
        """Signals belong to the main thread: here `stop` ends the server."""
        startup = self._server.startup

        async def startup_and_tell(sockets: Any = None) -> None:
            try:
                await startup(sockets)
            finally:
                started()

        self._server.startup = startup_and_tell  # type: ignore[method-assign]
        try:
            self._server.run(sockets=[self._socket])
        except SystemExit:
            _log.error("The gateway ended while it started.")
        finally:
            started()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(_BACKLOG)  # from here on a client that knows the URL waits for its answer; it is not refused
    except OSError as error:
        made.close()
        raise BadInput(f"Port {port} of {host} cannot be served: {error.strerror}.") from error
    return made
