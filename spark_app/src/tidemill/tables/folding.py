"""Merging the rows of one table from several levels: the newest put or delete of a key wins, operands above it fold
onto it.

`fold_cells` does it for one key in Python and is the truth; `resolve` does it for whole levels by columns, and
calls the row form where a column operation could give another result (None in records, structures, `and` and `or`
of other than bool).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import polars as pl

from tidemill.language.combiners import by_identity
from tidemill.tables.cells import cells_of
from tidemill.tables.codecs import key_codec, one_nan, value_codec
from tidemill.tables.container import CLEAR, DELETE, OPERAND, PUT
from tidemill.tables.sorting import (
    Array,
    has_negative_zero,
    is_reducible,
    merge_order,
    reduce_runs,
    reduce_slots,
    run_starts,
    slots_of,
    sort_rows,
)
from tidemill.tables.tables import Table
from tidemill.values.absent import ABSENT
from tidemill.values.errors import CombinersDiffer

Identities = tuple[str | None, ...]
_LEVEL: Final = "\x00level"
_GROUP: Final = "\x00group"


# --- one key, in Python ----------------------------------------------------------------------------------------------


def fold_cells(table: Table, base: Any, operands: Iterable[tuple[Any, Identities]]) -> Any:
    """What a row holds after operands (oldest first, each with its table's identities) are aggregated onto it."""
    for operand, identities in operands:
        base = _onto(table, base, operand, identities)
    return base


def _onto(table: Table, base: Any, operand: Any, identities: Identities) -> Any:
    by_field = _by_field(table, identities)
    if by_field is None:
        return by_identity(identities[0] or "").onto(None if base is ABSENT else base, operand)
    record = dict(base) if base else {}
    for name, cell in operand.items():
        record[name] = by_identity(by_field[name] or "").onto(record.get(name), cell)
    return record if table.fields is None else {name: record[name] for name, _ in table.fields if name in record}


def _by_field(table: Table, identities: Identities) -> Mapping[Any, str | None] | None:
    """The combiners of the fields of a record; None where operands concern the value as a whole."""
    if table.fields is not None:
        return dict(zip((name for name, _ in table.fields), identities, strict=True))
    return _fields_of(identities[0] or "")


_RECORD: Final = "record "


def record_identity(by_field: Sequence[tuple[Any, str]]) -> str | None:
    """The identity of operands of records that are stored as one value: the combiners of their fields."""
    return _RECORD + json.dumps(sorted(by_field, key=repr)) if by_field else None


@lru_cache(maxsize=256)
def _fields_of(identity: str) -> Mapping[Any, str] | None:
    """The inverse of `record_identity`; None for other identities."""
    return dict(json.loads(identity[len(_RECORD) :])) if identity.startswith(_RECORD) else None


def combine_cells(table: Table, first: Any, second: Any, identities: Identities) -> Any:
    """One operand that does what `first` and then `second` would do."""
    by_field = _by_field(table, identities)
    if by_field is None:
        return by_identity(identities[0] or "").combine(first, second)
    merged = dict(first)
    for name, cell in second.items():
        merged[name] = by_identity(by_field[name] or "").combine(merged[name], cell) if name in merged else cell
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
    table: Table, levels: Sequence[tuple[pl.DataFrame, Identities]], *, is_base: bool
) -> tuple[pl.DataFrame, Identities]:
    """The sorted rows of several levels, oldest first, as one level; clears may be among the rows of each.

    In a base nothing older exists: operands become puts, and deletes and clears vanish.
    """
    frames = [(frame, identities) for frame, identities in levels if frame.height]
    if not frames:
        return (levels[0][0] if levels else empty_rows(table)), ()
    identities = common_identities(table, [ids for _, ids in frames])
    if identities is None:
        return _resolve_in_steps(table, frames, is_base)
    if len(frames) == 1 and not is_base:
        return frames[0][0], identities
    clears, live = _apply_clears(table, [frame for frame, _ in frames])
    rows = _resolve_rows(table, live, identities, is_base)
    if is_base:
        return rows.filter(pl.col("kind") == PUT) if (rows["kind"] != PUT).any() else rows, _none_of(identities)
    if clears.height:
        rows = order_rows(table, pl.concat([clears, rows], how="diagonal"))
    return rows, identities if (rows["kind"] == OPERAND).any() else _none_of(identities)


def empty_rows(table: Table) -> pl.DataFrame:
    return rows_frame(table, [], [[] for _ in table.keys], [], [])


def _none_of(identities: Identities) -> Identities:
    return tuple(None for _ in identities)


def common_identities(table: Table, all_identities: Sequence[Identities]) -> Identities | None:
    """One identity a value column if all levels agree, else None."""
    merged: list[str | None] = [None] * len(table.columns)
    for identities in all_identities:
        for i, identity in enumerate(identities):
            if identity is None:
                continue
            if merged[i] not in (None, identity):
                return None
            merged[i] = identity
    return tuple(merged)


