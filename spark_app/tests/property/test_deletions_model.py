"""Updates, rollbacks, settlements and collections in any order, each by a process that may know only the past and may
die at any write: what a definition names is never deleted, and a rollback finds the very objects that it wants.
Clients that know only the past append between all of them: what is acknowledged is in the depot that has the name now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.cluster.launch import destroy
from tidemill.definition.definition import StoredDefinition, StoredPState
from tidemill.depot.log import DepotLog
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.kubernetes.revision_gate import RevisionGate, RevisionPlan
from tidemill.language.dataflow import (
    DepotDeclaration,
    Location,
    ModuleDeclaration,
    PStateDeclaration,
    TopologyDeclaration,
)
from tidemill.language.schema import Leaf, MapSchema
from tidemill.leader.deletions import Deletions
from tidemill.leader.garbage import remove_garbage
from tidemill.leader.log_closure import held
from tidemill.leader.topology_store import TopologyStore
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.errors import DefinitionError, UnknownName
from tidemill.values.offsets import OffsetRanges

AT = Location()
SCHEMA = MapSchema("str", Leaf("int"))
DEPOTS, PSTATES, TOPOLOGIES = ("*a", "*b"), ("$$p", "$$q"), ("side", "wing")
NAMES = (*DEPOTS, *PSTATES, *TOPOLOGIES)
Shape = frozenset[str]
SHAPES = st.sampled_from([frozenset(), *(frozenset(NAMES) - {name} for name in NAMES), frozenset(NAMES)])
CRASHES = st.one_of(st.none(), st.tuples(st.sampled_from([0, 0, 1, 2]), st.booleans()))
BOTH = frozenset({"settle", "collect"})
ACTS = st.sampled_from([BOTH, frozenset({"settle"}), frozenset({"collect"})])
LATE = st.sampled_from([False, False, False, True])
BACK = st.sampled_from([0, 0, 1, 2])
CLOCK = SystemClock()
CLIENTS = 3


class Still(SystemClock):
    """Time does not pass, so a client looks at the definition only where it must."""

    def monotonic_ms(self) -> float:
        return 0.0


def declaration(shape: Shape) -> ModuleDeclaration:
    """A module with these depots, with these PStates in its topology `core`, and with these topologies beside it."""
    depots = tuple(DepotDeclaration(name, "random", AT) for name in DEPOTS if name in shape)
    pstates = tuple(PStateDeclaration(name, SCHEMA, AT) for name in PSTATES if name in shape)
    others = tuple(
        TopologyDeclaration(name, (PStateDeclaration(f"$$of-{name}", SCHEMA, AT),), (), AT)
        for name in TOPOLOGIES
        if name in shape
    )
    return ModuleDeclaration("M", depots, (TopologyDeclaration("core", pstates, (), AT), *others))


def data_names(shape: Shape) -> set[str]:
    """What of a shape is listed as to be deleted when it goes."""
    return {f"$$of-{name}" if name in TOPOLOGIES else name for name in shape}


def shape_of(definition: StoredDefinition) -> Shape:
    return frozenset({*definition.depots, *definition.topologies, *definition.topology("core").pstates}) - {"core"}


def ids_of(definition: StoredDefinition) -> dict[str, str]:
    found = {name: depot.id for name, depot in definition.depots.items()}
    found |= {name: topology.id for name, topology in definition.topologies.items() if name != "core"}
    return found | {name: pstate.id for name, pstate in definition.topology("core").pstates.items()}


class Deleting(RuleBasedStateMachine):
    """`rows` are the PStates of `core`, by id, that have rows in its newest state; `known` is what ever had data;
    `appended` are the acknowledged records by the folder of the depot in which they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.log = DefinitionLog(self.store, "M")
        self.turns: list[RevisionGate] = []
        self.rows: set[str] = set()
        self.known: set[str] = set()
        self.clients = [ModuleClient(self.store, "M", clock=Still()) for _ in range(CLIENTS)]
        self.appended: dict[str, list[int]] = {}
        self.count = 0
        self._plan(frozenset(NAMES), 0, restores=False)
        self.turns.pop().write()
        self._fill()

    # --- what may happen ---------------------------------------------------------------------------------------------

    @rule(shape=SHAPES, crash=CRASHES, is_late=LATE, interrupts=st.booleans())
    def an_update_follows(self, shape: Shape, crash: tuple[int, bool] | None, is_late: bool, interrupts: bool) -> None:
        self._plan(shape, self.number, restores=False)
        if not is_late:
            self._carry_out(self.turns.pop(), crash, interrupts)

    @rule(back=st.sampled_from([1, 1, 2, 3]), crash=CRASHES, is_late=LATE, interrupts=st.booleans())
    def a_rollback_follows(self, back: int, crash: tuple[int, bool] | None, is_late: bool, interrupts: bool) -> None:
        """It goes on with what was, or is refused."""
        target = self.log.read(max(1, self.number - back))
        with suppress(DefinitionError):
            self._plan(shape_of(target), self.number, restores=True)
            if not is_late:
                self._carry_out(self.turns.pop(), crash, interrupts)

    @precondition(lambda self: self.turns)
    @rule(crash=CRASHES, interrupts=st.booleans())
    def an_old_plan_is_carried_out(self, crash: tuple[int, bool] | None, interrupts: bool) -> None:
        self._carry_out(self.turns.pop(), crash, interrupts)

    @rule(back=BACK, crash=CRASHES, acts=ACTS)
    def a_revision_is_stable(self, back: int, crash: tuple[int, bool] | None, acts: frozenset[str]) -> None:
        """Even one that another replaced: an operator may be late, and so may leaders."""
        with self._dying(crash) as store, suppress(Crash):
            self._stabilize(max(1, self.number - back), store, acts)

    @rule(crash=CRASHES, is_destroyed=LATE)
    def it_is_destroyed_and_launched_anew(self, crash: tuple[int, bool] | None, is_destroyed: bool) -> None:
        """Whoever destroys it may die; then the launch finishes what was begun."""
        if not is_destroyed:
            return
        with self._dying(crash) as store, suppress(Crash):
            destroy(store, "M")
        if self.log.read(self.number).is_destroyed:
            self._plan(frozenset(NAMES), self.number, restores=False)
            self.turns.pop().write()
            self._fill()

    @rule(name=st.sampled_from(DEPOTS), client=st.integers(0, CLIENTS - 1), looks=LATE)
    def somebody_appends(self, name: str, client: int, looks: bool) -> None:
        """An old client that met no depot of the name yet may be told that there is none; who appends is right."""
        if looks:
            self.clients[client].forget()
        self.count += 1
        definition = self.log.read(self.number)
        try:
            handle = DepotHandle(self.clients[client], name)
        except UnknownName:
            return
        try:
            at = handle.append_column_async([self.count]).result().definition
        except UnknownName:
            assert name not in definition.depots
            return
        if name in definition.depots:
            assert at.depot_prefix(name) == definition.depot_prefix(name), "it is in the depot of today"
        self.appended.setdefault(at.depot_prefix(name), []).append(self.count)

    @rule()
    def the_leader_compacts(self) -> None:
        """Its entry is written only while nobody else claimed: older leaders compact for nothing."""
        topology_store = self._topology_store(self.number, self.store)
        core = topology_store.definition.topology("core")
        self.rows &= {*topology_store._retired_pstates(()), *(pstate.id for pstate in core.pstates.values())}

    # --- what holds --------------------------------------------------------------------------------------------------

    @invariant()
    def what_the_newest_definition_names_is_there(self) -> None:
        definition = self.log.read(self.number)
        for name in definition.depots:
            assert list(self.store.list(definition.depot_prefix(name))), f"{name} lost its records"
        for name in definition.topologies:
            assert list(self.store.list(definition.topology_prefix(name))), f"{name} lost its log"
        assert {p.id for p in definition.topology("core").pstates.values()} <= self.rows

    @invariant()
    def what_was_appended_is_there_once(self) -> None:
        definition = self.log.read(self.number)
        for name in definition.depots:
            prefix = definition.depot_prefix(name)
            if prefix in self.appended:
                log = DepotLog(self.store, prefix, definition.partitions(name))
                log.follow()
                held = columns.to_values(log.read_rows(OffsetRanges(tuple(log.starts()), tuple(log.ends())))[0])
                assert sorted(held) == self.appended[prefix]

    def teardown(self) -> None:
        """In the end only marks are left of what the last stable definition does not have."""
        for client in self.clients:
            client.close()
        definition = self.log.read(self.number)
        deletions = Deletions(self.store, "M")
        is_done = deletions.confirm(definition, 0)
        for _ in range(2):
            remove_garbage(self._topology_store(self.number, self.store), 0)
        live = {definition.depot_prefix(name) for name in definition.depots}
        live |= {definition.topology_prefix(name) for name in definition.topologies}
        folders = {"/".join(key.split("/")[:3]) for part in ("depots", "topologies") for key in self._keys(part)}
        kept = {gone.folder("M") for gone in definition.retired} - {None} if not is_done else set()
        assert folders == live | kept

    # --- how ---------------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        return self.log.newest_number()

    def _plan(self, shape: Shape, base: int, restores: bool) -> None:
        there = data_names(shape_of(self.log.read(base))) if base else set()
        deleted = tuple(sorted(there - data_names(shape)))
        plan = RevisionPlan(declaration(shape), base + 1, base, 2, 1, deleted, restores)
        self.turns.append(RevisionGate(self.store, plan, CLOCK))

    def _stabilize(self, number: int, store: Any, acts: frozenset[str]) -> None:
        if "settle" in acts:
            Deletions(store, "M").confirm(self.log.read(number), 0)
        if "collect" in acts:
            remove_garbage(self._topology_store(number, store), 0)

    def _carry_out(self, turn: RevisionGate, crash: tuple[int, bool] | None, interrupts: bool) -> None:
        """It may die, or sleep while the leaders before it find their revision stable."""
        before = self.number
        meanwhile = (lambda: self._stabilize(before, self.store, BOTH)) if interrupts else None
        with self._dying(crash, meanwhile) as store, suppress(Crash, DefinitionError):
            turn._store = store
            turn._log = DefinitionLog(store, "M")
            turn.write()
        if self.number > before:
            self._check_restored(turn, self.log.read(before), self.log.read(self.number))
            self._fill()

    def _fill(self) -> None:
        """The leaders of the newest definition write something into each new object."""
        definition = self.log.read(self.number)
        folders = [definition.depot_prefix(name) for name in definition.depots]
        folders += [definition.topology_prefix(name) for name in definition.topologies]
        for folder in folders:
            if folder not in self.known:
                self.known.add(folder)
                self.store.create(f"{folder}/log/1", b"data")
        for pstate in definition.topology("core").pstates.values():
            if pstate.id not in self.known:
                self.known.add(pstate.id)
                self.rows.add(pstate.id)

    def _check_restored(self, turn: RevisionGate, before: StoredDefinition, now: StoredDefinition) -> None:
        """A rollback made nothing anew: each object is one that was there, or that was retired."""
        if not turn._plan.restores:
            return
        items = [gone.item for gone in before.retired]
        retired = {item.id for item in items if not hasattr(item, "source_id")}
        assert set(ids_of(now).values()) <= {*ids_of(before).values(), *retired}
        assert (
            not retired
            & {gone.item.id for gone in now.retired if isinstance(gone.item, StoredPState)}
            & set(ids_of(now).values())
        )

    def _topology_store(self, number: int, store: Any) -> TopologyStore:
        program: Any = SimpleNamespace(reads={}, pins=())
        lease: Any = None
        return TopologyStore(store, self.log.read(number), "core", program, lease, CLOCK)

    def _keys(self, part: str) -> Iterator[str]:
        return iter(held(self.store, f"M/{part}"))

    @contextmanager
    def _dying(
        self, crash: tuple[int, bool] | None, meanwhile: Callable[[], None] | None = None
    ) -> Iterator[FaultyObjectStore]:
        """A store whose user dies, or sleeps while others act, before or after a write."""
        left = [-1 if crash is None else crash[0]]

        def strike() -> None:
            if meanwhile is None:
                raise Crash
            meanwhile()

        def at(is_after: bool) -> Callable[[str, str], None]:
            def act(verb: str, key: str) -> None:
                if verb in ("create", "delete") and crash is not None:
                    if is_after is crash[1] and left[0] == 0:
                        strike()
                    left[0] -= int(is_after)

            return act

        yield FaultyObjectStore(self.store, FaultPlan(at(False), at(True)))


Deleting.TestCase.settings = settings(max_examples=200, stateful_step_count=15, deadline=None)
TestDeletions = Deleting.TestCase
