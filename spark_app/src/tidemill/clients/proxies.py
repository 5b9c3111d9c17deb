"""Reactive reads: values of PStates that a process keeps up to date, with what changed at each commit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from tidemill.clients.callbacks import HANGING_MILLIS, THREADS_MAX, CallbackThreads
from tidemill.clients.diffs import DestroyedDiff, Diff, EndDiff, ResyncDiff, UngracefulTerminationDiff, diff_of
from tidemill.clients.topology import Reading, TopologyReader
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import Clock
from tidemill.journal.snapshot import Snapshot
from tidemill.store.objects import NotFound
from tidemill.values.errors import BadInput, StoreUnavailable, TidemillError, UnknownName, message_of

Callback = Callable[[Any, Diff, Any], None]
"""(new value, diff, old value)."""

PROXIES_MAX: Final = 10_000
"""Open proxies of one module in a process; each holds its value twice at most, and what `PENDING_MAX` says."""

PENDING_MAX: Final = 100
"""Changes that wait for a callback; more become one `ResyncDiff`."""

ERRORS_MAX: Final = 10
ERRORS_MILLIS: Final = 120_000
_LOOK_MILLIS: Final = 5.0
_LOOK_MILLIS_MAX: Final = 250.0
_CLOSE_SECONDS: Final = 5.0

Look = Callable[[StoredDefinition, TopologyReader, Reading, Snapshot | None], Any]
"""The one value as of a reading, or `UNCHANGED` if it is that of the snapshot before."""

UNCHANGED: Final = object()

Opened = Callable[[str], tuple[StoredDefinition, TopologyReader]]
"""The module's newest definition, and the reader of the topology that owns a PState."""


class ProxyStatus(Enum):
    """Whether a proxy is kept up to date, was closed, or ended by itself."""

    ACTIVE = "active"
    TERMINATED = "terminated"
    TERMINATED_UNGRACEFULLY = "terminated-ungracefully"


