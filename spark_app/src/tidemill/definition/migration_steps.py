"""Which migrations of values the rows of a PState went through or still need, from one definition to the next.

A definition keeps all migrations that a location ever had, in their order: how many are done is what parts say of their
rows. The code declares the newest of them. One that it does not declare any more has no function, so all rows must
have gone through it before; its ID is not used again, for nobody could tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tidemill.definition.stored import StoredDefinition, StoredMigration, StoredPState
from tidemill.language.dataflow import Migration, MigrationStep, ModuleDeclaration, PStateDeclaration
from tidemill.language.migrations import (
    Location,
    is_rows,
    location_text,
    rows_location,
    schema_at,
    with_schema_at,
)
from tidemill.language.schema import Schema, to_text
from tidemill.language.widening import is_value_widening
from tidemill.values.errors import Fault

Waiting = Mapping[str, Mapping[Location, int]]
"""By PState and location: how many of its migrations all rows went through, where some rows still need one."""


Known = Mapping[tuple[str, Location, str], Migration]
"""The migrations that code declares, by the PState's name, location and ID."""


def known_migrations(declaration: ModuleDeclaration) -> Known:
    """The migrations that a module's code declares."""
    pstates = (pstate for topology in declaration.topologies for pstate in topology.pstates)
    return {(pstate.name, made.location, made.id): made for pstate in pstates for made in pstate.migrations}


def steps_of(stored: StoredPState, known: Known | None = None) -> tuple[MigrationStep, ...]:
    """The migrations of a stored PState, with the functions that are known here."""
    known = known or {}
    return tuple(_step(stored, kept, known.get((stored.name, kept.location, kept.id))) for kept in stored.migrations)


def _step(stored: StoredPState, kept: StoredMigration, made: Migration | None) -> MigrationStep:
    if made is None:
        return MigrationStep(stored.name, kept.location, kept.id, kept.before)
    return MigrationStep(stored.name, kept.location, kept.id, kept.before, made.function, made.at)


def with_steps(declaration: ModuleDeclaration, definition: StoredDefinition) -> ModuleDeclaration:
    """The declaration whose PStates know what their stored rows may need."""
    stored = {name: pstate for topology in definition.topologies.values() for name, pstate in topology.pstates.items()}
    known = known_migrations(declaration)
    topologies = (
        replace(
            topology,
            pstates=tuple(
                replace(p, steps=steps_of(stored[p.name], known)) if p.name in stored else p for p in topology.pstates
            ),
        )
        for topology in declaration.topologies
    )
    return replace(declaration, topologies=tuple(topologies))


def kept_migrations(declared: PStateDeclaration, old: StoredPState | None) -> tuple[StoredMigration, ...]:
    """All migrations that the PState has had with this declaration."""
    wanted = {(made.location, made.id) for made in declared.migrations}
    history = old.migrations if old else ()
    kept = [replace(known, is_declared=(known.location, known.id) in wanted) for known in history]
    known_ids = {(known.location, known.id) for known in history}
    latest: dict[Location, Schema] = {}
    for made in declared.migrations:
        if (made.location, made.id) not in known_ids:
            kept.append(StoredMigration(made.location, made.id, _before(made, latest, declared, old)))
        latest[made.location] = made.schema
    return tuple(kept)


def _before(
    made: Migration, latest: Mapping[Location, Schema], declared: PStateDeclaration, old: StoredPState | None
) -> Schema:
    """What a migration gets: of the one before it in the code, or of the store; of a new PState nothing is stored."""
    if made.location in latest:
        return latest[made.location]
    stored = None if old is None else schema_at(old.schema, made.location)
    return made.schema if stored is None else stored


def adapted(was: StoredPState, now: StoredPState) -> Schema:
    """The old schema with the new values wherever a migration makes them."""
    schema = was.schema
    for made in new_migrations(was, now):
        new = schema_at(now.schema, made.location)
        if new is not None:
            schema = with_schema_at(schema, made.location, new)
    return schema


