"""Values that were stored before a migration, as they are after it.

A stored table says with its generation how many migrations its values went through. Of rows of several generations
those before a migration are folded first, in the table that they were written for: the function of a migration gets
what a row holds, never an operand. What it returns is a put below all that was written since. So each value goes
through each migration once, and only where nothing newer hides it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import polars as pl

from tidemill.language.migrations import location_text
from tidemill.tables.cells import cells_of
from tidemill.tables.codecs import Misfit, NullKey, checker, refusal
from tidemill.tables.container import OPERAND, PUT
from tidemill.tables.level_merge import CombinerNames, cell_columns, clears_applied, key_columns, key_rows, resolve
from tidemill.tables.null_keys import shown
from tidemill.tables.tables import Table, value_schema
from tidemill.tables.unpacked_values import hiding_rows, size_of, unpacked_rows
from tidemill.values.errors import NeedsCode, UserCodeError, message_of
from tidemill.values.texts import shortened


def migrated(
    table: Table, rows: Sequence[tuple[Table, pl.DataFrame, CombinerNames]]
) -> list[tuple[pl.DataFrame, CombinerNames]]:
    """Rows of levels down to the base, oldest first, each with its table, all as rows of `table`. Raises: as
    `migrated_cell`.
    """
    newer = [(frame, names) for written, frame, names in rows if written.generation == table.generation]
    if len(newer) == len(rows):
        return newer
    assert table.before is not None
    older = migrated(table.before, [held for held in rows if held[0].generation < table.generation])
    frame, _ = resolve(table.before, older, is_base=True)
    hiding = (hiding_rows(table, held) if table.is_unpacked else held for held, _ in newer)
    frame = _not_hidden(table.before, frame, [held for held in hiding if held.height])
    cells = zip(cells_of(table.before, frame), key_rows(table.before, frame), strict=True)
    made = [migrated_cell(table, cell, keys[1:]) for cell, keys in cells]
    if table.is_unpacked:
        frame = unpacked_rows(table, frame, made)
    else:
        columns = cell_columns(table, [PUT] * frame.height, made)
        frame = frame.select(*key_columns(table), "kind").with_columns(**columns)
    return [(frame, tuple(None for _ in table.columns)), *newer]


def _not_hidden(table: Table, older: pl.DataFrame, newer: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows that no newer put, delete or clear hides."""
    if older.height == 0 or not newer:
        return older
    columns = key_columns(table)
    older = clears_applied(table, [older, *(frame.select("kind", *columns) for frame in newer)])[0]
    for frame in newer:
        hiding = frame.filter(pl.col("kind") < OPERAND).select(columns)
        older = older.join(hiding, on=columns, how="anti", nulls_equal=True, maintain_order="left")
    return older


def migrated_cell(table: Table, cell: Any, keys: Sequence[Any]) -> Any:
    """What a row of `table` holds (`SortedTable.cells`) that held `cell` before its newest migration; where that one
    subindexed values, the whole structure.

    Raises:
        NeedsCode: the migration's function is not in this process.
        UserCodeError: it raises, or returns what does not fit the schema.
    """
    step = table.step
    assert step is not None
    where = f"{step.pstate}{''.join(f'[{key!r}]' for key in shown(table, keys))}"
    name = f"the migration '{step.id}' of {location_text(step.location)}"
    if step.function is None:
        raise NeedsCode(
            f"{where} was stored before {name}, whose function is not here: read with the module's code that declares "
            f"it (command line: --module MODULE:CLASS; gateway: --entry MODULE:CLASS), or once all values are migrated."
        )
    try:
        made = step.function.call(cell)
    except Exception as error:
        said = f"{type(error).__name__}: {message_of(error)}"
        raise _failure(f"{where}: {name} at {step.at} raised {said}", step.at, cell, error) from error
    try:
        checked = checker(table.structure or value_schema(table))(made)
    except Misfit as misfit:
        returned = f"{name} at {step.at} returned "
        text = str(refusal(step.pstate, shown(table, keys), misfit, returned))
        if isinstance(misfit, NullKey):
            text = f"{where}: {returned}None as a key, which is of type {misfit.kind}"
        raise _failure(text, step.at, cell, None) from None
    if table.structure is not None:
        return checked if table.is_unpacked else size_of(checked)
    if table.fields is None or checked is None:
        return checked
    return {field: checked[field] for field, _ in table.fields if field in checked}


def _failure(text: str, at: object, cell: Any, error: BaseException | None) -> UserCodeError:
    sample = shortened(repr(cell))
    trace = "" if error is None else "".join(traceback.format_exception(error))
    return UserCodeError(
        f"{text} (value: {sample})", step=f"migration at {at}", trace=trace, sample=sample, is_general=True
    )