def _resolve_in_steps(
    table: Table, frames: list[tuple[pl.DataFrame, Identities]], is_base: bool
) -> tuple[pl.DataFrame, Identities]:
    """Levels whose combiners differ: fold all keys in Python, oldest first, as a base; such levels only meet in reads
    and bases.
    """
    if not is_base:
        text = "An update changed a combiner: levels with different combiners can only be merged down to the base."
        raise CombinersDiffer(text)
    state: dict[tuple[Any, ...], Any] = {}
    columns = key_columns(table)
    for frame, identities in frames:
        _, live = _apply_clears(table, [frame])
        clears = frame.filter(pl.col("kind") >= CLEAR)
        for kind, cleared in zip(clears["kind"], key_rows(table, clears), strict=True):
            prefix = cleared[: 1 + kind - CLEAR]
            state = {key: cell for key, cell in state.items() if key[: len(prefix)] != prefix}
        for key, kind, cell in zip(key_rows(table, live[0]), live[0]["kind"], cells_of(table, live[0]), strict=True):
            if kind == OPERAND:
                cell = _onto(table, state.get(key, ABSENT), cell, identities)
            if kind == DELETE:
                state.pop(key, None)
            else:
                state[key] = cell
    keys = list(state)
    by_column = [[key[i] for key in keys] for i in range(1, len(columns))]
    rows = rows_frame(table, [key[0] for key in keys], by_column, [PUT] * len(keys), list(state.values()))
    return order_rows(table, rows), tuple(None for _ in table.columns)


def _apply_clears(table: Table, frames: list[pl.DataFrame]) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
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


def _resolve_rows(table: Table, frames: list[pl.DataFrame], identities: Identities, is_base: bool) -> pl.DataFrame:
    rows = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal", rechunk=True)
    if rows.height == 0:
        return rows
    kinds = rows["kind"].to_numpy()
    has_operands = bool((kinds == OPERAND).any())
    if len(frames) == 1:
        return _settle(table, rows, identities) if has_operands and is_base else rows
    found = merge_order(rows, key_columns(table))
    if found is not None:
        order, starts = found
        if not has_operands:
            return rows[order[_ends(starts, rows.height)]]
        is_reset = kinds != OPERAND
        is_reset[order[starts]] = False
        if not is_reset.any() and _is_vectorable(table, rows, identities) and _is_reducible(table, rows, identities):
            return _reduce_chains(table, rows, order, starts, identities, is_base, [frame.height for frame in frames])
        rows = rows[order]
    else:
        rows = order_rows(table, rows)
        starts = run_starts(rows, key_columns(table))
        if not has_operands:
            return rows[_ends(starts, rows.height)]
    return _resolve_sorted(table, rows, starts, identities, is_base)


def _resolve_sorted(
    table: Table, rows: pl.DataFrame, starts: Array, identities: Identities, is_base: bool
) -> pl.DataFrame:
    is_reset = rows["kind"].to_numpy() != OPERAND
    is_reset[starts] = False
    if not is_reset.any() and _is_vectorable(table, rows, identities) and _is_reducible(table, rows, identities):
        return _reduce_chains(table, rows, None, starts, identities, is_base, [])
    return _fold_groups(table, rows, starts, identities, is_base)


def _ends(starts: Array, height: int) -> Array:
    """The last row of each run."""
    ends: Array = np.append(starts[1:], height) - 1
    return ends


def _is_reducible(table: Table, rows: pl.DataFrame, identities: Identities) -> bool:
    pairs = zip(table.columns, identities, strict=True)
    return all(identity is None or is_reducible(identity, rows[name]) for (name, _), identity in pairs)


def _reduce_chains(
    table: Table,
    rows: pl.DataFrame,
    order: Array | None,
    starts: Array,
    identities: Identities,
    is_base: bool,
    heights: Sequence[int],
) -> pl.DataFrame:
    """Fold runs in which only the first row may be a put or delete. Without `order` the rows are sorted."""
    heads = rows[starts if order is None else order[starts]]
    kinds = heads["kind"].to_numpy().copy()
    is_folded = np.diff(np.append(starts, rows.height)) > 1
    kinds[is_folded & (kinds == DELETE)] = PUT
    if is_base:
        kinds[kinds == OPERAND] = PUT
    slots = None if order is None else slots_of(order, starts)
    columns = [
        reduce_runs(identity, rows[name], starts)
        if slots is None
        else reduce_slots(identity, rows[name], slots, len(starts), heights)
        for (name, _), identity in zip(table.columns, identities, strict=True)
        if identity is not None
    ]
    return heads.with_columns(pl.Series("kind", kinds, dtype=pl.Int8), *columns)