def new_migrations(was: StoredPState, now: StoredPState) -> tuple[StoredMigration, ...]:
    """Those that `was` did not have."""
    return now.migrations[len(was.migrations) :]


# --- what an update may do -------------------------------------------------------------------------------------------


def migration_faults(
    was: StoredPState, now: StoredPState, declared: PStateDeclaration, waiting: Waiting
) -> Iterator[Fault]:
    """What an update may not do with migrations; `waiting` says which of them are not done."""
    yield from _gone_faults(was, now, waiting.get(was.name, {}))
    for location in dict.fromkeys(made.location for made in declared.migrations):
        made = [migration for migration in declared.migrations if migration.location == location]
        yield from _order_faults(was, made)
        yield from _schema_faults(was, made)
    yield from _nested_faults(was, now)


def _gone_faults(was: StoredPState, now: StoredPState, done: Mapping[Location, int]) -> Iterator[Fault]:
    """A migration may go from the code when all rows went through it."""
    generation: dict[Location, int] = {}
    for before, after in zip(was.migrations, now.migrations, strict=False):
        rows = rows_location(before.location, was.migrated_locations)
        number = generation[rows] = generation.get(rows, 0) + 1
        if before.is_declared and not after.is_declared and number > done.get(rows, number):
            text = f"loses the migration '{before.id}' of {location_text(before.location)} before it is done."
            advice = "Keep it until `tidemill status` shows it as done: rows that wait are read through it."
            yield Fault(was.name, text, advice)


def _order_faults(was: StoredPState, made: list[Migration]) -> Iterator[Fault]:
    history = [known for known in was.migrations if known.location == made[0].location]
    given_up = {known.id for known in history if not known.is_declared}
    ids = [known.id for known in history]
    for migration in made:
        if migration.id in given_up:
            text = f"uses the migration ID '{migration.id}' again, whose migration it had and gave up."
            yield Fault(was.name, text, f"Give the migration at {migration.at} an ID that was never used.")
    known_ids = [migration.id for migration in made if migration.id in ids]
    if [migration.id for migration in made[: len(known_ids)]] != [i for i in ids if i in known_ids]:
        text = f"changes the order of the migrations of {location_text(made[0].location)}: it was {', '.join(ids)}."
        yield Fault(was.name, text, "Keep those in their order, and write new ones behind them.")


def _nested_faults(was: StoredPState, now: StoredPState) -> Iterator[Fault]:
    """Elements have a location of their own only once they are subindexed."""
    new = {made.location for made in new_migrations(was, now)}
    for location in new:
        if location and location[:-1] in new:
            text = f"migrates {location_text(location)} together with {location_text(location[:-1])}, where they are."
            advice = "Make the elements what they shall be in the outer function, or migrate them with a later update."
            yield Fault(was.name, text, advice)


def _schema_faults(was: StoredPState, made: list[Migration]) -> Iterator[Fault]:
    """What is stored fits where the first new migration begins."""
    stored = schema_at(was.schema, made[0].location)
    known = {(kept.location, kept.id) for kept in was.migrations}
    is_new = [(migration.location, migration.id) not in known for migration in made]
    if stored is None or True not in is_new:
        return
    if is_rows(stored, made[0].location):
        text = f"migrates {location_text(made[0].location)}, whose elements are stored one by one: {to_text(stored)}."
        yield Fault(was.name, text, _WHOLE)
    first = is_new.index(True)
    if first and not is_value_widening(stored, made[first - 1].schema):
        text = (
            f"says that the migration '{made[first - 1].id}' makes {to_text(made[first - 1].schema)}, "
            f"but {to_text(stored)} is stored."
        )
        yield Fault(was.name, text, "Keep the schema that it has, or a wider one.")


_WHOLE: Final = "Migrate the values inside it, or declare a PState of another name and fill it from the depots."
