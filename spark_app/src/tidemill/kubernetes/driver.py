"""A driver pod's life: prepare, be warm, wait for its turn, lead one topology, and give way in good order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tidemill.cluster.launch import programs
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import Clock
from tidemill.journal.leadership import topology_lease
from tidemill.kubernetes.api import Document, Leases
from tidemill.kubernetes.follower import Resources, TopologyFollower
from tidemill.kubernetes.lease import KubernetesLease
from tidemill.kubernetes.probes import DriverHealth, DriverMetrics, State
from tidemill.kubernetes.resources import active_revision, with_starts
from tidemill.kubernetes.revision_gate import RevisionGate, RevisionPlan
from tidemill.kubernetes.shown_lease import ShownLease
from tidemill.leader.report import RunnerState
from tidemill.leader.runner import TopologyRunner, describe
from tidemill.spark.deferred_runner import DeferredRunner, Engine
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import RetryableError

POLL_MS: Final = 500.0
LOOK_SECONDS: Final = 0.25
TURN_MS: Final = 1_000.0
LEAVE_SECONDS: Final = 10.0
AGAIN_MS: Final = 1_000.0
HANGING_MS: Final = 120_000.0
"""The longest that a runner's loop may wait for the store in one call, and some."""

log = logging.getLogger("tidemill.drive")


class DriverApi(Resources, Protocol):
    """What a driver asks of Kubernetes."""

    def leases(self, name: str) -> Leases:
        """The Lease of this name, whether or not it exists yet."""


@dataclass(frozen=True)
class DriverNames:
    """Who this driver is: resources of the cluster, the topology's name in the code, its pod with its uid."""

    module: str
    topology: str
    code_topology: str
    pod: str
    uid: str

    @property
    def identity(self) -> str:
        """As the Lease names its holder."""
        return f"{self.pod}_{self.uid}"


