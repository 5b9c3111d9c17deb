"""What a leader does for its Topology beside the stream: follow the spec into the options, write the status.

In threads of its own with every call bounded: an API server that is away, or a Topology that was deleted, stops nothing
but this. What asks the store has one thread, and the status another: a store that hangs is reported all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import LagReader
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import Clock
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.settlements import SettlementLog
from tidemill.kubernetes.api import Document
from tidemill.kubernetes.probes import DriverHealth
from tidemill.kubernetes.resources import Wanted, current_revision, module_settings, topology_settings
from tidemill.kubernetes.status import LeaderHistory, lag_by_depot, resource_status, time_text
from tidemill.language.options import ModuleOptions
from tidemill.leader.deletions import Deletions
from tidemill.leader.runner import TopologyRunner
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import RetryableError, TidemillError

PERIOD_MS: Final = 1_000.0
RELEASE_MS: Final = 30_000.0
"""Pace of looking for resources that decided options and are gone."""

HEARTBEAT_MS: Final = 10_000.0
"""The status is written so often even where nothing else changed; the operator takes four times that for silence."""

SILENCE_MS: Final = 2_500.0
"""A store that has answered nothing for so long, while it was asked, is reported."""

LAG_OLD_MS: Final = 10_000.0
"""What waits is left out of the status when it could not be read for so long."""

log = logging.getLogger("tidemill.drive")


class Resources(Protocol):
    """What a driver reads and writes of its Module and Topology; each call is bounded in time."""

    def module(self, name: str) -> Document | None:
        """A Module; None if there is none. Raises ApiUnavailable."""

    def topology(self, name: str) -> Document | None:
        """A Topology; None if there is none. Raises ApiUnavailable."""

    def apply_topology_status(self, name: str, status: Mapping[str, Any]) -> bool:
        """Own these fields of a Topology's status; False if there is no such Topology. Raises ApiUnavailable."""


