"""The digest of an append: equal for the same records on any machine, another one for others."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from tidemill.depot.append_identity import digest_of, digest_of_bytes
from tidemill.values import columns

DAY = datetime(2024, 1, 1, tzinfo=UTC)
RECORDS: list[list[Any]] = [
    [1, 2],
    [1, None],
    [2, 1],
    ["1", "2"],
    [1.0, 2.0],
    [True, False],
    [DAY],
    [{"a": 1}, {"a": 2}],
    [{"b": 1}, {"b": 2}],
    [[1, "x"], [2, "y"]],
    [{"a": 1}, [1]],
    [{"s": {"x", "y"}}, 1],
    [{"s": {"x", "z"}}, 1],
    [b"1"],
    [],
]


def test_digests_differ_when_records_do() -> None:
    digests = [digest_of(columns.from_values(records)) for records in RECORDS]
    assert len(set(digests)) == len(RECORDS)
    assert digests == [digest_of(columns.from_values(records)) for records in RECORDS]


def test_digest_is_of_the_rows_when_they_are_a_part_of_others() -> None:
    frame = pl.DataFrame({"n": [1, 2, None, 4], "s": ["a", "bb", None, "d"], "b": [True, None, False, True]})
    for start in range(3):
        part = frame.slice(start, 2)
        alone = pl.DataFrame(part.to_dicts(), schema=frame.schema)
        assert digest_of(columns.from_frame(part)) == digest_of(columns.from_frame(alone))


def test_digest_of_a_body_depends_on_its_type() -> None:
    assert digest_of_bytes("a", b"x") != digest_of_bytes("b", b"x") != digest_of_bytes("b", b"y")


SETS = """
from tidemill.depot.append_identity import digest_of
print(digest_of([{"s": {"ann", "bob", "eve", frozenset(["x", "y", "z"])}}, 1]))
"""


@pytest.mark.slow
def test_digest_of_sets_is_one_when_another_process_orders_them_otherwise() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", SETS], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
