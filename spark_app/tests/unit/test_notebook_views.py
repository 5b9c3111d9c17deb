"""What notebooks show of handles, modules, graphs, Datasets and statuses: escaped, bounded, and never an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path as Folder
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from gateways import served

from tidemill import (
    Dataset,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    PState,
    StatelessExecutor,
    TaskGraph,
)
from tidemill.client import Client
from tidemill.clients.status import TopologyStatus
from tidemill.gateway.modules import Modules
from tidemill.graphs import progress
from tidemill.journal.entries import Failure
from tidemill.values import notebook

EVIL = "<img src=x onerror=\"alert('&')\">"


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.shown = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.shown += data


def check_harmless(html: str) -> str:
    """The text, once it is sure that nothing in it is active."""
    found = Tags(html)
    assert "script" not in found.tags and "img" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    return found.shown


class Odd(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot(f"*{EVIL}", Depot.random()).schema(PState.fixed_keys_schema(EVIL, str))
        mb = topologies.microbatch(f"{EVIL}")
        mb.pstate(f"$${EVIL}", PState.map_schema(str, PState.fixed_keys_schema(EVIL, int)))
        (mb.source(f"*{EVIL}").out("*m").explode_microbatch("*m").out(f"*{EVIL}")
           .hash_partition(f"*{EVIL}").local_clear(f"$${EVIL}"))  # fmt: skip
        topologies.query("q", f"*{EVIL}").out("*r").each(len, f"*{EVIL}").out("*r").origin_partition()


class Faulty(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot(EVIL, Depot.random())


class Kept(StatelessExecutor):
    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> pl.DataFrame:
        return batch


@pytest.fixture
def cluster(tmp_path: Folder) -> Iterator[InProcessCluster]:
    with InProcessCluster.create(store=tmp_path / "data") as made:
        made.launch_module(Odd(), LaunchConfig(2, 1))
        yield made


# --- tables ----------------------------------------------------------------------------------------------------------


def test_values_are_text_when_they_look_like_html() -> None:
    shown = notebook.table(EVIL, (EVIL,), [(EVIL,), ([EVIL],), ({EVIL: EVIL},), (None,)])

    assert check_harmless(shown).count("<img") == 6
    assert "<img" not in shown


@pytest.mark.parametrize("value", ["x" * 10**6, ["x" * 10**6] * 1000, {str(n): n for n in range(10**5)}, 10**4000])
def test_a_cell_is_short_when_its_value_is_large(value: Any) -> None:
    assert len(notebook.text(value)) <= 6 * (notebook.CELL_MAX + 1)


def test_an_int_is_told_by_its_length_when_python_would_not_write_it() -> None:
    long = 10**5_000
    for value in (long, -long, [long], {long: frozenset({long})}):
        assert "&lt;int of 16,610 bits&gt;" in notebook.text(value)
    assert notebook.text(10**2_000).startswith("1000")


def test_a_cell_has_utf8_when_a_text_has_a_lone_surrogate() -> None:
    assert notebook.text("a\ud800") == r"a\ud800"


def test_a_table_is_bounded_when_there_are_many_rows_and_columns() -> None:
    seen: list[int] = []

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(10**9):
            seen.append(number)
            yield tuple("&" * 10**4 for _ in range(1_000))

    shown = notebook.table("t", ["c"] * 1_000, rows())

    assert len(seen) == notebook.ROWS_MAX + 1
    assert shown.count("<tr>") == notebook.ROWS_MAX + 1
    assert len(shown) < 1_000_000
    assert "and more" in shown


def test_what_is_left_out_is_counted_when_it_is_known() -> None:
    assert "and 1,234 more rows" in notebook.table("t", ("a",), [(1,)], rest=1_234)
    assert "more" not in notebook.table("t", ("a",), [(1,)])


def test_a_picture_is_left_out_when_it_is_large() -> None:
    assert len(notebook.picture("<svg>" + "x" * 10**6)) < 200


# --- things ----------------------------------------------------------------------------------------------------------


def test_handles_tell_what_they_are_when_a_notebook_shows_them(cluster: InProcessCluster) -> None:
    depot, pstate = cluster.cluster_depot("Odd", f"*{EVIL}"), cluster.cluster_pstate("Odd", f"$${EVIL}")

    assert f"*{EVIL}" in check_harmless(depot._repr_html_())
    assert "fixed_keys" in check_harmless(pstate._repr_html_())
    assert "Odd" in check_harmless(cluster._repr_html_())
    assert f"*{EVIL}" in check_harmless(cluster.cluster_query("Odd", "q")._repr_html_())
    assert repr(depot) == f"DepotHandle('Odd', {depot.name!r})"
    assert repr(pstate.at(1)) == f"PStateHandle('Odd', {pstate.name!r}, entry=1)"
    assert "0x" not in f"{cluster!r}{cluster.cluster_query('Odd', 'q')!r}"


def test_handles_of_a_client_tell_what_they_are_when_a_notebook_shows_them(cluster: InProcessCluster) -> None:
    with served(Modules(cluster.store)) as server, Client(server.url) as client:
        depot, pstate = client.depot("Odd", f"*{EVIL}"), client.pstate("Odd", f"$${EVIL}")
        assert f"*{EVIL}" in check_harmless(depot._repr_html_())
        assert f"$${EVIL}" in check_harmless(pstate._repr_html_())
        assert "0x" not in f"{depot!r}{pstate!r}"


def test_a_handle_says_why_when_it_cannot_be_read(cluster: InProcessCluster) -> None:
    depot = cluster.cluster_depot("Odd", f"*{EVIL}")
    cluster.destroy_module("Odd")

    assert "was destroyed" in check_harmless(depot._repr_html_())


def test_a_module_is_a_table_and_its_plans_when_a_notebook_shows_it() -> None:
    html = Odd()._repr_html_()

    assert {"depot", "PState", "query"} <= set(re.findall(r"depot|PState|query", check_harmless(html)))
    assert html.count("<svg") == 2


def test_the_mistakes_are_told_when_a_notebook_shows_a_faulty_module() -> None:
    assert "The name of a depot begins with '*'" in check_harmless(Faulty()._repr_html_())


def test_a_status_is_a_table_when_a_notebook_shows_it() -> None:
    failure = Failure(1, 2, "process", "UserCodeFailed", EVIL, 0)
    status = TopologyStatus(module=EVIL, topology="t", failure=failure, trouble=EVIL)

    assert check_harmless(status._repr_html_()).count("<img") == 3
    assert TopologyStatus.from_json(status.to_json()) == status


# --- graphs and Datasets ---------------------------------------------------------------------------------------------


def graph_of(folder: Folder, rows: int) -> tuple[TaskGraph, Dataset]:
    graph = TaskGraph(store=folder, id="wide")
    frame = pl.DataFrame({EVIL: [EVIL] * rows, "long": ["y" * 10_000] * rows})
    source = graph.new_input_frames([frame], 1)
    return graph, graph.new_blocking_node({0: source}, Kept(), 1, {0: None})


def test_a_dataset_shows_its_first_rows_when_a_notebook_shows_it(tmp_path: Folder) -> None:
    graph, dataset = graph_of(tmp_path, 1_000)
    before = dataset._repr_html_()
    graph.run()
    html = dataset._repr_html_()

    assert "cannot be read" in before
    assert "and 980 more rows" in check_harmless(html)
    assert len(html) < 50_000
    assert "Kept" in check_harmless(graph._repr_html_())
    assert repr(graph).startswith("TaskGraph(")


def test_a_dataset_without_rows_is_shown_when_its_graph_has_run(tmp_path: Folder) -> None:
    graph, dataset = graph_of(tmp_path, 0)
    graph.run()

    assert "batches" in dataset._repr_html_()


class Shell:
    """A kernel's shell, and what it was asked to display."""

    kernel = object()

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: str, display_id: bool = False) -> Any:
        self.shown.append(html)
        return SimpleNamespace(update=self.shown.append)


def test_progress_is_shown_below_the_cell_when_a_kernel_runs_the_graph(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell()
    display = SimpleNamespace(HTML=str, display=shell.display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 3600.0)
    graph, _ = graph_of(tmp_path, 10)
    graph.run()

    assert len(shell.shown) == 2  # at the beginning and at the end: between them at most one in a while
    assert "done" in check_harmless(shell.shown[-1])


def test_nothing_is_shown_when_a_terminal_of_ipython_runs_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    assert not progress.in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not progress.in_notebook()
