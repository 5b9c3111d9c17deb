"""Merging the rows of one table from several levels: the newest put or delete of a key wins, operands above it fold
onto it.

`fold_cells` does it for one key in Python and is the truth; `resolve` does it for whole levels by columns
(`tables.runs`), and calls the row form where a column operation could give another result: None in records, structures,
and whatever a combiner has no form for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np
import polars as pl

from tidemill.language.combiners import combiner_named
from tidemill.tables.cells import cells_of
from tidemill.tables.codecs import key_codec, one_nan, value_codec
from tidemill.tables.container import CLEAR, DELETE, OPERAND, PUT
from tidemill.tables.row_order import merge_order, rows_at, run_starts, sort_rows
from tidemill.tables.runs import CombinerColumns, Runs, has_group_form, reduce_runs
from tidemill.tables.tables import Table
from tidemill.values.absent import ABSENT
from tidemill.values.errors import CombinersDiffer

CombinerNames = tuple[str | None, ...]
_GROUP: Final = "\x00group"


# --- one key, in Python ----------------------------------------------------------------------------------------------


def fold_cells(table: Table, base: Any, operands: Iterable[tuple[Any, CombinerNames]]) -> Any:
    """What a row holds after operands (oldest first, each with its table's combiner_names) are aggregated onto it."""
    for operand, combiner_names in operands:
        base = _onto(table, combiner_names, base, operand)
    return base


def _onto(table: Table, combiner_names: CombinerNames, base: Any, operand: Any) -> Any:
    by_field = _by_field(table, combiner_names)
    if by_field is None:
        return combiner_named(combiner_names[0] or "").onto(None if base is ABSENT else base, operand)
    record = dict(base) if base else {}
    for name, cell in operand.items():
        record[name] = combiner_named(by_field[name] or "").onto(record.get(name), cell)
    return record if table.fields is None else {name: record[name] for name, _ in table.fields if name in record}


def _by_field(table: Table, combiner_names: CombinerNames) -> Mapping[Any, str | None] | None:
    """The combiners of the fields of a record; None where operands concern the value as a whole."""
    if table.fields is not None:
        return dict(zip((name for name, _ in table.fields), combiner_names, strict=True))
    return _fields_of(combiner_names[0] or "")


_RECORD: Final = "record "


def record_combiner_name(by_field: Sequence[tuple[Any, str]]) -> str | None:
    """The name of the combiner of operands of records that are stored as one value: the combiners of their fields."""
    return _RECORD + json.dumps(sorted(by_field, key=repr)) if by_field else None


@lru_cache(maxsize=256)
def _fields_of(combiner_name: str) -> Mapping[Any, str] | None:
    """The inverse of `record_combiner_name`; None for other combiner_names."""
    return dict(json.loads(combiner_name[len(_RECORD) :])) if combiner_name.startswith(_RECORD) else None


def combine_cells(table: Table, combiner_names: CombinerNames, first: Any, second: Any) -> Any:
    """One operand that does what `first` and then `second` would do."""
    by_field = _by_field(table, combiner_names)
    if by_field is None:
        return combiner_named(combiner_names[0] or "").combine(first, second)
    merged = dict(first)
    for name, cell in second.items():
        merged[name] = combiner_named(by_field[name] or "").combine(merged[name], cell) if name in merged else cell
    return merged


def rows_frame(
    table: Table, tasks: Sequence[int], keys: Sequence[Sequence[Any]], kinds: Sequence[int], cells: Sequence[Any]
) -> pl.DataFrame:
    """A frame of rows from Python: stored keys by column, cells as `SortedTable.cells` gives them (anything for
    deletes).
    """
    columns: dict[str, pl.Series] = {"task": pl.Series("task", tasks, dtype=pl.Int32)}
    for name, kind, stored in zip(table.key_names, table.keys, keys, strict=True):
        columns[name] = key_codec(kind).stored_series(stored)
    columns["kind"] = pl.Series("kind", kinds, dtype=pl.Int8)
    columns.update(cell_columns(table, kinds, cells))
    return pl.DataFrame(columns)


def cell_columns(table: Table, kinds: Sequence[int], cells: Sequence[Any]) -> dict[str, pl.Series]:
    """The value columns of rows, and `none` where it is needed."""
    has_cells = [kind in (PUT, OPERAND) for kind in kinds]
    if table.value is not None:
        held = [cell if there else None for cell, there in zip(cells, has_cells, strict=True)]
        return {"value": value_codec(table.value).series(held)}
    if table.fields is None:
        return {}
    records = [cell if there and cell is not None else {} for cell, there in zip(cells, has_cells, strict=True)]
    columns = {}
    for name, schema in table.fields:
        columns[f"value.{name}"] = value_codec(schema).series([record.get(name) for record in records])
    bits = [
        -1 if there and cell is None else _none_bits(table, record)
        for cell, there, record in zip(cells, has_cells, records, strict=True)
    ]
    if any(bits):
        columns["none"] = pl.Series("none", bits, dtype=pl.Int64)
    return columns


def _none_bits(table: Table, record: dict[str, Any]) -> int:
    if None not in record.values():
        return 0
    return sum(1 << i for i, (name, _) in enumerate(table.fields or ()) if name in record and record[name] is None)


# --- whole levels, by columns ----------------------------------------------------------------------------------------


def key_columns(table: Table) -> list[str]:
    """The names of the columns that make a key: task, k0, k1, …"""
    return ["task", *table.key_names]


def key_rows(table: Table, frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """(task, stored keys…) of each row, equal where the keys are."""
    columns = [frame[name].to_list() for name in key_columns(table)]
    kinds = ("int", *table.keys)
    return zip(
        *(one_nan(held) if kind == "float" else held for kind, held in zip(kinds, columns, strict=True)), strict=True
    )


def order_rows(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows sorted as containers want them; equal keys keep their order."""
    return sort_rows(frame, key_columns(table))


def resolve(
    table: Table, levels: Sequence[tuple[pl.DataFrame, CombinerNames]], *, is_base: bool
) -> tuple[pl.DataFrame, CombinerNames]:
    """The sorted rows of several levels, oldest first, as one level; clears may be among the rows of each.

    In a base nothing older exists: operands become puts, and deletes and clears vanish.
    """
    frames = [(frame, combiner_names) for frame, combiner_names in levels if frame.height]
    if not frames:
        return (levels[0][0] if levels else empty_rows(table)), ()
    combiner_names = common_combiner_names(table, [ids for _, ids in frames])
    if combiner_names is None:
        return _resolve_in_steps(table, frames, is_base)
    if len(frames) == 1 and not is_base:
        return frames[0][0], combiner_names
    clears, live = _clears_and_live(table, [frame for frame, _ in frames])
    rows = _resolve_rows(table, live, combiner_names, is_base)
    if is_base:
        return rows.filter(pl.col("kind") == PUT) if (rows["kind"] != PUT).any() else rows, _none_of(combiner_names)
    if clears.height:
        rows = order_rows(table, pl.concat([clears, rows], how="diagonal"))
    return rows, combiner_names if (rows["kind"] == OPERAND).any() else _none_of(combiner_names)


def empty_rows(table: Table) -> pl.DataFrame:
    """No rows, in the columns of the table."""
    return rows_frame(table, [], [[] for _ in table.keys], [], [])


def _none_of(combiner_names: CombinerNames) -> CombinerNames:
    return tuple(None for _ in combiner_names)


def common_combiner_names(table: Table, all_combiner_names: Sequence[CombinerNames]) -> CombinerNames | None:
    """One name a value column if all levels agree, else None."""
    merged: list[str | None] = [None] * len(table.columns)
    for combiner_names in all_combiner_names:
        for i, combiner_name in enumerate(combiner_names):
            if combiner_name is None:
                continue
            if merged[i] not in (None, combiner_name):
                return None
            merged[i] = combiner_name
    return tuple(merged)


def _resolve_in_steps(
    table: Table, frames: list[tuple[pl.DataFrame, CombinerNames]], is_base: bool
) -> tuple[pl.DataFrame, CombinerNames]:
    """Levels whose combiners differ: fold all keys in Python, oldest first, as a base; such levels only meet in reads
    and bases.
    """
    if not is_base:
        text = "An update changed a combiner: levels with different combiners can only be merged down to the base."
        raise CombinersDiffer(text)
    state: dict[tuple[Any, ...], Any] = {}
    columns = key_columns(table)
    for frame, combiner_names in frames:
        _, live = _clears_and_live(table, [frame])
        clears = frame.filter(pl.col("kind") >= CLEAR)
        for kind, cleared in zip(clears["kind"], key_rows(table, clears), strict=True):
            prefix = cleared[: 1 + kind - CLEAR]
            state = {key: cell for key, cell in state.items() if key[: len(prefix)] != prefix}
        for key, kind, cell in zip(key_rows(table, live[0]), live[0]["kind"], cells_of(table, live[0]), strict=True):
            if kind == OPERAND:
                cell = _onto(table, combiner_names, state.get(key, ABSENT), cell)
            if kind == DELETE:
                state.pop(key, None)
            else:
                state[key] = cell
    keys = list(state)
    by_column = [[key[i] for key in keys] for i in range(1, len(columns))]
    rows = rows_frame(table, [key[0] for key in keys], by_column, [PUT] * len(keys), list(state.values()))
    return order_rows(table, rows), tuple(None for _ in table.columns)


def clears_applied(table: Table, frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """The rows of each frame, oldest first, that no newer clear covers; clears aside."""
    return _clears_and_live(table, frames)[1]


def _clears_and_live(table: Table, frames: list[pl.DataFrame]) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """All clears, and the other rows of each frame that no newer clear covers."""
    if not any(frame["kind"].max() >= CLEAR for frame in frames):  # type: ignore[operator]
        return frames[0].clear(), frames
    live: list[pl.DataFrame] = []
    all_clears: list[pl.DataFrame] = []
    for frame in frames:
        clears = frame.filter(pl.col("kind") >= CLEAR)
        for depth in clears["kind"].unique().to_list():
            on = ["task", *table.key_names[: depth - CLEAR]]
            prefixes = clears.filter(pl.col("kind") == depth).select(on)
            live = [older.join(prefixes, on=on, how="anti", nulls_equal=True, maintain_order="left") for older in live]
        all_clears.append(clears)
        live.append(frame.filter(pl.col("kind") < CLEAR))
    clears = pl.concat(all_clears, how="diagonal").unique(["kind", *key_columns(table)], maintain_order=True)
    return clears, live


def _resolve_rows(
    table: Table, frames: list[pl.DataFrame], combiner_names: CombinerNames, is_base: bool
) -> pl.DataFrame:
    rows = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal", rechunk=True)
    if rows.height == 0:
        return rows
    kinds = rows["kind"].to_numpy()
    has_operands = bool((kinds == OPERAND).any())
    if len(frames) == 1 and not (has_operands and is_base):
        return rows
    rows, runs = _runs_of(table, rows, len(frames))
    if not has_operands:
        return rows_at(rows, runs.ends)
    is_reset = rows["kind"].to_numpy() != OPERAND
    is_reset[runs.heads] = False
    columns = None if is_reset.any() else _operand_columns(table, rows, combiner_names)
    if columns is not None:
        return _reduce_chains(rows, runs, columns, is_base)
    if runs.order is not None:
        rows, runs = rows[runs.order], Runs(runs.starts, runs.rows)
    return _fold_groups(table, rows, runs, combiner_names, is_base)


def _runs_of(table: Table, rows: pl.DataFrame, frames: int) -> tuple[pl.DataFrame, Runs]:
    """The rows of so many frames, oldest first, and their runs; rows with number keys stay where they are."""
    if frames == 1:  # the rows of a level have distinct keys, and are sorted
        return rows, Runs(np.arange(rows.height), rows.height)
    found = merge_order(rows, key_columns(table))
    if found is not None:
        order, starts = found
        return rows, Runs(starts, rows.height, order)
    rows = order_rows(table, rows)
    return rows, Runs(run_starts(rows, key_columns(table)), rows.height)


def _operand_columns(
    table: Table, rows: pl.DataFrame, combiner_names: CombinerNames
) -> list[tuple[str, CombinerColumns]] | None:
    """The columns that hold operands, by name; None where a column operation could give another result than Python."""
    if "none" in rows.columns and bool((rows["none"].fill_null(0) != 0).any()):
        return None
    found = []
    for (name, schema), combiner_name in zip(table.columns, combiner_names, strict=True):
        if combiner_name is None:
            continue
        if value_codec(schema).leaf is None:
            return None
        column = CombinerColumns(combiner_named(combiner_name), (rows[name],), is_merge=True, is_bounded=True)
        if not has_group_form(column):
            return None
        found.append((name, column))
    return found


def _reduce_chains(
    rows: pl.DataFrame, runs: Runs, columns: Sequence[tuple[str, CombinerColumns]], is_base: bool
) -> pl.DataFrame:
    """Fold runs in which only the first row may be a put or delete. Columns without operands keep what it has."""
    heads = runs.heads
    kinds = rows["kind"].to_numpy()[heads]
    kinds[(runs.sizes > 1) & (kinds == DELETE)] = PUT
    if is_base:
        kinds[kinds == OPERAND] = PUT
    reduced = reduce_runs(runs, [column for _, column in columns])  # in forms for groups, so all are series
    made = {name: cast("pl.Series", values).alias(name) for (name, _), values in zip(columns, reduced, strict=True)}
    made["kind"] = pl.Series("kind", kinds, dtype=pl.Int8)
    return pl.DataFrame([made[held.name] if held.name in made else held[heads] for held in rows.get_columns()])


def _fold_groups(
    table: Table, rows: pl.DataFrame, runs: Runs, combiner_names: CombinerNames, is_base: bool
) -> pl.DataFrame:
    """Rows sorted by key and age: fold the operands since the last put or delete of each key."""
    kinds = rows["kind"].to_numpy()
    group, ends = runs.run_of_row, runs.ends
    positions = np.arange(rows.height)
    resets = np.maximum.reduceat(np.where(kinds != OPERAND, positions, -1), runs.starts)
    is_folded = (kinds[ends] == OPERAND) & ((runs.sizes > 1) | is_base)
    rows = rows.with_columns(pl.Series(_GROUP, group, dtype=pl.UInt32))
    plain = rows[ends[~is_folded]]
    chains = rows.filter(pl.Series(is_folded[group] & (positions >= resets[group])))
    folded = _fold_chains(table, chains, combiner_names, is_base)
    merged: pl.DataFrame = pl.concat([plain, folded], how="diagonal").sort(_GROUP)
    return merged.drop(_GROUP)


def _fold_chains(table: Table, chains: pl.DataFrame, combiner_names: CombinerNames, is_base: bool) -> pl.DataFrame:
    """Each group: perhaps a put or delete, then operands. One row a group comes out."""
    if chains.height == 0:
        return chains
    runs = Runs(run_starts(chains, [_GROUP]), chains.height)
    columns = _operand_columns(table, chains, combiner_names)
    if columns is not None:
        return _reduce_chains(chains, runs, columns, is_base)
    return _fold_by_rows(table, chains, runs, combiner_names, is_base)


def _fold_by_rows(
    table: Table, chains: pl.DataFrame, runs: Runs, combiner_names: CombinerNames, is_base: bool
) -> pl.DataFrame:
    cells, kinds = cells_of(table, chains), chains["kind"].to_list()
    folded: list[Any] = []
    folded_kinds: list[int] = []
    for start, end in pairwise([*runs.starts.tolist(), runs.rows]):
        if kinds[start] == OPERAND and not is_base:
            folded.append(reduce(partial(combine_cells, table, combiner_names), cells[start:end]))
            folded_kinds.append(OPERAND)
            continue
        base = cells[start] if kinds[start] == PUT else ABSENT
        operands = cells[start if kinds[start] == OPERAND else start + 1 : end]
        folded.append(reduce(partial(_onto, table, combiner_names), operands, base))
        folded_kinds.append(PUT)
    heads = chains[runs.starts].select(_GROUP, *key_columns(table))
    return heads.with_columns(
        pl.Series("kind", folded_kinds, dtype=pl.Int8), **cell_columns(table, folded_kinds, folded)
    )
