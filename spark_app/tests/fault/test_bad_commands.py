"""What people type wrong, and input files that do not fit: one clear error, no stack trace, nothing lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path as Folder

import polars as pl
import pytest
from typer.testing import CliRunner

from tidemill.cli.caller import caller
from tidemill.cli.main import app as command
from tidemill.clients.module import ModuleClient
from tidemill.store.local import LocalStore
from tidemill.values.errors import UnknownName

TIDEMILL = Folder(sys.executable).parent / "tidemill"
MODULE = """
from tidemill import Agg, CompoundAgg, Depot, Module, Ops, PState

class Words(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*words", Depot.random())
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*keyed", Depot.hash_by(lambda record: record["k"]))
        mb = topologies.microbatch("count")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source("*words").out("*m").explode_microbatch("*m").out("*w")
           .hash_partition("*w").compound_agg("$$counts", CompoundAgg.map("*w", Agg.count())))

class Impossible(Words):
    def __init__(self, needed):
        pass

number = 5
"""


def run(folder: Folder, *args: str, code: int | None = None) -> str:
    """What a command says on stderr (or prints); fails on a stack trace or another exit code."""
    environment = os.environ | {"TIDEMILL_ENGINE": "local", "TIDEMILL_STORE": "store"}
    done = subprocess.run(
        [TIDEMILL, *args], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    said = done.stderr.decode() + done.stdout.decode()
    assert "Traceback" not in said
    if code is not None:
        assert (done.returncode, said) == (code, said)
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder with modules, a stopped store, and files that do not fit."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "words.py").write_text(MODULE)
    (folder / "broken.py").write_text("import json\nraise RuntimeError('no luck')\n")
    (folder / "wrong.py").write_text("def f(:\n")
    (folder / "typer.py").write_text("class X: pass\n")
    (folder / "needs.py").write_text("import a_package_that_nobody_has\n")
    (folder / "leaves.py").write_text("import sys\nsys.exit(5)\n")
    (folder / "ragged.csv").write_text("a,b\n1,2\n3,4,5\n")
    (folder / "empty.csv").write_text("")
    (folder / "latin.csv").write_bytes(b"a,b\n1,x\n\xe9,2\n")
    (folder / "foreign.csv").write_bytes(b"caf\xe9,b\n1,2\n")
    (folder / "twice.csv").write_text("a,b,a\n1,2,3\n")
    (folder / "text.parquet").write_text("hello")
    (folder / "latin.jsonl").write_bytes(b'"a"\n\n"\xe9"\n')
    (folder / "late.jsonl").write_text('"late"\n' * 60_000 + "{\n")
    pl.DataFrame({"n": [1, 2**63]}, schema={"n": pl.UInt64}).write_parquet(folder / "wide.parquet")
    run(folder, "run", "words:Words", "--until-idle", code=0)
    return folder


@pytest.mark.parametrize(
    ("depot", "file", "given", "text"),
    [
        ("*words", "given.jsonl", b'"a"\n\n{"a":\n', "Line 3 is not JSON: Expecting value at column 6"),
        (
            "*words",
            "given.jsonl",
            b'"a"\n123456789012345678901234567890\n',
            "Line 2: Not data: the value is an int outside",
        ),
        ("*words", "given.jsonl", b'"a"\n' + b"[" * 100_000 + b"\n", "Line 2 cannot be read"),
        ("*words", "given.jsonl", b'"a"\n"\xff"\n', "Line 2 is not UTF-8"),
        ("*pairs", "given.jsonl", b'["a"]\n\n5\n', "Line 3: The partitioner FIRST of *pairs raised TypeError on '5'"),
        ("*keyed", "given.jsonl", b'{"k": 1}\n{}\n', "Line 2: The partitioner"),
        ("*words", "latin.jsonl", b"", "Line 3 is not UTF-8"),
        ("*words", "ragged.csv", b"", "line 3 has 3 fields, the header 2"),
        ("*words", "latin.csv", b"", "line 3 is not UTF-8"),
        ("*words", "empty.csv", b"", "it is empty"),
        ("*words", "foreign.csv", b"", "line 1 is not UTF-8"),
        ("*words", "twice.csv", b"", "two columns have the name 'a'"),
        ("*words", "text.parquet", b"", "text.parquet is not readable Parquet"),
        ("*words", "wide.parquet", b"", "Row 2: Not data: the value is an int outside signed 64 bits"),
    ],
)
def test_line_is_named_and_nothing_is_appended_when_input_does_not_fit(
    folder: Folder, depot: str, file: str, given: bytes, text: str
) -> None:
    (folder / "given.jsonl").write_bytes(given)  # a file is read in one batch, stdin as it comes
    before = sorted((folder / "store").rglob("*.arrow"))
    said = run(folder, "append", "Words", depot, file, "--module", "words:Words", code=1)
    assert text in said
    assert "No record was appended." in said
    assert sorted((folder / "store").rglob("*.arrow")) == before


def test_what_was_appended_is_said_when_a_later_line_does_not_fit(folder: Folder) -> None:
    said = run(folder, "append", "Words", "*words", "late.jsonl", code=1)
    assert "Line 60001 is not JSON" in said
    assert "50,000 records before it are appended; go on from line 50001." in said
    run(folder, "run", "words:Words", "--until-idle", code=0)
    assert json.loads(run(folder, "select", "Words", "$$counts", '["late"]', "--json")) == [50_000]


@pytest.mark.parametrize("name", ["..", ".", "_tidemill", "a\n", "x" * 300])
def test_there_is_no_such_module_when_none_can_have_the_name(name: str, tmp_path: Folder) -> None:
    for args in (["log", name, "mb"], ["status", name], ["destroy", name], ["query", name, "q"], ["pause", name, "mb"]):
        said = CliRunner().invoke(command, [*args, "--store", str(tmp_path)])
        assert (said.exit_code, type(said.exception)) == (1, SystemExit) and "There is no module" in said.output
    with pytest.raises(UnknownName, match="There is no module"):
        ModuleClient(LocalStore(tmp_path), name)


def test_a_change_can_be_signed_when_user_and_host_have_odd_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "a\udcff")
    monkeypatch.setattr(socket, "gethostname", lambda: "b\udcff")
    assert caller().encode() == rb"a\udcff@b?, by command"


@pytest.mark.parametrize("file", ["none.csv", "none.parquet", "none.jsonl"])
def test_file_is_named_when_it_is_not_there(folder: Folder, file: str) -> None:
    assert f"{file}: No such file" in run(folder, "append", "Words", "*words", file, code=1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken:X", "broken.py, line 2"),
        ("wrong:X", "wrong.py, line 1"),
        ("needs:X", "a_package_that_nobody_has"),
        ("leaves:X", "SystemExit: 5"),
        ("nowhere.py:X", "There is no file nowhere.py"),
        ("words:Nothing", "no class 'Nothing'"),
        ("words", "not MODULE:CLASS"),
        ("words:number", "5 is no module"),
        ("words:Impossible", "missing 1 required positional argument"),
        ("typer.py:X", "typer.py has the name of another Python module"),
    ],
)
def test_reason_and_place_are_given_when_a_module_cannot_be_imported(folder: Folder, name: str, text: str) -> None:
    assert text in run(folder, "describe", name, code=1)


@pytest.mark.parametrize(
    "args",
    [
        ("nope",),
        ("append",),
        ("append", "Words", "*words", "-", "--wrong"),
        ("run", "words:Words", "--tasks", "x"),
        ("select", "Words", "$$counts"),
        ("select", "Words", "$$counts", '["a"]', "--at", "x"),
        ("log", "Words", "count", "--limit", "0"),
        ("options", "set", "Words", "depot.max.fetch"),
    ],
)
def test_usage_is_shown_with_exit_code_2_when_arguments_are_wrong(folder: Folder, args: tuple[str, ...]) -> None:
    assert "Usage: " in run(folder, *args, code=2)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("run", "words:Words", "--tasks", "3"), "power of two"),
        (("run", "words:Words", "--tasks", "0"), "from 1 on"),
        (("run", "words:Words", "--threads", "9"), "at least as many tasks"),
        (("run", "words:Words", "--engine", "flink"), "local or spark"),
        (("select", "Words", "$$counts", '[["nope"]]'), "'nope' does not exist"),
        (("select", "Words", "$$counts", '["a"]', "--at", "99"), "no entry 99"),
        (("options", "set", "Words", "depot.max.fetsh", "1"), "depot.max.fetch"),
        (("options", "set", "Words", "depot.max.fetch", "ten"), "whole number"),
        (("options", "set", "Words", "depot.max.fetch", "5", "--depot", "*nothing"), "*words"),
        (("status", "Nobody"), "there is Words"),
        (("check", "Nobody"), "there is Words"),
        (("pause", "Words", "nothing"), "it has count"),
        (("export", "Words", "$$nothing"), "it has $$counts"),
        (("status", "--store", "nowhere"), "no store at nowhere"),
        (("status", "--store", "gopher://x"), "is not a store"),
        (("status", "--store", "s3://bucket?endpont=x"), "endpont"),
    ],
)
def test_what_to_do_is_said_when_a_command_does_not_fit(folder: Folder, args: tuple[str, ...], text: str) -> None:
    said = run(folder, *args, code=1)
    assert text in said
    assert "Error: " in said
