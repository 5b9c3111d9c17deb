"""A Kubernetes API for Spark's own client, over HTTP on loopback: keeps what is posted, lists it, watches for ever."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]
Query = Mapping[str, list[str]]
KINDS = {"pods": "Pod", "services": "Service", "configmaps": "ConfigMap"}


class RecordingApi:
    """Objects by (plural, name), whatever their kind."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        self.changed = threading.Condition()
        self.over = threading.Event()
        api = self

        class Handler(_Handler):
            recorder = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    def put(self, plural: str, document: Document) -> Document:
        with self.changed:
            metadata = {"uid": f"uid-{len(self.objects)}", "namespace": "ns", **document["metadata"]}
            made = {**document, "metadata": {**metadata, "resourceVersion": str(len(self.objects) + 1)}}
            if plural == "pods":
                made["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.objects[plural, metadata["name"]] = made
            self.changed.notify_all()
            return made

    def named(self, plural: str) -> list[Document]:
        """All objects of one kind."""
        with self.changed:
            return [found for (kind, _), found in self.objects.items() if kind == plural]

    def answer(self, method: str, plural: str, name: str, query: Query, body: Document) -> tuple[int, Document]:
        if method == "POST" or (method == "PATCH" and (plural, name) not in self.objects):  # an apply may make it
            return 201, self.put(plural, body)
        if not name:
            items = [] if method == "DELETE" else [each for each in self.named(plural) if _is_selected(each, query)]
            return 200, {"kind": f"{KINDS.get(plural, '')}List", "apiVersion": "v1", "items": items,
                         "metadata": {"resourceVersion": str(len(self.objects))}}  # fmt: skip
        with self.changed:
            found = self.objects.get((plural, name))
        if found is None:
            return 404, {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}
        return 200, found


def _is_selected(document: Document, query: Query) -> bool:
    """By the selectors that Spark uses: labels that are equal, differ, or are there at all, and the name."""
    labels = document["metadata"].get("labels", {})
    for text in query.get("labelSelector", []):
        for name, is_compared, value in (part.partition("=") for part in text.split(",")):
            if name.endswith("!"):
                if labels.get(name[:-1]) == value:
                    return False
            elif name not in labels or (is_compared and labels[name] != value.removeprefix("=")):
                return False
    fields = [part.partition("=") for text in query.get("fieldSelector", []) for part in text.split(",")]
    return all(document["metadata"]["name"] == value for name, _, value in fields if name == "metadata.name")


class _Handler(BaseHTTPRequestHandler):
    recorder: RecordingApi
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        if query.get("watch") == ["true"]:
            self._watch()
            return
        parts = address.path.partition("/namespaces/")[2].split("/")[1:] or ["namespaces"]
        body = json.loads(content) if content and self.command in ("POST", "PATCH") else {}
        code, document = self.recorder.answer(self.command, parts[0], parts[1] if len(parts) > 1 else "", query, body)
        text = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _watch(self) -> None:
        """Nothing ever happens: Spark lists besides. A web socket is answered as by a server that has none."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        is_socket = bool(self.headers.get("Upgrade"))
        self.send_header(*(("Content-Length", "0") if is_socket else ("Transfer-Encoding", "chunked")))
        self.end_headers()
        if is_socket:
            return
        self.recorder.over.wait()
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at `objects`."""
