"""A TCP proxy that cuts, stalls and refuses, so that a store behind it fails as networks fail."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter

CHUNK_BYTES = 65_536
CUT_SHARE = 0.0005
"""Of the pieces that are passed on, so many end their connection in the middle."""

STALL_SHARE = 0.002
STALL_SECONDS_MAX = 0.5
_RESET = struct.pack("ii", 1, 0)


class FlakyProxy:
    """Passes connections on to `target`, a port of this machine; `away` refuses all for a while."""

    def __init__(self, target: int, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._is_away, self._is_over = threading.Event(), threading.Event()
        self._open: set[socket.socket] = set()
        self.faults: Counter[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def away(self, seconds: float) -> None:
        """Cut all connections, and refuse new ones for so long."""
        self._count("away")
        self._is_away.set()
        self._cut_all()
        self._is_over.wait(seconds)
        self._is_away.clear()

    def close(self) -> None:
        self._is_over.set()
        self._is_away.set()
        self._listener.close()
        self._cut_all()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_away.is_set():
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), name="proxy pump", daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                fault = self._fault()
                if fault == "cut":
                    sink.sendall(data[: len(data) // 2])
                    break
                if fault == "stall":
                    self._is_over.wait(STALL_SECONDS_MAX * self._random.random())
                sink.sendall(data)
        for end in (source, sink):
            _reset(end)
        with self._lock:
            self._open -= {source, sink}

    def _fault(self) -> str:
        drawn = self._random.random()
        fault = "cut" if drawn < CUT_SHARE else "stall" if drawn < CUT_SHARE + STALL_SHARE else ""
        if fault:
            self._count(fault)
        return fault

    def _count(self, fault: str) -> None:
        with self._lock:
            self.faults[fault] += 1

    def _cut_all(self) -> None:
        with self._lock:
            held, self._open = self._open, set()
        for end in held:
            _reset(end)


def _reset(end: socket.socket) -> None:
    """Close so that the other side sees a reset, as of a machine that died."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        end.close()
