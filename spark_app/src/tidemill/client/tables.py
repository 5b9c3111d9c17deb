"""Tables of Polars and PyArrow on their way to a gateway."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa


def arrow_chunks(table: pl.DataFrame | pa.Table | pa.RecordBatch, rows: int | None) -> Iterator[tuple[int, bytes]]:
    """(rows, an Arrow stream of them) of each chunk of `rows` rows; one chunk where it is None."""
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(pl.from_arrow(table))
    step = max(1, frame.height) if rows is None else rows
    for start in range(0, frame.height, step):
        chunk = frame.slice(start, step)
        yield chunk.height, _arrow(chunk)


def _arrow(frame: pl.DataFrame) -> bytes:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
