"""`tidemill export`: files that are whole, of all tables, with what a select would give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest
from stories import module_of
from typer.testing import CliRunner

from tidemill import Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Ops, Path, PState
from tidemill.cli.main import app
from tidemill.cli.whole_files import written_whole
from tidemill.scans import export
from tidemill.values.errors import CorruptState

BEGINNING = MicrobatchSourceOptions.start_from_beginning()


def define(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*users", Depot.hash_by(Ops.FIRST))
    mb = topologies.microbatch("mb")
    user = PState.fixed_keys_schema("age", int, "note", object, "likes", PState.set_schema(str).subindexed())
    mb.pstate("$$users", PState.map_schema(str, user))
    mb.pstate("$$limit", int).initial_value(7)
    rows = mb.source("*users", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
    rows = rows.each(Ops.EXPAND, "*r").out("*name", "*age").hash_partition("*name")
    rows = rows.local_transform("$$users", Path.key("*name", "age").term_val("*age"))
    rows.local_transform("$$limit", Path.term_val("*age"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    with InProcessCluster.create("local", store=folder) as cluster:
        cluster.launch_module(module_of("Users", define), LaunchConfig(2, 1))
        cluster.cluster_depot("Users", "*users").append(["ann", 30])
        cluster.wait_for_microbatch_processed_count("Users", "mb", 1)
    yield str(folder)


def exported(store: str, pstate: str, out: Folder) -> int:
    done = CliRunner().invoke(app, ["export", "Users", pstate, "--store", store, "--out", str(out)])
    return done.exit_code


def test_each_table_has_a_file_when_it_has_no_rows(store: str, tmp_path: Folder) -> None:
    """A file that an older export left would else pass for it."""
    (tmp_path / "users.0.likes.parquet").write_bytes(b"of yesterday")
    assert exported(store, "users", tmp_path) == 0
    users, likes = (pl.read_parquet(tmp_path / f"users.{table}.parquet") for table in ("0", "0.likes"))
    assert users.drop("task").to_dicts() == [{"k0": "ann", "value.age": 30, "value.note": None}]
    assert likes.schema == {"task": pl.Int32, "k0": pl.String, "k1": pl.String}
    assert likes.height == 0


def test_a_plain_value_is_its_initial_one_when_a_task_never_wrote_it(store: str, tmp_path: Folder) -> None:
    assert exported(store, "limit", tmp_path) == 0
    found = pl.read_parquet(tmp_path / "limit.parquet").sort("task")
    assert found["task"].to_list() == [0, 1]
    assert sorted(found["value"].to_list()) == [7, 30]


def test_an_older_file_stays_when_an_export_ends_in_the_middle(
    store: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exported(store, "users", tmp_path) == 0
    before = (tmp_path / "users.0.parquet").read_bytes()
    whole = export.export

    def cut(*given: Any, **named: Any) -> Iterator[Any]:
        yield from whole(*given, **named)
        raise CorruptState("a part is missing")

    monkeypatch.setattr(export, "export", cut)
    assert exported(store, "users", tmp_path) != 0
    assert (tmp_path / "users.0.parquet").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["users.0.likes.parquet", "users.0.parquet"]


def test_nothing_is_there_when_writing_a_file_fails(tmp_path: Folder) -> None:
    with pytest.raises(OSError, match="full"), written_whole(tmp_path / "rows.csv") as beside:
        beside.write_text("a,b\n1,")
        raise OSError("the disk is full")
    assert not list(tmp_path.iterdir())
    with written_whole(tmp_path / "rows.csv") as beside:
        beside.write_text("a,b\n1,2\n")
    assert (tmp_path / "rows.csv").read_text() == "a,b\n1,2\n"
