"""A small REST catalog of Iceberg for tests: tables in memory, and commits that fail in the ways of real ones."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from tidemill.values.ids import nonce

Name = tuple[str, str]


class RestCatalogServer:
    """`faults` are what becomes of the next commits: "before" and "after" cut the connection, a number is the status of
    the answer, of one that did not count ("503") or did ("500 after").
    """

    def __init__(self, warehouse: str) -> None:
        self.faults: list[str] = []
        self._warehouse, self._lock = warehouse, threading.Lock()
        self._tables: dict[Name, tuple[TableMetadata, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"catalog": self}))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def properties(self) -> dict[str, str]:
        """What `load_catalog` needs."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{self._server.server_port}", "warehouse": self._warehouse}

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def shown(self, name: Name) -> bytes:
        """A table as the answer to a request."""
        metadata, place = self._tables[name]
        return f'{{"metadata-location": {json.dumps(place)}, "metadata": {metadata.model_dump_json()}}}'.encode()

    def make(self, namespace: str, asked: dict[str, Any]) -> None:
        """A new table."""
        place = f"{self._warehouse}/{namespace}/{asked['name']}"
        schema = Schema.model_validate(asked["schema"])
        made = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, place)
        self._put((namespace, asked["name"]), made)

    def commit(self, name: Name, request: CommitTableRequest) -> None:
        """Raises CommitFailedException: a requirement is not met."""
        with self._lock:
            metadata, _ = self._tables[name]
            for requirement in request.requirements:
                requirement.validate(metadata)
            self._put(name, update_table_metadata(metadata, request.updates))

    def _put(self, name: Name, metadata: TableMetadata) -> None:
        place = f"{metadata.location}/metadata/{nonce()}.metadata.json"
        ToOutputFile.table_metadata(metadata, load_file_io({}, place).new_output(place))
        self._tables[name] = metadata, place


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    catalog: RestCatalogServer

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/").split("/")
        if path[-1] == "config":
            self._answer(200, b'{"defaults": {}, "overrides": {}}')
        else:
            self._answer(200, self.catalog.shown((path[2], path[4])))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.strip("/").split("/")
        if path[-1] == "namespaces":
            self._answer(200, body)
        elif path[-1] == "tables":
            self.catalog.make(path[2], json.loads(body))
            self._answer(200, self.catalog.shown((path[2], json.loads(body)["name"])))
        else:
            self._commit((path[2], path[4]), CommitTableRequest.model_validate_json(body))

    def _commit(self, name: Name, request: CommitTableRequest) -> None:
        status, _, after = (self.catalog.faults.pop(0) if self.catalog.faults else "200 after").partition(" ")
        if after or status == "after":
            try:
                self.catalog.commit(name, request)
            except CommitFailedException as error:
                return self._refuse(409, str(error))
        if status in ("before", "after"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        return self._answer(200, self.catalog.shown(name)) if status == "200" else self._refuse(int(status), "trouble")

    def _refuse(self, status: int, text: str) -> None:
        self._answer(status, json.dumps({"error": {"message": text, "type": "Failed", "code": status}}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
