"""CSV inputs of task graphs: each row once, whatever the stride and the number of channels."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.graphs.inputs import csv_input
from tidemill.graphs.inputs.csv_input import CsvFormat, CsvInput, sniffed
from tidemill.graphs.inputs.files import find_files
from tidemill.values.errors import BadInput

TEXTS = st.text(alphabet='ab",\n\r é', max_size=12)
ROWS = st.lists(st.tuples(TEXTS, TEXTS), max_size=30)


def written(rows: list[tuple[str, str]], line_end: str, has_last_end: bool, header: bool) -> bytes:
    """Rows as any program would write them; all values in quotes, so that an empty text is no null."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator=line_end)
    writer.writerows([*([("a", "b")] if header else []), *rows])
    text = buffer.getvalue()
    return (text if has_last_end else text.removesuffix(line_end)).encode()


def rows_read(found: CsvInput, channels: int) -> list[list[tuple[str, ...]]]:
    """The rows that each channel reads."""
    read = []
    for cursor in found.plan(channels):
        rows: list[tuple[str, ...]] = []
        while cursor is not None:
            batch, cursor = found.read(cursor)
            rows += [] if batch is None else batch.collect().rows()
        read.append(rows)
    return read


@settings(max_examples=150)
@given(
    files=st.lists(ROWS, min_size=1, max_size=3), stride=st.integers(1, 80), channels=st.integers(1, 9),
    line_end=st.sampled_from(["\n", "\r\n"]), has_last_end=st.booleans(), header=st.booleans(),
)  # fmt: skip
def test_each_row_is_read_once_and_in_order_when_files_are_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[str, str]]], stride: int, channels: int,
    line_end: str, has_last_end: bool, header: bool,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("csv")
    for number, rows in enumerate(files):
        (folder / f"{number}.csv").write_bytes(written(rows, line_end, has_last_end, header))
    found_files, form = find_files(str(folder), "."), CsvFormat(has_header=header)
    types = sniffed(found_files, ["a", "b"], form, {"a": pl.String(), "b": pl.String()})

    read = rows_read(CsvInput(found_files, types, form, stride), channels)

    assert [row for channel in read for row in channel] == [row for rows in files for row in rows]


@settings(max_examples=60)
@given(numbers=st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=50), stride=st.integers(1, 60),
       channels=st.integers(1, 5), last=st.booleans())  # fmt: skip
