"""What a module declares of other modules, beside what a store holds of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemill.definition.migration_steps import Known, known_migrations, steps_of
from tidemill.definition.stored import StoredDepot, StoredMirror, StoredPState
from tidemill.language.dataflow import (
    DepotDeclaration,
    DepotMigration,
    Function,
    MirrorDeclaration,
    MirroredObject,
    ModuleDeclaration,
    PStateDeclaration,
    QueryDeclaration,
)
from tidemill.store.urls import open_store, store_id
from tidemill.values.errors import StoreRestored


def bound(declaration: ModuleDeclaration, mirrors: Mapping[str, StoredMirror]) -> ModuleDeclaration:
    """The declaration in which each mirror knows the object that it stands for, as a definition has it."""
    return replace(
        declaration,
        mirrors=tuple(
            replace(mirror, found=_object(mirror, mirrors[mirror.name])) if mirror.name in mirrors else mirror
            for mirror in declaration.mirrors
        ),
    )


def _object(declared: MirrorDeclaration, stored: StoredMirror) -> MirroredObject:
    item = stored.item
    owner = f"{stored.module}@{stored.store}" if stored.store else stored.module
    made: DepotDeclaration | PStateDeclaration | QueryDeclaration
    if isinstance(item, StoredDepot):
        made = DepotDeclaration(
            stored.name, item.partitioner, declared.at, is_global=item.is_global, tick_millis=item.tick_millis,
            fields=item.fields, schema=item.schema, migration=depot_migration(declared, item),
        )  # fmt: skip
    elif isinstance(item, StoredPState):
        made = PStateDeclaration(
            stored.name, item.schema, declared.at, item.is_global, item.initial_value, item.is_private,
            _key_partitioner(declared) if item.has_key_partitioner else None,
            steps=steps_of(item, _migrations(declared)),
        )  # fmt: skip
    else:
        made = QueryDeclaration(item.name, item.inputs, item.result, (), declared.at)
    identity = item.id if isinstance(item, (StoredDepot, StoredPState)) else ""
    return MirroredObject(owner, stored.place, identity, stored.partitions, made, stored.placed_reads)


def _migrations(declared: MirrorDeclaration) -> Known:
    """Those of the other module's code; none where only its name is known."""
    return known_migrations(declared.code) if isinstance(declared.code, ModuleDeclaration) else {}


def depot_migration(declared: MirrorDeclaration, item: StoredDepot) -> DepotMigration | None:
    """That of the other module's code; without its function where only its name is known."""
    depots = declared.code.depots if isinstance(declared.code, ModuleDeclaration) else ()
    known = (depot.migration for depot in depots if depot.name == item.name)
    found = next((made for made in known if made is not None and made.id == item.migration), None)
    return found if found is not None or not item.migration else DepotMigration(item.migration, None, declared.at)


def _key_partitioner(declared: MirrorDeclaration) -> Function | None:
    """That of the other module's code; None where only its name is known."""
    code = declared.code
    if not isinstance(code, ModuleDeclaration):
        return None
    pstates = (pstate for topology in code.topologies for pstate in topology.pstates)
    return next((pstate.key_partitioner for pstate in pstates if pstate.name == declared.object), None)


def check_copies(mirrors: Iterable[StoredMirror]) -> None:
    """Refuse stores of other modules that were restored since: offsets and commits of theirs may mean something else.

    Raises:
        StoreRestored: the module is to be updated, which begins anew with what it mirrors there.
    """
    for mirror in {mirror.store: mirror for mirror in mirrors if mirror.store}.values():
        if store_id(open_store(mirror.store, probe=False)) != mirror.store_id:
            text = (
                f"{mirror.store}, which holds {mirror.item.name} of module {mirror.module}, was restored or replaced."
            )
            raise StoreRestored(f"{text} Update this module, so that it mirrors what is there now.")
