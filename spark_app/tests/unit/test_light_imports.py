"""What a process loads: each command and the client only what they use."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import typer

import tidemill
from tidemill import Agg, CompoundAgg, CountExecutor, Depot, InProcessCluster, LaunchConfig, Module, PState, TaskGraph
from tidemill.cli.commands import COMMANDS, loaded
from tidemill.graphs.nodes import StoredGraph

PACKAGES = {"cloudpickle", "fastapi", "lightkube", "numpy", "polars", "pyarrow", "pyspark", "rich", "uvicorn"}
PARTS_OF_THEM = {"pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "rich.progress"}
LAYERS = {f"tidemill.{layer}" for layer in ("engine.frame", "plan", "local", "spark", "gateway", "kubernetes")}
HEAVY = PACKAGES | PARTS_OF_THEM | LAYERS
ARROW = {"cloudpickle", "numpy", "pyarrow"}  # PyArrow loads the other two
TABLES = ARROW | {"polars"}
COMMAND = "import sys; sys.argv = {arguments!r}\nfrom tidemill.cli.main import app\napp(standalone_mode=False)"


def heavy_of(program: str) -> set[str]:
    """The heavy packages that a process has loaded when the program is done."""
    told = f"{program}\nimport sys; print('loaded', *(name for name in {sorted(HEAVY)} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


class Visits(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*visits", Depot.random())
        mb = topologies.microbatch("count")
        mb.pstate("$$visits", PState.map_schema(str, int))
        (mb.source("*visits").out("*m").explode_microbatch("*m").out("*user").hash_partition("*user")
           .compound_agg("$$visits", CompoundAgg.map("*user", Agg.count())))  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the state of one user's visit."""
    folder = tmp_path_factory.mktemp("store")
    with InProcessCluster.create(store=folder) as cluster:
        cluster.launch_module(Visits(), LaunchConfig(2, 1))
        cluster.cluster_depot("Visits", "*visits").append("ann")
        cluster.wait_for_microbatch_processed_count("Visits", "count", 1)
    return str(folder)


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["status"], ARROW | {"rich"}),  # how far a depot is stands in the schema of an Arrow file
        (["options", "list", "Visits"], {"rich"}),
        (["pause", "Visits", "count", "--json"], set()),
        (["select", "Visits", "visits", '["ann"]', "--json"], TABLES),
        (["append", "Visits", "visits", "FILE", "--json"], TABLES),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_loads_what_it_uses_when_it_is_called(
    tmp_path: Path, store: str, arguments: list[str], allowed: set[str]
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps("bob") + "\n")
    words = [str(file) if word == "FILE" else word for word in arguments]

    assert heavy_of(COMMAND.format(arguments=["tidemill", *words, "--store", store])) <= allowed


def test_nothing_heavy_is_loaded_when_the_package_is_imported() -> None:
    assert heavy_of("import tidemill; tidemill.TidemillError") == set()


def test_nothing_heavy_is_loaded_when_the_client_is_imported() -> None:
    assert heavy_of("import tidemill.client") == set()


def test_nothing_that_defines_or_runs_graphs_is_loaded_when_a_worker_reads_one(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path / "store")
    (tmp_path / "numbers.csv").write_text("a\n1\n2\n")
    numbers = graph.new_input_csv(tmp_path, "numbers.csv", header=True)
    graph.new_blocking_node({0: numbers}, CountExecutor(), 1, {0: None})
    stored = StoredGraph(graph._definition, "spark", 1, None, None)
    (tmp_path / "program").write_bytes(cloudpickle.dumps(stored))

    read = f"cloudpickle.loads(open({str(tmp_path / 'program')!r}, 'rb').read())"
    told = "print(*(name for name in sys.modules if name.startswith('tidemill.')))"
    program = f"import sys, cloudpickle, tidemill.graphs.spark_channels; {read}; {told}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = set(done.stdout.splitlines()[-1].split())

    assert {"tidemill.graphs.nodes", "tidemill.graphs.inputs.csv_input"} <= found
    of_drivers = {
        f"tidemill.{name}" for name in ("clients", "drawing", "graphs.task_graph", "graphs.run", "graphs.frames")
    }
    assert found.isdisjoint(of_drivers)


def test_nothing_but_rich_is_loaded_when_help_is_shown() -> None:
    assert heavy_of(COMMAND.format(arguments=["tidemill", "--help"])) == {"rich"}


def test_no_command_is_loaded_when_help_is_shown() -> None:
    program = COMMAND.format(arguments=["tidemill", "--help"])
    told = f"{program}\nprint(*(name for name in sys.modules if name.startswith('tidemill.')))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)

    assert set(done.stdout.splitlines()[-1].split()) == {
        "tidemill.cli", "tidemill.cli.commands", "tidemill.cli.main", "tidemill.values", "tidemill.values.errors",
    }  # fmt: skip


def test_no_garbage_is_looked_for_when_the_process_ends() -> None:
    told = "import atexit, gc; atexit.register(lambda: print('kept', gc.get_freeze_count()))\n"
    done = subprocess.run(
        [sys.executable, "-c", told + COMMAND.format(arguments=["tidemill", "--help"])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert int(done.stdout.splitlines()[-1].removeprefix("kept ")) > 1_000
    assert gc.isenabled()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_command_itself_says_when_help_is_shown(name: str) -> None:
    found = COMMANDS[name].load()
    own = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)

    assert COMMANDS[name].help == " ".join(own.split("\n\n")[0].split())
    assert loaded(name).name in (name, "")  # a group has its name from the list alone


def test_each_name_has_one_home_when_the_package_is_read() -> None:
    tree = ast.parse(Path(tidemill.__file__).read_text())
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (node.module, name.name) for node in typed.body if isinstance(node, ast.ImportFrom) for name in node.names
    }

    assert imported == {(module, name) for module, names in tidemill._NAMES.items() for name in names}
    assert {name for _, name in imported} <= set(tidemill.__all__) <= set(dir(tidemill))
    for module, name in imported:
        assert getattr(tidemill, name) is getattr(importlib.import_module(module), name)


def test_an_unknown_name_is_an_attribute_error_when_it_is_asked_for() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tidemill.nothing  # noqa: B018 - the look-up is the test
