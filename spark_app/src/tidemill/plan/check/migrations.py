"""Where the migrations of a PState stand: on values that are rows of their own, each with an ID of its own.

The last of a place may make its values subindexed.
"""

from __future__ import annotations

from typing import Final

from tidemill.language.dataflow import Migration, PStateDeclaration
from tidemill.language.migrations import is_rows, location_text, schema_at
from tidemill.language.schema import FixedKeysSchema, children, has_indexed
from tidemill.plan.check.context import Context
from tidemill.tables.tables import value_table


def check_migrations(context: Context, pstate: PStateDeclaration) -> None:
    """Report migrations of what is stored within another value or one by one, and IDs that stand twice."""
    first: dict[tuple[tuple[str, ...], str], Migration] = {}
    for made in pstate.migrations:
        _check_place(context, pstate, made)
        known = first.setdefault((made.location, made.id), made)
        if known is not made:
            text = f"The migration '{made.id}' of '{pstate.name}' is declared twice; the first time at {known.at}."
            context.fault(made.at, text, "Give each its own ID: it says which of them a value went through.")


def _check_place(context: Context, pstate: PStateDeclaration, made: Migration) -> None:
    what = f"The migration '{made.id}' of '{pstate.name}' is of"
    declared = schema_at(pstate.schema, made.location)
    newest = next(each for each in reversed(pstate.migrations) if each.location == made.location)
    if made.is_subindexing and made is newest:
        _check_subindexing(context, pstate, made)
        return
    if newest.is_subindexing:
        declared = None
    if any(schema is not None and is_rows(schema, made.location) for schema in (made.schema, declared)):
        text = f"{what} {location_text(made.location)}, whose elements are stored one by one."
        context.fault(made.at, text, _ROWS)
        return
    if newest.is_subindexing or value_table(pstate.schema, made.location) is not None:
        return
    around = schema_at(pstate.schema, made.location[:-1])
    text = f"{what} {location_text(made.location)}, which is stored within another value."
    whole = "Migrate the whole record." if isinstance(around, FixedKeysSchema) else "Migrate the value around it."
    context.fault(made.at, text, whole)


_ROWS: Final = (
    "Migrate the values inside it: what is subindexed stays so. To subindex what was a whole value, write "
    ".migrate_to_subindexed() behind the migration."
)


def _check_subindexing(context: Context, pstate: PStateDeclaration, made: Migration) -> None:
    """Values become subindexed right below the top, one level at a time."""
    what = f"The migration '{made.id}' of '{pstate.name}' subindexes"
    if len(made.location) != 1:
        text = f"{what} {location_text(made.location)}."
        context.fault(made.at, text, f"It can do so with values of a top-level map or record. {_ELSE}")
    elif any(map(has_indexed, children(made.schema))):
        text = f"{what} {location_text(made.location)} in several levels."
        context.fault(made.at, text, f"Subindex the outer one; what is inside stays one value. {_ELSE}")
    elif schema_at(pstate.schema, made.location) != made.schema:
        text = f"{what} {location_text(made.location)}, whose schema was changed behind it."
        context.fault(made.at, text, "Write .migrate_to_subindexed() last.")


_ELSE: Final = "Else declare a PState of another name, and fill it from the beginning of the depot."
