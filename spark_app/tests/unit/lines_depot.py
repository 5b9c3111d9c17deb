"""A log outside the store for tests: a file of JSON lines for each partition, in a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemill import Agg, CompoundAgg, ExternalDepot, MicrobatchSourceOptions, Module, Ops, PState

START = MicrobatchSourceOptions.start_from_beginning()


class LinesDepot(ExternalDepot):
    """Lines of `<partition>.jsonl`; `<partition>.start` says which are gone, `down` that nothing answers.

    Each fetch is noted in `fetched`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, partition: int, *records: Any) -> None:
        with open(self.folder / f"{partition}.jsonl", "a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def trim(self, partition: int, start: int) -> None:
        (self.folder / f"{partition}.start").write_text(str(start))

    def get_num_partitions(self) -> int:
        if (self.folder / "down").exists():
            raise ConnectionError("nobody is there")
        return len(list(self.folder.glob("*.jsonl")))

    def start_offset(self, partition: int) -> int:
        file = self.folder / f"{partition}.start"
        return int(file.read_text()) if file.exists() else 0

    def end_offset(self, partition: int) -> int:
        return (self.folder / f"{partition}.jsonl").read_bytes().count(b"\n")

    def fetch_from(self, partition: int, start: int, end: int) -> Iterator[Any]:
        with open(self.folder / "fetched", "a") as file:
            file.write(f"{partition} {start} {end}\n")
        lines = (self.folder / f"{partition}.jsonl").read_text().splitlines()
        first = max(start, self.start_offset(partition))
        return (json.loads(line) for line in lines[first:end])

    def offset_after_timestamp_millis(self, partition: int, millis: int) -> int:
        lines = (self.folder / f"{partition}.jsonl").read_text().splitlines()
        later = (offset for offset, line in enumerate(lines) if json.loads(line)[1] > millis)
        return next(later, len(lines))

    def fetched(self) -> list[tuple[int, ...]]:
        """(partition, start, end) of each fetch."""
        file = self.folder / "fetched"
        return [tuple(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []


def failing_while(file: Path, value: Any) -> Any:
    if file.exists():
        raise RuntimeError("not yet")
    return value


class Lines(Module):
    """Counts and sums of records [key, number] of a log outside the store."""

    def __init__(
        self, depot: ExternalDepot, source: MicrobatchSourceOptions = START, brake: Path | None = None
    ) -> None:
        self.depot, self.source, self.brake = depot, source, brake or Path(os.devnull) / "none"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_object("*lines", self.depot)
        setup.declare_object("*brake", self.brake)
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$sums", PState.map_schema(str, int))
        rows = mb.source("*lines", self.source).out("*mb").explode_microbatch("*mb").out("*record")
        rows = rows.each(Ops.EXPAND, "*record").out("*key", "*number")
        rows = rows.each(failing_while, "*brake", "*number").out("*n").hash_partition("*key")
        rows = rows.compound_agg("$$counts", CompoundAgg.map("*key", Agg.count()))
        rows.compound_agg("$$sums", CompoundAgg.map("*key", Agg.sum("*n")))
