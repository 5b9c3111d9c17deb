"""What a leader does for its Topology beside the stream: follow the spec into the options, write the status.

In a thread of its own with every call bounded: an API server that is away, or a Topology that was deleted, stops
nothing but this.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tidemill.kubernetes.api import Document
from tidemill.kubernetes.probes import Told
from tidemill.kubernetes.resources import Wanted, current_revision, module_settings, topology_settings
from tidemill.kubernetes.status import Standing, status_of
from tidemill.model.definition import StoredDefinition
from tidemill.model.errors import RetryableError, TidemillError
from tidemill.runtime.clock import Clock
from tidemill.runtime.deletions import Deletions
from tidemill.runtime.lag import LagReader
from tidemill.runtime.options_log import OptionsLog
from tidemill.runtime.shell import TopologyRunner
from tidemill.store.objects import ObjectStore

PERIOD_MS: Final = 1_000.0
RELEASE_MS: Final = 30_000.0
"""Pace of looking for resources that decided options and are gone."""

APPLY_AGAIN_MS: Final = 60_000.0
"""Somebody may have changed our fields: they are written again even where nothing changed."""

log = logging.getLogger("tidemill.drive")


class Resources(Protocol):
    """What a driver reads and writes of its Module and Topology; each call is bounded in time."""

    def module(self, name: str) -> Document | None: ...

    def topology(self, name: str) -> Document | None: ...

    def apply_topology_status(self, name: str, status: Mapping[str, Any]) -> bool: ...


class Follower:
    """Follows one Topology for one runner until it is closed."""

    def __init__(
        self,
        resources: Resources,
        store: ObjectStore,
        definition: StoredDefinition,
        runner: TopologyRunner,
        told: Told,
        clock: Clock,
        *,
        module: str,
        topology: str,
        revision: int,
        leader: str,
        application: Callable[[], str] = str,
    ) -> None:
        self._resources = resources
        self._definition = definition
        self._runner = runner
        self._told = told
        self._clock = clock
        self._module, self._topology = module, topology
        self._known: dict[str, Any] = {"revision": revision, "leader": leader}
        self._application = application
        self._options = OptionsLog(store, definition.module)
        self._deletions = Deletions(store, definition.module)
        self._stable_revision = 0
        self._is_settled = not definition.retired
        self._lag = LagReader(store, definition, runner.topology)
        self._standing = Standing()
        self._applied: tuple[dict[str, Any], float] | None = None
        self._released_at: float | None = None
        self._troubles: dict[str, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {topology}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends soon; a call that is under way is not waited for."""
        self._over.set()

    def note(self) -> None:
        """The runner's state changed: called often, and never blocks."""
        self._standing = self._standing.seen(self._runner.state)

    def _run(self) -> None:
        while not self._clock.wait(self._over, PERIOD_MS):
            if self._runner.state.role == "leader":
                self._try("options", self.follow)
                self._try("deletions", self.settle)
                self._try("status", self.report)

    def _try(self, what: str, step: Any) -> None:
        """Trouble is told once, not each second."""
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

    def settle(self) -> None:
        """What the definition deleted is gone for good once the operator says that the revision is stable."""
        if self._is_settled or self._stable_revision != self._known["revision"]:
            return
        if self._deletions.settle(self._definition, self._clock.now_ms()):
            log.info("revision %d is stable: what it deleted goes", self._stable_revision)
        self._is_settled = True

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
        self._try(f"options named by {owner}", lambda: _refuse(wanted))

    def report(self) -> None:
        """Write the status if it changed."""
        state = self._runner.state
        self._told.lag = self._depot_lags()
        status = status_of(state, self._standing, self._told.lag, application=self._application(), **self._known)
        now = self._clock.monotonic_ms()
        if self._applied is not None:
            before, at = self._applied
            if before == status and now - at < APPLY_AGAIN_MS:
                return
        self._resources.apply_topology_status(self._topology, status)
        self._applied = (status, now)

    def _depot_lags(self) -> dict[str, int]:
        """By depot; of several sources of one depot the one that is furthest behind."""
        lags: dict[str, int] = {}
        by_source = self._lag.read(self._runner.state.entry)
        for source in self._definition.topology(self._runner.topology).sources:
            if source.source_id in by_source:
                lags[source.depot] = max(lags.get(source.depot, 0), by_source[source.source_id])
        return lags


def _refuse(wanted: Wanted) -> None:
    if wanted.faults:
        raise TidemillError("; ".join(wanted.faults))
