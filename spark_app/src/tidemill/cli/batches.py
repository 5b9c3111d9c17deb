"""Batches of records to append, and those of JSON lines."""

from __future__ import annotations

import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tidemill.values.errors import RecordRefused

BATCH_RECORDS = 50_000


@dataclass(frozen=True)
class AppendBatch:
    """Records that are appended together; `share` of the input (0 to 1) is read with them.

    `place` says where in the input the record of an index stands, `end` where the input goes on behind them.
    """

    records: Any
    share: float
    place: Callable[[int], str]
    end: str


def json_file(path: Path) -> Iterator[AppendBatch]:
    """The records of a file of JSON lines, in batches. Raises RecordRefused at a line that is no JSON."""
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as lines:  # some editors begin files with a mark
        chunks = iter(lambda: list(itertools.islice(lines, BATCH_RECORDS)), [])
        yield from json_batches(chunks, path.stat().st_size)


def json_batches(chunks: Iterable[list[str]], size: int) -> Iterator[AppendBatch]:
    """A batch for each chunk of lines; empty lines are skipped. `size` is that of the input in bytes, 0 if unknown.

    Raises:
        RecordRefused: a line is no JSON; says which one.
    """
    first, read = 1, 0
    for lines in chunks:
        numbers = [number for number, line in enumerate(lines, first) if line.strip()]
        records = [_parsed(lines[number - first], number) for number in numbers]
        first += len(lines)
        read += sum(map(len, lines))
        places = [f"Line {number}" for number in numbers]
        yield AppendBatch(records, read / size if size else 0.0, places.__getitem__, f"line {first}")


def _parsed(line: str, number: int) -> Any:
    try:
        line.encode()
        return json.loads(line.strip())
    except json.JSONDecodeError as error:
        text = f"Line {number} is not JSON: {error.msg} at column {error.colno}."
        if number == 1 and line.strip() in ("[", "{"):
            text += " One record a line is read, not one value over several lines: convert it with `jq -c '.[]'`."
        raise RecordRefused(text) from error
    except UnicodeEncodeError as error:
        raise RecordRefused(f"Line {number} is not UTF-8; convert the input first.") from error
    except (RecursionError, ValueError) as error:
        raise RecordRefused(f"Line {number} cannot be read: {error}.") from error


def as_they_come(stream: IO[str]) -> Iterator[list[str]]:
    """Lines in batches of what is there, so that a slow writer's records do not wait for each other."""
    lines: queue.Queue[str | None] = queue.Queue(maxsize=2 * BATCH_RECORDS)

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (line := lines.get()) is not None:
        batch = [line]
        while len(batch) < BATCH_RECORDS and not lines.empty():
            following = lines.get()
            if following is None:
                yield batch
                return
            batch.append(following)
        yield batch
