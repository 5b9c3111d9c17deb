"""A Kubernetes API in a few lines, over real HTTP on loopback: documents, resource versions, conflicts, outages."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Document = dict[str, Any]
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u, namespace: default}}}}]
current-context: x
"""


class FakeKubernetes:
    """Holds documents by (plural, name). `is_away` closes every connection without an answer."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], Document] = {}
        self.requests: list[str] = []
        self.is_away = False
        self.before_write: Callable[[str, str], None] | None = None
        self._lock = threading.RLock()
        self._version = 0
        fake = self

        class Handler(_Handler):
            kubernetes = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, folder: Path) -> Path:
        """A file by which clients find this API."""
        path = folder / "kubeconfig"
        path.write_text(KUBECONFIG.format(port=self._server.server_address[1]))
        return path

    def put(self, plural: str, name: str, **fields: Any) -> Document:
        """Make a document, or change top-level fields of it."""
        with self._lock:
            known = self.documents.get((plural, name), {"metadata": {"name": name, "namespace": "default"}})
            return self._store(plural, name, {**known, **copy.deepcopy(fields)})

    def get(self, plural: str, name: str) -> Document | None:
        with self._lock:
            return copy.deepcopy(self.documents.get((plural, name)))

    def delete(self, plural: str, name: str) -> None:
        with self._lock:
            self.documents.pop((plural, name), None)

    def _store(self, plural: str, name: str, document: Document) -> Document:
        self._version += 1
        document["metadata"] = {**document["metadata"], "resourceVersion": str(self._version)}
        self.documents[plural, name] = document
        return copy.deepcopy(document)

    # --- verbs -------------------------------------------------------------------------------------------------------

    def answer(self, method: str, parts: list[str], body: Document) -> tuple[int, Document]:
        """`parts` is the path from the plural on."""
        plural, name = parts[0], parts[1] if len(parts) > 1 else ""
        if self.before_write is not None and method in ("POST", "PUT"):
            self.before_write(plural, name or body["metadata"]["name"])
        with self._lock:
            self.requests.append(f"{method} {'/'.join(parts)}")
            if method == "POST":
                name = body["metadata"]["name"]
                if (plural, name) in self.documents:
                    return _status(409, "AlreadyExists")
                return 201, self._store(plural, name, body)
            if not name:
                return 200, {"kind": "List", "metadata": {}, "items": []}
            known = self.documents.get((plural, name))
            if known is None:
                return _status(404, "NotFound")
            if method == "GET":
                return 200, copy.deepcopy(known)
            if method == "PUT":
                if body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
                    return _status(409, "Conflict")
                return 200, self._store(plural, name, body)
            return 200, self._store(plural, name, {**known, "status": {**known.get("status", {}), **body["status"]}})


def _status(code: int, reason: str) -> tuple[int, Document]:
    return code, {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": reason}


class _Handler(BaseHTTPRequestHandler):
    kubernetes: FakeKubernetes
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        if self.kubernetes.is_away:
            self.close_connection = True
            return
        parts = self.path.partition("?")[0].split("/namespaces/")[1].split("/")[1:]
        code, document = self.kubernetes.answer(self.command, parts, body)
        content = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at `requests`."""
