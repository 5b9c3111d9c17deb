"""A store that was written once: every object is read as it was meant, written again byte by byte, and gone on with.

Where a format changes on purpose, `golden_store.py` writes it anew.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import golden_store
import polars as pl
import pyarrow as pa
import pytest

from tidemill import InProcessCluster, LaunchConfig
from tidemill import Path as TidemillPath
from tidemill.definition import stored_json
from tidemill.depot.segment import Segment, encode_segment
from tidemill.journal import entries, options_log, settlements
from tidemill.leader import backup_folder, kept_plans
from tidemill.leader.check import check_module
from tidemill.store.urls import open_store
from tidemill.tables import container, run_writer
from tidemill.tables.container import TableRows

OBJECTS = {
    name: zipfile.ZipFile(golden_store.STORE).read(name) for name in zipfile.ZipFile(golden_store.STORE).namelist()
}
FORMAT_FILE = "store/_tidemill/format.json"


def key_of(name: str) -> str:
    return name.partition("/")[2]


# --- each format written again ---------------------------------------------------------------------------------------


def definition(name: str, content: bytes) -> bytes:
    return stored_json.JSON.encode(stored_json.JSON.decode(content, key_of(name)), key_of(name))


def options(name: str, content: bytes) -> bytes:
    return options_log.JSON.encode(options_log.JSON.decode(content, key_of(name)), key_of(name))


def entry(name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {member: archive.read(member) for member in archive.namelist() if member != entries.ENTRY_MEMBER}
    assert all((segment if ".arrow" in member else delta)(member, part) == part for member, part in parts.items())
    return entries.to_bytes(entries.from_bytes(content, key_of(name)), parts, key_of(name))


def settlement(name: str, content: bytes) -> bytes:
    return settlements.JSON.encode(settlements.JSON.decode(content, key_of(name)), key_of(name))


def segment(name: str, content: bytes) -> bytes:
    found = Segment(pa.py_buffer(content))
    return bytes(encode_segment(found.header, found.rows(0, found.header.records)))


def delta(name: str, content: bytes) -> bytes:
    held = container.decode(content)
    tables = {
        key: TableRows(meta.table, pl.DataFrame(held.tables[key]), meta.combiner_names)
        for key, meta in held.meta.items()
    }
    return container.encode(tables, held.bounds, held.key)


def run(name: str, content: bytes) -> bytes:
    held = container.decode(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        written = [tuple(member.removesuffix(".parquet").split("/")) for member in archive.namelist()]
    with run_writer.RunWriter() as writer:
        for pstate, table in written[:-1]:  # `meta.json` comes last
            meta = held.meta[pstate, table]
            writer.append((pstate, table), meta.table, pl.DataFrame(held.tables[pstate, table]), meta.combiner_names)
            writer.end_table()
        return bytes(writer.finish(held.bounds, held.key))


def backup(name: str, content: bytes) -> bytes:
    return backup_folder._JSON.encode(backup_folder._JSON.decode(content, key_of(name)), key_of(name))


def plan(name: str, content: bytes) -> bytes:
    return kept_plans._JSON.encode(kept_plans._JSON.decode(content, key_of(name)), key_of(name))


FORMS: list[tuple[str, Callable[[str, bytes], bytes]]] = [
    ("/definition/", definition),
    ("/options/", options),
    ("/depots/", segment),
    ("/runs/", run),
    ("/quarantine/", segment),
    ("/settled/", settlement),
    ("/plans/", plan),
    ("/topologies/", entry),
    ("/backups/", backup),
]


def form_of(name: str) -> Callable[[str, bytes], bytes]:
    return next(write for folder, write in FORMS if folder in name)


@pytest.mark.parametrize("name", sorted(set(OBJECTS) - {FORMAT_FILE}))
def test_object_is_written_again_byte_by_byte(name: str) -> None:
    assert form_of(name)(name, OBJECTS[name]) == OBJECTS[name]


def test_golden_store_has_every_form() -> None:
    """Also entries with deltas inside, a compaction's run, columns, values, and a producer."""
    assert {form_of(name) for name in set(OBJECTS) - {FORMAT_FILE}} == {write for _, write in FORMS}
    segments = [Segment(pa.py_buffer(content)).header for name, content in OBJECTS.items() if "/depots/" in name]
    assert {type(header.layout) for header in segments} == {str, list}
    assert any(header.produced for header in segments)
    kinds = {entries.from_bytes(content, key_of(name)).kind for name, content in OBJECTS.items() if form_of_entry(name)}
    assert kinds >= {"claim", "begin", "commit", "compact", "note"}


def form_of_entry(name: str) -> bool:
    return name != FORMAT_FILE and form_of(name) is entry


# --- the store as a whole --------------------------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> str:
    zipfile.ZipFile(golden_store.STORE).extractall(tmp_path)
    return str(tmp_path / "store")


def test_golden_store_is_whole_and_read_as_it_was_meant(url: str) -> None:
    assert check_module(open_store(Path(url).as_uri()), golden_store.MODULE) == []
    assert golden_store.readings(url) == golden_store.READ.read_text()


def test_golden_store_is_gone_on_with(url: str) -> None:
    with InProcessCluster.create("local", url) as cluster:
        cluster.launch_module(golden_store.LaterLedger(), LaunchConfig(2, 1))
        depot = cluster.cluster_depot(golden_store.MODULE, "*sales")
        before = cluster.cluster_pstate(golden_store.MODULE, "$$best").select_one(TidemillPath.key("c1"))
        depot.append({"customer": "c1", "day": 0, "amount": 1_000})
        cluster.wait_until_processed(golden_store.MODULE, golden_store.TOPOLOGY)
        found = cluster.cluster_pstate(golden_store.MODULE, "$$totals").select_one(TidemillPath.key("c1"))
        assert before < found["largest"] == 1_000
    assert check_module(open_store(Path(url).as_uri()), golden_store.MODULE) == []
