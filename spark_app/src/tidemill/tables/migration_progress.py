"""How far the migrations of stored values are: a snapshot says of each part how many its rows went through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemill.definition.migration_steps import steps_of
from tidemill.definition.stored import StoredPState
from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Snapshot
from tidemill.language.migrations import Location, location_text, rows_location
from tidemill.tables.tables import Table, layout_of, row_key


@dataclass(frozen=True)
class MigrationStatus:
    """The newest migration of values at `location`: `waiting` of `rows` stored rows are still to be rewritten."""

    pstate: str
    location: str
    id: str
    waiting: int
    rows: int


def migrated_tables(pstates: Iterable[StoredPState]) -> Iterator[tuple[StoredPState, Location, str, Table]]:
    """(PState, location, how parts name the table, table) of all tables whose values were ever migrated."""
    for pstate in (pstate for pstate in pstates if pstate.migrations):
        for table in layout_of(pstate.schema, steps_of(pstate)).tables.values():
            if table.step is not None:
                yield pstate, table.step.location, row_key((pstate.id, table.id)), table


def generations(pstates: Iterable[StoredPState]) -> dict[str, int]:
    """How many migrations the values of each table went through when all is done, as `Part.generations`."""
    return {name: table.generation for _, _, name, table in migrated_tables(pstates)}


def progress_of(pstates: Iterable[StoredPState], entry: Entry) -> tuple[MigrationStatus, ...]:
    """The newest migration of each location, if the code still declares it. Rows of pieces that are rewritten do not
    wait any more: pieces hold about as many rows each.
    """
    found, snapshot = [], entry.snapshot
    pieces, done = next(((p.pieces, p.done) for p in entry.pending if p.is_cut), (1, 0))
    for pstate, location, name, table in migrated_tables(pstates):
        newest = [made for made in pstate.migrations if made.location == location][-1]
        if newest.is_declared:
            waiting = sum(part.behind({name: table.generation}).get(name, 0) for part in snapshot.parts())
            waiting = -(-waiting * (pieces - done) // pieces)
            rows = sum(part.rows.get(name, 0) for part in snapshot.parts())
            found.append(MigrationStatus(pstate.name, location_text(location), newest.id, waiting, rows))
    return tuple(found)


def done_generations(pstates: Iterable[StoredPState], snapshot: Snapshot) -> dict[str, dict[Location, int]]:
    """By PState and location of rows how many migrations all of them went through, where some wait for more."""
    found: dict[str, dict[Location, int]] = {}
    for pstate, location, name, table in migrated_tables(pstates):
        held = [part.generation(name) for part in snapshot.parts() if part.rows.get(name)]
        if min(held, default=table.generation) < table.generation:
            rows = rows_location(location, pstate.migrated_locations)
            found.setdefault(pstate.name, {})[rows] = min(held)
    return found