def test_rows_are_those_of_polars_when_no_quotes_are_looked_for(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], stride: int, channels: int, last: bool
) -> None:
    text = "\n".join(f'{number}|5" pipe|' for number in numbers) + ("\n" if last else "")
    folder = tmp_path_factory.mktemp("csv")
    (folder / "a.tbl").write_text(text)
    files, form = find_files(str(folder), "a.tbl"), CsvFormat("|", quote=None)
    types = sniffed(files, ["n", "t", "null"], form, None)

    read = rows_read(CsvInput(files, types, form, stride), channels)

    assert types == {"n": pl.Int64, "t": pl.String, "null": pl.String}
    assert [row for channel in read for row in channel] == [(number, '5" pipe', None) for number in numbers]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_compressed_file_is_read_whole_when_there_are_other_files(tmp_path: Path, channels: int) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"x,y\n3,4\n5,6"))
    (tmp_path / "c.csv").write_text("x,y\n")
    files, form = find_files(str(tmp_path), ""), CsvFormat(has_header=True)

    read = rows_read(CsvInput(files, sniffed(files, None, form, None), form, 2), channels)

    assert sorted(row for channel in read for row in channel) == [(1, 2), (3, 4), (5, 6)]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_types_fit_all_rows_of_the_first_megabyte_when_these_are_many(tmp_path: Path, name: str) -> None:
    content = b"1,2\n" * 20_000 + b"x,2.5\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    files, form = find_files(str(tmp_path), name), CsvFormat()

    types = sniffed(files, ["a", "b"], form, None)

    assert types == {"a": pl.String(), "b": pl.Float64()}
    (read,) = rows_read(CsvInput(files, types, form), 1)
    assert read == [("1", 2.0)] * 20_000 + [("x", 2.5)]


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf", b"\r\n\r\n"])
def test_no_row_is_read_when_a_file_has_none(tmp_path: Path, content: bytes, channels: int) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    files, form = find_files(str(tmp_path), "a.csv"), CsvFormat()

    assert rows_read(CsvInput(files, sniffed(files, ["a", "b"], form, None), form), channels) == [[]] * channels


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("content", ["k,v\n", "k,v", "\ufeffk,v\r\n", "k,v\n\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_columns_are_there_without_a_row_when_files_have_a_header_only(
    tmp_path: Path, name: str, content: str, channels: int
) -> None:
    packed = gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
    (tmp_path / name).write_bytes(packed)
    (tmp_path / "0.csv").write_bytes(b"")
    files, form = find_files(str(tmp_path), ""), CsvFormat(has_header=True)

    types = sniffed(files, None, form, {"v": pl.Int64()})

    assert types == {"k": pl.String(), "v": pl.Int64()}
    assert list(types) == ["k", "v"]
    assert rows_read(CsvInput(files, types, form), channels) == [[]] * channels


def test_types_are_those_of_files_that_have_rows_when_the_first_one_has_a_header_only(tmp_path: Path) -> None:
    for name, content in (("a", "k,v\n"), ("b", "k,v\n1,2.5\n"), ("c", "k,v")):
        (tmp_path / f"{name}.csv").write_text(content)
    files, form = find_files(str(tmp_path), ""), CsvFormat(has_header=True)

    types = sniffed(files, None, form, None)

    assert types == {"k": pl.Int64(), "v": pl.Float64()}
    assert rows_read(CsvInput(files, types, form), 1) == [[(1, 2.5)]]


def test_names_are_missing_when_files_have_no_header_and_no_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\n")

    with pytest.raises(BadInput, match="no names of columns"):
        sniffed(find_files(str(tmp_path), "a.csv"), None, CsvFormat(has_header=True), {"k": pl.Int64()})


def test_only_what_is_needed_is_made_a_value_when_columns_and_a_predicate_are_given(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeff1,2,u\n3,4,v\n5,6,w\n")
    files, form = find_files(str(tmp_path), ["a.csv"]), CsvFormat()
    found = CsvInput(files, sniffed(files, ["a", "b", "c"], form, None), form, 4, ("c",), pl.col("a") > 1)

    assert rows_read(found, 2) == [[("v",)], [("w",)]]
    assert list(found.schema) == ["c"]


@pytest.mark.parametrize(
    ("names", "types", "said"),
    [
        (["a"], None, "2 columns and there are 1 names"),
        (["a", "a"], None, "Two columns have one name"),
        (None, None, "no names"),
        (["a", "b"], {"c": pl.Int64()}, "schema names c"),
    ],
)
def test_names_are_refused_when_they_do_not_fit(
    tmp_path: Path, names: list[str] | None, types: dict[str, pl.DataType] | None, said: str
) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    with pytest.raises(BadInput, match=said):
        sniffed(find_files(str(tmp_path), "a.csv"), names, CsvFormat(), types)


def test_a_later_row_of_another_type_is_named_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\nx,3\n")
    files, form = find_files(str(tmp_path), "a.csv"), CsvFormat()
    found = CsvInput(files, {"a": pl.Int64(), "b": pl.Int64()}, form, 4)

    with pytest.raises(BadInput, match=r"a\.csv from byte 4 .* schema="):
        rows_read(found, 1)


@pytest.mark.s3
def test_rows_are_those_of_the_folder_when_files_are_in_a_bucket(s3_url: str, tmp_path: Path) -> None:
    from tidemill.store.urls import connect

    store, text = connect(s3_url), b"".join(f'{n},"a\nb"\n'.encode() for n in range(300))
    store.create("data/a.csv", text)
    store.create("data/b.csv", text)
    files, form = find_files(s3_url, "data"), CsvFormat()

    read = rows_read(CsvInput(files, sniffed(files, ["n", "t"], form, None), form, 100), 3)

    assert [row for channel in read for row in channel] == [(n, "a\nb") for n in range(300)] * 2
    with pytest.raises(BadInput, match="no file"):
        find_files(s3_url, "other")


LINES = st.lists(
    st.sampled_from(["", "", "a", "a,", ",", ",b", "a,b", '"a\n\n",b', '"\n",', '"""",""', '"a\r\n\r\n,"']), max_size=12
)


@settings(max_examples=150)
@given(lines=LINES, stride=st.integers(1, 40), channels=st.integers(1, 5),
       line_end=st.sampled_from(["\n", "\r\n"]), has_last_end=st.booleans())  # fmt: skip
def test_empty_lines_are_no_rows_and_short_rows_end_with_nulls_when_files_are_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], stride: int, channels: int, line_end: str,
    has_last_end: bool,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("csv")
    (folder / "a.csv").write_bytes((line_end.join(lines) + (line_end if has_last_end and lines else "")).encode())
    files, types = find_files(str(folder), "a.csv"), {"a": pl.String(), "b": pl.String()}

    read = rows_read(CsvInput(files, types, CsvFormat(), stride), channels)

    expected = [(row + [""])[:2] for line in lines if line for row in csv.reader(io.StringIO(line, newline=""))]
    found = [[value or "" for value in row] for channel in read for row in channel]
    assert found == expected


@pytest.mark.parametrize("names", [None, ["x", "y"]])
def test_files_are_refused_when_their_headers_differ(tmp_path: Path, names: list[str] | None) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"b,a\n2,1\n"))

    with pytest.raises(BadInput, match="c.csv.gz has the columns b, a, and .*a.csv has a, b"):
        sniffed(find_files(str(tmp_path), ""), names, CsvFormat(has_header=True), None)


@settings(max_examples=60)
@given(rows=ROWS, stride=st.integers(20, 200), piece=st.integers(1, 60), channels=st.integers(1, 3))
def test_each_row_is_read_once_when_a_stride_is_read_in_pieces(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], stride: int, piece: int, channels: int
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    content = written(rows, "\n", True, False)
    (folder / "a.csv").write_bytes(content)
    types = {"a": pl.String(), "b": pl.String()}
    found = CsvInput(find_files(str(folder), "a.csv"), types, CsvFormat(), stride)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_input, "PIECE", piece)
        read = rows_read(found, channels)

    assert [row for channel in read for row in channel] == rows


def test_a_stride_ends_at_the_bytes_that_it_has_when_it_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{number:07d}\n" for number in range(100)))
    monkeypatch.setattr(csv_input, "PIECE", 80)
    found = CsvInput(find_files(str(tmp_path), "a.csv"), {"n": pl.String()}, CsvFormat(), 240)

    parts, cursor = [], found.plan(1)[0]
    while cursor is not None:
        batch, cursor = found.read(cursor)
        assert batch is not None
        parts.append((batch.bytes, batch.is_part))

    assert parts == [(80, True), (80, True), (80, False)] * 3 + [(80, False)]
