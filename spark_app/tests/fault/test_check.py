"""`tidemill check` is worth something only if it notices: each invariant is broken on purpose in a real store."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.journal import entries
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Attempt, Entry
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import Leaf
from tidemill.leader.check import check_module
from tidemill.store.log import Log
from tidemill.store.urls import connect
from tidemill.tables.container import TableRows, decode, encode
from tidemill.values.errors import StoreRestored

LARGE = 700_000


class Words(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))  # fmt: skip


class Stored:
    """The store of a module that has processed three large microbatches and stopped."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.url = folder, folder.as_uri()
        dice = random.Random(1)
        with InProcessCluster.create("local", store=self.url) as cluster:
            cluster.launch_module(Words(), LaunchConfig(1, 1))
            for count in (1, 2, 3):
                cluster.cluster_depot("Words", "*words").append(dice.randbytes(LARGE // 2).hex())
                cluster.wait_for_microbatch_processed_count("Words", "mb", count)
        (topology,) = (folder / "Words" / "topologies").iterdir()
        self.log = sorted((topology / "log").glob("*.zip"))
        self.deltas = sorted((topology / "deltas").iterdir())
        self.segments = sorted(next((folder / "Words" / "depots").iterdir()).glob("log/*.arrow"))

    def change(self, change: Callable[[Entry], Entry]) -> None:
        """Another newest entry than the one that was written."""
        content = self.log[-1].read_bytes()
        self.log[-1].unlink()
        key = self.log[-1].relative_to(self.folder).as_posix()
        self.log[-1].write_bytes(entries.to_bytes(change(entries.from_bytes(content, key)), {}, key))

    def rewrite(
        self,
        rows: Callable[[TableRows], TableRows] = lambda rows: rows,
        part: Callable[[Part], Part] = lambda part: part,
        level: Callable[[Level], Level] = lambda level: level,
        table: str = "0",
    ) -> None:
        """Another oldest delta, in the entry as well: its bytes are what the entry says."""
        path = self.deltas[0]
        held = decode(path.read_bytes())
        ((key, found),) = held.tables.items()
        meta = held.meta[key]
        changed = rows(TableRows(meta.table, pl.DataFrame(pl.from_arrow(found)), meta.combiner_names))
        content = encode({(key[0], table): changed}, held.bounds, path.relative_to(self.folder).as_posix())
        path.write_bytes(content)

        def committed(entry: Entry) -> Entry:
            first, *others = entry.snapshot.levels
            counts = {f"{key[0]}/{table}": changed.rows.height}
            written = part(replace(first.parts[0], rows=counts).sealed(content))
            newest = Snapshot((level(replace(first, parts=(written,))), *others))
            return replace(entry, snapshot=newest)

        self.change(committed)

    def texts(self) -> str:
        return "\n".join(map(str, check_module(connect(self.url), "Words")))

    def broken(self) -> set[str]:
        return {finding.invariant for finding in check_module(connect(self.url), "Words")}


@pytest.fixture
def stored(tmp_path: Folder) -> Stored:
    return Stored(tmp_path)


def frame(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[TableRows], TableRows]:
    return lambda held: replace(held, rows=change(held.rows))


def followed_by(rows: pl.DataFrame, **columns: Any) -> pl.DataFrame:
    """The rows, and the same again with other columns."""
    changed = [pl.lit(value).cast(rows.schema[name]).alias(name) for name, value in columns.items()]
    return pl.concat([rows, rows.with_columns(changed)])


ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "order": ("is not sorted", {"rows": frame(lambda rows: followed_by(rows, k0=""))}),
    "duplicate": ("has several rows for one key", {"rows": frame(followed_by)}),
    "task": ("holds rows of the tasks [0]", {"part": lambda part: replace(part, tasks=TaskSet(2, 1))}),
    "bound": ("holds the integer 99, beyond the bound 1", {
        "rows": frame(lambda rows: rows.with_columns(pl.lit(99, pl.Int64).alias("value")))}),
    "count": ("the log says", {"part": lambda part: replace(part, rows=dict.fromkeys(part.rows, 5))}),
    "kind": ("holds rows of unknown kinds: [9]", {
        "rows": frame(lambda rows: rows.with_columns(pl.lit(9, pl.Int8).alias("kind")))}),
    "combiner": ("says no combiner", {"rows": lambda held: replace(held, combiner_names=(None,))}),
    "column": ("has the columns", {"rows": frame(lambda rows: rows.drop("value"))}),
    "type": ("has the columns", {"rows": frame(lambda rows: rows.with_columns(pl.col("value").cast(pl.Float64)))}),
    "table": ("is none of the PState", {"table": "1"}),
    "schema": ("is of another schema", {
        "rows": lambda held: replace(held, table=replace(held.table, value=Leaf("str")))}),
    "base": ("is of a base", {"level": lambda level: replace(level, is_base=True)}),
    "overlap": ("for the same tasks", {"level": lambda level: replace(level, parts=level.parts * 2)}),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(ROWS))
def test_rows_are_named_when_they_are_not_what_readers_expect(stored: Stored, case: str) -> None:
    text, changes = ROWS[case]
    stored.rewrite(**changes)
    found = [finding for finding in check_module(connect(stored.url), "Words") if finding.invariant == "S3"]
    assert any(text in finding.text for finding in found), found


def test_a_part_is_no_finding_when_it_is_written_again_as_it_was(stored: Stored) -> None:
    stored.rewrite()
    assert stored.texts() == ""


def further(entry: Entry) -> Entry:
    """One record more is said to be processed."""
    moved = {n: replace(p, offsets=tuple(o + 1 for o in p.offsets)) for n, p in entry.progress.items()}
    return replace(entry, progress=moved)


CHANGES: list[tuple[str, Callable[[Entry], Entry]]] = [
    ("S1", lambda entry: replace(entry, processed=entry.processed + 1)),
    ("S1", further),
    ("S2", lambda entry: replace(entry, attempt=Attempt(entry.last_id + 2, 1))),
    ("S3", lambda entry: replace(entry, paused_seen=7)),
    ("S4", lambda entry: replace(entry, epoch=entry.epoch + 1)),
    ("S4", lambda entry: replace(entry, committed=(replace(entry.committed[0], version=7), *entry.committed[1:]))),
    ("S5", lambda entry: replace(entry, committed=(entry.committed[0], replace(entry.committed[1], microbatch_id=1)))),
    ("S6", further),
    ("S7", lambda entry: replace(entry, snapshot=replace(entry.snapshot, levels=entry.snapshot.levels[::-1]))),
]


def test_nothing_is_found_when_nothing_is_wrong(stored: Stored) -> None:
    assert stored.broken() == set()


@pytest.mark.parametrize(("invariant", "change"), CHANGES)
def test_invariant_is_named_when_an_entry_breaks_it(
    stored: Stored, invariant: str, change: Callable[[Entry], Entry]
) -> None:
    stored.change(change)
    assert invariant in stored.broken()


def test_missing_objects_are_found_when_somebody_deleted_them(stored: Stored) -> None:
    stored.deltas[0].unlink()
    assert stored.broken() == {"S3", "S5"}
    stored.segments[0].unlink()
    assert stored.broken() == {"S3", "S5", "S6"}


def test_changed_bytes_are_found_in_an_object(stored: Stored) -> None:
    content = bytearray(stored.deltas[1].read_bytes())
    content[len(content) // 2] ^= 1
    stored.deltas[1].write_bytes(bytes(content))
    assert stored.broken() == {"S3", "S5"}


@pytest.mark.parametrize("closed", ["definition", "topologies/*/log", "depots/*/log"])
def test_the_check_ends_when_a_restore_closes_any_log_meanwhile(stored: Stored, closed: str) -> None:
    (folder,) = (stored.folder / "Words").glob(closed)
    Log(connect(stored.url), folder.relative_to(stored.folder).as_posix(), "").close()
    with pytest.raises(StoreRestored, match="repeat it"):
        check_module(connect(stored.url), "Words")


@pytest.mark.parametrize("kind", ["options", "definition"])
def test_an_older_entry_is_at_fault_when_a_value_in_it_became_another_of_its_type(stored: Stored, kind: str) -> None:
    """Each reads as what somebody might have written: only its checksum tells."""
    store = connect(stored.url)
    for number in (7, 8, 9):
        OptionsLog(store, "Words").set("module", "", "depot.max.fetch", number)
    definitions = DefinitionLog(store, "Words")
    newest = definitions.newest()
    assert newest is not None
    definitions.append(newest, newest.written_ms + 1)
    assert stored.texts() == ""
    key = f"Words/{kind}/{1:020d}.json"
    content = store.get(key)
    store.delete(key)
    store.create(key, content.replace(b",7]", b",6]") if kind == "options" else content.replace(b"hash_by", b"hash_bx"))

    assert f"S3 {kind} 1: {key}" in stored.texts()
    assert "another checksum" in stored.texts()


def test_all_else_is_still_checked_when_an_entry_or_the_options_cannot_be_read(stored: Stored) -> None:
    """What a state needs of an older entry, or a log with a hole, ended the check before it came to the depots."""
    log = sorted((stored.folder / "Words").glob("topologies/*/log/*.zip"))
    newest = entries.from_bytes(log[-1].read_bytes(), log[-1].relative_to(stored.folder).as_posix())
    older = log[0].parent / f"{newest.committed[1].entry:020d}.zip"
    older.write_bytes(older.read_bytes()[:100])
    for value in (60, 61, 62):
        OptionsLog(connect(stored.url), "Words").set("module", "", "store.collection.period.seconds", value)
    (stored.folder / "Words" / "options" / f"{2:020d}.json").unlink()
    stored.segments[0].unlink()
    texts = stored.texts()
    assert "an archive's directory cannot be read" in texts
    assert "is missing, though the log goes from entry 1 to 3" in texts
    assert "S6 *words" in texts
