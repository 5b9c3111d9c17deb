"""Where the migrations of a PState stand: on values that are rows of their own, each with an ID of its own."""

from __future__ import annotations

from tidemill.language.dataflow import Migration, PStateDeclaration
from tidemill.language.migrations import is_rows, location_text, schema_at
from tidemill.language.schema import FixedKeysSchema
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
    if any(schema is not None and is_rows(schema, made.location) for schema in (made.schema, declared)):
        text = f"{what} {location_text(made.location)}, whose elements are stored one by one."
        context.fault(made.at, text, "Migrate the values inside it; what is subindexed stays so.")
        return
    if value_table(pstate.schema, made.location) is not None:
        return
    around = schema_at(pstate.schema, made.location[:-1])
    text = f"{what} {location_text(made.location)}, which is stored within another value."
    whole = "Migrate the whole record." if isinstance(around, FixedKeysSchema) else "Migrate the value around it."
    context.fault(made.at, text, whole)
