"""Structures that become the rows of their elements: what readers remember of them, and how much is held at once."""

from __future__ import annotations

import sys
import tracemalloc
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pytest

from tidemill.journal.snapshot import TaskSet
from tidemill.language.dataflow import Function, MigrationStep
from tidemill.language.schema import Leaf, MapSchema
from tidemill.tables import chunks as cutting
from tidemill.tables import lookup as looking
from tidemill.tables.cells import cells_of
from tidemill.tables.container import PUT
from tidemill.tables.level_merge import cell_columns, order_rows
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.migrated_values import migrated
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Layout, layout_of
from tidemill.tables.unpacked_values import Elements, UnpackedMemory

PLAIN = MapSchema("str", Leaf("int"))
CALLS: list[Any] = []


def noted(value: Any) -> Any:
    CALLS.append(value)
    return value


@pytest.fixture(autouse=True)
def calls() -> list[Any]:
    CALLS.clear()
    return CALLS


def layout() -> Layout:
    step = MigrationStep("$$p", ("values",), "m", PLAIN, Function("noted", "function", noted))
    return layout_of(MapSchema("str", MapSchema("str", Leaf("int"), subindexed=True)), (step,))


def level(structures: dict[str, Any], table_id: str = "0") -> SortedTable:
    """Whole structures of task 0, as they are seen by a table that is made of them."""
    table = layout().stored[table_id]
    assert table.before is not None
    rows = pl.DataFrame({"task": pl.Series([0] * len(structures), dtype=pl.Int32), "k0": list(structures)})
    kinds = [PUT] * len(structures)
    rows = rows.with_columns(
        pl.Series("kind", kinds, dtype=pl.Int8), **cell_columns(table.before, kinds, list(structures.values()))
    )
    return SortedTable(table, order_rows(table.before, rows), (None,), table.before)


def test_each_structure_is_taken_apart_once_when_elements_of_several_are_read_in_turn(calls: list[Any]) -> None:
    reader = TaskReader(layout().tables["0"], 0, [level({"ann": {"tea": 1, "cup": 2}, "bob": {"tea": 3}})])
    for _ in range(5):
        assert [reader.get(("ann", "tea")), reader.get(("bob", "tea")), reader.get(("ann", "cup"))] == [1, 3, 2]
    assert len(calls) == 2


def elements(count: int) -> Elements:
    return Elements(layout().tables["0"], {f"k{number}": number for number in range(count)})


def test_bytes_of_a_structure_are_those_that_it_takes_when_it_is_taken_apart() -> None:
    structure = {f"k{number:06}": number for number in range(10_000)}
    tracemalloc.start()
    made = Elements(layout().tables["0"], structure)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    given = sum(map(sys.getsizeof, chain(structure.keys(), structure.values())))
    assert 0.8 < made.bytes / (taken + given) < 1.5


def test_memory_holds_no_more_bytes_than_its_bound_when_many_are_read() -> None:
    memory = UnpackedMemory(2 * elements(4).bytes + elements(1).bytes)
    for number in range(4):
        memory.put((number,), elements(4))
        memory.get((0,))
    assert [number for number in range(4) if memory.get((number,)) is not None] == [0, 3]
    memory.put(("large",), elements(50))
    assert [key for key in (0, 3, "large") if memory.get((key,)) is not None] == ["large"]
    memory.put(("small",), elements(1))
    memory.put(("small",), elements(1))
    memory.put(("empty",), elements(0))
    assert [key for key in ("large", "small", "empty") if memory.get((key,)) is not None] == ["small", "empty"]


@pytest.mark.parametrize("table_id", ["0", "0#size"])
def test_few_structures_are_taken_apart_at_once_when_they_are_large(
    monkeypatch: pytest.MonkeyPatch, calls: list[Any], table_id: str
) -> None:
    monkeypatch.setattr(cutting, "_PACKED_BYTES", 4_000)
    stored = level({f"c{number:03}": {f"i{item}": item for item in range(100)} for number in range(64)}, table_id)
    taken = []
    for chunk in cutting.chunks(layout().stored[table_id], [[stored]], TaskSet(1, 0), 100_000):
        taken.append((len(calls), sum(frame.height for frame, _ in chunk.frames)))
        calls.clear()
    assert sum(count for count, _ in taken) == 64
    assert max(count for count, _ in taken) <= 8
    assert sum(rows for _, rows in taken) == (6_400 if table_id == "0" else 64)
    if table_id != "0":
        assert cells_of(layout().stored[table_id], chunk.frames[0][0])[0] == 100


@pytest.mark.parametrize("table_id", ["0", "0#size"])
def test_columns_of_keys_are_found_when_their_structures_are_taken_apart_in_pieces(
    monkeypatch: pytest.MonkeyPatch, calls: list[Any], table_id: str
) -> None:
    monkeypatch.setattr(cutting, "_PACKED_BYTES", 4_000)
    taken: list[int] = []
    monkeypatch.setattr(looking, "migrated", lambda *rows: (migrated(*rows), taken.append(len(calls)))[0])
    stored = level({f"c{number:03}": {f"i{item}": item for item in range(100)} for number in range(64)}, table_id)
    names = [f"c{number:03}" for number in reversed(range(64))]
    keys = pl.DataFrame({"task": pl.Series([0] * 64, dtype=pl.Int32), "k0": names})
    table = layout().stored[table_id]
    if table_id == "0":
        keys = pl.concat([keys.with_columns(k1=pl.lit(item)) for item in ("i7", "i9", "none")])
    found = looking.lookup(table, [stored], keys)
    expected = [(name, value) for name in sorted(names) for value in ([7, 9] if table_id == "0" else [100])]
    assert found.select("k0", "value").rows() == expected
    assert len(calls) == 64
    assert max(np.diff([0, *taken])) <= 8