class TopologyFollower:
    """Follows one Topology for one runner until it is closed."""

    def __init__(
        self,
        resources: Resources,
        store: ObjectStore,
        definition: StoredDefinition,
        runner: TopologyRunner,
        health: DriverHealth,
        clock: Clock,
        *,
        module: str,
        topology: str,
        revision: int,
        leader: str,
        application: Callable[[], str] = str,
        silence: Callable[[], tuple[float, str]] = lambda: (0.0, ""),
    ) -> None:
        """`silence`: for how many milliseconds the store has answered nothing of what it was asked; what that was."""
        self._resources = resources
        self._definition = definition
        self._runner = runner
        self._health = health
        self._clock = clock
        self._module, self._topology = module, topology
        self._known: dict[str, Any] = {"revision": revision, "leader": leader}
        self._application, self._silence = application, silence
        self._options = OptionsLog(store, definition.module)
        self._deletions = Deletions(store, definition.module)
        self._stable_revision = 0
        self._is_confirmed = not definition.retired
        self._lag = LagReader(store, definition, runner.topology)
        self._settlements = SettlementLog(store, definition.topology_prefix(runner.topology))
        self._settled: int | None = None
        self._lag_at: float | None = None
        self._history = LeaderHistory()
        self._applied: tuple[dict[str, Any], float] | None = None
        self._released_at: float | None = None
        self._troubles: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"{what} {topology}", daemon=True)
            for what, run in (("follow", self._follow_on), ("report", self._report_on))
        ]

    def start(self) -> None:
        """Start its threads; `close` ends them."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends soon; a call that is under way is not waited for."""
        self._over.set()

    def note(self) -> None:
        """The runner's state changed: called often, and never blocks."""
        self._history = self._history.seen(self._runner.state)

    def _follow_on(self) -> None:
        while not self._clock.wait(self._over, PERIOD_MS):
            if self._runner.state.role == "leader":
                self._try("options", self.follow)
                self._try("deletions", self.confirm_deletions)
                self._try("lag", self.measure)
                self._try("quarantine", self.count_settled)

    def _report_on(self) -> None:
        while not self._clock.wait(self._over, PERIOD_MS):
            if self._runner.state.role == "leader":
                self._try("status", self.report)

    def _try(self, what: str, step: Any) -> None:
        """Trouble is reported once, not each second."""
        try:
            step()
            text = ""
        except RetryableError as error:
            text = str(error)
        except TidemillError as error:
            text = f"{error.code}: {error}"
        if text and self._troubles.get(what) != text:
            log.warning("%s of %s: %s", what, self._topology, text)
        self._troubles[what] = text

    def follow(self) -> None:
        """Bring what the resources decide into the options log."""
        self._release_gone()
        topology, module = self._resources.topology(self._topology), self._resources.module(self._module)
        if topology is not None:
            wanted = topology_settings(topology, self._runner.topology, self._definition)
            self._manage(f"Topology {self._topology}", wanted)
        self._stable_revision = current_revision(module)
        if module is not None:
            self._manage(f"Module {self._module}", module_settings(module))

    def confirm_deletions(self) -> None:
        """What the definition deleted is gone for good once the operator says that the revision is stable."""
        if self._is_confirmed or self._stable_revision != self._known["revision"]:
            return
        if self._deletions.confirm(self._definition, self._clock.now_ms()):
            log.info("revision %d is stable: what it deleted goes", self._stable_revision)
        self._is_confirmed = True

    def _release_gone(self) -> None:
        """What a Topology or Module decided is open again when it is gone: another name must not find it closed."""
        now = self._clock.monotonic_ms()
        if self._released_at is not None and now - self._released_at < RELEASE_MS:
            return
        reads = {"Topology": self._resources.topology, "Module": self._resources.module}
        for owner in sorted({*self._options.read().managed.values()}):
            kind, _, name = owner.partition(" ")
            if kind in reads and name not in (self._topology, self._module) and reads[kind](name) is None:
                log.info("%s is gone: what it decided is open again", owner)
                self._options.manage(owner, {})
                self._runner.wake()
        self._released_at = now

    def _manage(self, owner: str, wanted: Wanted) -> None:
        before = self._options.read()
        after = self._options.manage(owner, wanted.settings)
        if after.number != before.number:
            log.info("%s decides now: %s", owner, sorted(wanted.settings.items()))
            self._runner.wake()
        faults = "; ".join([*wanted.faults, *_lost(wanted, owner, after)])
        if faults and faults != self._refused.get(owner):
            log.warning("options named by %s: %s", owner, faults)
        self._refused[owner] = faults

    def measure(self) -> None:
        """Ask the store what waits."""
        lag = self._lag.read(self._runner.state.entry)
        self._health.lag = lag_by_depot(self._definition, self._runner.topology, lag)
        self._lag_at = self._clock.monotonic_ms()

    def count_settled(self) -> None:
        """Ask the store on how many quarantined records somebody decided; not while there is none."""
        entry = self._runner.state.entry
        if entry is not None and entry.quarantined:
            self._settled = self._settlements.newest().count

    def report(self) -> None:
        """Write the status if it changed, or if its heartbeat is due; asks the store for nothing."""
        now = self._clock.monotonic_ms()
        is_known = self._lag_at is not None and now - self._lag_at < LAG_OLD_MS
        status = resource_status(
            replace(self._with_settled(), trouble=self._store_trouble()), self._history,
            self._health.lag if is_known else None, now_ms=self._clock.now_ms(), application=self._application(),
            option_trouble=self._option_trouble(), **self._known,
        )  # fmt: skip
        if self._applied is not None:
            before, at = self._applied
            if before == status and now - at < HEARTBEAT_MS:
                return
        heartbeat = {"heartbeatTime": time_text(self._clock.now_ms())}
        self._resources.apply_topology_status(self._topology, status | heartbeat)
        self._applied = (status, now)

    def _with_settled(self) -> TopologyStatus:
        found = self._runner.status()
        if not found.quarantined or self._settled is None:
            return found
        return replace(found, in_quarantine=max(0, found.quarantined - self._settled))

    def _option_trouble(self) -> str:
        """Which options do not hold that the resources name, of whichever resource they are."""
        return "; ".join(f"{owner}: {faults}" for owner, faults in list(self._refused.items()) if faults)

    def _store_trouble(self) -> str:
        """What the store answered last, or since when it does not; empty while it works."""
        silent_ms, call = self._silence()
        if silent_ms < SILENCE_MS:
            return self._runner.state.report.store_trouble
        # Since when, not for how long: the text stays the same while it lasts.
        return f"the store has not answered since {time_text(self._clock.now_ms() - int(silent_ms))} ({call})"


def _lost(wanted: Wanted, owner: str, after: ModuleOptions) -> Iterator[str]:
    """What another resource decides already, as where two Topologies name an option of a depot that both read."""
    for scope, target, name in sorted(wanted.settings):
        other = after.managed.get((scope, target, name), owner)
        if other != owner:
            place = f" of {scope} {target}" if target else ""
            yield f"{name}{place} is decided by {other}: name it in one of them only"
