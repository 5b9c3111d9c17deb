"""The service for the demo and the tests: a real HTTP server that can be slow, or out of order, for a while."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class Service:
    """`GET /zip/<code>` answers `{"region": …}`, or 404. Use it in a `with`; `address` is its URL."""

    def __init__(self, regions: dict[str, str], before: Callable[[str, int], int] | None = None) -> None:
        """`before(code, call)` may wait, and returns the status to answer instead of 200; `call` counts from 1."""
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code = unquote(self.path.removeprefix("/zip/"))
                with service._lock:
                    service.calls[code] += 1
                    call = service.calls[code]
                status = before(code, call) if before else 200
                if status == 200 and code not in regions:
                    status = 404
                self.send_response(status)
                self.end_headers()
                if status == 200:
                    self.wfile.write(json.dumps({"region": regions[code]}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
