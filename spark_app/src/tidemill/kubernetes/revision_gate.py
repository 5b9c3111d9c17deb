"""Whose turn it is: a driver of a revision may write one definition, and lead only under that one.

Revision n was made against definition B and may write B + 1 and nothing else. So all drivers of a revision agree, and
a stray pod of an older one can do nothing, whatever the operator believes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tidemill.cluster.launch import check_mirrored, clear_way, close_gone, programs
from tidemill.cluster.mirrors import found_mirrors
from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition
from tidemill.definition.ownership import BY_HAND, Owner, owned_by_another
from tidemill.journal.clock import Clock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.leader.deletions import Deletions, following
from tidemill.leader.readers import register
from tidemill.store.log import Lost
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import BadInput, DefinitionError, Fault
from tidemill.values.ids import Ids

Verdict = Literal["early", "mine", "over"]


@dataclass(frozen=True)
class RevisionPlan:
    """A revision of a module: what it declares, and the number of the definition that it follows (0: none).

    `restores`: it is a rollback, which goes on with what revisions deleted that were never stable. `take_over_from` is
    the owner whose store it may take (`Owner.word`); none if it is empty. `breaks_mirrors`: it may take away what other
    modules mirror.
    """

    declaration: ModuleDeclaration
    revision: int
    base: int
    tasks: int
    threads: int
    objects_to_delete: tuple[str, ...] = ()
    restores: bool = False
    owner: Owner = BY_HAND
    take_over_from: str = ""
    breaks_mirrors: bool = False


def check_owner(stored: StoredDefinition, url: str, owner: Owner, take_over_from: str) -> None:
    """Raises:
    OwnedByAnother: somebody else owns the module, and is not named as the one whose store is taken.
    """
    is_free = stored.is_destroyed or stored.owner.is_followed_by(owner)
    if not is_free and stored.owner.word != take_over_from:
        raise owned_by_another(stored.module, url, stored.owner, _to_take(stored.owner))


def _to_take(owner: Owner) -> str:
    return f"To take it over, and stop whoever runs it: spec.store.takeOverFrom: {owner.word}."


def planned(store: ObjectStore, plan: RevisionPlan, clock: Clock) -> StoredDefinition:
    """The definition that the revision would write, checked against the one that it follows; nothing is written.

    Raises:
        DefinitionError: lists everything that cannot be, also what other modules mirror.
        BadInput: the definition that it follows is not in the store.
        OwnedByAnother: it belongs to somebody else.
    """
    before = _base(store, plan)
    if before is not None:
        check_owner(before, store.url, plan.owner, plan.take_over_from)
    mirrors = found_mirrors(store, plan.declaration)
    listed = _to_delete(before, plan.objects_to_delete)
    if before is None or before.is_destroyed:
        made = definitions.launch(plan.declaration, plan.tasks, plan.threads, Ids(), mirrors)
        faults = [_not_there(name) for name in listed]
    else:
        definitions.launch(plan.declaration, plan.tasks, plan.threads, Ids())  # checks tasks and threads
        made = following(store, before, plan.declaration, listed, restores=plan.restores, mirrors=mirrors)
        faults = [] if before.tasks == plan.tasks else [_other_tasks(before.tasks, plan.tasks)]
    if faults:
        raise DefinitionError(faults, module=plan.declaration.name)
    made = replace(made, threads=plan.threads, revision=plan.revision, owner=plan.owner)
    programs(plan.declaration, made)
    _check_mirrored(store, plan, before, made, clock)
    return made


def _check_mirrored(
    store: ObjectStore, plan: RevisionPlan, before: StoredDefinition | None, made: StoredDefinition, clock: Clock
) -> None:
    """As `tidemill update` does. What stands already is not asked again: a driver that starts anew must not end."""
    if before is None or before.is_destroyed or plan.breaks_mirrors:
        return
    if DefinitionLog(store, plan.declaration.name).newest_number() == plan.base:
        check_mirrored(store, before, made, clock)


def _base(store: ObjectStore, plan: RevisionPlan) -> StoredDefinition | None:
    if plan.base == 0:
        return None
    try:
        return DefinitionLog(store, plan.declaration.name).read(plan.base)
    except NotFound as error:
        text = f"The store has no definition {plan.base} of module {plan.declaration.name}, which this one follows."
        raise BadInput(text, base=plan.base) from error


def _to_delete(before: StoredDefinition | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """`$$p?` goes only where there is a `$$p`: whether a revision that is rolled back got to write it is not known."""
    there: set[str] = set()
    if before is not None and not before.is_destroyed:
        there = {*before.depots, *(name for topology in before.topologies.values() for name in topology.pstates)}
    return tuple(name.removesuffix("?") for name in names if not name.endswith("?") or name[:-1] in there)


def _not_there(name: str) -> Fault:
    return Fault(name, "is listed in objects_to_delete, but is not in the running module.", "Take it off the list.")


def _other_tasks(before: int, now: int) -> Fault:
    return Fault("tasks", f"changes from {before} to {now}.", "The number of tasks never changes: keep it.")


class RevisionGate:
    """Follows the definitions of one module in the store for one revision."""

    def __init__(self, store: ObjectStore, plan: RevisionPlan, clock: Clock) -> None:
        """Raises: what `planned` raises."""
        self._store = store
        self._plan = plan
        self._clock = clock
        by = f"revision {plan.revision} of the Module {plan.owner.namespace}/{plan.owner.name}"
        self._log = DefinitionLog(store, plan.declaration.name, by=by)
        self.planned = planned(store, plan, clock)

    def look(self) -> tuple[Verdict, StoredDefinition | None]:
        """Whose turn it is; where it is ours, with the definition that was written for it (None: not yet).

        Raises:
            StoreUnavailable: ask again.
            OwnedByAnother: somebody else's definition followed.
        """
        number = self._log.newest_number()
        if number < self._plan.base:
            return "early", None
        if number > self._plan.base + 1:
            self._check_ours(self._log.read(number))
            return "over", None
        if number == self._plan.base:
            return "mine", None
        stored = self._log.read(number)
        self._check_ours(stored)
        is_ours = stored.revision == self._plan.revision and not stored.is_destroyed
        is_ours = is_ours and stored.is_equal_to(self.planned)
        return ("mine", replace(stored, threads=self._plan.threads)) if is_ours else ("over", None)

    def _check_ours(self, stored: StoredDefinition) -> None:
        """A namesake of another uid is another owner here: what we run has ended with its Module."""
        if not stored.is_destroyed and stored.owner.uid != self._plan.owner.uid:
            advice = f"{_to_take(stored.owner)} If that one is gone for good: another spec.rollout.retryNonce."
            raise owned_by_another(stored.module, self._store.url, stored.owner, advice)

    def write(self) -> None:
        """Write the revision's definition, where nobody has written one meanwhile; `look` finds out who did.

        What the definition before retired is held first, so that nobody deletes it behind our back.

        Raises:
            StoreUnavailable: ask again.
            DefinitionError: a rollback wants what is gone since the plan was made, or another module mirrors meanwhile
                what goes.
        """
        base, name = self._plan.base, self._plan.declaration.name
        before = _base(self._store, self._plan)
        if before is not None and not before.is_destroyed:
            _check_mirrored(self._store, self._plan, before, self.planned, self._clock)
            if not Deletions(self._store, name).keep(before, self._clock.now_ms()):
                self.planned = planned(self._store, self._plan, self._clock)
        else:
            clear_way(self._store, self._plan.declaration)
        now_ms = self._clock.now_ms()
        register(self._store, self.planned, base + 1, now_ms)
        try:
            close_gone(self._store, self._log.append(self.planned, now_ms, after=base))
        except Lost:
            return
