"""Launching a module on a store: what is checked, who may lead, and the runners of its topologies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tidemill.api.declaration import record_module
from tidemill.api.launch import LaunchConfig
from tidemill.clients.hub import AppendHub
from tidemill.cluster.mirrors import found_mirrors
from tidemill.cluster.stores import absolute_url
from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition
from tidemill.definition.difference import difference
from tidemill.definition.migration_steps import with_steps
from tidemill.definition.mirrors import bound
from tidemill.definition.ownership import BY_HAND, Owner, owned_by_another
from tidemill.engine.work import AttemptRunner
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.definition_log import DefinitionLog, no_such_module
from tidemill.journal.leadership import has_leader, leader_of, topology_lease
from tidemill.journal.options_log import OptionsLog
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.language.objects import close_objects
from tidemill.leader.deletions import Deletions, following
from tidemill.leader.log_closure import close_deleted, empty_folders, folders_of
from tidemill.leader.readers import broken_mirrors, register
from tidemill.leader.runner import TopologyRunner
from tidemill.plan.check.module import checked
from tidemill.plan.compile.topology import compile_topology
from tidemill.plan.program import Program
from tidemill.plan.warn import warn
from tidemill.store.log import Lost
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import DefinitionError, ModuleExists, OutcomeUnknown, RetryableError, TidemillError
from tidemill.values.ids import Ids

CLAIM_SECONDS = 60.0
LAUNCH_DEFAULT = LaunchConfig(4, 2)


class RunningModule:
    """The runners of one module's topologies in this process, as leaders or standbys."""

    def __init__(
        self,
        store: ObjectStore,
        declaration: ModuleDeclaration,
        definition: StoredDefinition,
        runner: AttemptRunner,
        *,
        hub: AppendHub | None = None,
        clock: Clock | None = None,
        stands_by_again: bool = False,
    ) -> None:
        """`stands_by_again`: a topology that another leader took over gets a new standby; else its runner just ends."""
        self.store = store
        self.declaration = declaration
        self.definition = definition
        self.hub = hub or AppendHub()
        self.clock = clock or SystemClock()
        self._engine = runner
        self._on_end = self.stand_by_again if stands_by_again else None
        self._lock = threading.Lock()
        self._is_closed = False
        self._programs = programs(declaration, definition)
        warn(declaration)
        self.topologies = {name: self._runner(name, program) for name, program in self._programs.items()}

    def _runner(self, topology: str, program: Program) -> TopologyRunner:
        prefix = self.definition.topology_prefix(topology)
        return TopologyRunner(
            store=self.store,
            store_url=self.store.url,
            definition=self.definition,
            topology=topology,
            program=program,
            runner=self._engine,
            lease=topology_lease(self.store, prefix, self.clock),
            clock=self.clock,
            hub=self.hub,
            on_end=self._on_end,
        )

    def start(self, seconds: float = CLAIM_SECONDS) -> None:
        """Start every topology; returns when each one is claimed, by this process or by the leader it stands by for."""
        try:
            for topology in self.topologies.values():
                topology.start()
            for topology in self.topologies.values():
                topology.wait_until_claimed(seconds)
            self._release_options()
        except BaseException:
            self.close()
            raise

    def _release_options(self) -> None:
        """No resource decides options of a module that is run by hand: after a take-over nobody could change them."""
        log = OptionsLog(self.store, self.definition.module)
        with contextlib.suppress(RetryableError, OutcomeUnknown):  # else at the next start
            for resource in sorted({*log.read().managed.values()} if self.definition.owner == BY_HAND else ()):
                log.manage(resource, {})

    def close(self) -> None:
        """Stop within one phase and leave what kill -9 would leave; then close the module's objects."""
        _all_at_once([topology.stop for topology in self._ended()])
        close_objects(self.declaration.objects.values())

    def kill(self) -> None:
        """Stop at once, as a dead process would; for tests."""
        _all_at_once([topology.kill for topology in self._ended()])

    def _ended(self) -> list[TopologyRunner]:
        """All runners; from now on none gets a successor."""
        with self._lock:
            self._is_closed = True
            return list(self.topologies.values())

    def stand_by_again(self, runner: TopologyRunner) -> None:
        """Put a new runner in the place of one that another leader displaced."""
        with self._lock:
            if self._is_closed or not runner.state.is_displaced:
                return
            name = runner.topology
            self.topologies[name] = self._runner(name, self._programs[name])
            self.topologies[name].start()


