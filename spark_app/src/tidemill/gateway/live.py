"""Looks at the store that many clients share, as server-sent events: each is told what changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidemill.clients.history import lines_of
from tidemill.clients.status_reader import StatusReader
from tidemill.definition.definition import StoredDefinition
from tidemill.gateway import faults
from tidemill.gateway.guard import Receive, Scope, Send
from tidemill.gateway.looks import SharedLook
from tidemill.gateway.modules import Modules, no_module
from tidemill.gateway.subscriptions import EventStream, Subscriptions
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.values.errors import Busy, StoreUnavailable, TidemillError

PACE_SECONDS: Final = 1.0
LINES_MAX: Final = 200
"""Lines of a topology's log that a client is given at first, and at most with one look."""

FOLLOWED_MAX: Final = 64
"""Topologies that clients of one gateway look at at once, each with a thread; and as many graphs."""

_log = logging.getLogger(__name__)
Event = tuple[str, Any]
Tell = Callable[[Any], Iterator[Event]]


class LiveStream(EventStream):
    """A look once a second; `tell` makes of what it found the events for one client. `trouble` is why there is none."""

    def __init__(self, all_of_them: Subscriptions, look: SharedLook[Any], tell: Tell) -> None:
        super().__init__(all_of_them)
        self._look, self._tell = look, tell
        self._trouble = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with events until the client goes, or an end is told."""
        looking = asyncio.ensure_future(self._follow())
        looking.add_done_callback(self._end_with)
        try:
            await super().__call__(scope, receive, send)
        finally:
            looking.cancel()

    def _end_with(self, looking: asyncio.Future[None]) -> None:
        """A look that nobody follows any more must not seem to go on."""
        error = None if looking.cancelled() else looking.exception()
        if error is not None:
            _log.error("A look failed unexpectedly.", exc_info=error)
            self.end("The gateway met an error; come again.")

    async def _follow(self) -> None:
        while not self.is_over:
            try:
                events = list(self._tell(await self._look.get()))
                if self._trouble:
                    events.append(("trouble", {"message": ""}))
                self._trouble = ""
            except TidemillError as error:
                text = faults.text_of(error)
                events = [("trouble", {"message": text})] if text != self._trouble else []
                self._trouble = text
            self.take_all(events)
            await asyncio.sleep(PACE_SECONDS)


def module_changes(may_see: Callable[[str], bool]) -> Tell:
    """Events for one client of the overview: `modules` has those that changed by name, null for one that is gone."""
    known: dict[str, Any] | None = None

    def tell(found: dict[str, Any]) -> Iterator[Event]:
        nonlocal known
        before, seen = known or {}, {name: module for name, module in found.items() if may_see(name)}
        changed = {name: seen.get(name) for name in before | seen if seen.get(name) != before.get(name)}
        if changed or known is None:
            yield "modules", changed
        known = seen

    return tell


# --- one topology ----------------------------------------------------------------------------------------------------


class TopologyLook:
    """How one topology stands, and the newest lines of its log; it keeps what it needs to ask again. For one thread."""

    def __init__(self, modules: Modules, module: str, topology: str) -> None:
        self._modules, self._module, self._topology = modules, module, topology
        self._definitions = DefinitionLog(modules.store, module)
        self._opened: tuple[StoredDefinition, StatusReader] | None = None
        self._lines: list[dict[str, Any]] = []

    def look(self) -> dict[str, Any]:
        """`status`, and `log`, oldest line first.

        Raises:
            UnknownName: there is no such topology now.
            StoreUnavailable: the store does not answer.
        """
        try:
            definition = self._definitions.newest()
            if definition is None or definition.is_destroyed:
                raise no_module(self._module)
            reader = self._open(definition)
            status = reader.read(faults.mirror_text_of)
            self._read_lines(reader.log, status.entry)
            return {"status": faults.told_failure(status.to_json()), "log": self._lines}
        except StoreUnavailable:
            raise
        except TidemillError:
            # A store that was put back has other logs: what is known of the old ones is forgotten.
            self._definitions, self._opened = DefinitionLog(self._modules.store, self._module), None
            raise

    def _read_lines(self, log: CommitLog, newest: int) -> None:
        known = self._lines[-1]["entry"] if self._lines else 0
        if newest > known:  # the entry behind a commit says how long it took: the line that was last is made anew
            found = lines_of(log, min(LINES_MAX, newest - known + 1), before=newest + 1)
            found = [faults.told_failure(line) for line in found]
            first = found[0]["entry"] if found else known + 1  # none: they are trimmed, or deleted, at this moment
            self._lines = [line for line in self._lines if line["entry"] < first] + found
            self._lines = self._lines[-LINES_MAX:]

    def _open(self, definition: StoredDefinition) -> StatusReader:
        if self._opened is None or self._opened[0].number != definition.number:
            reader = StatusReader(self._modules.store, definition, self._topology, self._modules.clock)
            self._opened, self._lines = (definition, reader), []
        return self._opened[1]


class FollowedLooks:
    """The looks at what somebody follows, one for all who follow the same; used in the gateway's event loop."""

    def __init__(self, what: str, open_look: Callable[..., Callable[[], Any]], seconds: float) -> None:
        """`what` is followed, in the plural, for people; `open_look` gets its place: its names from the outermost."""
        self._what, self._open_look, self._seconds = what, open_look, seconds
        self._looks: dict[tuple[str, ...], tuple[SharedLook[Any], set[object]]] = {}

    def follow(self, place: tuple[str, ...], who: object) -> SharedLook[Any]:
        """The look at a place, for one more who follows it until `leave`.

        Raises:
            Busy: clients look at as many as one gateway follows.
        """
        if place not in self._looks:
            if len(self._looks) >= FOLLOWED_MAX:
                raise Busy(f"Others follow {FOLLOWED_MAX} {self._what} through this gateway; try again.")
            self._looks[place] = SharedLook(self._what, self._open_look(*place), self._seconds), set()
        look, followers = self._looks[place]
        followers.add(who)
        return look

    def leave(self, place: tuple[str, ...], who: object) -> None:
        """One follower less; the look ends with the last."""
        look, followers = self._looks.get(place, (None, set()))
        followers.discard(who)
        if look is not None and not followers:
            del self._looks[place]
            look.close()

    def close(self) -> None:
        """End all threads."""
        for look, _ in self._looks.values():
            look.close()


