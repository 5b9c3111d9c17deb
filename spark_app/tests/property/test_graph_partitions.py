"""Partition keys of task graphs: equal keys meet, each row goes to one channel, and rows keep their order."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill import RangePartition
from tidemill.graphs.partitions import FILTERED_CHANNELS, split
from tidemill.values.errors import BadInput

KEYS: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64: st.integers(-(2**63), 2**63 - 1), pl.Int8: st.integers(-128, 127), pl.UInt64: st.integers(0, 2**64 - 1),
    pl.Int128: st.integers(-(2**127), 2**127 - 1),
    pl.Float64: st.floats(allow_nan=True), pl.String: st.text(max_size=5), pl.Boolean: st.booleans(),
    pl.Date: st.dates(datetime.date(1900, 1, 1)), pl.Datetime("us"): st.datetimes(datetime.datetime(1900, 1, 1)),
    pl.Decimal(10, 2): st.decimals(-999, 999, places=2), pl.Binary: st.binary(max_size=4),
    pl.Time: st.times(), pl.Duration("us"): st.timedeltas(datetime.timedelta(0), datetime.timedelta(days=9)),
}  # fmt: skip


@st.composite
def keyed(draw: st.DrawFn) -> tuple[pl.DataFrame, list[str]]:
    """A frame with one or two key columns, in which keys come again, and are null."""
    kinds = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    height = draw(st.integers(0, 20))
    columns = {}
    for number, kind in enumerate(kinds):
        few = draw(st.lists(st.none() | KEYS[kind], min_size=1, max_size=4))
        values = draw(st.lists(st.sampled_from(few), min_size=height, max_size=height))
        columns[f"k{number}"] = pl.Series(values, dtype=kind)
    return pl.DataFrame(columns).with_row_index("row"), list(columns)


@settings(max_examples=200)
@given(found=keyed(), channels=st.integers(1, 7))
def test_each_row_goes_to_the_one_channel_of_its_key_and_keeps_its_order(
    found: tuple[pl.DataFrame, list[str]], channels: int
) -> None:
    frame, keys = found
    pieces = split(frame, keys if len(keys) > 1 else keys[0], 0, channels) if frame.height else []

    assert sorted(row for _, piece in pieces for row in piece["row"]) == list(range(frame.height))
    assert all(piece["row"].is_sorted() and 0 <= channel < channels for channel, piece in pieces)
    owners: dict[Any, int] = {}
    for channel, piece in pieces:
        for key in piece.select(keys).rows():
            assert owners.setdefault(tuple("nan" if value != value else value for value in key), channel) == channel


@given(values=st.lists(st.none() | st.integers(-128, 127)), channels=st.integers(1, 6))
def test_equal_keys_meet_when_their_columns_have_other_types(values: list[int | None], channels: int) -> None:
    owner: dict[Any, int] = {}
    for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.Float32, pl.Float64, pl.Decimal(20, 3)):
        frame = pl.DataFrame({"k": pl.Series(values, dtype=kind)})
        for key in ("k", ["k", "k"]):
            for channel, piece in split(frame, key, 0, channels) if values else ():
                for value in piece["k"]:
                    assert owner.setdefault((str(key), value), channel) == channel
                    assert key != "k" or value is None or channel == int(value) % channels


@given(owners=st.lists(st.integers(0, 2 * FILTERED_CHANNELS - 1), min_size=1, max_size=80), cut=st.integers(0, 80))
def test_each_channel_gets_its_rows_in_order_when_channels_are_few_or_many(owners: list[int], cut: int) -> None:
    frame = pl.DataFrame({"row": range(len(owners)), "text": [f"text of row {row}" for row in range(len(owners))]})
    chunks = pl.concat([frame.head(cut), frame.tail(max(0, len(owners) - cut))], rechunk=False)

    dealt = split(chunks, lambda batch: pl.Series(owners), 0, 2 * FILTERED_CHANNELS)

    assert [channel for channel, _ in dealt] == sorted(set(owners))
    for channel, piece in dealt:
        assert piece.equals(frame.filter(pl.Series(owners) == channel))


@pytest.mark.parametrize("kind", [pl.Int8, pl.UInt64, pl.Int128, pl.Float64, pl.String, pl.Date])
@pytest.mark.parametrize("key", ["k", ["k", "other"]])
def test_nulls_meet_when_one_batch_has_nothing_else(kind: Any, key: Any) -> None:
    typed = pl.DataFrame({"k": pl.Series([None], dtype=kind), "other": [1]})
    untyped = pl.DataFrame({"k": [None], "other": [1]})

    ((one, _),), ((two, _),) = split(typed, key, 0, 97), split(untyped, key, 0, 97)

    assert one == two


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"])])
def test_texts_meet_categories_when_keys_are_equal(kind: Any) -> None:
    texts = pl.DataFrame({"k": ["a", "b", "a"]})
    categories = texts.with_columns(pl.col("k").cast(kind))

    def owners(frame: pl.DataFrame) -> dict[str, int]:
        return {key: channel for channel, piece in split(frame, "k", 0, 5) for key in piece["k"].cast(pl.String)}

    assert owners(texts) == owners(categories)


def test_rows_are_dealt_as_asked_when_the_key_is_no_column() -> None:
    frame = pl.DataFrame({"k": [5, 1, None, 9]})

    def rows(key: Any) -> dict[int, list[int | None]]:
        return {channel: piece["k"].to_list() for channel, piece in split(frame, key, 3, 3)}

    assert rows(None) == dict.fromkeys(range(3), [5, 1, None, 9])
    assert rows(RangePartition("k", [2, 6])) == {0: [1, None], 1: [5], 2: [9]}
    assert rows(lambda batch: batch["k"].fill_null(0) % 3) == {0: [None, 9], 1: [1], 2: [5]}
    assert rows(lambda batch, channel: batch.head(channel)) == {1: [5], 2: [5, 1]}
    assert rows(lambda batch, source, channels: {source % channels: batch}) == {0: [5, 1, None, 9]}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("x", "partition key x is no column"),
        (lambda batch: pl.Series([0, 1, 2, 3]), "channel 3"),
        (lambda batch: pl.Series([0, 1, 2, -1]), "channel -1"),
        (lambda batch: pl.Series([0, 1]), "2 channels for 4 rows"),
        (lambda batch, source, channels: {7: batch}, "channel 7"),
    ],
)
def test_a_key_is_refused_when_there_is_no_such_column_or_channel(key: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        split(pl.DataFrame({"k": [1, 2, 3, 4]}), key, 0, 3)
