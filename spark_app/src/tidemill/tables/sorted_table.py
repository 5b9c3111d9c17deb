"""One table of one part, for reading: sorted rows found by binary search in their Arrow buffers, without building an
index.
"""

from __future__ import annotations

import datetime as _datetime
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tidemill.tables.cells import cells_of, record_of, series_of
from tidemill.tables.codecs import ValueCodec, one_nan, value_codec
from tidemill.tables.container import CLEAR, PUT
from tidemill.tables.tables import Table
from tidemill.tables.widened_rows import check_readable, widened, widened_combiner_names
from tidemill.values.data import datetime_micros

Bounds = tuple[int, int]

End = tuple[Any, bool] | None
"""An end of a range: (stored key, is included), or None for open."""


class SortedTable:
    """Rows of kinds put, delete and operand in `frame`; the clears are apart in `clears`.

    `stored` is the table as it was when `data` was written, if the schema may have been widened since. Rows are
    searched as they were written; those that are found come in the columns of `table`, or, where values were
    migrated since, in those of the table before (`Table.before`): `tables.migrated_values` takes them on from there.

    Raises:
        SchemaOutdated: `stored` is wider than `table`.
        CorruptState: `stored` is another table.
    """

    def __init__(
        self,
        table: Table,
        data: pa.Table | pl.DataFrame,
        combiner_names: Sequence[str | None],
        stored: Table | None = None,
    ) -> None:
        self.stored = stored or table
        self.table = table = table.of_generation(self.stored.generation)
        check_readable(self.stored, table)
        self.combiner_names = widened_combiner_names(self.stored, table, tuple(combiner_names))
        self.clears: dict[int, set[tuple[Any, ...]]] = {}
        self.clear_frame: pl.DataFrame | None = None
        kinds = _kinds(data)
        self.is_all_puts = bool(len(kinds) == 0 or kinds.max() == PUT)
        if not self.is_all_puts and kinds.max() >= CLEAR:
            data = self._part_clears(data if isinstance(data, pl.DataFrame) else pl.DataFrame(pl.from_arrow(data)))
            kinds = _kinds(data)
        self._data = data
        self.kinds = kinds
        self.height: int = data.height if isinstance(data, pl.DataFrame) else data.num_rows
        self._task_bounds: dict[int, Bounds] = {}

    def _part_clears(self, frame: pl.DataFrame) -> pl.DataFrame:
        width = len(self.table.keys)
        self.clear_frame = self.widened(frame.filter(pl.col("kind") >= CLEAR))
        for row in self.clear_frame.select("task", "kind", *self.table.key_names).iter_rows():
            task, kind, keys = row[0], row[1], row[2 : 2 + width]
            self.clears.setdefault(task, set()).add(tuple(map(nan_token, keys[: kind - CLEAR])))
        return frame.filter(pl.col("kind") < CLEAR)

    @property
    def frame(self) -> pl.DataFrame:
        """The rows without the clears, in the columns of `table`."""
        return self.widened(self.stored_frame)

    @cached_property
    def stored_frame(self) -> pl.DataFrame:
        """The rows in the columns in which they were written."""
        return self._data if isinstance(self._data, pl.DataFrame) else pl.DataFrame(pl.from_arrow(self._data))

    @cached_property
    def _is_frame(self) -> bool:
        """Whether `stored_frame` is these very buffers; Arrow's texts would be copied, all of them."""
        data = self._data
        return isinstance(data, pl.DataFrame) or all(_is_number(kind) for kind in data.schema.types)

    def widened(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Some rows of `stored_frame` in the columns of `table`."""
        return widened(self.stored, self.table, rows)

    @property
    def has_none(self) -> bool:
        """Whether the column `none` is there."""
        return self.table.fields is not None and "none" in self.column_names

    @property
    def row_bytes(self) -> float:
        """About how many bytes a row takes."""
        return float(self.arrow.nbytes / max(1, self.height))

    @property
    def column_names(self) -> list[str]:
        """Those of `stored_frame`."""
        return self._data.columns if isinstance(self._data, pl.DataFrame) else self._data.column_names

    @property
    def full_frame(self) -> pl.DataFrame:
        """All rows, clears included, as the container holds them."""
        if self.clear_frame is None:
            return self.frame
        rows = pl.concat([self.clear_frame, self.frame], how="diagonal")
        return rows.sort("task", *self.table.key_names, maintain_order=True)

    @cached_property
    def arrow(self) -> pa.Table:
        """`stored_frame` in one piece."""
        data = self._data
        if isinstance(data, pl.DataFrame):
            return data.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
        return data.combine_chunks()

    @cached_property
    def tasks(self) -> np.ndarray[Any, Any]:
        """The task of each row, ascending. A search for numbers of another type would first copy it."""
        tasks: np.ndarray[Any, Any] = column_of(self.arrow, "task").to_numpy()
        return tasks

    @cached_property
    def _keys(self) -> list[KeySearch]:
        pairs = zip(self.table.key_names, self.table.keys, strict=True)
        return [key_search(column_of(self.arrow, name), kind) for name, kind in pairs]

    @cached_property
    def _values(self) -> list[tuple[pa.Array, ValueCodec]]:
        return [(column_of(self.arrow, name), value_codec(schema)) for name, schema in self.stored.columns]

    @cached_property
    def _none(self) -> pa.Array | None:
        return column_of(self.arrow, "none") if "none" in self.arrow.column_names else None

    # --- finding ---

    def task_bounds(self, task: int) -> Bounds:
        """The rows [start, end) of a task."""
        bounds = self._task_bounds.get(task)
        if bounds is None:
            start, end = np.searchsorted(self.tasks, np.array([task, task + 1], dtype=self.tasks.dtype))
            bounds = self._task_bounds[task] = (int(start), int(end))
        return bounds

    def task_values(self) -> np.ndarray[Any, Any]:
        """The tasks that have rows here, ascending."""
        if not self.height:
            return np.empty(0, dtype=np.int64)
        first, last = int(self.tasks[0]), int(self.tasks[-1])
        starts = np.searchsorted(self.tasks, np.arange(first, last + 2, dtype=self.tasks.dtype))
        return first + np.flatnonzero(starts[1:] > starts[:-1])

    def find(self, task: int, keys: Sequence[Any]) -> int:
        """The row of these keys (stored form), or -1."""
        start, end = self.task_bounds(task)
        for search, key in zip(self._keys, keys, strict=True):
            if start == end:
                return -1
            start, end = search.equal(start, end, key)
        return start if start < end else -1

    def prefix_bounds(self, task: int, prefix: Sequence[Any]) -> Bounds:
        """The rows [start, end) whose leading keys are `prefix`."""
        start, end = self.task_bounds(task)
        for search, key in zip(self._keys, prefix, strict=False):
            if start == end:
                break
            start, end = search.equal(start, end, key)
        return start, end

    def seek(self, bounds: Bounds, depth: int, key: Any, *, after: bool) -> int:
        """Among rows that agree in the keys before `depth`: the first with a key >= `key`, or > it if `after`."""
        return self._keys[depth].bound(bounds[0], bounds[1], key, after)

    def lower_bound(self, place: Sequence[Any]) -> int:
        """The first row that is not before a place: a task and leading keys (stored form)."""
        start, end = self.task_bounds(place[0])
        for search, key in zip(self._keys, place[1:], strict=False):
            if start == end:
                break
            start, end = search.equal(start, end, key)
        return start

    def place(self, row: int) -> tuple[Any, ...]:
        """The task and keys (stored form) of a row."""
        return int(self.tasks[row]), *(search.item(row) for search in self._keys)

    def rows(self, start: int, end: int) -> pl.DataFrame:
        """Rows [start, end), without making a frame of all."""
        if self._is_frame:
            return self.widened(self.stored_frame.slice(start, end - start))
        return self.widened(pl.DataFrame(pl.from_arrow(self._data.slice(start, end - start))))

    def bare_rows(self, start: int, end: int) -> pl.DataFrame:
        """The last keys and the kinds of rows [start, end) (columns key, kind)."""
        rows = self._data.select([self.table.key_names[-1], "kind"])[start:end]
        frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(pl.from_arrow(rows))
        return frame.rename({self.table.key_names[-1]: "key"})

    def clears_key(self, task: int, keys: Sequence[Any]) -> bool:
        """Whether this level says that everything older at or above these keys is gone."""
        cleared = self.clears.get(task)
        if not cleared:
            return False
        tokens = tuple(map(nan_token, keys))
        return any(tokens[:n] in cleared for n in range(len(tokens) + 1))

    # --- reading rows ---

    def key_at(self, row: int, depth: int) -> Any:
        """The stored key of a row in the key column `depth`."""
        return self._keys[depth].item(row)

    def cells(self, row: int) -> Any:
        """What the row holds: True for a set, the value, or for a record a dict of the fields that are there (or
        None).
        """
        if self.stored.fields is not None:
            none = 0 if self._none is None else self._none[row].as_py() or 0
            return record_of(self.stored.fields, [c.decode(a[row].as_py()) for a, c in self._values], none)
        if self.stored.value is None:
            return True
        column, codec = self._values[0]
        return codec.decode(column[row].as_py())

    def keys_between(self, start: int, end: int, depth: int) -> list[Any]:
        """Stored keys of one key column of rows [start, end)."""
        return self._keys[depth].items(start, end)

    def cells_between(self, start: int, end: int) -> list[Any]:
        """`cells` of rows [start, end)."""
        return cells_of(self.stored, self.arrow.slice(start, end - start))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))


def column_of(table: pa.Table, name: str) -> pa.Array:
    """One column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def nan_token(key: Any) -> Any:
    """A stand-in for NaN that is equal to itself; other keys are themselves."""
    return key if key == key else "\x00NaN"


def _kinds(data: pa.Table | pl.DataFrame) -> np.ndarray[Any, Any]:
    kinds: np.ndarray[Any, Any] = series_of(data, "kind").to_numpy()
    return kinds


# --- search in key columns -------------------------------------------------------------------------------------------


class KeySearch:
    """Binary search in one key column, within rows where it is sorted: None first, NaN last."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self._nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None

    def equal(self, start: int, end: int, key: Any) -> Bounds:
        """Those of the rows [start, end) that have this stored key; an empty range if none has."""
        first = self.bound(start, end, key, False)
        if key is None or first == end:
            return first, self.bound(first, end, key, True)
        # Keys are often unique here: look at the next row before the search for the end.
        if not self._is_at(first, key):
            return first, first
        if first + 1 == end or not self._is_at(first + 1, key):
            return first, first + 1
        return first, self.bound(first, end, key, True)

    def _is_at(self, row: int, key: Any) -> bool:
        """Whether this row, which is not None, has this key, which is not None."""
        raise NotImplementedError

    def bound(self, start: int, end: int, key: Any, after: bool) -> int:
        """The first of the rows [start, end) with a key >= `key`, or > it if `after`; `end` if there is none."""
        if self._nulls is not None:
            nulls_end = start + int(np.searchsorted(~self._nulls[start:end], True))
            if key is None:
                return nulls_end if after else start
            return self._bound(nulls_end, end, key, after)
        return start if key is None else self._bound(start, end, key, after)

    def _bound(self, start: int, end: int, key: Any, after: bool) -> int:
        raise NotImplementedError

    def item(self, row: int) -> Any:
        """The stored key of a row."""
        return self.array[row].as_py()

    def items(self, start: int, end: int) -> list[Any]:
        """The stored keys of the rows [start, end)."""
        values: list[Any] = self.array.slice(start, end - start).to_pylist()
        return values


class NumberSearch(KeySearch):
    """int, float, bool and datetime keys: numpy over the column's own buffer."""

    def __init__(self, array: pa.Array, kind: str) -> None:
        super().__init__(array)
        self._is_datetime, self._is_float = kind == "datetime", kind == "float"
        plain = array.cast(pa.int64()) if self._is_datetime else array
        if kind == "bool":
            plain = array.cast(pa.int8())
        filled = plain.fill_null(0) if plain.null_count else plain
        self._numbers: np.ndarray[Any, Any] = filled.to_numpy()

    def _bound(self, start: int, end: int, key: Any, after: bool) -> int:
        if self._is_datetime:
            key = datetime_micros(key)
        return start + int(self._numbers[start:end].searchsorted(key, "right" if after else "left"))

    def _is_at(self, row: int, key: Any) -> bool:
        found = self._numbers[row]
        if self._is_datetime:
            return bool(found == datetime_micros(key))
        return bool(found == key or (found != found and key != key))

    def item(self, row: int) -> Any:
        value = super().item(row)
        return self._present([value])[0] if self._is_datetime or self._is_float else value

    def items(self, start: int, end: int) -> list[Any]:
        return self._present(super().items(start, end))

    def _present(self, values: list[Any]) -> list[Any]:
        if self._is_datetime:
            return [value.replace(tzinfo=_datetime.UTC) if value is not None else None for value in values]
        return one_nan(values) if self._is_float else values


class BytesSearch(KeySearch):
    """str, bytes and object keys: a bisection over offsets and bytes. UTF-8 sorts like the code points that it
    encodes.
    """

    def __init__(self, array: pa.Array, is_text: bool) -> None:
        super().__init__(array)
        self._is_text = is_text
        _, offsets, data = array.buffers()
        self._offsets = memoryview(offsets).cast("B").cast("q")[array.offset :] if offsets is not None else []
        self._data = memoryview(data).cast("B") if data is not None else memoryview(b"")

    def _bound(self, start: int, end: int, key: Any, after: bool) -> int:
        target = key.encode() if self._is_text else key
        offsets, data = self._offsets, self._data
        while start < end:
            middle = (start + end) >> 1
            found = bytes(data[offsets[middle] : offsets[middle + 1]])
            if found < target or (after and found == target):
                start = middle + 1
            else:
                end = middle
        return start

    def _is_at(self, row: int, key: Any) -> bool:
        target = key.encode() if self._is_text else key
        return bool(self._data[self._offsets[row] : self._offsets[row + 1]] == target)


def key_search(array: pa.Array, kind: str) -> KeySearch:
    """The search in a column of keys of this type."""
    if kind in ("int", "float", "bool", "datetime"):
        return NumberSearch(array, kind)
    return BytesSearch(array, kind == "str")