class FollowingStream(LiveStream):
    """Follows the look at a place, which all its followers share, until it is over."""

    def __init__(self, all_of_them: Subscriptions, looks: FollowedLooks, place: tuple[str, ...], tell: Tell) -> None:
        self._looks, self._place = looks, place
        super().__init__(all_of_them, looks.follow(place, self), tell)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with events until the client goes, or an end is told."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._looks.leave(self._place, self)


def changes(name: str) -> Tell:
    """Events for one client of what is looked at as a whole: `name` with all of it, where it changed."""
    known: Any = None

    def tell(found: Any) -> Iterator[Event]:
        nonlocal known
        if found != known:
            known = found
            yield name, found

    return tell


def topology_changes() -> Tell:
    """Events for one client of a topology: `status` where it changed, `log` with new lines and the one before them.

    `restart` where the log began anew, as that of a module that was destroyed and launched again: no line told before
    counts any more.
    """
    status: Any = None
    told: dict[str, Any] | None = None  # the newest line, empty where there was none

    def tell(found: dict[str, Any]) -> Iterator[Event]:
        nonlocal status, told
        lines = found["log"]
        if told and not _goes_on(lines, told):
            told = None
            yield "restart", {}
        if found["status"] != status:
            status = found["status"]
            yield "status", status
        newest, since = lines[-1] if lines else {}, told.get("entry", 0) if told else 0
        if told is None or newest.get("entry", 0) > since:
            yield "log", [line for line in lines if line["entry"] >= since]
            told = newest

    return tell


def _goes_on(lines: list[dict[str, Any]], known: dict[str, Any]) -> bool:
    """Whether the lines are of the log of which this was the newest line; it may be trimmed by now."""
    if not lines or lines[-1]["entry"] < known["entry"]:
        return False
    same = [line for line in lines if line["entry"] == known["entry"]]
    return not same or _mark(same[0]) == _mark(known)


def _mark(line: dict[str, Any]) -> tuple[Any, ...]:
    """What of a line stays as it is: who wrote it, and when."""
    return line.get("written_ms"), line.get("owner"), line.get("kind")
