"""Whether what a definition deleted is gone for good, or may still come back: `<module>/deletions/<n>.json`.

A definition lists what it and its forerunners deleted as retired. Two things may become of that list, and they exclude
each other: the revision proves stable and the deletions are *done*, or another definition follows and they are *kept*,
to be brought back by it or listed on. One object, created if absent, says which; it is written before anything is
deleted, and before the following definition. So a rollback never opens what a collector deletes, whoever dies when.
Before either, the depots among it are closed: what is appended under their names from then on is appended elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition, StoredMirror
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.leader.log_closure import close_deleted, held
from tidemill.leader.waiting_migrations import waiting_migrations
from tidemill.store.entry_log import EntryLog
from tidemill.store.json_codec import SUFFIX, JsonCodec
from tidemill.store.log import PATIENCE, Log, Lost
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.ids import Ids, nonce

Decision = Literal["done", "kept"]


@dataclass(frozen=True)
class DeletionDecision:
    """What was decided of a definition's deletions, and when."""

    nonce: str
    decision: Decision
    written_ms: int

    @property
    def is_done(self) -> bool:
        """Whether the deletions hold for good; if not, the data is kept."""
        return self.decision == "done"


_JSON: Final[JsonCodec[DeletionDecision]] = JsonCodec(DeletionDecision)


class Deletions:
    """What was decided of the deletions of one module's definitions, by the definition's number."""

    def __init__(self, store: ObjectStore, module: str, patience: tuple[float, ...] = PATIENCE) -> None:
        self._store, self._patience = store, patience
        log = Log(store, f"{module}/deletions", SUFFIX, _JSON.read_nonce, patience, is_dense=False)
        self._decisions = EntryLog(log, _JSON.decode)

    def decision(self, definition: StoredDefinition) -> DeletionDecision | None:
        """What was decided; None if nothing was yet, or there is nothing to decide."""
        if not definition.retired:
            return None
        try:
            return self._decisions.read(definition.number)
        except NotFound:
            return None

    def confirm(self, definition: StoredDefinition, now_ms: int) -> bool:
        """Its revision is stable: the deletions take effect, unless another definition follows already.

        Raises:
            StoreUnavailable, OutcomeUnknown: ask again.
        """
        return not definition.retired or self._decide(definition, "done", now_ms).is_done

    def keep(self, definition: StoredDefinition, now_ms: int) -> bool:
        """Another definition is about to follow: what is retired stays; false if it is gone.

        Raises:
            StoreUnavailable, OutcomeUnknown: ask again.
        """
        return not definition.retired or not self._decide(definition, "kept", now_ms).is_done

    def _decide(self, definition: StoredDefinition, decision: Decision, now_ms: int) -> DeletionDecision:
        found = self.decision(definition)
        if found is not None:
            return found
        close_deleted(self._store, definition, self._patience)
        made, number = DeletionDecision(nonce(), decision, now_ms), definition.number
        try:
            self._decisions.put(number, made, _JSON.sealed(made, self._decisions.log.key(number)))
        except Lost:
            return self._decisions.read(number)
        return made


def following(
    store: ObjectStore,
    before: StoredDefinition,
    declaration: ModuleDeclaration,
    objects_to_delete: tuple[str, ...],
    *,
    restores: bool = False,
    mirrors: Mapping[str, StoredMirror] | None = None,
) -> StoredDefinition:
    """The definition that follows `before` as things stand; nothing is written. `mirrors` are as for a launch.

    Folders of what is gone are named on only while there is something in them.

    Raises:
        DefinitionError: lists every rule that the update breaks.
    """
    decided = Deletions(store, before.module).decision(before)
    made = definitions.update(
        before,
        declaration,
        objects_to_delete,
        Ids(),
        restores=restores,
        are_deletions_done=decided is not None and decided.is_done,
        mirrors=mirrors,
        waiting=waiting_migrations(store, before),
    )
    return replace(made, garbage=tuple(folder for folder in made.garbage if held(store, folder)))
