"""CPU of whole processes: commands on a small folder store, and Python itself, in turns.

usage: python -m benchmarks.cli --rounds N      (prints one JSON object: user and system seconds, medians)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import modules
from tidemill import InProcessCluster, LaunchConfig

KEYS = 1_000
APPENDS = 5
MODULE, TOPOLOGY = "KeyedCount", "counts"
COMMAND = [sys.executable, "-c", "from tidemill.cli.main import app; app()"]


def prepare(folder: Path) -> dict[str, list[str]]:
    """The processes to measure, by name, on a store with a few microbatches in it."""
    with InProcessCluster.create(store=folder / "store") as cluster:
        cluster.launch_module(modules.KeyedCount(), LaunchConfig(4, 2))
        depot = cluster.cluster_depot(MODULE, "*rows")
        for _ in range(APPENDS):
            depot.append_many([{"k": key, "v": 1} for key in range(KEYS)])
        cluster.wait_for_microbatch_processed_count(MODULE, TOPOLOGY, APPENDS * KEYS)
    record = folder / "record.jsonl"
    record.write_text(json.dumps({"k": 1, "v": 1}) + "\n")
    at = ["--store", str(folder / "store")]
    return {
        "python": [sys.executable, "-c", "pass"],
        "client_import": [sys.executable, "-c", "import tidemill.client"],
        "help": [*COMMAND, "--help"],
        "status": [*COMMAND, "status", *at],
        "select": [*COMMAND, "select", MODULE, "counts", "[1]", *at],
        "append": [*COMMAND, "append", MODULE, "rows", str(record), *at],
    }


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """User and system time of one process from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        # An installed package has its bytecode: the first round, which is not counted, writes it here.
        environment = os.environ | {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        commands = prepare(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(1 + rounds):
            for name, command in commands.items():
                used = cpu_seconds(command, environment)
                if turn:
                    seconds[name].append(used)
    print(json.dumps({name: statistics.median(found) for name, found in seconds.items()}))


if __name__ == "__main__":
    main()
