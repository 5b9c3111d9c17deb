"""In-process notice of news: an append wakes the runners of the same process at once, without a request."""

from __future__ import annotations

import threading
from collections.abc import Callable


class AppendHub:
    """Who wants to know about news below which prefix of the store; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callable[[], None]]] = {}

    def subscribe(self, prefix: str, callback: Callable[[], None]) -> None:
        """Call `callback` after each append below `prefix`; it must return at once."""
        with self._lock:
            self._callbacks.setdefault(prefix, []).append(callback)

    def unsubscribe(self, prefix: str, callback: Callable[[], None]) -> None:
        """Call `callback` no more after appends below `prefix`."""
        with self._lock:
            self._callbacks[prefix] = [known for known in self._callbacks.get(prefix, []) if known != callback]

    def notify(self, prefix: str) -> None:
        """Something was appended below `prefix`."""
        with self._lock:
            callbacks = tuple(self._callbacks.get(prefix, ()))
        for callback in callbacks:
            callback()