class ProxyState:
    """One value that is kept up to date; safe for several threads, and a context manager that closes it.

    Its callback is called for one change at a time, in order; one that is slow gets a `ResyncDiff` for what it missed,
    and one that does not return ends the proxy.
    """

    def __init__(self, hub: ProxyHub, look: Look, callback: Callback | None) -> None:
        self._hub, self._look, self._callback = hub, look, callback
        self._lock = threading.Lock()
        self._value: Any = None
        self._snapshot: Snapshot | None = None
        self._reader: TopologyReader | None = None
        self._pending: deque[tuple[Any, Diff, Any]] = deque()
        self._is_calling = False
        self._errors: deque[float] = deque(maxlen=ERRORS_MAX)
        self.status = ProxyStatus.ACTIVE
        self.failure: str = ""
        """Why it ended by itself, or the last error of its callback."""

    def get(self) -> Any:
        """The newest value that is known here."""
        with self._lock:
            return self._value

    def close(self) -> None:
        """Keep it up to date no more; the callback is told by a `DestroyedDiff`, once."""
        self._end(ProxyStatus.TERMINATED, DestroyedDiff())

    def __enter__(self) -> ProxyState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for the hub -------------------------------------------------------------------------------------------------

    def follow(self, definition: StoredDefinition, reader: TopologyReader, reading: Reading) -> None:
        """Take what this reading says. Raises: as `PStateHandle.select_one`."""
        is_same = self._reader is reader  # an update may have migrated what no microbatch touched
        if is_same and self._snapshot is reading.snapshot:
            return
        found = self._look(definition, reader, reading, self._snapshot if is_same else None)
        self._reader = reader
        with self._lock:
            is_first, self._snapshot = self._snapshot is None, reading.snapshot
            if found is UNCHANGED or self.status is not ProxyStatus.ACTIVE:
                return
            old, self._value = self._value, found
        diff = ResyncDiff(found) if is_first else diff_of(old, found)
        if diff is not None:
            self._tell(found, diff, old)

    def failed(self, error: Exception, now: float) -> None:
        """It could not be read: it ends if that happens often, or at once where its PState is gone for good."""
        self._errors.append(now)
        is_often = len(self._errors) == ERRORS_MAX and now - self._errors[0] <= ERRORS_MILLIS
        if is_often or isinstance(error, UnknownName):
            name = "" if isinstance(error, TidemillError) else f"{type(error).__name__}: "
            self.failure = f"{name}{error}"
            self._end(ProxyStatus.TERMINATED_UNGRACEFULLY, UngracefulTerminationDiff(self.failure))

    def _end(self, status: ProxyStatus, diff: Diff) -> None:
        with self._lock:
            if self.status is not ProxyStatus.ACTIVE:
                return
            self.status = status
            value = self._value
        self._hub.remove(self)
        self._tell(value, diff, value)

    def _tell(self, new: Any, diff: Diff, old: Any) -> None:
        if self._callback is None:
            return
        with self._lock:
            if len(self._pending) >= PENDING_MAX:
                first = self._pending[0][2]
                self._pending.clear()
                self._pending.append((new, ResyncDiff(new), first))
                if not isinstance(diff, EndDiff):
                    return
            self._pending.append((new, diff, old))
            if self._is_calling:
                return
            self._is_calling = True
        self._hub.call(self._call, self._hangs)

    def _hangs(self) -> None:
        self.failure = f"The callback did not return within {HANGING_MILLIS / 1000:g} s."
        self._end(ProxyStatus.TERMINATED_UNGRACEFULLY, UngracefulTerminationDiff(self.failure))

    def _call(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._is_calling = False
                    return
                new, diff, old = self._pending.popleft()
            assert self._callback is not None
            try:
                self._callback(new, diff, old)
            except BaseException as error:  # noqa: BLE001 - a user's function may raise anything; others go on
                self.failure = f"The callback raised {type(error).__name__}: {message_of(error)}"


class ProxyHub:
    """Keeps all proxies of one module up to date: one thread looks for commits, others call back."""

    def __init__(self, module: str, opened: Opened, clock: Clock) -> None:
        self._module, self._opened, self._clock = module, opened, clock
        self._lock = threading.Lock()
        self._proxies: dict[str, list[ProxyState]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._callers = CallbackThreads(f"tidemill-callbacks-{module}", clock)

    def add(self, pstate: str, proxy: ProxyState) -> None:
        """Keep a proxy of a PState, which has its first value, up to date.

        Raises:
            BadInput: there are `PROXIES_MAX` already, or `THREADS_MAX` callbacks do not return.
        """
        if self._callers.hanging >= THREADS_MAX:
            text = f"{THREADS_MAX} callbacks of proxies of {self._module} have not returned, so no other can be called."
            raise BadInput(f"{text} A callback must return: let it hand long work to a thread of its own.")
        with self._lock:
            if sum(map(len, self._proxies.values())) >= PROXIES_MAX:
                raise BadInput(f"There are {PROXIES_MAX:,} open proxies of {self._module}; close some.")
            self._proxies.setdefault(pstate, []).append(proxy)
            if self._thread is None and not self._stop.is_set():
                name = f"tidemill-proxies-{self._module}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def remove(self, proxy: ProxyState) -> None:
        """Look for it no more."""
        with self._lock:
            for proxies in self._proxies.values():
                if proxy in proxies:
                    proxies.remove(proxy)

    def call(self, function: Callable[[], None], hangs: Callable[[], None]) -> None:
        """Run a callback in a thread of the hub's; `hangs` is told if it does not return."""
        self._callers.call(function, hangs)

    def close(self) -> None:
        """Close all proxies; their callbacks are told before this returns, unless one of them does not return."""
        self._stop.set()
        with self._lock:
            proxies = [proxy for found in self._proxies.values() for proxy in found]
            thread = self._thread
        for proxy in proxies:
            proxy.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._callers.wait(_CLOSE_SECONDS)

    def _reading(self, pstate: str) -> tuple[StoredDefinition, TopologyReader, Reading]:
        definition, reader = self._opened(pstate)
        return definition, reader, reader.newest(_LOOK_MILLIS / 2)  # one look serves all PStates of a topology

    def _run(self) -> None:
        pause = _LOOK_MILLIS
        seen: dict[str, Snapshot] = {}
        while not self._clock.wait(self._stop, pause):
            self._callers.look()
            with self._lock:
                proxies = {pstate: list(found) for pstate, found in self._proxies.items() if found}
                if not proxies and not self._callers.is_waiting:
                    self._thread = None  # the next proxy starts another one
                    return
            news = [self._look(pstate, found, seen) for pstate, found in proxies.items()]
            pause = _LOOK_MILLIS if any(news) else min(_LOOK_MILLIS_MAX, 1.5 * pause)

    def _look(self, pstate: str, proxies: list[ProxyState], seen: dict[str, Snapshot]) -> bool:
        """Whether there is a new commit of the PState's topology; its proxies have it then."""
        try:
            definition, reader, reading = self._reading(pstate)
        except Exception as error:  # noqa: BLE001 - whatever it is, the proxies are told, and looked for again
            for proxy in proxies:
                self._failed(proxy, error)
            return False
        for proxy in proxies:
            try:
                proxy.follow(definition, reader, reading)
            except NotFound:
                reader.forget()
            except Exception as error:  # noqa: BLE001 - a path's function may raise anything; other proxies go on
                self._failed(proxy, error)
        is_news = seen.get(pstate) is not reading.snapshot
        seen[pstate] = reading.snapshot
        return is_news

    def _failed(self, proxy: ProxyState, error: Exception) -> None:
        if not isinstance(error, StoreUnavailable):  # the store comes back, and the newest value with it
            proxy.failed(error, self._clock.monotonic_ms())