class Driver:
    """Drives one topology of one revision until it is stopped."""

    def __init__(
        self,
        names: DriverNames,
        plan: RevisionPlan,
        store: ObjectStore,
        api: DriverApi,
        open_engine: Callable[[], Engine],
        health: DriverHealth,
        metrics: DriverMetrics,
        clock: Clock,
        silence: Callable[[], tuple[float, str]] = lambda: (0.0, ""),
    ) -> None:
        """Checks the revision against the store. `silence`: see `TopologyFollower`.

        Raises:
            DefinitionError: lists all faults of the module.
            UnknownName: it has no such topology.
            OwnedByAnother: the module belongs to somebody else.
        """
        self._names, self._plan, self._store, self._api = names, plan, store, api
        self._open_engine, self._health, self._metrics, self._clock = open_engine, health, metrics, clock
        self._silence = silence
        self._turn = RevisionGate(store, plan, clock)
        self._turn.planned.topology(names.code_topology)
        self._turn.look()  # before an engine starts for a module that somebody else has
        self._runner: TopologyRunner | None = None
        self._resource: Document | None = None

    def run(self, stop: threading.Event) -> None:
        """Lead whenever it is this revision's turn; returns after `stop` is set.

        Raises:
            TidemillError: nothing that can be waited for.
        """
        self._tell("starting", "the engine starts")
        opening = DeferredRunner(self._open_engine, self._clock)
        try:
            while not stop.is_set():
                definition = self._await_turn(opening, stop)
                if definition is None:
                    break
                self._lead(opening, definition, stop)
        finally:
            opening.close()
        if not stop.is_set():
            log.info("superseded: another definition leads; waiting to be deleted")
            stop.wait()

    @property
    def trouble(self) -> str:
        """Why the driver is sick; empty is healthy."""
        runner = self._runner
        if runner is None or self._clock.monotonic_ms() - runner.turned_ms < HANGING_MS:
            return ""
        return f"the runner's loop has not turned for {HANGING_MS / 1000:g} s"

    # --- before its turn ---------------------------------------------------------------------------------------------

    def _look(self, opening: DeferredRunner) -> None:
        """Raises: what kept the engine from opening."""
        opening.check()
        if opening.is_warm and not self._health.is_warm:
            self._health.is_warm = True
            log.info("warm %s", opening.application)

    def _await_turn(self, opening: DeferredRunner, stop: threading.Event) -> StoredDefinition | None:
        """The definition to lead with; None where the turn is over, or `stop` was set."""
        while not stop.is_set():
            self._look(opening)
            try:
                verdict, definition = self._turn.look()
                if verdict == "over":
                    self._tell("superseded", "another definition leads")
                    return None
                if definition is not None:
                    return self._with_starts(definition)
                if verdict == "mine" and active_revision(self._api.module(self._names.module)) == self._plan.revision:
                    self._turn.write()
                    continue
                self._tell("waiting", f"revision {self._plan.revision} may not lead yet")
            except RetryableError as error:
                self._tell("waiting", str(error))
            self._clock.wait(stop, POLL_MS)
        return None

    def _with_starts(self, definition: StoredDefinition) -> StoredDefinition:
        module, self._resource = self._api.module(self._names.module), self._api.topology(self._names.topology)
        return with_starts(definition, self._names.code_topology, module, self._resource)

    # --- its turn ----------------------------------------------------------------------------------------------------

    def _lead(self, opening: DeferredRunner, definition: StoredDefinition, stop: threading.Event) -> None:
        """Stand by for the Lease and lead, until the runner is over or `stop` is set."""
        name = self._names.code_topology
        kubernetes = KubernetesLease(
            self._api.leases(self._names.topology), self._names.topology, self._names.identity, definition.number,
            self._clock, self._resource,
        )  # fmt: skip
        shown = topology_lease(self._store, definition.topology_prefix(name), self._clock)
        lease = ShownLease(kubernetes, shown, self._clock)
        runner = TopologyRunner(
            store=self._store, definition=definition, topology=name, runner=opening, lease=lease,
            program=programs(self._plan.declaration, definition)[name], clock=self._clock,
        )  # fmt: skip
        follower = TopologyFollower(
            self._api, self._store, definition, runner, self._health, self._clock, module=self._names.module,
            topology=self._names.topology, revision=self._plan.revision, leader=self._names.pod,
            application=lambda: opening.application, silence=self._silence,
        )  # fmt: skip
        runner.start()
        follower.start()
        self._runner, self._health.status = runner, runner.status
        try:
            self._watch(opening, runner, follower, stop)
        finally:
            follower.close()
            self._runner = None
        self._take_end(runner.state, stop)

    def _watch(
        self, opening: DeferredRunner, runner: TopologyRunner, follower: TopologyFollower, stop: threading.Event
    ) -> None:
        seen, looked_at = runner.state, self._clock.monotonic_ms()
        while not runner.state.is_over:
            if stop.is_set():
                self._leave(runner, follower)
                return
            try:
                self._look(opening)
            except BaseException:
                self._leave(runner, follower)
                raise
            seen = self._note(runner, follower, seen)
            if seen.role == "standby" and self._clock.monotonic_ms() - looked_at > TURN_MS:
                looked_at = self._clock.monotonic_ms()
                if self._is_over():
                    runner.stop()

    def _leave(self, runner: TopologyRunner, follower: TopologyFollower) -> None:
        self._tell("stopping", "finishing the microbatch under way")
        follower.close()
        if not runner.leave(LEAVE_SECONDS):
            log.warning("the microbatch under way did not end in %g s: the next leader retries it", LEAVE_SECONDS)

    def _is_over(self) -> bool:
        """A standby does not see a newer definition by itself."""
        try:
            return self._turn.look()[0] == "over"
        except RetryableError:
            return False

    def _note(self, runner: TopologyRunner, follower: TopologyFollower, seen: RunnerState) -> RunnerState:
        """Wait a little for news of the runner, and pass them on."""
        try:
            state = runner.wait_for(lambda now: now is not seen, LOOK_SECONDS)
        except TimeoutError:
            return seen
        follower.note()
        role: State = "leader" if state.role == "leader" else "standby"
        if self._health.state != role:
            log.info("%s", describe(runner.topology, state))
        self._tell(role, state.report.store_trouble)
        before, after = seen.entry, state.entry
        if before is not None and after is not None and after.committed and after.last_id != before.last_id:
            self._metrics.observe(dict(after.committed[0].metrics))
        if state.report.failure is not None and state.report.failures_in_row > seen.report.failures_in_row:
            self._health.failures += 1
            failure = state.report.failure
            log.warning(
                "attempt %d/%d failed: %s: %s", failure.microbatch_id, failure.version, failure.code, failure.message
            )
        return state

    def _take_end(self, state: RunnerState, stop: threading.Event) -> None:
        """Why a runner is over: what can be waited for is, the rest is the process's end."""
        self._health.status = None
        if stop.is_set():
            return
        log.info("the runner ended: %s %s %s", state.role, state.stop_text, state.error or "")
        self._tell("standby", state.stop_text)
        if state.error is not None and not isinstance(state.error, RetryableError):
            raise state.error
        self._clock.wait(stop, AGAIN_MS if state.error is not None else 0)

    def _tell(self, state: State, text: str) -> None:
        if self._health.state != state:
            log.info("%s %s", state, text)
        self._health.state, self._health.text = state, text