def _fold_groups(
    table: Table, rows: pl.DataFrame, starts: Array, identities: Identities, is_base: bool
) -> pl.DataFrame:
    """Rows sorted by key and age: fold the operands since the last put or delete of each key."""
    kinds = rows["kind"].to_numpy()
    sizes = np.diff(np.append(starts, rows.height))
    group = np.repeat(np.arange(len(starts)), sizes)
    positions = np.arange(rows.height)
    resets = np.maximum.reduceat(np.where(kinds != OPERAND, positions, -1), starts)
    ends = _ends(starts, rows.height)
    is_folded = (kinds[ends] == OPERAND) & ((sizes > 1) | is_base)
    rows = rows.with_columns(pl.Series(_GROUP, group, dtype=pl.UInt32))
    plain = rows[ends[~is_folded]]
    chains = rows.filter(pl.Series(is_folded[group] & (positions >= resets[group])))
    folded = _fold_chains(table, chains, identities, is_base)
    merged: pl.DataFrame = pl.concat([plain, folded], how="diagonal").sort(_GROUP)
    return merged.drop(_GROUP)


def _fold_chains(table: Table, chains: pl.DataFrame, identities: Identities, is_base: bool) -> pl.DataFrame:
    """Each group: perhaps a put or delete, then operands. One row a group comes out."""
    if _is_vectorable(table, chains, identities):
        return _fold_by_columns(table, chains, identities, is_base)
    return _fold_by_rows(table, chains, identities, is_base)


_EXACT: Final = frozenset({"count", "sum", "min", "max", "first", "last", "and", "or"})


def _is_vectorable(table: Table, chains: pl.DataFrame, identities: Identities) -> bool:
    if "none" in chains.columns and bool((chains["none"].fill_null(0) != 0).any()):
        return False
    for (name, schema), identity in zip(table.columns, identities, strict=True):
        if identity is None:
            continue
        codec, column = value_codec(schema), chains[name]
        if codec.leaf is None or identity not in _EXACT:
            return False
        if identity in ("and", "or") and (codec.leaf != "bool" or column.null_count()):
            return False
        if identity in ("count", "sum") and codec.leaf != "int":
            return False
        if identity in ("min", "max") and (
            codec.leaf == "bool" or (codec.leaf == "float" and has_negative_zero(column))
        ):
            return False
    return True


def _fold_by_columns(table: Table, chains: pl.DataFrame, identities: Identities, is_base: bool) -> pl.DataFrame:
    kind = pl.when(pl.lit(is_base) | (pl.col("kind").first() != OPERAND)).then(PUT).otherwise(OPERAND)
    expressions = [pl.col(name).first() for name in key_columns(table)]
    expressions.append(kind.cast(pl.Int8).alias("kind"))
    pairs = zip(table.columns, identities, strict=True)
    expressions += [_fold_expression(name, identity, value_codec(schema).leaf) for (name, schema), identity in pairs]
    return chains.group_by(_GROUP, maintain_order=True).agg(expressions)


def _fold_expression(name: str, identity: str | None, leaf: str | None) -> pl.Expr:
    column = pl.col(name)
    if identity in ("count", "sum"):
        return pl.when(column.count() > 0).then(column.sum()).otherwise(None).alias(name)
    if identity == "min":
        return column.min()
    if identity == "max":
        return column.nan_max().alias(name) if leaf == "float" else column.max()
    if identity == "and":
        return column.all()
    if identity == "or":
        return column.any()
    if identity == "last":
        return column.drop_nulls().last()
    return column.drop_nulls().first()  # `first`, and columns that no operand touches


def _fold_by_rows(table: Table, chains: pl.DataFrame, identities: Identities, is_base: bool) -> pl.DataFrame:
    cells = cells_of(table, chains)
    groups, kinds = chains[_GROUP].to_list(), chains["kind"].to_list()
    firsts: list[int] = []
    folded: list[Any] = []
    folded_kinds: list[int] = []
    for i, (group, kind, cell) in enumerate(zip(groups, kinds, cells, strict=True)):
        if not firsts or groups[firsts[-1]] != group:
            firsts.append(i)
            is_put = is_base or kind != OPERAND
            folded_kinds.append(PUT if is_put else OPERAND)
            base = ABSENT if kind != PUT else cell
            folded.append(_onto(table, ABSENT, cell, identities) if kind == OPERAND and is_base else base)
            if kind == OPERAND and not is_base:
                folded[-1] = cell
        elif folded_kinds[-1] == PUT:
            folded[-1] = _onto(table, folded[-1], cell, identities)
        else:
            folded[-1] = combine_cells(table, folded[-1], cell, identities)
    heads = chains[firsts].select(_GROUP, *key_columns(table))
    columns = cell_columns(table, folded_kinds, folded)
    return heads.with_columns(pl.Series("kind", folded_kinds, dtype=pl.Int8), **columns)


def _settle(table: Table, rows: pl.DataFrame, identities: Identities) -> pl.DataFrame:
    """One level as a base: each operand stands alone and becomes a value."""
    is_operand = rows["kind"] == OPERAND
    chains = rows.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_GROUP))
    folded = _fold_chains(table, chains.filter(is_operand), identities, True)
    return pl.concat([chains.filter(~is_operand), folded], how="diagonal").sort(_GROUP).drop(_GROUP)
