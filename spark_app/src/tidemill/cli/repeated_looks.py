"""What `tidemill status --watch` and `tidemill log --follow` look at again and again, until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from tidemill.cli.output import say
from tidemill.clients.history import lines_of
from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import StatusReader
from tidemill.journal.clock import Clock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog, modules_of, no_such_module
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import RetryableError
from tidemill.values.names import is_folder_name

LINES_AT_ONCE: Final = 500
"""Entries of a log that are read before they are shown."""

FOLLOW_SECONDS: Final = 0.5
"""From one look at a log to the next."""

T = TypeVar("T")


def looks(look: Callable[[], T], interval: float, clock: Clock) -> Iterator[T]:
    """What a look finds, once in `interval` seconds, for ever. While the store does not answer there is nothing new."""
    never, trouble = threading.Event(), False
    while True:
        try:
            found = look()
        except RetryableError as error:
            if not trouble:
                say(f"The store does not answer; it is asked again and again: {error}")
            trouble = True
        else:
            if trouble:
                say("The store answers again.")
            trouble = False
            yield found
        clock.wait(never, 1000 * interval)


class StoreLook:
    """How the topologies of a store, or of one module of it, stand; it keeps what it needs to be asked again."""

    def __init__(self, store: ObjectStore, module: str, clock: Clock) -> None:
        self._store, self._module, self._clock = store, module, clock
        self._definitions: dict[str, DefinitionLog] = {}
        self._readers: dict[tuple[str, str], tuple[int, StatusReader]] = {}

    def __call__(self) -> list[TopologyStatus]:
        """All of them now. Raises UnknownName: the store has no such module."""
        names = [self._module] if self._module else modules_of(self._store)
        return [status for name in names for status in self._of(name)]

    def _of(self, name: str) -> Iterator[TopologyStatus]:
        log = self._definitions.setdefault(name, DefinitionLog(self._store, name))
        definition = log.newest() if is_folder_name(name) else None
        if definition is None or definition.is_destroyed:
            if self._module:
                raise no_such_module(self._store, name)
            return
        for topology in definition.topologies:
            number, reader = self._readers.get((name, topology), (0, None))
            if reader is None or number != definition.number:
                reader = StatusReader(self._store, definition, topology, self._clock)
                self._readers[name, topology] = definition.number, reader
            yield reader.read(str)


class LogLook:
    """The lines of a topology's log that are new since the last look, in order, each once."""

    def __init__(self, store: ObjectStore, module: str, topology: str, limit: int) -> None:
        """`limit`: how many of those that are there already the first look gives."""
        self._store, self._module, self._topology, self._limit = store, module, topology, limit
        self._definitions = DefinitionLog(store, module)
        self._opened: tuple[str, CommitLog] | None = None
        self._seen = 0

    def __call__(self) -> list[dict[str, Any]]:
        """At most `LINES_AT_ONCE` of them; the next look has those behind.

        Raises:
            UnknownName: there is no such module or topology, or it is gone.
        """
        is_first = self._opened is None
        log = self._log()
        newest = log.newest_number()
        if is_first:
            self._seen = max(0, newest - self._limit)
        last = min(newest, self._seen + LINES_AT_ONCE)
        if last <= self._seen:
            return []
        lines = lines_of(log, last - self._seen, before=last + 1)
        first = lines[0]["entry"] if lines else last + 1
        if first > self._seen + 1 and not is_first:
            say(f"Entries {self._seen + 1} to {first - 1} were deleted before they could be shown.")
        self._seen = last
        return lines

    def _log(self) -> CommitLog:
        """The topology's log; a topology that was deleted and made anew has a new one, which begins anew."""
        definition = self._definitions.newest()
        if definition is None or definition.is_destroyed:
            raise no_such_module(self._store, self._module)
        definition.topology(self._topology)
        prefix = definition.topology_prefix(self._topology)
        if self._opened is None or self._opened[0] != prefix:
            if self._opened is not None:
                say(f"{self._topology} of {self._module} was made anew; its log begins anew.")
            self._opened, self._seen = (prefix, CommitLog(self._store, prefix)), 0
        return self._opened[1]
