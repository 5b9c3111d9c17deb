"""All benchmarks, each beside its peer in the same run; prints a table and writes benchmarks/results.json.

usage: python -m benchmarks [NAME …] [--quick]
Names: counts joins small shapes growth access gateway cli graphs; --quick: fewer rounds, smaller growth, and
results.json is left alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import graph_files, results, rows
from benchmarks import joins as join_rows
from benchmarks.results import Figure

ROOT = Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 2
PEER = "Structured Streaming, RocksDB"
console = Console()


def measured(module: str, *arguments: object) -> dict[str, Any]:
    """Run one contestant as a process of its own; the last line it prints is its JSON.

    Raises:
        SystemExit: it failed; what it said is shown.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with console.status(" ".join(command[1:])):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[1:])} failed:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shown = {key: value for key, value in result.items() if isinstance(value, float)}
    console.print(f"{' '.join(command[1:])}  {shown}", highlight=False)
    return result


@contextmanager
def written(batches: list[Any], files_per_batch: int) -> Iterator[Path]:
    """The batches as Parquet files in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    rows.write_batches(folder, batches, files_per_batch)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def check_state(peer: dict[str, Any], batches: list[Any]) -> None:
    if peer["state"] != list(rows.truth(batches)):
        raise SystemExit(f"The peer's state is wrong: {peer['state']} instead of {rows.truth(batches)}")


def streaming(batches: list[Any], files_per_batch: int, warm_up: int) -> float:
    """Median seconds a batch of the peer, after `warm_up` batches."""
    with written(batches, files_per_batch) as folder:
        peer = measured("benchmarks.peers.structured_streaming", folder, files_per_batch, CORES)
    check_state(peer, batches)
    return float(statistics.median(peer["seconds"][warm_up:]))


def counts(is_quick: bool) -> list[Figure]:
    """800k-row microbatches over 1M keys against Structured Streaming and a DuckDB file."""
    rounds = 2 if is_quick else 5
    command = "python -m benchmarks counts"
    batches = [rows.batch(seed) for seed in range(6 if is_quick else 12)]
    peer = streaming(batches, CORES, 2)
    duck_seconds, spread = file_rival(batches, rounds)
    colocated = measured("benchmarks.counts", "colocated", "--rounds", rounds)
    rate = rows.BATCH_ROWS / spread["median"]
    colocated_rate = rows.BATCH_ROWS / colocated["median"]
    peer_text = f"rows/s of {PEER} ({rows.BATCH_ROWS / peer:,.0f}), >= "
    duck_text = f"its time ({duck_seconds:.3f} s a batch), <= 1.2"
    speed = {
        "keyed_count_repartition_vs_structured_streaming": (rate, peer_text + "8"),
        "keyed_count_colocated_vs_structured_streaming": (colocated_rate, peer_text + "15"),
    }
    peer_rate = rows.BATCH_ROWS / peer
    return [
        *(Figure(name, value, "rows/s", value / peer_rate, text, command) for name, (value, text) in speed.items()),
        Figure(
            "keyed_count_vs_duckdb_file", spread["median"], "s a batch",
            spread["median"] / duck_seconds, duck_text, command,
        ),
        *memory_figures("keyed_count", spread["memory"], None, command),
    ]  # fmt: skip


def joins(is_quick: bool) -> list[Figure]:
    """800k rows joined with 100k in a batch block, in turns with Spark SQL, because the speed of the machine varies."""
    command, rounds = "python -m benchmarks joins", 3 if is_quick else 10
    peers, ours = [], []
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        join_rows.write(Path(folder))
        for _ in range(2):
            peers.append(measured("benchmarks.peers.spark_sql_join", folder, rounds, CORES))
            ours.append(measured("benchmarks.joins", folder, "--rounds", rounds, "--placement", "inline"))
        spread = measured("benchmarks.joins", folder, "--rounds", rounds, "--placement", "spread")
    if any(run["sums"] != peers[0]["sums"] for run in (*peers, *ours, spread)):
        raise SystemExit("The sums of the two joins differ")
    peer, own = (statistics.median(s for run in runs for s in run["seconds"]) for runs in (peers, ours))
    text = f"Spark SQL's time on the same rows ({peer:.3f} s)"
    return [
        Figure("batch_block_join_vs_spark_sql", own, "s a batch", own / peer, f"{text}, <= 1/3", command),
        Figure("batch_block_join_as_stages", spread["median"], "s a batch", spread["median"] / peer, text, command),
    ]


def file_rival(batches: list[Any], rounds: int) -> tuple[float, dict[str, Any]]:
    """Median seconds a batch of a DuckDB file, and our run; in turns, because the speed of the machine varies."""
    ducks, ours = [], []
    for _ in range(2):
        with written(batches, 1) as folder:
            duck = measured("benchmarks.peers.duckdb_file", folder, CORES)
        check_state(duck, batches)
        ducks += duck["seconds"][2:]
        ours.append(measured("benchmarks.counts", "repartition", "--rounds", rounds))
    median = statistics.median([second for run in ours for second in run["seconds"]])
    memory = {kind: max(run["memory"][kind] for run in ours) for kind in ours[0]["memory"]}
    return statistics.median(ducks), {"median": median, "memory": memory}


def memory_figures(name: str, peaks: dict[str, float], others: dict[str, float] | None, command: str) -> list[Figure]:
    """Peak memory of each kind of process, against the same at another size of the state."""
    text = "the same with 1M keys" if others else ""
    return [
        Figure(f"{name}_{kind}_memory", peak, "MB at most", peak / others[kind] if others else None, text, command)
        for kind, peak in peaks.items()
        if peak > 0
    ]


def small(is_quick: bool) -> list[Figure]:
    """1k-row microbatches on a state of 1M keys."""
    command = "python -m benchmarks small"
    rounds, per_round = (2, 10) if is_quick else (5, 20)
    batches = [rows.all_keys(), *(rows.batch(seed, 1_000) for seed in range(20 if is_quick else 60))]
    peer = streaming(batches, 1, 11)
    figures = []
    for placement, limit in (("fused", "1/5"), ("inline", "1/20")):
        shape = ["--batch-rows", 1_000, "--rounds", rounds, "--per-round", per_round]
        ours = measured("benchmarks.counts", "repartition", *shape, "--placement", placement, "--preload")
        text = f"batch time of {PEER} ({peer * 1000:.0f} ms), <= {limit}"
        name = f"small_batch_{placement}_vs_structured_streaming"
        figures.append(Figure(name, ours["median"] * 1000, "ms a batch", ours["median"] / peer, text, command))
        if placement == "inline":
            about = "1k rows on 1M keys, target 10 ms"
            figures.append(Figure("small_batch_inline_ms", ours["median"] * 1000, "ms a batch", None, about, command))
    return figures


def shapes(is_quick: bool) -> list[Figure]:
    """10k-row microbatches in one process, with more tasks and threads."""
    seconds = measured("benchmarks.shapes", "--rounds", 30 if is_quick else 100)
    compared = {
        "small_batch_64_threads_vs_2": ("512/64", "512/2", "the same with 2 threads"),
        "small_batch_256_threads_vs_2": ("512/256", "512/2", "the same with 2 threads"),
        "small_batch_4096_tasks_vs_4": ("4096/2", "4/2", "the same with 4 tasks"),
    }
    return [
        Figure(
            name, seconds[shape] * 1000, "ms a batch", seconds[shape] / seconds[other],
            f"{text} ({seconds[other] * 1000:.0f} ms), <= 1.5", "python -m benchmarks shapes",
        )
        for name, (shape, other, text) in compared.items()
    ]  # fmt: skip


def growth(is_quick: bool) -> list[Figure]:
    """Cost of a record when the state is 30 times larger; the mean, as rounds with large merges count in full. More
    records of a batch then have a key of their own, so the cost of a changed key stands beside it.
    """
    few, many = 1_000_000, 6_000_000 if is_quick else 30_000_000
    shape = ["--rounds", 2 if is_quick else 3, "--preload", "--keys"]
    little, large = (measured("benchmarks.counts", "repartition", *shape, keys) for keys in (few, many))
    costs = [1e6 * run["mean"] / rows.BATCH_ROWS for run in (little, large)]
    changed = [rows.batch(0, keys=keys)["k"].n_unique() for keys in (few, many)]
    by_key = [1e6 * run["mean"] / keys for run, keys in zip((little, large), changed, strict=True)]
    text = f"the same with 1M keys ({costs[0]:.2f} us), <= 1.5"
    key_text = f"the same with 1M keys ({by_key[0]:.2f} us); {changed[1]:,} and {changed[0]:,} keys a batch"
    command = "python -m benchmarks growth"
    return [
        Figure("state_growth_cost", costs[1], "us a record", costs[1] / costs[0], text, command),
        Figure("state_growth_cost_of_key", by_key[1], "us a changed key", by_key[1] / by_key[0], key_text, command),
        *memory_figures("state_growth", large["memory"], little["memory"], command),
    ]


def access(is_quick: bool) -> list[Figure]:
    """Appends, point reads, row events."""
    command = "python -m benchmarks access"
    appends = measured("benchmarks.access", "appends")
    reads = measured("benchmarks.access", "reads")
    events = measured("benchmarks.access", "events")
    return [
        Figure("row_events_per_second_core", events["events_per_second"], "events/s", None, "target 150,000", command),
        Figure("row_events_per_cpu_second", events["events_per_cpu_second"], "events/CPU s", None, "", command),
        Figure(
            "append_records_per_second", appends["records_per_second"], "records/s", None, "1k-record calls", command
        ),
        Figure("append_call_p50_ms", appends["call_p50_ms"], "ms", None, "1k-record calls", command),
        *(
            Figure(f"select_one_{name}", value, "ms", None, "1M keys, freshness probe", command)
            for name, value in reads.items()
        ),
    ]


def gateway(is_quick: bool) -> list[Figure]:
    """Appends, selects and queries over HTTP on MinIO, and the same queries in the process that asks."""
    command = "python -m benchmarks gateway"
    appends = measured("benchmarks.gateway", "appends")
    acks = measured("benchmarks.gateway", "acks")
    reads = measured("benchmarks.gateway", "reads")
    own, served = (measured("benchmarks.queries", where) for where in ("library", "gateway"))
    fan_out = "10 keys on 10 of 16 tasks, 100k keys, freshness probe"
    return [
        Figure("query_fan_out_p50_ms", own["p50_ms"], "ms", None, f"{fan_out}, target 5", command),
        Figure("gateway_query_p50_ms", served["p50_ms"], "ms", None, f"{fan_out}, MinIO, target 8", command),
        Figure(
            "gateway_records_per_cpu_second", appends["records_per_cpu_second"], "records/s a core", None,
            "1k-record batches of JSON lines on MinIO, target 100,000", command,
        ),
        Figure(
            "gateway_records_per_second", appends["records_per_second"], "records/s", None,
            f"4 connections; MinIO and the clients share the {CORES} cores", command,
        ),
        Figure(
            "gateway_ack_p50", acks["batch_p50_ms"], "ms", None, "1k-record batches on MinIO, target 20", command
        ),
        Figure("gateway_ack_one_record_p50", acks["one_record_p50_ms"], "ms", None, "on MinIO", command),
        Figure(
            "gateway_select_one_p50", reads["select_one_p50_ms"], "ms", None,
            "100k keys on MinIO, freshness probe, target 5", command,
        ),
        Figure("gateway_select_one_p99", reads["select_one_p99_ms"], "ms", None, "the same", command),
    ]  # fmt: skip


def cli(is_quick: bool) -> list[Figure]:
    """CPU of whole processes of the command line and of the client, against Python itself."""
    seconds = measured("benchmarks.cli", "--rounds", 5 if is_quick else 15)
    python = seconds["python"]
    targets = {"help": 0.25, "status": 0.5, "select": 0.5, "append": 0.5}
    text = f"`python -c pass` ({python:.3f} s)"
    command = "python -m benchmarks cli"
    return [
        *(
            Figure(
                f"cli_{name}_cpu_s", seconds[name], "CPU s", seconds[name] / python,
                f"{text}; target {target:g} CPU s", command,
            )
            for name, target in targets.items()
        ),
        Figure(
            "client_import_cpu_s", seconds["client_import"], "CPU s", seconds["client_import"] / python, text, command
        ),
    ]  # fmt: skip


GRAPH_TARGETS = {
    "csv_vs_spark_sql": ", <= 1/5", "parquet_vs_spark_sql": ", <= 1/4", "csv_vs_polars": ", <= 1.5",
    "pagerank_vs_spark_dataframes": ", <= 1/12", "pagerank_vs_polars": ", <= 1.2",
}  # fmt: skip


def graphs(is_quick: bool) -> list[Figure]:
    """Queries over files and PageRank beside Spark, Polars and DuckDB; growth with the data; a worker that dies."""
    rounds, scale = (1, 0.05) if is_quick else (5, 1.0)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as name:
        small, folder = Path(name) / "tenth", Path(name) / "whole"
        for each, size in ((small, scale / 10), (folder, scale)):
            each.mkdir()
            graph_files.write(each, size)
        for part in ("tables", "pagerank"):
            found = measured("benchmarks.graphs", folder, part, rounds, CORES)
            about = f", scale {scale:g}" if part == "tables" else ""
            figures += [figure for query, run in found.items() for figure in graph_figures(query, run, about)]
        figures += growth_figures(small, folder, rounds, scale)
        figures.append(recovery_figure(folder, min(rounds, 3), scale))
        figures.append(skew_figure(folder, rounds, scale))
    return figures


def graph_figures(query: str, run: dict[str, Any], about: str) -> list[Figure]:
    """One query of a graph against each other contestant. Stops where they come to other rows."""
    check_equal(query, list(run["results"].values()))
    own = run["seconds"].pop("tidemill")
    made = []
    for peer, seconds in run["seconds"].items():
        name = f"{query}_vs_{peer}"
        target = next((text for end, text in GRAPH_TARGETS.items() if name.endswith(end)), "")
        text = f"its time ({seconds:.3f} s){about}{target}"
        made.append(Figure(name, own, "s", own / seconds, text, "python -m benchmarks graphs"))
    return made


def growth_figures(small: Path, folder: Path, rounds: int, scale: float) -> list[Figure]:
    """Time and memory of TPC-H 12 on CSV against a tenth of the data."""
    little, large = (measured("benchmarks.graphs", each, "growth", rounds, CORES) for each in (small, folder))
    text, command = f"a tenth of the data, scale {scale / 10:g}", "python -m benchmarks graphs"
    time_text = f"{text} ({little['seconds']:.3f} s), <= 11"
    memory_text = f"{text} ({little['memory']:.0f} MB), <= 1.5"
    ratios = {kind: large[kind] / little[kind] for kind in ("seconds", "memory")}
    return [
        Figure("graph_growth_time", large["seconds"], "s", ratios["seconds"], time_text, command),
        Figure("graph_growth_memory", large["memory"], "MB at most", ratios["memory"], memory_text, command),
    ]


def recovery_figure(folder: Path, rounds: int, scale: float) -> Figure:
    """What one worker that dies half-way costs a graph on Spark."""
    run = measured("benchmarks.graphs", folder, "recovery", rounds, CORES)
    text = f"share read twice; ratio: time of the same on Spark ({run['whole']:.1f} s), scale {scale:g}, <= 1.25"
    ratio = run["killed"] / run["whole"]
    return Figure("graph_recovery_share", run["share"], "of the rows", ratio, text, "python -m benchmarks graphs")


def skew_figure(folder: Path, rounds: int, scale: float) -> Figure:
    """A join of which four of five rows have one key, beside the same rows with even keys."""
    run = measured("benchmarks.graphs", folder, "skew", rounds, CORES)
    text = f"the same rows with even keys ({run['even']:.3f} s), scale {scale:g}, <= 1.3; by the key alone it takes"
    ratio, command = run["skewed"] / run["even"], "python -m benchmarks graphs"
    alone = run["by_key"] / run["even"]
    return Figure("skewed_join_vs_even", run["skewed"], "s", ratio, f"{text} {alone:.2f} of that", command)


def check_equal(name: str, found: list[Any]) -> None:
    """Stop where contestants come to other rows; floats may differ by a millionth."""
    flat = [[value for row in rows for value in (row if isinstance(row, (list, tuple)) else [row])] for rows in found]
    for others in flat[1:]:
        pairs = zip(flat[0], others, strict=True)
        if not all(a == b or math.isclose(a, b, rel_tol=1e-6) for a, b in pairs):
            raise SystemExit(f"{name}: the results differ: {found}")


PARTS = {
    "counts": counts,
    "joins": joins,
    "small": small,
    "shapes": shapes,
    "growth": growth,
    "access": access,
    "gateway": gateway,
    "cli": cli,
    "graphs": graphs,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(PARTS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))} (choose from {', '.join(PARTS)})")
    figures: list[Figure] = []
    for name in arguments.names or PARTS:
        figures += PARTS[name](arguments.quick)
        if not arguments.quick:
            results.save(figures)
            results.write_table(ROOT / "docs/figures.md")
            results.write_table(ROOT / "docs/comparison.md", only=results.COMPARED)
            results.write_table(ROOT / "README.md", only=results.SHOWN_FIRST)
    results.show(console, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
