"""What people meet in their first days: sentences of commands, impossible keys, and how builders show themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path as Folder
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from waiting import eventually

import tidemill
from tidemill import (
    Agg,
    BadPath,
    Block,
    CompoundAgg,
    CountExecutor,
    DefinitionError,
    DefinitionWarning,
    Depot,
    Expr,
    InProcessCluster,
    KafkaDepot,
    KafkaSink,
    LaunchConfig,
    LimitAgg,
    LoopVars,
    MicrobatchFails,
    MicrobatchSourceOptions,
    MockOutputCollector,
    Module,
    Ops,
    Path,
    PState,
    SelectOptions,
    Setup,
    SortedRangeFromOptions,
    SubBatch,
    SubindexOptions,
    TestPState,
    Topologies,
    UnknownName,
    operation,
)
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.cli.output import counted
from tidemill.cli.screens import Screen
from tidemill.client import Client
from tidemill.journal.entries import Failure
from tidemill.language.dataflow import Location

CODE = """
from tidemill import Agg, CompoundAgg, Depot, Module, PState

class Visits(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*visits", Depot.hash_by("user"))
        mb = topologies.microbatch("count")
        mb.pstate("$$visits", PState.map_schema(str, PState.fixed_keys_schema(
            "minutes", PState.map_schema(int, int).subindexed(), "n", int)))
        (mb.source("*visits").out("*m").explode_microbatch("*m").out("*r").each(lambda r: r["user"], "*r").out("*user")
           .hash_partition("*user")
           .compound_agg("$$visits", CompoundAgg.map("*user", CompoundAgg.map("n", Agg.count()))))

class Others(Visits):
    pass
"""
NAMES: dict[str, Any] = {}
exec(compile(CODE, "visits_of_newcomers.py", "exec"), NAMES)
Visits = NAMES["Visits"]


def tidemill_(*arguments: str | Folder) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A store where one visit of ann was counted; nothing runs on it."""
    folder = tmp_path_factory.mktemp("newcomers")
    (folder / "code_of_newcomers.py").write_text(CODE)
    with InProcessCluster.create(store=folder / "data") as cluster:
        cluster.launch_module(Visits(), LaunchConfig(4, 2))
        visits = cluster.cluster_depot("Visits", "*visits")
        visits.append({"user": "ann"})
        visits.append({"user": "ann"})
        cluster.wait_until_processed("Visits")
    return folder / "data"


# --- the command line ------------------------------------------------------------------------------------------------


def test_a_store_without_modules_says_what_to_do_when_its_status_is_asked(tmp_path: Folder) -> None:
    done = tidemill_("status", "--store", tmp_path)

    assert (done.exit_code, done.stdout) == (0, "")
    assert "tidemill run MODULE:CLASS" in done.stderr


def test_no_speed_is_shown_when_nothing_runs(store: Folder) -> None:
    [line] = [line for line in tidemill_("status", "--store", store).stdout.splitlines() if "Visits" in line]

    assert line.split("│")[-2].strip() == "-"
    assert [cell.strip() for cell in line.split("│")[6:8]] == ["2", "0"]


def test_times_say_their_zone_when_they_are_shown(store: Folder) -> None:
    assert "Z │" in tidemill_("log", "Visits", "count", "--store", store).stdout


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_store_is_taken_when_it_stands_before_or_after_the_command(store: Folder, place: str) -> None:
    given, command = ["--json", f"--store={store}"], ["status", "Visits"]
    done = tidemill_(*given, *command) if place == "before" else tidemill_(*command, *given)

    assert json.loads(done.stdout)[0]["module"] == "Visits"


def test_what_follows_two_hyphens_is_no_option_when_the_store_stands_before(store: Folder) -> None:
    done = tidemill_("--store", store, "select", "Visits", "visits", "--", '["ann", "n"]')

    assert (done.exit_code, done.stdout) == (0, "2\n")


def test_counts_of_one_are_singular_when_they_are_told(store: Folder) -> None:
    assert (counted(1, "record"), counted(0, "record"), counted(2000, "record")) == (
        "1 record",
        "0 records",
        "2,000 records",
    )
    assert "1 module checked: 0 faults." in tidemill_("check", "--store", store).stdout


def test_a_module_that_is_not_there_is_told_when_it_is_to_be_destroyed(store: Folder) -> None:
    done = tidemill_("destroy", "Vists", "--store", store)

    assert (done.exit_code, "there is Visits" in done.stderr, "--yes" in done.stderr) == (1, True, False)


@pytest.mark.parametrize("command", [["export", "Visits", "visits", "--out"], ["run", "no_such:Class", "--store"]])
def test_a_file_in_place_of_a_folder_is_told_when_a_folder_is_needed(
    store: Folder, command: list[str], tmp_path: Folder
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    where = ["--store", str(store)] if "--store" not in command else []
    code = str(store.parent / "code_of_newcomers.py:Visits")
    done = tidemill_(*(code if word == "no_such:Class" else word for word in command), file, *where)

    assert done.exit_code == 1
    assert "A folder is needed here" in done.stderr.replace("\n", " ")


def test_the_class_of_another_module_is_refused_when_it_is_given_as_the_code(store: Folder, tmp_path: Folder) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"user": "bob"}\n')
    code = str(store.parent / "code_of_newcomers.py:Others")
    done = tidemill_("append", "Visits", "visits", records, "--store", store, "--module", code)

    assert (done.exit_code, "is the module Others, not Visits" in done.stderr.replace("\n", " ")) == (1, True)


def test_both_ways_to_name_a_partition_are_told_when_a_select_names_none(store: Folder) -> None:
    done = tidemill_("select", "Visits", "visits", '[["mapKeys"]]', "--store", store)

    assert '["pkey", KEY]' in done.stderr.replace("\n", " ")


def test_a_list_is_proposed_when_a_key_has_the_name_of_a_navigator(store: Folder) -> None:
    done = tidemill_("select", "Visits", "visits", '["mapKeys", "n"]', "--store", store)

    assert (done.exit_code, done.stdout) == (0, "null\n")
    assert 'The navigator of that name is written ["mapKeys"].' in done.stderr.replace("\n", " ")
    assert "written" not in tidemill_("select", "Visits", "visits", '["bob", "n"]', "--store", store).stderr


def test_the_line_is_refused_as_json_when_json_is_asked_for(store: Folder) -> None:
    for line in (["stauts", "--json"], ["status", "--jsn", "--json"], ["--json", "select"]):
        done = tidemill_(*line)
        assert (done.exit_code, json.loads(done.stderr)["error"]["code"]) == (2, "BadCommand"), line
    assert json.loads(tidemill_("stauts", "--json").stderr)["error"]["message"].endswith("Did you mean 'status'?")
    for code, answered in ((0, ["status", "--store", store]), (1, ["status", "Nope", "--store", store])):
        assert tidemill_(*answered, "--json").exit_code == code


def test_the_commands_are_listed_when_none_is_named() -> None:
    done = tidemill_()

    assert (done.exit_code, "append" in done.stdout, done.stderr) == (0, True, "")


def test_the_number_of_tasks_is_told_when_another_one_is_asked_for(store: Folder, tmp_path: Folder) -> None:
    (tmp_path / "fours.py").write_text(CODE)
    done = tidemill_("run", f"{tmp_path}/fours.py:Visits", "--tasks", "64", "--store", store, "--until-idle")

    assert (done.exit_code, "Go on with " in done.stderr, "tidemill update" in done.stderr) == (1, True, False)


def test_the_class_is_named_when_it_is_refused_before_its_name_is_known(store: Folder, tmp_path: Folder) -> None:
    (tmp_path / "faulty.py").write_text("from tidemill import Module\nclass Faulty(Module):\n    pass\n")
    done = tidemill_("describe", f"{tmp_path}/faulty.py:Faulty", "--against", store)

    assert done.exit_code == 1
    assert "faulty.py:Faulty after definition 0: refused" in done.stdout.replace("\n", "")


def test_records_are_shown_with_their_places_when_a_depot_is_read(store: Folder) -> None:
    shown = json.loads(tidemill_("records", "Visits", "visits", "--store", store, "--json").stdout)

    assert [(each["offset"], each["record"]) for each in shown] == [(0, {"user": "ann"}), (1, {"user": "ann"})]
    partition = str(shown[0]["partition"])
    last = tidemill_("records", "Visits", "*visits", "--store", store, "--partition", partition, "--from", "1")
    assert last.stdout == f'{partition} 1 {{"user": "ann"}}\n'
    newest = tidemill_("records", "Visits", "visits", "--store", store, "-n", "1", "--json")
    assert [each["offset"] for each in json.loads(newest.stdout)] == [1]
    behind = tidemill_("records", "Visits", "visits", "--store", store, "--from", "99")
    assert (behind.exit_code, behind.stdout) == (0, "")


def test_a_schema_is_a_tree_when_a_module_is_described(store: Folder) -> None:
    shown = tidemill_("describe", str(store.parent / "code_of_newcomers.py:Visits")).stdout

    assert (
        "PState $$visits of count\n  str: fixed keys\n    'minutes': map, subindexed\n      int: int\n    'n': int\n"
    ) in shown
    assert "Migrations" not in shown  # no table without rows


def test_the_sentence_is_told_once_when_an_attempt_fails_in_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    screen, started = Screen(), datetime.now(UTC).timestamp()
    for version in (1, 2, 3):
        failure = Failure(
            microbatch_id=4, version=version, at_ms=version, code="UserCodeFailed", message="bad (record: *r=7)",
            phase="process", sample="*r=7", trace="Traceback of the module\n", step="each",
        )  # fmt: skip
        screen.write_failure("count", failure)
    said = capsys.readouterr().err

    assert said.count("bad (record: *r=7)") == said.count("Traceback of the module") == said.count("*r=7") == 1
    time, line = said.splitlines()[-1].split("Z ")
    assert line == "count: attempt 4/3 failed in the same way, it will be tried again."
    assert abs(datetime.fromisoformat(f"{time}Z").timestamp() - started) < 3_600


def test_a_runner_says_that_its_module_was_destroyed_when_it_was(store: Folder, tmp_path: Folder) -> None:
    from tidemill.cli.run import _superseded_text

    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(Visits(), LaunchConfig(2, 1))
        running = cluster._running["Visits"]
        assert "was updated" in _superseded_text(running, "definition 2 replaced 1")
        cluster.destroy_module("Visits")
        eventually(lambda: "was destroyed" in _superseded_text(running, ""))


def test_no_stack_trace_is_shown_when_ctrl_c_comes_while_the_command_is_loaded() -> None:
    program = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from tidemill.cli import start
start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (130, "")


# --- Python ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(store: Folder) -> Iterator[InProcessCluster]:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Visits(), LaunchConfig(4, 2))
        yield cluster


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (Path.key(5), "are str here; 5 is none"),
        (Path.key("ann", "clicks"), "It has 'minutes', 'n'."),
        (Path.key("ann").key("minutes").key("12"), "are int here; '12' is none"),
        (Path.must("ann", "clicks"), "It has 'minutes', 'n'."),
        (Path.sorted_map_range("a", "b").key(5), "are str here; 5 is none"),
    ],
)
def test_a_key_that_cannot_be_is_refused_when_it_is_selected(cluster: InProcessCluster, path: Path, told: str) -> None:
    with pytest.raises(BadPath, match=told.replace(".", r"\.")):
        cluster.cluster_pstate("Visits", "$$visits").select(path)


