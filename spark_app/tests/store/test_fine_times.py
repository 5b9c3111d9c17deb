"""Times finer than a microsecond: refused where they would be cut, taken where nothing is lost."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl
import pytest

from tidemill.depot.appender import chunks
from tidemill.depot.rows import check_records
from tidemill.values.errors import RecordRefused

KIND = pl.Datetime("ns", "UTC")
FORMS: dict[str, Any] = {
    "plain": lambda times: times,
    "list": lambda times: pl.Series([times, times[:1]]),
    "array": lambda times: times.reshape((1, len(times))),
    "struct": lambda times: pl.DataFrame({"at": times}).to_struct(),
    "list of structs": lambda times: pl.Series([pl.DataFrame({"at": times}).to_struct()]),
}


def frame(form: str, *nanoseconds: int | None) -> pl.DataFrame:
    return pl.DataFrame({"t": FORMS[form](pl.Series("at", nanoseconds, dtype=pl.Int64).cast(KIND))})


@pytest.mark.parametrize("form", FORMS)
def test_frame_is_refused_when_its_times_would_be_cut(form: str) -> None:
    with pytest.raises(RecordRefused, match=r"column 't' holds times finer than a microsecond.*cast_time_unit"):
        list(chunks(frame(form, None, 1_000, 1_001)))


@pytest.mark.parametrize("form", FORMS)
def test_frame_is_taken_when_its_nanoseconds_are_whole_microseconds(form: str) -> None:
    taken = list(chunks(frame(form, None, 1_000, 3_000)))

    assert len(taken) == 1
    check_records(taken[0])


def test_values_are_those_of_the_frame_when_its_unit_is_nanoseconds() -> None:
    ((column,),) = [column.fields for column in chunks(frame("plain", 1_000, None))]  # type: ignore[union-attr]

    assert column.to_list() == [datetime.datetime(1970, 1, 1, microsecond=1, tzinfo=datetime.UTC), None]
