"""Where appends to a depot go, and how they go on when that depot is deleted under them.

A client may know the module as it was a while ago. The log of a deleted depot refuses appends (`leader.log_closure`),
so whoever is refused looks at the newest definition and hands the same records in again: to the depot that has the name
now, whose partitions may be others, or to the same one where a rollback brought it back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

from tidemill.clients.module import ModuleClient
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.appender import DepotAppender
from tidemill.depot.header import Offsets
from tidemill.depot.log import DepotLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.values.errors import Deleted, DepotClosed, StoreUnavailable, UnknownName

MOVES_MAX = 10
"""How often one append follows a depot that is deleted and made anew under it."""

T = TypeVar("T")


class DepotTarget(NamedTuple):
    """A depot as a definition has it, and its appender in this process."""

    definition: StoredDefinition
    prefix: str
    appender: DepotAppender


def target_of(module: ModuleClient, name: str, definition: StoredDefinition) -> DepotTarget:
    """Where appends to this depot go. Raises UnknownName."""
    prefix = definition.depot_prefix(definition.depot(name).name)
    return DepotTarget(definition, prefix, module.appender(prefix, definition.partitions(name)))


def moved(module: ModuleClient, name: str, refused: DepotTarget, error: Deleted) -> DepotTarget:
    """Where appends go that a deleted depot refused.

    Raises:
        UnknownName: the depot or its module is gone.
        StoreUnavailable: the store cannot be asked.
    """
    module.forget(refused.definition)
    try:
        found = target_of(module, name, module.definition())
    except UnknownName as gone:
        module.discard(refused.prefix)
        raise UnknownName(f"{name} was deleted under this append: {gone}", name=name) from error
    if found.prefix != refused.prefix:
        module.discard(refused.prefix)
    elif isinstance(error, DepotClosed):
        found.appender.depot.reopen(found.definition.number)
    else:
        raise error
    return found


def reopen(log: DepotLog) -> None:
    """Let a closed depot take appends again where the newest definition of its module has it: a rollback brought it
    back.

    Raises:
        DepotClosed: its module, which may be another than that of who appends, does not have it any more.
        StoreUnavailable: the store cannot be asked.
    """
    prefix = log.files.prefix
    owner = DefinitionLog(log.files.store, prefix.partition("/")[0]).newest()
    known = {} if owner is None or owner.is_destroyed else owner.depots
    if owner is None or all(owner.depot_prefix(name) != prefix for name in known):
        raise DepotClosed(f"{prefix} in {log.files.store.url} was deleted by an update of its module.")
    log.reopen(owner.number)


def moves_often(name: str) -> StoreUnavailable:
    """The error of an append whose depots were deleted one after the other."""
    return StoreUnavailable(f"{name} was deleted {MOVES_MAX} times under one append; nothing was appended.")


class FollowingAppend(Future[T], Generic[T]):
    """The future of an append that goes on elsewhere when its depot is deleted before it is acknowledged.

    `hand_in` gives the records to a target, `result_of` makes the result of where they are. Cancelling it, where that
    succeeds, means that nothing is appended.
    """

    def __init__(
        self,
        module: ModuleClient,
        name: str,
        target: DepotTarget,
        hand_in: Callable[[DepotTarget], Future[Offsets]],
        result_of: Callable[[DepotTarget, Offsets], T],
    ) -> None:
        """Raises: what `hand_in` raises."""
        super().__init__()
        self._module, self._name, self._target = module, name, target
        self._hand_in, self._result_of = hand_in, result_of
        self._moves = 0
        self._under_way: Future[Offsets] | None = None
        self._go_on()

    def cancel(self) -> bool:
        """Take the append back while it waits to be written; whether that succeeded."""
        under_way = self._under_way
        return (under_way is None or under_way.cancel()) and super().cancel()

    def _go_on(self) -> None:
        self._under_way = self._hand_in(self._target)
        self._under_way.add_done_callback(self._take)

    def _take(self, done: Future[Offsets]) -> None:
        if done.cancelled():
            self._under_way = None
            return
        error = done.exception()
        try:
            if isinstance(error, Deleted):
                self._follow(error)
                return
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(self._result_of(self._target, done.result()))
        except Exception as failed:  # noqa: BLE001 - also of the module's partitioner: who waits must learn of it
            self.set_exception(failed)
        self._under_way = None  # it has this one: in a circle, the records stay until a search for garbage

    def _follow(self, error: Deleted) -> None:
        self._moves += 1
        if self._moves > MOVES_MAX:
            raise moves_often(self._name) from error
        self._target = moved(self._module, self._name, self._target, error)
        self._go_on()