@pytest.mark.parametrize(
    "before",
    [
        Path.sorted_map_range("a", "b"),
        Path.sub_map("ann", "bob"),
        Path.filter_selected(Path.must("bob")),
        Path.put_collected(1),
        Path.null_to_val(None),
    ],
)
def test_a_key_is_taken_for_one_of_the_map_that_it_meets_when_other_navigators_led_there(
    cluster: InProcessCluster, before: Path
) -> None:
    handle = cluster.cluster_pstate("Visits", "$$visits")
    assert all(found in (None, [1, None]) for found in handle.select(before.key("ann", "n"), pkey="ann"))


def test_a_key_that_is_not_there_is_none_when_it_could_be(cluster: InProcessCluster) -> None:
    assert cluster.cluster_pstate("Visits", "$$visits").select_one(Path.key("nobody", "n")) is None


@pytest.mark.parametrize("value", [5, "text", {"a": 1}])
@pytest.mark.parametrize("mode", ["columns", "rows"])
def test_the_rule_is_told_when_an_operation_emits_no_rows(value: Any, mode: str) -> None:
    @operation
    def emits(record: Any) -> Any:
        return value

    class Emitting(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", PState.map_schema(str, int))
            chain = mb.source("*d").out("*m").explode_microbatch("*m").out("*r")
            if mode == "rows":
                chain = chain.hash_partition("*r").local_select("$$p", Path.key("*r")).out("*old")
                chain = chain.local_transform("$$p", Path.key("*r").term_val(1))
            chain.each(emits, "*r").out("*x").hash_partition("*x").compound_agg(
                "$$p", CompoundAgg.map("*x", Agg.count())
            )

    with InProcessCluster.create() as cluster:
        cluster.launch_module(Emitting(), LaunchConfig(2, 1))
        cluster.cluster_depot("Emitting", "*d").append("a")
        with pytest.raises(MicrobatchFails, match=f"returned one {type(value).__name__}: write yield"):
            cluster.wait_until_processed("Emitting")


def test_the_class_is_named_when_it_has_no_define() -> None:
    class Nothing(Module):
        pass

    with InProcessCluster.create() as cluster, pytest.raises(DefinitionError) as raised:
        cluster.launch_module(Nothing(), LaunchConfig(2, 1))
    [fault] = raised.value.faults
    assert fault.location.rpartition(":")[0] == __file__


def test_a_warning_is_shown_when_a_module_declares_nothing() -> None:
    class Empty(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            pass

    with InProcessCluster.create() as cluster, pytest.warns(DefinitionWarning, match="'Empty' declares nothing"):
        cluster.launch_module(Empty(), LaunchConfig(2, 1))


def test_no_file_is_parsed_when_a_module_declares_something(monkeypatch: pytest.MonkeyPatch) -> None:
    class Whole(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())

    asked: list[object] = []
    monkeypatch.setattr("inspect.getsourcelines", lambda kind: asked.append(kind) or ([], 1))
    record_module(Whole())
    assert not asked


@pytest.mark.parametrize("error", [OSError, SyntaxError, SystemError])
def test_a_class_is_nowhere_when_its_file_cannot_be_parsed(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    class Nothing(Module):
        pass

    def fails(kind: object) -> Any:
        raise error("AST constructor recursion depth mismatch (before=6, after=8)")

    monkeypatch.setattr("inspect.getsourcelines", fails)
    [fault] = record_module(Nothing()).faults
    assert fault.location == str(Location())


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (Block.each(Ops.INC, "*i").out("*j").hash_partition("*j"), "<Block: Each, Partition>"),
        (Block.create(), "<Block: no step>"),
        (Agg.sum("*v"), "Agg.sum('*v')"),
        (CompoundAgg.map("*k", Agg.count(), "all", CompoundAgg.list(Agg.max(Expr(Ops.INC, "*v")))),
         "CompoundAgg.map('*k', Agg.count(), 'all', CompoundAgg.list(Agg.max(Expr(INC, '*v'))))"),
        (Expr(Ops.PLUS, "*a", 1), "Expr(PLUS, '*a', 1)"),
        (Depot.random(), "Depot.random()"),
        (Depot.hash_by("user"), "Depot.hash_by(user)"),
        (Ops.PLUS, "Ops.PLUS"),
        (Path.key("a").filter_selected(Path.key("b")).all(), "Path.key('a').filter_selected(Path.key('b')).all()"),
        (SubindexOptions().without_size_tracking(), "SubindexOptions(tracks_size=False)"),
        (MicrobatchSourceOptions.create().source_id("a"),
         "MicrobatchSourceOptions(start=None, source_id='a')"),
        (LoopVars.var("*i", 0).var("*sum", "*start"), "LoopVars.var('*i', 0).var('*sum', '*start')"),
        (LoopVars(), "LoopVars()"),
        (LimitAgg.create(3, "*word").sort("*count").reverse().index_var("*rank"),
         "LimitAgg.create(3, '*word').sort('*count').reverse().index_var('*rank')"),
        (SelectOptions.allow_yield(), "SelectOptions(allows_yield=True)"),
        (SubBatch(Block.create(), "*k", "*n"), "SubBatch(<Block: no step>, '*k', '*n')"),
        (SortedRangeFromOptions.max_amt(3).exclude_start(), "SortedRangeFromOptions(max_amt=3, include_start=False)"),
        (TestPState.create(PState.map_schema(str, int)), "TestPState(map(str, int))"),
        (MockOutputCollector(), "<MockOutputCollector: []>"),
        (CountExecutor(), "<CountExecutor>"),
        (KafkaSink("orders", "localhost:9092"), "KafkaSink('orders')"),
        (KafkaDepot("orders", "localhost:9092"), "KafkaDepot('orders')"),
        (Client("http://127.0.0.1:8080"), "Client('http://127.0.0.1:8080')"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_was_built_is_shown_when_it_is_printed(shown: Any, text: str) -> None:
    assert repr(shown) == text


def test_what_define_is_given_is_shown_when_it_is_printed() -> None:
    shown: list[str] = []

    class Printing(Module):
        def define(self, setup: Setup, topologies: Topologies) -> None:
            depot = setup.declare_depot("*words", Depot.random())
            mb = topologies.microbatch("count")
            pstate = mb.pstate("$$counts", PState.map_schema(str, int))
            shown.extend(map(repr, (setup, topologies, mb, depot, pstate)))

    record_module(Printing())
    assert shown == [
        "<Setup: *words>", "<Topologies: count>", "<MicrobatchTopology 'count'>", "<depot *words>",
        "<PState $$counts: map(str, int)>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "asked", [Block, Block.create(), Block.create().each(Ops.INC, 1)], ids=["class", "none", "one"]
)
def test_a_shell_does_not_offer_words_that_do_nothing_when_it_completes_a_block(asked: Any) -> None:
    assert {"each", "out"} <= set(dir(asked))
    assert {"ack_return", "yield_if_overtime"} & set(dir(asked)) == set()


def test_handles_can_be_named_in_annotations_when_the_package_is_imported(cluster: InProcessCluster) -> None:
    assert isinstance(cluster.cluster_depot("Visits", "*visits"), tidemill.DepotHandle)
    assert isinstance(cluster.cluster_pstate("Visits", "$$visits"), tidemill.PStateHandle)
    assert isinstance(cluster.quarantine("Visits", "count"), tidemill.Quarantine)


def test_a_generated_client_has_short_names_when_it_reads_the_document_of_http(store: Folder) -> None:
    from tidemill.gateway.app import make_app
    from tidemill.gateway.modules import Modules
    from tidemill.gateway.settings import GatewaySettings
    from tidemill.store.urls import open_store

    paths = make_app(Modules(open_store(store.as_uri())), GatewaySettings()).openapi()["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]

    assert "pstates_select_one" in names
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 40
    body = paths["/api/v1/modules/{module}/pstates/{pstate}/select"]["post"]["requestBody"]["content"]
    assert body["application/json"]["schema"]["examples"][0] == {"path": ["ann", "/home"]}


def test_the_way_to_all_names_is_told_when_a_gateway_knows_no_such_module(store: Folder) -> None:
    from tidemill.gateway.modules import Modules
    from tidemill.store.urls import open_store

    with pytest.raises(UnknownName, match="'Vists' here; GET /api/v1/modules lists those there are"):
        Modules(open_store(store.as_uri())).module("Vists")
