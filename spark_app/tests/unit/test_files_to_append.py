"""What the rows of files become before they are appended."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill.cli.batches import json_file
from tidemill.cli.table_batches import csv_file
from tidemill.language.schema import FixedKeysSchema, Leaf, MapSchema, Schema
from tidemill.values.errors import RecordRefused


def rows(folder: Folder, text: str, schema: Schema | None = None) -> list[dict[str, Any]]:
    path = folder / "rows.csv"
    path.write_text(text)
    return [row for batch in csv_file(path, schema) for row in batch.records.to_dicts()]


def test_codes_keep_their_zeros_when_no_schema_says_what_they_are(tmp_path: Folder) -> None:
    found = rows(tmp_path, "zip,n,share,by\n01067,10,0.5,0\n80331,7,-0.25,1\n")

    assert found == [
        {"zip": "01067", "n": 10, "share": 0.5, "by": 0},
        {"zip": "80331", "n": 7, "share": -0.25, "by": 1},
    ]


def test_columns_are_texts_when_the_schema_of_the_depot_says_so(tmp_path: Folder) -> None:
    types = {"id": "str", "flag": "str", "n": "int", "some": "object"}
    schema = FixedKeysSchema(tuple((name, Leaf(kind)) for name, kind in types.items()))
    found = rows(tmp_path, "id,flag,n,some,other\n1,true,007,08,09\n2,false,8,9,10\n", schema)

    assert found[0] == {"id": "1", "flag": "true", "n": 7, "some": "08", "other": "09"}
    assert rows(tmp_path, "a,b\n1,2\n", MapSchema("str", Leaf("str"))) == [{"a": "1", "b": "2"}]


def test_absent_cells_stay_none_when_their_column_is_one_of_texts(tmp_path: Folder) -> None:
    assert rows(tmp_path, "id,zip\n1,007\n2,\n") == [{"id": 1, "zip": "007"}, {"id": 2, "zip": None}]


def test_json_lines_are_read_when_the_file_begins_with_a_byte_order_mark(tmp_path: Folder) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')

    assert [record for batch in json_file(path) for record in batch.records] == [{"a": 1}]


def test_the_way_out_is_said_when_a_file_is_one_json_value_over_several_lines(tmp_path: Folder) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[\n{"a": 1},\n{"a": 2}\n]\n')

    with pytest.raises(RecordRefused, match="Line 1 is not JSON: .* One record a line is read"):
        list(json_file(path))
