"""Figures as data and as a table: a name, a value with its unit, and the ratio to what was measured in the same run."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

FILE = Path(__file__).parent / "results.json"
BEGIN = "<!-- figures -->"
END = "<!-- end of figures -->"
SHOWN_FIRST = (
    "keyed_count_repartition_vs_structured_streaming", "small_batch_inline_vs_structured_streaming",
    "select_one_warm_p50_ms", "gateway_ack_p50",
)  # fmt: skip
"""What the README shows; docs/figures.md has all."""
COMPARED = (
    "keyed_count_repartition_vs_structured_streaming", "keyed_count_colocated_vs_structured_streaming",
    "small_batch_fused_vs_structured_streaming", "small_batch_inline_vs_structured_streaming",
    "keyed_count_vs_duckdb_file",
)  # fmt: skip
"""What docs/comparison.md shows."""


@dataclass(frozen=True)
class Figure:
    """`ratio` is value / peer's value, or as `ratio_to` says; None where nothing is compared."""

    name: str
    value: float
    unit: str
    ratio: float | None
    ratio_to: str
    command: str


def save(figures: list[Figure], path: Path = FILE) -> None:
    """Write the figures; those of the file that were not measured now are kept."""
    known = {figure["name"]: figure for figure in json.loads(path.read_text())} if path.exists() else {}
    known |= {figure.name: asdict(figure) for figure in figures}
    path.write_text(json.dumps(list(known.values()), indent=2) + "\n")


def write_table(page: Path, path: Path = FILE, only: Collection[str] = ()) -> None:
    """Put the saved figures between the marks of a Markdown page: all, or those of these names."""
    lines = ["| figure | value | ratio | compared with, in the same run | command |", "| --- | --- | --- | --- | --- |"]
    for figure in [Figure(**saved) for saved in json.loads(path.read_text())]:
        if only and figure.name not in only:
            continue
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        value = f"{figure.value:,.0f}" if figure.value >= 1_000 else f"{figure.value:.3g}"
        name = figure.name.replace("_", " ")
        lines.append(f"| {name} | {value} {figure.unit} | {ratio} | {figure.ratio_to} | `{figure.command}` |")
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1])


def show(console: Console, figures: list[Figure]) -> None:
    table = Table(title="benchmarks")
    for column in ("figure", "value", "unit", "ratio", "compared with"):
        table.add_column(column, justify="right" if column in ("value", "ratio") else "left")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        table.add_row(figure.name, f"{figure.value:,.3f}", figure.unit, ratio, figure.ratio_to)
    console.print(table)
