"""Times without a zone: refused in every form of records, and taken as UTC from files."""

from __future__ import annotations

import datetime
from pathlib import Path

import polars as pl
import pytest

from tidemill.cli.table_batches import parquet_file
from tidemill.depot.appender import chunks
from tidemill.depot.rows import check_records
from tidemill.values.errors import RecordRefused

NAIVE = datetime.datetime(2026, 1, 2, 3, 4)
AWARE = NAIVE.replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize("form", ["list", "frame", "nested frame"])
def test_records_are_refused_when_a_time_has_no_zone(form: str) -> None:
    frame = pl.DataFrame({"at": [NAIVE]})
    forms = {"list": frame.to_dicts(), "frame": frame, "nested frame": pl.DataFrame({"r": [{"at": NAIVE}]})}
    with pytest.raises(RecordRefused, match="without a time zone.*Give it one"):
        for column in chunks(forms[form]):
            check_records(column)


def test_frame_is_taken_when_its_times_have_a_zone() -> None:
    frame = pl.DataFrame({"at": [AWARE]}).with_columns(pl.col("at").dt.convert_time_zone("Europe/Berlin"))
    assert [column.fields[0].to_list() for column in chunks(frame)] == [[AWARE]]  # type: ignore[union-attr]


def test_times_of_a_file_are_utc_when_they_have_no_zone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"at": [NAIVE]}).write_parquet(path)
    (batch,) = parquet_file(path)
    assert isinstance(batch.records, pl.DataFrame)
    assert batch.records["at"].to_list() == [AWARE]