def programs(declaration: ModuleDeclaration, definition: StoredDefinition) -> dict[str, Program]:
    """The compiled topologies of a definition, by name."""
    ids = {p.name: p.id for topology in definition.topologies.values() for p in topology.pstates.values()}
    whole = with_steps(bound(declaration, definition.mirrors), definition)
    return {name: compile_topology(whole, name, ids) for name in definition.topologies}


def _all_at_once(actions: list[Callable[[], Any]]) -> None:
    """Stopping waits for a phase: topologies do it side by side."""
    threads = [threading.Thread(target=action, daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def definition_for_launch(
    store: ObjectStore,
    declaration: ModuleDeclaration,
    config: LaunchConfig,
    clock: Clock,
    *,
    takes_over: bool = False,
    by: str = "",
) -> StoredDefinition:
    """The definition to run: a new one, or the stored one if it is equal. `by` is who launches it, for people.

    Raises:
        DefinitionError: the store has another definition of this module: use update_module.
        ModuleExists: and a leader in another process is running it.
        OwnedByAnother: it belongs to a Kubernetes Module, and nobody said to take it over.
    """
    log = DefinitionLog(store, declaration.name, by=by)
    mirrors = found_mirrors(store, declaration)
    wanted = definitions.launch(declaration, config.tasks, config.threads, Ids(), mirrors)
    programs(declaration, wanted)  # what cannot be compiled leaves no trace in the store
    stored = log.newest()
    if stored is None or stored.is_destroyed:
        clear_way(store, declaration)
        register(store, wanted, log.known + 1, clock.now_ms())
        try:
            return log.append(wanted, clock.now_ms())
        except Lost:
            stored = log.newest()
    if stored is not None and not takes_over:
        check_by_hand(store, stored)
    if stored is None or not stored.is_equal_to(wanted):
        raise _refusal(store, stored, wanted, clock)
    return replace(_taken_over(store, log, stored, declaration, clock), threads=config.threads)


def check_by_hand(store: ObjectStore, stored: StoredDefinition) -> None:
    """Raises:
    OwnedByAnother: a Kubernetes Module runs this module, so nobody may by hand.
    """
    if stored.owner != BY_HAND:
        advice = "To go on with it by hand, while that Module stops: `tidemill run --take-over`."
        raise owned_by_another(stored.module, store.url, stored.owner, advice)


def _taken_over(
    store: ObjectStore, log: DefinitionLog, stored: StoredDefinition, declaration: ModuleDeclaration, clock: Clock
) -> StoredDefinition:
    """The same definition with us as its owner; the number that it gets fences the drivers of the one before."""
    if stored.owner == BY_HAND:
        return stored
    Deletions(store, stored.module).keep(stored, clock.now_ms())
    taken = following(store, stored, declaration, (), mirrors=found_mirrors(store, declaration))
    taken = replace(taken, owner=BY_HAND, revision=0)
    register(store, taken, taken.number, clock.now_ms())
    try:
        return log.append(taken, clock.now_ms())
    except Lost as error:
        raise ModuleExists(f"Somebody else changed module '{stored.module}' meanwhile; look at it again.") from error


def _refusal(
    store: ObjectStore, stored: StoredDefinition | None, wanted: StoredDefinition, clock: Clock
) -> TidemillError:
    if stored is None:
        return ModuleExists(f"Another process is launching module '{wanted.module}'; try again.", module=wanted.module)
    differs = difference(stored, wanted)
    if has_leader(store, stored, clock):
        return ModuleExists(f"Module '{stored.module}' is running elsewhere with another definition: {differs}.")
    text = f"The store has another definition of module '{stored.module}': {differs}."
    advice = "To change it, run `tidemill update` with this code (in Python: update_module)."
    if stored.tasks != wanted.tasks:
        advice = (
            f"Go on with {stored.tasks} (the number may be left out), or launch it on another store; "
            "update_module does not change it either."
        )
    return DefinitionError(f"{text} {advice}", module=stored.module)


@dataclass(frozen=True)
class Prepared:
    """A module whose definition a store holds, before its runners start: clients can use it already."""

    store: ObjectStore
    declaration: ModuleDeclaration
    definition: StoredDefinition

    def run(self, engine: AttemptRunner, hub: AppendHub | None = None) -> RunningModule:
        """Run it until the result is closed; an equal definition resumes where the last runner stopped."""
        running = RunningModule(self.store, self.declaration, self.definition, engine, hub=hub)
        running.start()
        return running


def prepare(
    store_url: str,
    module: Any,
    tasks: int | None = None,
    threads: int | None = None,
    *,
    deleted: tuple[str, ...] = (),
    updates: bool = False,
    takes_over: bool = False,
    by: str = "",
) -> Prepared:
    """See to it that a store holds the definition of a module.

    `tasks` and `threads` are those of the store if they are left out, and those of `LAUNCH_DEFAULT` for a new module.
    `updates`: where the store has another definition, the module's follows it, without the objects in `deleted`.
    `by` is who does it, for people.

    Raises:
        DefinitionError: the module is faulty, or the store has another definition of it that may not be followed.
        ModuleExists: and another process is running it.
        OwnedByAnother: it belongs to a Kubernetes Module, and `takes_over` is not set.
    """
    declaration, clock = checked(record_module(module)), SystemClock()
    store = open_store(absolute_url(store_url))
    stored = DefinitionLog(store, declaration.name).newest()
    if stored is None or stored.is_destroyed:
        stored = None
    if stored is None or not updates or _is_equal(store, stored, declaration):
        config = _config(stored, tasks, threads)
        launched = definition_for_launch(store, declaration, config, clock, takes_over=takes_over, by=by)
        return Prepared(store, declaration, launched)
    config = _config(stored, tasks, threads)
    if config.tasks != stored.tasks:
        text = f"Module '{stored.module}' has {stored.tasks} tasks for ever, not {config.tasks}: leave them out."
        raise DefinitionError(text, module=stored.module)
    updated = update(store, declaration, deleted, clock, config.threads, takes_over=takes_over, by=by)
    return Prepared(store, declaration, updated)


def _config(stored: StoredDefinition | None, tasks: int | None, threads: int | None) -> LaunchConfig:
    known = LaunchConfig(stored.tasks, stored.threads) if stored else LAUNCH_DEFAULT
    tasks = known.tasks if tasks is None else tasks
    return LaunchConfig(tasks, min(known.threads, tasks) if threads is None else threads)


def _is_equal(store: ObjectStore, stored: StoredDefinition, declaration: ModuleDeclaration) -> bool:
    mirrors = found_mirrors(store, declaration)
    return stored.is_equal_to(definitions.launch(declaration, stored.tasks, stored.threads, Ids(), mirrors))


def launch(
    store_url: str,
    module: Any,
    config: LaunchConfig,
    engine: AttemptRunner,
    hub: AppendHub | None = None,
    *,
    takes_over: bool = False,
) -> RunningModule:
    """Run a module on a store until the result is closed. Raises: as `prepare`."""
    return prepare(store_url, module, config.tasks, config.threads, takes_over=takes_over).run(engine, hub)


def update(
    store: ObjectStore,
    declaration: ModuleDeclaration,
    deleted: tuple[str, ...],
    clock: Clock,
    threads: int | None = None,
    *,
    takes_over: bool = False,
    breaks_mirrors: bool = False,
    by: str = "",
) -> StoredDefinition:
    """Make a module's code the next revision in a store; runners of the one before end, or stand by for it.

    `breaks_mirrors`: it may take away what other modules mirror. `by` is who updates it, for people.

    Raises:
        DefinitionError: lists everything that the new code may not change.
        UnknownName: the store has no module of this name.
        OwnedByAnother: it belongs to a Kubernetes Module, and `takes_over` is not set.
        Lost: another process wrote a revision meanwhile.
    """
    definition = follow(
        store, declaration, deleted, clock, threads, takes_over=takes_over, breaks_mirrors=breaks_mirrors, by=by
    )
    finish_deletions(store, definition, clock)
    return definition


def follow(
    store: ObjectStore,
    declaration: ModuleDeclaration,
    deleted: tuple[str, ...],
    clock: Clock,
    threads: int | None = None,
    *,
    takes_over: bool = False,
    breaks_mirrors: bool = False,
    by: str = "",
) -> StoredDefinition:
    """Write the revision that follows the newest; what it deletes stays until `finish_deletions`.

    Raises: as `update`.
    """
    log = DefinitionLog(store, declaration.name, by=by)
    stored = existing(store, log, declaration.name)
    if not takes_over:
        check_by_hand(store, stored)
    mirrors = found_mirrors(store, declaration)
    updated = following(store, stored, declaration, deleted, mirrors=mirrors)
    programs(declaration, updated)  # what cannot be compiled must not stop what runs
    if not breaks_mirrors:
        check_mirrored(store, stored, updated, clock)
    register(store, updated, updated.number, clock.now_ms())
    if not Deletions(store, declaration.name).keep(stored, clock.now_ms()):
        updated = following(store, stored, declaration, deleted, mirrors=mirrors)
    # Written before anything is stopped: from here on runners of the old revision can no longer claim.
    updated = replace(updated, threads=threads or stored.threads, owner=BY_HAND, revision=0)
    return close_gone(store, log.append(updated, clock.now_ms()))


def check_mirrored(store: ObjectStore, stored: StoredDefinition, after: StoredDefinition | None, clock: Clock) -> None:
    """Raises:
    DefinitionError: other modules mirror what the next definition (None: there is none) does not have as it was.
    """
    faults = broken_mirrors(store, stored, after, clock.now_ms())
    if faults:
        raise DefinitionError(faults, module=stored.module)


def close_gone(store: ObjectStore, definition: StoredDefinition) -> StoredDefinition:
    """Close the depots that a new definition deleted. If this fails, who decides of them does it first."""
    with contextlib.suppress(RetryableError, OutcomeUnknown):
        close_deleted(store, definition)
    return definition


def finish_deletions(store: ObjectStore, definition: StoredDefinition, clock: Clock) -> None:
    """Let what a revision deleted go. If this fails, it goes with the deletions of the next one."""
    with contextlib.suppress(RetryableError, OutcomeUnknown):
        Deletions(store, definition.module).confirm(definition, clock.now_ms())


def existing(store: ObjectStore, log: DefinitionLog, module: str) -> StoredDefinition:
    """The newest definition of a module.

    Raises:
        UnknownName: the store has no module of this name.
    """
    stored = log.newest()
    if stored is None or stored.is_destroyed:
        raise no_such_module(store, module)
    return stored


def destroy(
    store: ObjectStore,
    name: str,
    owner: Owner = BY_HAND,
    *,
    takes_over: bool = False,
    clock: Clock | None = None,
    breaks_mirrors: bool = False,
    by: str = "",
) -> None:
    """Mark a module as destroyed and delete its data; its name may be launched anew.

    What a crash leaves undone goes with the next launch. `breaks_mirrors`: although other modules mirror its objects.
    `by` is who destroys it, for people.

    Raises:
        DefinitionError: other modules mirror its objects, and nobody said to break that.
        OwnedByAnother: it belongs to somebody else than `owner`, and `takes_over` is not set.
        ModuleExists: somebody leads it.
    """
    clock = clock or SystemClock()
    log = DefinitionLog(store, name, by=by)
    stored = log.newest()
    if stored is None:
        return
    if not stored.is_destroyed:
        if stored.owner.uid != owner.uid and not takes_over:
            raise owned_by_another(name, store.url, stored.owner, "Or let its owner delete it.")
        if not breaks_mirrors:
            check_mirrored(store, stored, None, clock)
        _check_stopped(store, stored, owner, clock)
        log.append(replace(stored, is_destroyed=True), clock.now_ms())
    delete_data(store, name)


def _check_stopped(store: ObjectStore, stored: StoredDefinition, owner: Owner, clock: Clock) -> None:
    """Raises:
    ModuleExists: somebody leads. A Module's operator has stopped the drivers of its own before it asks.
    """
    if owner != BY_HAND and owner.uid == stored.owner.uid:
        return
    for topology in stored.topologies:
        leader = leader_of(store, stored, topology, clock)
        if leader:
            text = f"Topology {topology} of module '{stored.module}' in {store.url} is led by {leader}."
            raise ModuleExists(f"{text} Stop it, then destroy the module.", module=stored.module, leader=leader)


def delete_data(store: ObjectStore, name: str) -> None:
    """Delete the data of a destroyed module, but nothing of one that is launched anew meanwhile.

    A module's definition is written before its first object, and its folders have new ids: while the definition is
    still that of the destroyed one, all that was listed before is of the past.
    """
    log = DefinitionLog(store, name)
    keys = [key for part in ("topologies", "depots") for key in store.list(f"{name}/{part}")]
    stored = log.newest()
    if stored is None or not stored.is_destroyed:
        return
    # Also what somebody set who did not know yet, but nothing of a new life that began meanwhile.
    OptionsLog(store, name).clear(lambda: log.newest_number() == stored.number)
    empty_folders(store, folders_of(stored), keys)


def clear_way(store: ObjectStore, declaration: ModuleDeclaration) -> None:
    """Before the first definition of a module's life: nothing of an earlier one is left.

    Options that the code sets come first: a crash in between leaves a store in which the module is still new.
    """
    delete_data(store, declaration.name)
    OptionsLog(store, declaration.name, by="the module's code").set_many(declaration.options)
