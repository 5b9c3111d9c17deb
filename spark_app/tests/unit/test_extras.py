"""The package without its extras: modules run in process, clients work, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidemill.values.errors import BadInput
from tidemill.values.extras import PACKAGES, needing

ROOT = Path(__file__).resolve().parents[3]

WITHOUT_EXTRAS = """
import sys
from tidemill.values.extras import PACKAGES

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in frozenset().union(*PACKAGES.values()):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""

STORY = """
import tidemill, tidemill.client
from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Module, Path

class Visits(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*visits", Depot.random())
        mb = topologies.microbatch("count")
        mb.pstate("$$visits", tidemill.PState.map_schema(str, int))
        (mb.source("*visits").out("*microbatch").explode_microbatch("*microbatch").out("*user").hash_partition("*user")
           .compound_agg("$$visits", CompoundAgg.map("*user", Agg.count())))

with InProcessCluster.create() as cluster:
    cluster.launch_module(Visits(), LaunchConfig(4, 2))
    cluster.cluster_depot("Visits", "*visits").append("ann")
    cluster.wait_for_microbatch_processed_count("Visits", "count", 1)
    print(cluster.cluster_pstate("Visits", "$$visits").select_one(Path.key("ann")))
"""

COMMAND = """
sys.argv = ["tidemill", {arguments}]
from tidemill.cli.main import app
app()
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS + program], capture_output=True, text=True, check=False)


def test_a_module_runs_in_process_when_no_extra_is_installed() -> None:
    done = _run(STORY)

    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("spark", '"run", "no_such:Module", "--engine", "spark", "--store", sys.executable + "-store"'),
        ("gateway", '"gateway", "--store", "."'),
    ],
)
def test_the_command_names_the_extra_when_it_is_not_installed(extra: str, arguments: str, tmp_path: Path) -> None:
    arguments = arguments.replace('sys.executable + "-store"', repr(str(tmp_path)))
    arguments = arguments.replace('"no_such:Module"', '"examples.seed_example.module:ExampleMicrobatchTopologyModule"')
    program = f"sys.path.insert(0, {str(ROOT)!r})\n" + COMMAND.format(arguments=arguments)
    done = _run(program)

    assert done.returncode == 1, done.stderr
    assert f"pip install 'tidemill[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("extra", "option"), [("spark", "--engine=spark"), ("gateway", "--port=8123")])
def test_no_module_is_left_when_a_run_needs_an_extra_that_is_not_installed(
    extra: str, option: str, tmp_path: Path
) -> None:
    words = ("run", "examples.seed_example.module:ExampleMicrobatchTopologyModule", option, "--store")
    arguments = ", ".join(map(repr, (*words, str(tmp_path / "store"))))
    done = _run(f"sys.path.insert(0, {str(ROOT)!r})\n" + COMMAND.format(arguments=arguments))

    assert done.returncode == 1, done.stderr
    assert f"pip install 'tidemill[{extra}]'" in done.stderr
    assert "is ready" not in done.stderr
    assert not (tmp_path / "store").exists()


def test_each_extra_is_declared_when_the_package_names_it() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert PACKAGES.keys() <= declared.keys()


def test_no_package_is_pinned_when_the_library_declares_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name in PACKAGES for line in project["optional-dependencies"][name]]

    assert [line for line in project["dependencies"] + extras if "==" in line or "<" not in line] == []


def test_another_missing_package_is_no_missing_extra_when_it_is_imported() -> None:
    with pytest.raises(ModuleNotFoundError), needing("spark"):
        raise ModuleNotFoundError("No module named 'nope'", name="nope")
    with pytest.raises(BadInput, match="pyspark"), needing("spark"):
        raise ModuleNotFoundError("No module named 'pyspark.x'", name="pyspark.x")
