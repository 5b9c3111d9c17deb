"""Contestants of the benchmark of task graphs come to the same rows, and its figures name their targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as benchmarks
from benchmarks import graph_files, graphs
from benchmarks.peers import duckdb_graphs, polars_graphs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    made: Path = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_files, "LINKS", 100)
        graph_files.write(made, 0.002)
    return made


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_contestants_come_to_the_same_rows(folder: Path, kind: str) -> None:
    ours, polars = graphs.in_graphs(folder, kind), polars_graphs.queries(folder, kind)
    duckdb = duckdb_graphs.queries(folder, kind, 2)

    for name in ours:
        run = graphs.in_turns({"tidemill": ours[name], "polars": polars[name], "duckdb": duckdb[name]}, 1)
        figures = benchmarks.graph_figures(f"{name}_{kind}", run, "")

        assert [figure.name for figure in figures] == [f"{name}_{kind}_vs_polars", f"{name}_{kind}_vs_duckdb"]
        assert ("<= 1.5" in figures[0].ratio_to) == (kind == "csv")
        assert run["results"]["tidemill"][0][0]


def test_the_benchmark_stops_when_results_differ() -> None:
    run = {"seconds": {"tidemill": 1.0, "polars": 2.0}, "results": {"tidemill": [[1.0]], "polars": [[1.1]]}}
    with pytest.raises(SystemExit, match="the results differ"):
        benchmarks.graph_figures("q", run, "")


def test_a_skewed_join_gives_the_rows_of_an_even_one_and_its_figure_names_the_target(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "WARM", 0)
    found = graphs.skew(folder, 1, 2)  # which stops where a row is lost or doubled
    monkeypatch.setattr(benchmarks, "measured", lambda *given: found)
    figure = benchmarks.skew_figure(folder, 1, 0.002)

    assert (figure.name, figure.value) == ("skewed_join_vs_even", found["skewed"])
    assert figure.ratio == found["skewed"] / found["even"]
    assert "<= 1.3" in figure.ratio_to
